"""Reads the state and the file into the facts that the tables ask for. Writes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from product.durable import cursor
from product.durable.cursor import EffectState, Found
from product.durable.errors import JsonRejected, UnexpectedContent
from product.durable.evidence import Evidence
from product.durable.lines import open_source, read_blocks
from product.durable.plain import read_file
from product.signals.errors import SignalsError
from product.signals.layout import Layout
from product.signals.records import SIZE_MAX_BYTES, parse_counts
from product.signals.tally import Tally


@dataclass(frozen=True, slots=True)
class Observed:
    """``tally`` is empty where there are no counts, or none that can be read."""

    found: Found
    tally: Tally


@contextmanager
def opened_source(file: Path) -> Iterator[int]:
    """The file of signals. Raises SignalsError E_INPUT where there is none that can be read."""
    try:
        source = open_source(file)
    except UnexpectedContent as error:
        raise SignalsError("E_INPUT", error.message, file=str(file)) from error
    except OSError as error:
        raise SignalsError("E_INPUT", f"cannot read {file}: {error.strerror}", file=str(file)) from error
    try:
        yield source
    finally:
        os.close(source)


def observe_counts(layout: Layout) -> tuple[Tally, Evidence] | None:
    """counts.json, or None. Raises JsonRejected naming the file, UnexpectedContent for what is no plain file."""
    data = read_file(layout.counts, size_max_bytes=SIZE_MAX_BYTES)
    if data is None:
        return None
    try:
        return parse_counts(data)
    except JsonRejected as error:
        raise JsonRejected(f"{layout.counts.name}: {error.reason}", error.pointer) from error


def observe(layout: Layout, source: int) -> Observed:
    """Everything that the tables ask about."""
    tally = Tally()

    def load() -> Evidence | None:
        nonlocal tally
        seen = observe_counts(layout)
        if seen is None:
            return None
        tally, evidence = seen
        return evidence

    return Observed(cursor.observe(layout.cursor, source, load), tally)


def recount(source: int, applied: int) -> Tally:
    """What the lines up to ``applied`` count to, from nothing."""
    tally = Tally()
    for block in read_blocks(source, 0, applied):
        tally.apply(block)
    return tally


def describe(found: Found, layout: Layout) -> tuple[str, dict[str, object]]:
    """For a refusal: what was found, and what a person may do about it."""
    words = ", ".join(f"{name} {fact.value}" for name, fact in found.facts.items())
    detail: dict[str, object] = {name: fact.value for name, fact in found.facts.items()}
    return f"{words}; {found.why}" if found.why else words, detail | {"repair": _repair(found, layout)}


def _repair(found: Found, layout: Layout) -> str:
    """SPEC.md, "Repair"."""
    if found.effect is EffectState.BROKEN or found.evidence is None:
        return (
            f"put a copy of {layout.counts} back; or move it and {layout.cursor} away: the next scan counts the whole file "
            "afresh, and what earlier files had counted is gone"
        )
    if found.cursor in (cursor.CursorState.BROKEN, cursor.CursorState.AHEAD):
        return f"move {layout.cursor} away: the next scan reads the whole file again and counts nothing twice"
    if found.source is cursor.SourceState.MOVED:
        return "adopt --moved if it is the same file in another place; adopt if all its lines are new"
    return "adopt: all lines of this file are new, and what was counted is kept; or bring the old file back"
