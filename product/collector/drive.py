"""Observe, decide, perform, until nothing is left to do: the one engine of the normal way and of every recovery.

Holding the StateLock, each turn reads the disk afresh, asks the tables in their order, and does the one action of the
row. The labels of all rows taken go into the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import assert_never

from product.collector import observe, perform, points
from product.collector.claims import TakeoverPhase
from product.collector.errors import CollectorError
from product.collector.index import open_archive
from product.collector.layout import Layout, hour_number
from product.collector.perform import Desk
from product.collector.records import Pending, Phase
from product.collector.slots import Slot, parse_slot
from product.collector.states import (
    BEGUN,
    CLAIM,
    IDLE,
    ITEMS,
    REFUSALS,
    TAKEOVER,
    TRANSACTION,
    Action,
    Attempt,
    Begun,
    Items,
    Present,
)
from product.durable.table import Row, Table

TURNS_MAX = 400


@dataclass(slots=True)
class Journey:
    """What driving did: the rows taken in order, and the terminal record of the run that it finished, if any."""

    rows: list[str] = field(default_factory=list)
    finished: Slot | None = None
    waiting: Pending | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The rows that answered; the action of the last is the one to do, or the refusal."""

    rows: tuple[Row[Action], ...]
    facts: dict[str, Enum]
    attempt: Attempt = Attempt.ABSENT
    unsound: str = ""

    @property
    def action(self) -> Action:
        return self.rows[-1].action

    @property
    def labels(self) -> list[str]:
        return [row.label for row in self.rows]


def decide(
    layout: Layout, pending: Pending | None, now: datetime, memory: observe.Memory, committing: str | None = None
) -> Decision:
    """The one row that applies now. Reads only; a refusal of any table comes before an action of another."""
    leftovers = observe.observe_leftovers(layout)
    items = observe.observe_items(layout, pending, leftovers)
    if pending is None or pending.phase is Phase.BEGUN:
        facts: dict[str, Enum] = {
            "lock": observe.observe_presence(layout.formal_lock),
            "items": Present.PRESENT if items is Items.OTHER else Present.ABSENT,
        }
        if pending is None:
            return Decision((IDLE.decide(**facts),), facts)
        # whoever brings a begun run's evidence, however late, brings it to its own hour
        passed = hour_number(pending.hour) < int(now.timestamp()) // 3600 and pending.run_id != committing
        facts["hour"] = Begun.PAST_HOUR if passed else Begun.THIS_HOUR
        return Decision((BEGUN.decide(**facts),), facts)
    guard: dict[str, Enum] = {
        "phase": pending.phase,
        "items": items,
        "clock": observe.observe_clock(pending, now),
    }
    claim = observe.observe_claim(layout, pending)
    found = observe.observe_transaction(layout, pending, memory)
    transaction: dict[str, Enum] = {
        "phase": pending.phase,
        "cards": found.cards,
        "runs": found.runs,
        "displaced": found.displaced,
        "material": found.material,
    }
    asked = ((ITEMS, guard), _ask_about_claim(pending, claim), (TRANSACTION, transaction))
    rows = []
    for table, facts in asked:
        rows.append(table.decide(**facts))
        if rows[-1].action in REFUSALS:
            return Decision((rows[-1],), facts, unsound=found.unsound)
    if rows[1].action is not Action.CONTINUE:
        return Decision((rows[1],), asked[1][1], claim.attempt)
    return Decision((rows[1], rows[2]), transaction)


def _ask_about_claim(pending: Pending, claim: observe.ClaimFacts) -> tuple[Table[Action], dict[str, Enum]]:
    assert pending.claim is not None
    facts: dict[str, Enum] = {"main_lock": claim.main_lock, "holder": claim.holder}
    if pending.takeover.phase is TakeoverPhase.NONE:
        return CLAIM, facts | {"claim": pending.claim.state, "phase": pending.phase}
    return TAKEOVER, facts | {
        "takeover": pending.takeover.phase,
        "quarantine": claim.quarantine,
        "attempt": claim.attempt,
    }


def drive(desk: Desk, committing: str | None = None) -> Journey:
    """Go on until nothing is in flight, or a begun run waits for its commit. Raises CollectorError with the row.

    ``committing``: the id of the run whose evidence is here now; if it is the begun one, it is not given up.
    """
    journey = Journey()
    for _ in range(TURNS_MAX):
        pending = observe.observe_pending(desk.layout)
        if pending is not None and pending.phase is Phase.PREPARED:
            _read_archive(desk)
        decision = decide(desk.layout, pending, datetime.now(UTC), desk.memory, committing)
        if decision.action in REFUSALS:
            raise _refusal(decision)
        if decision.action is Action.NOTHING:
            return journey
        journey.rows += decision.labels
        assert pending is not None
        if decision.action is Action.WAIT_FOR_COMMIT:
            journey.waiting = pending
            return journey
        if pending.terminal is not None:
            journey.finished = parse_slot(pending.terminal.data)
        elif decision.action is Action.ABORT_BEGUN:
            journey.finished = perform.aborted_slot(pending)
        try:
            _perform(desk, pending, decision)
        except CollectorError as error:
            raise error.at_row(decision.labels[-1]) from error.__cause__
    raise CollectorError("E_RECOVERY_AMBIGUOUS", f"no end after {TURNS_MAX} turns", rows=journey.rows[-20:])


def _read_archive(desk: Desk) -> None:
    """Once, and before the first step: an archive that cannot be read is a refusal, not a failure half way."""
    if desk.memory.archive is None:
        try:
            desk.memory.archive = open_archive(desk.layout)
        except CollectorError as error:
            desk.memory.unsound = error.message


def _refusal(decision: Decision) -> CollectorError:
    row = decision.rows[-1]
    found = observe.describe(decision.facts)
    words = ", ".join(f"{key} {value}" for key, value in sorted(found.items()))
    words += f"; {decision.unsound}" if decision.unsound else ""
    return CollectorError(REFUSALS[row.action], f"row {row.label}: {words}", found=found).at_row(row.label)


def _perform(desk: Desk, pending: Pending, decision: Decision) -> None:
    match decision.action:
        case Action.CREATE_LOCK:
            perform.create_lock(desk, pending)
        case Action.ADVANCE_HELD:
            perform.advance_held(desk, pending)
        case Action.PLAN_TAKEOVER:
            perform.plan_takeover(desk, pending, True)
        case Action.PLAN_TAKEOVER_NONE_DUE:
            perform.plan_takeover(desk, pending, False)
        case Action.RENAME_OLD:
            perform.rename_old(desk, pending)
        case Action.ADVANCE_QUARANTINED:
            perform.advance_quarantined(desk, pending)
        case Action.PLAN_CREATE:
            perform.plan_create(desk, pending)
        case Action.CREATE_NEW_LOCK:
            perform.create_new_lock(desk, pending)
        case Action.REBIND:
            perform.rebind(desk, pending, decision.attempt is Attempt.EXACT)
        case Action.ADVANCE_NEW_HELD:
            perform.advance_new_held(desk, pending)
        case Action.RENAME_ATTEMPT:
            perform.rename_attempt(desk, pending)
        case Action.REMOVE_DISPLACED:
            perform.remove_displaced(desk, pending)
        case Action.BUILD_CANDIDATES:
            perform.build_candidates(desk, pending)
        case Action.PUT_CARDS:
            perform.put_manifest(desk, pending, "cards", points.CARDS, points.CARDS_NEW)
        case Action.PUT_RUNS:
            perform.put_manifest(desk, pending, "runs", points.RUNS, points.RUNS_NEW)
        case Action.ADVANCE_COMMITTED:
            perform.advance_committed(desk, pending)
        case Action.SETTLE:
            perform.settle(desk, pending)
        case Action.CLEAN:
            perform.clean(desk, pending)
        case Action.RELEASE:
            perform.release(desk, pending)
        case Action.REMOVE_PENDING:
            perform.remove_pending(desk, pending)
        case Action.ABORT_BEGUN:
            perform.abort_begun(desk, pending)
        case Action.NOTHING | Action.CONTINUE | Action.WAIT_FOR_COMMIT:
            raise AssertionError(decision.action)
        case (
            Action.REFUSE_BUSY
            | Action.REFUSE_REUSED
            | Action.REFUSE_UNPROVEN
            | Action.REFUSE_AMBIGUOUS
        ):  # fmt: skip
            raise AssertionError(decision.action)
        case _ as never:
            assert_never(never)
