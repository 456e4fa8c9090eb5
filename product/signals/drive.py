"""Observe, decide, perform: once a command, under the lock. Each answer names the row that was taken."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from killpoints import reach
from product.durable.cursor import RESUME, Action, Progress, Store
from product.durable.table import Row
from product.signals import perform, points
from product.signals.errors import SignalsError
from product.signals.layout import Layout
from product.signals.observe import Observed, describe, observe, recount
from product.signals.states import ADOPT, REFUSALS, Adoption, Claim
from product.signals.tally import Tally

DIFFERENCES_MAX = 10


def require_resumable(layout: Layout, seen: Observed) -> Row[Action]:
    """The row of what was seen. Raises SignalsError where that row refuses."""
    row = RESUME.decide(**seen.found.facts)
    match row.action:
        case Action.START | Action.REPLAY_ALL | Action.REPLAY | Action.GO_ON:
            return row
        case Action.REFUSE_CHANGED | Action.REFUSE_STATE:
            raise _refusal(layout, seen, row.label, row.action)
        case _ as never:
            assert_never(never)


@dataclass(frozen=True, slots=True)
class Scanned:
    """The row that was taken, what was done, the counts as they are now, and how many lines were rejected."""

    row: str
    progress: Progress
    tally: Tally
    rejected: int


def scan(layout: Layout, store: Store, source: int, batch_bytes: int) -> Scanned:
    """Count what is new in the file."""
    seen = observe(layout, source)
    row = require_resumable(layout, seen)
    rejected = seen.tally.lines_rejected
    progress = perform.count(store, source, seen.found, seen.tally, batch_bytes)
    reach(points.DONE)
    return Scanned(row.label, progress, seen.tally, seen.tally.lines_rejected - rejected)


def adopt(layout: Layout, store: Store, source: int, claim: Claim) -> tuple[str, bool]:
    """Accept the file in place of the one that was counted; the row, and whether anything was to be done."""
    seen = observe(layout, source)
    row = ADOPT.decide(**seen.found.facts, claim=claim)
    match row.action:
        case Adoption.NEXT_EPOCH:
            perform.start_epoch(store, source, seen.found, seen.tally)
        case Adoption.KEEP_EPOCH:
            require_recount(source, seen, row.label)
            perform.keep_epoch(store, source, seen.found, seen.tally)
        case Adoption.FINISH:
            perform.finish_epoch(store, seen.found)
        case Adoption.NOTHING:
            pass
        case Adoption.REFUSE_CHANGED | Adoption.REFUSE_STATE:
            raise _refusal(layout, seen, row.label, row.action)
        case _ as never:
            assert_never(never)
    reach(points.DONE)
    return row.label, row.action is not Adoption.NOTHING


def _refusal(layout: Layout, seen: Observed, row: str, action: Enum) -> SignalsError:
    words, detail = describe(seen.found, layout)
    return SignalsError(REFUSALS[action], f"row {row}: {words}", **detail).at_row(row)


def require_recount(source: int, seen: Observed, row: str) -> Tally:
    """Count the file again from nothing. Raises E_SIGNAL_RECOUNT, with the first differences, unless it is equal."""
    applied = seen.found.evidence.applied if seen.found.evidence else 0
    again = recount(source, applied)
    counted = seen.tally.of_this_epoch()
    differing = {
        key: {"counted": counted.get(key, 0), "recounted": again.counts.get(key, 0)}
        for key in sorted(counted.keys() | again.counts.keys())
        if counted.get(key, 0) != again.counts.get(key, 0)
    }
    if differing or again.rejected != seen.tally.rejected:
        first = dict(list(differing.items())[:DIFFERENCES_MAX])
        raise SignalsError(
            "E_SIGNAL_RECOUNT",
            f"a recount up to {applied} differs in {len(differing)} keys"
            + ("" if again.rejected == seen.tally.rejected else " and in what it rejects"),
            differing=len(differing),
            first=first,
        ).at_row(row)
    return again
