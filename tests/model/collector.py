"""A model of the collector's reopen tables, written from the spec alone (product/collector/SPEC.md): which row, then what.

A :class:`Disk` is what the disk says, as far as the tables ask for it. A process makes one :class:`Turn` after the other:
the labels of its rows and the durable changes of its action, one by one; it may die after each. Nothing here is shared
with the product, and nothing is known about files: :mod:`tests.model.collector_disk` reads a real disk as one of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

FOLD = 2  # of the listed items, so many are counted


@dataclass(frozen=True, slots=True)
class Disk:
    """``holder``, ``planner``: whether this process made the claim in force, the planned claim (else somebody dead).

    lock:   None, "CLAIM" (the bytes of the claim in force) or "PLANNED" (those of the planned claim)
    aside:  the old claim's lock lies in quarantine under its own name, and nobody has listed it yet
    attempt: the planned claim's lock lies in quarantine as a failed attempt, and nobody has listed it yet
    listed: items that pending lists and that are there, up to :data:`FOLD`
    cards, runs: whether the candidate is in place; ``cards_out``, ``runs_out``: the exchanged-out base lies beside
    """

    phase: str | None = None
    claim: str = "PLANNED"
    holder: bool = True
    takeover: str = "NONE"
    materialised: bool = True
    planner: bool | None = None
    lock: str | None = None
    aside: bool = False
    attempt: bool = False
    listed: int = 0
    cards: bool = False
    runs: bool = False
    out: str | None = None
    slot: bool = False
    latest: bool = False

    def dead(self) -> Disk:
        """After the process has died: whoever made a claim is nobody who lives."""
        return replace(self, holder=False, planner=None if self.planner is None else False)


class NoRow(Exception):
    """No row of the tables applies: the spec says E_RECOVERY_AMBIGUOUS."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The rows that answered, and the disk after each durable change of the action, in order."""

    rows: tuple[str, ...]
    changes: tuple[Disk, ...]


def take_turn(disk: Disk, *, exchanged: bool) -> Turn | None:
    """What a process does next; None when nothing is left. ``exchanged``: the archive had a base before this run.

    Raises NoRow.
    """
    if disk.phase is None:
        if disk.lock or disk.aside or disk.attempt or disk.listed:
            raise NoRow(f"a lock or a quarantine item without pending: {disk}")
        return None
    row, changes = _ask_about_claim(disk) if disk.takeover == "NONE" else _ask_about_takeover(disk)
    if changes is not None:
        return Turn((row,), tuple(changes))
    transaction, changes = _ask_about_transaction(disk, exchanged)
    return Turn((row, transaction), tuple(changes))


def journey(disk: Disk, *, exchanged: bool) -> list[Turn]:
    """All turns of a process that is not disturbed. Raises NoRow, and AssertionError where it would not end."""
    turns: list[Turn] = []
    while (turn := take_turn(disk, exchanged=exchanged)) is not None:
        turns.append(turn)
        disk = turn.changes[-1]
        assert len(turns) < 60, f"no end in sight: {disk}"
    return turns


def disks_after_death(disk: Disk, *, exchanged: bool) -> frozenset[Disk]:
    """Every disk that one process which starts on ``disk`` can leave by dying, the one that it found among them."""
    left = {disk.dead()}
    for turn in journey(disk, exchanged=exchanged):
        left.update(change.dead() for change in turn.changes)
    return frozenset(left)


def closure(start: Disk, *, exchanged: bool) -> dict[Disk, int]:
    """Every disk that any number of crashes can leave, and after how many at least. Raises NoRow."""
    seen, frontier, depth = {start: 0}, [start], 0
    while frontier:
        depth += 1
        found = {left for disk in frontier for left in disks_after_death(disk, exchanged=exchanged)}
        frontier = [disk for disk in found if disk not in seen]
        seen.update(dict.fromkeys(frontier, depth))
    return seen


def _ask_about_claim(disk: Disk) -> tuple[str, list[Disk] | None]:
    """SPEC.md, Claim."""
    match disk.claim, disk.lock, disk.holder:
        case "PLANNED", None, True:
            return "C1", [replace(disk, lock="CLAIM")]
        case "PLANNED", None, False:
            return "C2", [_planned(disk, materialised=False)]
        case "PLANNED", "CLAIM", True:
            return "C3", [replace(disk, claim="HELD")]
        case "PLANNED", "CLAIM", False:
            return "C4", [_planned(disk, materialised=True)]
        case "HELD", "CLAIM", True:
            return "C5", None
        case "HELD", "CLAIM", False:
            return "C6", [_planned(disk, materialised=True)]
        case "HELD", None, _ if disk.phase == "RELEASING":
            return "C7", [Disk(cards=disk.cards, runs=disk.runs, slot=disk.slot, latest=disk.latest)]
    raise NoRow(f"claim: {disk}")


def _planned(disk: Disk, materialised: bool) -> Disk:
    """A takeover that starts after the terminal record goes back to TERMINAL, so that its own item is cleaned."""
    phase = "TERMINAL" if disk.phase == "RELEASING" else disk.phase
    return replace(disk, takeover="TAKEOVER_PLANNED", materialised=materialised, phase=phase)


def _ask_about_takeover(disk: Disk) -> tuple[str, list[Disk] | None]:
    """SPEC.md, Takeover. Whoever made the old claim is dead; a process asks only about who made the planned one."""
    bound = replace(disk, takeover="CREATE_PLANNED", planner=True)
    match disk.takeover, disk.lock:
        case "TAKEOVER_PLANNED", "CLAIM" if disk.materialised and not disk.aside:
            return "T1", [replace(disk, lock=None, aside=True)]
        case "TAKEOVER_PLANNED", None if disk.materialised and disk.aside:
            listed = min(FOLD, disk.listed + 1)
            return "T2", [replace(disk, takeover="OLD_LOCK_QUARANTINED", aside=False, listed=listed)]
        case "TAKEOVER_PLANNED", None if not disk.materialised and not disk.holder:
            return "T3", [bound]
        case "OLD_LOCK_QUARANTINED", None if not disk.holder:
            return "T4", [bound]
        case "CREATE_PLANNED", None if disk.planner and not disk.attempt:
            return "T5", [replace(disk, lock="PLANNED")]
        case "CREATE_PLANNED", None if not disk.planner:
            listed = min(FOLD, disk.listed + disk.attempt)
            return "T6", [replace(bound, attempt=False, listed=listed)]
        case "CREATE_PLANNED", "PLANNED" if disk.planner:
            held = replace(disk, takeover="NEW_LOCK_HELD", claim="HELD", holder=True, planner=None, lock="CLAIM")
            return "T7", [held]
        case "CREATE_PLANNED", "PLANNED":
            return "T8", [replace(disk, lock=None, attempt=True)]
        case "NEW_LOCK_HELD", "CLAIM" if disk.holder:
            return "T10", None
        case "NEW_LOCK_HELD", "CLAIM":
            return "T11", [_planned(disk, materialised=True)]
    raise NoRow(f"takeover: {disk}")


def _ask_about_transaction(disk: Disk, exchanged: bool) -> tuple[str, list[Disk]]:
    """SPEC.md, Transaction."""
    match disk.phase, disk.cards, disk.runs:
        case "TRANSACTION_INTENT", True, _ if disk.out is not None:
            return "X0", [replace(disk, out=None)]
        case "PREPARED", False, False:
            return "X1", [replace(disk, phase="TRANSACTION_INTENT")]
        case "TRANSACTION_INTENT", False, False:
            return "X2", _put(replace(disk, cards=True), "cards", exchanged)
        case "TRANSACTION_INTENT", True, False:
            return "X3", _put(replace(disk, runs=True), "runs", exchanged)
        case "TRANSACTION_INTENT", True, True:
            return "X4", [replace(disk, phase="BUSINESS_COMMITTED")]
        case "BUSINESS_COMMITTED", True, True:
            return "X5", list(_settle(disk))
        case "TERMINAL", True, True if disk.takeover != "NONE":
            return "X6", [replace(disk, takeover="NONE", materialised=True)]
        case "TERMINAL", True, True:
            cleaned = [replace(disk, listed=left) for left in range(disk.listed - 1, -1, -1)]
            return "X6", [*cleaned, replace(disk, listed=0, phase="RELEASING")]
        case "RELEASING", True, True:
            released = replace(disk, lock=None)
            return "X7", [released, *(_ask_about_claim(released)[1] or [])]
    raise NoRow(f"transaction: {disk}")


def _put(there: Disk, manifest: str, exchanged: bool) -> list[Disk]:
    """A new segment is renamed into place; a replaced one is exchanged, and what came out is deleted after a look at it."""
    return [replace(there, out=manifest), there] if exchanged else [there]


def _settle(disk: Disk) -> Iterator[Disk]:
    """Slot, latest, then the terminal record, which folds a takeover: from here on its items are only to be cleaned."""
    if not disk.slot:
        disk = replace(disk, slot=True)
        yield disk
    if not disk.latest:
        disk = replace(disk, latest=True)
        yield disk
    yield replace(disk, phase="TERMINAL", takeover="NONE", materialised=True)
