"""Observe, decide, perform: once a command, under the lock. Each answer names the row that was taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import assert_never

from killpoints import reach
from product.durable.cursor import RESUME, Action, Progress
from product.durable.kernel_lock import KernelLock
from product.durable.paths import require_plain_directory
from product.durable.table import Row
from product.sites import observe, perform, points
from product.sites.entries import Entry, parse_entry
from product.sites.errors import SitesError
from product.sites.knowledge import Knowledge
from product.sites.layout import Layout


@dataclass(frozen=True, slots=True)
class Done:
    """The row that was taken, what was done, and what is known now. ``already``: ids that the journal had."""

    row: str
    progress: Progress
    known: Knowledge
    recorded: int
    already: int


def require_resumable(layout: Layout, seen: observe.Observed) -> Row[Action]:
    """The row of what was seen. Raises SitesError where that row refuses."""
    row = RESUME.decide(**seen.found.facts)
    match row.action:
        case Action.START | Action.REPLAY_ALL | Action.REPLAY | Action.GO_ON:
            return row
        case Action.REFUSE_CHANGED | Action.REFUSE_STATE:
            code = "E_SITE_JOURNAL" if row.action is Action.REFUSE_CHANGED else "E_SITE_STATE"
            words, detail = observe.describe(seen.found, layout)
            raise SitesError(code, f"row {row.label}: {words}", **detail).at_row(row.label)
        case _ as never:
            assert_never(never)


@contextmanager
def locked(layout: Layout, wait_s: float) -> Iterator[int]:
    """Hold the lock over the state directory and its journal, which are made. Every command that writes goes through."""
    require_plain_directory(layout.state.parent)
    perform.make_state(layout)  # which refuses a link of that name
    with KernelLock(layout.lock, points=points.LOCK, wait_s=wait_s):
        if observe.is_first_use(layout):
            perform.make_journal(layout)
        with observe.opened_journal(layout, to_write=True) as journal:
            yield journal


Chooser = Callable[[Knowledge], list[Entry]]


def record(layout: Layout, choose: Chooser, *, wait_s: float, batch_bytes: int = perform.BATCH_BYTES) -> Done:
    """Put what ``choose`` makes of the saved knowledge into the journal, then apply the journal to the state.

    An entry whose id the journal has is not put there again; one with other content is a conflict and stops everything.
    """
    with locked(layout, wait_s) as journal:
        seen = observe.observe(layout, journal)
        row = require_resumable(layout, seen)
        entries = choose(seen.known)
        new = _new(journal, entries)
        if new:
            perform.append_entries(journal, new)
        progress = perform.apply(layout, journal, seen.found, seen.known, batch_bytes)
        reach(points.DONE)
    return Done(row.label, progress, seen.known, len(new), len(entries) - len(new))


def _new(journal: int, entries: list[Entry]) -> list[Entry]:
    """Those whose id is not in the journal. Raises SitesError E_SITE_ID_CONFLICT before anything is written."""
    if not entries:
        return []
    there = observe.find_lines(journal, {entry.id for entry in entries})
    new: dict[str, Entry] = {}
    for entry in entries:
        first = new.get(entry.id)
        if first is None and entry.id not in there:
            new[entry.id] = entry
        elif not _same(entry, there[entry.id] if first is None else first.format().rstrip(b"\n")):
            raise SitesError("E_SITE_ID_CONFLICT", f"id {entry.id!r} is that of another signal", id=entry.id)
    return list(new.values())


def _same(entry: Entry, line: bytes) -> bool:
    """The time and the site may differ: a client that sends again sends later, and a list of suffixes may be newer."""
    known = parse_entry(line)
    return replace(entry, at=known.at, site=known.site) == known
