"""The sites' wrong programs: first the rules that their page rejects, then protections that are left out."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from product.durable import append, cursor, kernel_lock
from product.durable.cursor import Store
from product.durable.evidence import Position
from product.sites import drive, knowledge, states
from product.sites.entries import Entry
from product.sites.knowledge import Knowledge
from product.sites.states import Event, Outcome, Root, Spread, State
from tests.mutants.catalogue import mutant

DONE = "sites.first-apply/sites.done#1=kill"


def _seen_as(change: Callable[[Entry], Entry]) -> None:
    """Every entry is applied as another one; it is counted as what it is."""
    perform_effect = Knowledge._perform

    def perform_changed(known: Knowledge, effect: states.Effect, site: knowledge.Site, entry: Entry) -> str | None:
        changed = change(entry)
        if changed is not entry:
            known._keep_page(entry)
            effect = states.SIGNALS.decide(outcome=changed.outcome, spread=Spread.ALONE, root=changed.root).action
        return perform_effect(known, effect, site, changed)

    Knowledge._perform = perform_changed


@mutant("one failure kills a site that was ok", cells=[DONE])
def one_dead_kills_ok() -> None:
    states.FAILURES_TO_DEAD_AFTER_OK = 1


@mutant("five empty pages make a site cold", cells=[DONE])
def five_empties_are_cold() -> None:
    perform_effect = Knowledge._perform
    empties: dict[str, int] = {}

    def perform_counting(known: Knowledge, effect: states.Effect, site: knowledge.Site, entry: Entry) -> str | None:
        moved = perform_effect(known, effect, site, entry)
        if entry.outcome is Outcome.EMPTY and entry.site is not None:
            empties[entry.site] = empties.get(entry.site, 0) + 1
            if empties[entry.site] >= 5:
                site.failures = [entry.at] * states.FAILURES_TO_DEAD_AFTER_OK
                moved = knowledge._move(site, Event.FAILURE, entry)
        return moved

    Knowledge._perform = perform_counting


@mutant("a page that is gone counts for its site, and the root is not asked about", cells=[DONE])
def gone_without_root() -> None:
    _seen_as(lambda entry: replace(entry, root=Root.FAILS) if entry.outcome is Outcome.GONE else entry)


@mutant("a failure of a page is counted for its domain", cells=[DONE])
def page_counts_for_domain() -> None:
    _seen_as(
        lambda entry: (
            replace(entry, outcome=Outcome.GONE, root=Root.FAILS) if entry.outcome is Outcome.REFUSED else entry
        )
    )


# ------------------------------------------------------------------------------------------- protections left out


@mutant("failures that all sites have at once are counted for each", cells=[DONE])
def correlated_counted() -> None:
    states.OUTAGE_SITES = 10**9


@mutant("what an outage began with stays counted", cells=[DONE])
def outage_not_withdrawn() -> None:
    def keep(_known: Knowledge, _site: knowledge.Site, _entry: Entry) -> None:
        return None

    Knowledge._withdraw = keep


@mutant("a clock that was set back keeps a site dead for as long as it had been ahead", cells=[DONE])
def clock_step_unbounded() -> None:
    states.CLOCK_STEP_MAX_S = 10**12


@mutant("what is past its term stays", cells=["sites.expire/sites.done#1=kill"])
def nothing_expires() -> None:
    def hold(since: int, until: int, now: int) -> bool:
        return True

    knowledge.in_force = hold


@mutant("any failure of a dead site begins its term anew", cells=[DONE])
def dead_for_ever() -> None:
    move = knowledge._move

    def move_on(site: knowledge.Site, event: Event, entry: Entry) -> str:
        label = move(site, event, entry)
        if event is Event.FAILURE and site.state is State.DEAD:
            site.since, site.until = entry.at, entry.at + states.TERM_S[State.DEAD]
        return label

    knowledge._move = move_on


@mutant(
    "the cursor is saved before the state",
    cells=["sites.first-apply/sites.state/tmp-written#1=kill", "sites.first-apply/sites.state#1=error:ENOSPC"],
)
def sites_cursor_first() -> None:
    def save(store: Store, document: bytes | None, position: Position | None) -> None:
        if position is not None:
            cursor._put(store.cursor, position.format(), store.points.cursor, store.durability)
        if document is not None:
            cursor._put(store.effect, document, store.points.effect, store.durability)

    cursor.save = save


@mutant(
    "the cursor alone says what is applied: after a crash a failure is counted again",
    cells=["sites.second-apply/sites.applied#1=kill", "sites.first-apply/sites.applied#1=kill"],
)
def sites_no_applied() -> None:
    start_of = cursor.start_of

    def start_at_cursor(found: cursor.Found) -> cursor.Progress:
        progress = start_of(found)
        progress.applied = progress.offset
        return progress

    cursor.start_of = start_at_cursor


@mutant("a signal that is sent again is another signal", cells=["sites.first-apply/sites.journal#1=kill"])
def ids_not_looked_for() -> None:
    def all_of_them(journal: int, entries: list[Entry]) -> list[Entry]:
        return entries

    drive._new = all_of_them


@mutant(
    "a torn last line is not cut off before the next one is written",
    cells=["sites.first-apply/sites.journal#1=tamper:torn-journal"],
)
def torn_tail_kept() -> None:
    def size(descriptor: int) -> int:
        return os.fstat(descriptor).st_size

    append._cut_tail = size


@mutant("nothing of the sites is locked", cells=["sites.first-apply/sites.read#1=rival:apply"])
def sites_nothing_locked() -> None:
    def take_nothing(_lock: Any) -> None:
        return None

    kernel_lock.KernelLock.acquire = take_nothing
