"""Reads the state and the journal into the facts that the tables ask for. Writes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from product.durable import canonical, cursor
from product.durable.cursor import CursorState, EffectState, Found, SourceState
from product.durable.errors import JsonRejected, UnexpectedContent
from product.durable.evidence import Evidence
from product.durable.lines import open_source, read_blocks
from product.durable.plain import open_plain, read_file
from product.sites.errors import SitesError
from product.sites.knowledge import Knowledge
from product.sites.layout import Layout
from product.sites.records import SIZE_MAX_BYTES, parse_knowledge

_ID = b'"id":"'


@dataclass(frozen=True, slots=True)
class Observed:
    """``known`` is empty where there is no state, or none that can be read."""

    found: Found
    known: Knowledge


@contextmanager
def opened_journal(layout: Layout, *, to_write: bool) -> Iterator[int]:
    """The journal. Raises SitesError E_SITE_JOURNAL where there is none."""
    try:
        journal = open_plain(layout.journal, os.O_RDWR if to_write else os.O_RDONLY)
    except FileNotFoundError as error:
        raise SitesError("E_SITE_JOURNAL", f"{layout.journal} is not there", repair=GONE_REPAIR) from error
    try:
        yield journal
    finally:
        os.close(journal)


@contextmanager
def opened_lines(path: Path) -> Iterator[int]:
    """A file of somebody else's. Raises SitesError E_INPUT where there is none that can be read."""
    try:
        source = open_source(path)
    except (UnexpectedContent, OSError) as error:
        raise SitesError("E_INPUT", f"cannot read {path}: {error}", file=str(path)) from error
    try:
        yield source
    finally:
        os.close(source)


def observe_knowledge(layout: Layout) -> tuple[Knowledge, Evidence] | None:
    """state.json, or None. Raises JsonRejected naming the file, UnexpectedContent for what is no plain file."""
    data = read_file(layout.knowledge, size_max_bytes=SIZE_MAX_BYTES)
    if data is None:
        return None
    try:
        return parse_knowledge(data)
    except JsonRejected as error:
        raise JsonRejected(f"{layout.knowledge.name}: {error.reason}", error.pointer) from error


def is_first_use(layout: Layout) -> bool:
    """Whether nothing says that there has ever been a journal."""
    return not any(os.path.lexists(path) for path in (layout.journal, layout.knowledge, layout.cursor))


def observe(layout: Layout, journal: int) -> Observed:
    """Everything that Resume asks about."""
    known = Knowledge()

    def load() -> Evidence | None:
        nonlocal known
        seen = observe_knowledge(layout)
        if seen is None:
            return None
        known, evidence = seen
        return evidence

    found = cursor.observe(layout.cursor, journal, load)
    if found.source is SourceState.MOVED:  # a state directory that was copied or restored takes its journal along
        found = replace(found, source=SourceState.SAME)
    return Observed(found, known)


def find_lines(journal: int, ids: set[str]) -> dict[str, bytes]:
    """The entries of these ids that are in the journal, without their ends: reads all of it, and parses none."""
    wanted = {canonical_id(name): name for name in ids}
    found: dict[str, bytes] = {}
    for block in read_blocks(journal, 0, os.fstat(journal).st_size):
        for line in block.lines():
            raw = id_in(line)
            if raw is not None and (name := wanted.get(raw)) is not None:
                found[name] = line
    return found


def id_in(line: bytes) -> bytes | None:
    """The id as it stands in the line: RFC 8785 puts it before "outcome", and a text in JSON has no bare quotes."""
    start = line.find(_ID)
    end = line.find(b'","outcome":', start)
    return line[start + len(_ID) : end] if 0 <= start < end else None


def canonical_id(name: str) -> bytes:
    """How an id stands in a line, without its quotes."""
    return canonical.encode(name)[1:-1]


def replay(journal: int, end: int) -> Knowledge:
    """What the entries up to ``end`` amount to, from nothing."""
    known = Knowledge()
    for block in read_blocks(journal, 0, end):
        known.apply_block(block)
    return known


GONE_REPAIR = "put the journal back; or move state.json and cursor.json away too: then nothing is known any more"


def describe(found: Found, layout: Layout) -> tuple[str, dict[str, object]]:
    """For a refusal: what was found, and what a person may do about it (SPEC.md, "Repair")."""
    words = ", ".join(f"{name} {fact.value}" for name, fact in found.facts.items())
    detail: dict[str, object] = {name: fact.value for name, fact in found.facts.items()}
    if found.effect is EffectState.SOUND and found.cursor in (CursorState.BROKEN, CursorState.AHEAD):
        repair = f"move {layout.cursor} away: the next command reads the whole journal and applies nothing twice"
    else:
        repair = (
            f"if {layout.journal} is the right one, move {layout.knowledge} and {layout.cursor} away: "
            "the next command makes them again from it"
        )
    return f"{words}; {found.why}" if found.why else words, detail | {"repair": repair}
