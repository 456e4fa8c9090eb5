"""``explain`` in words: which row applies, who holds what, what is in the way, what would take it away. Pure.

Every refusing row of ``states.py`` and every value of its columns has words here; a test holds both lists together. The
words say what a person may look at or do. None tells anybody to delete something that nobody has looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from product.collector.claims import ClaimState, LockRecord, TakeoverPhase
from product.collector.errors import CollectorError
from product.collector.records import Pending, Phase
from product.collector.states import (
    REFUSALS,
    TABLES,
    Action,
    Attempt,
    Begun,
    Clock,
    Content,
    Displaced,
    Items,
    MainLock,
    Material,
    Present,
    Quarantine,
)
from product.durable.identity import Holder
from product.durable.owner import OwnerObserved
from product.durable.table import Row

COMMAND = "python -m product.collector"


@dataclass(frozen=True, slots=True)
class Advice:
    """Why a row refuses, what would take that away, and the command to run (after that)."""

    what: str
    unblocks: str
    run: str


_ALIVE = Advice(
    "the process that the formal lock names lives: the run in flight is its own",
    "that process ends. Then its lock is taken over and the run is finished",
    "recover",
)
_REUSED = Advice(
    "the formal lock names a process number that belongs to another process now",
    "the process with that number ends: then the holder is proven dead. Ending it is up to you, it is none of ours",
    "recover",
)
_UNPROVEN = Advice(
    "nobody can say whether the process that the formal lock names lives: another machine, or the system does not tell",
    "ask where it can be told: on the machine that wrote the lock, as a user who may see that process",
    "recover",
)
_FOREIGN_IDLE = Advice(
    "nothing holds the archive, but a formal lock is there, or a file in its quarantine that nobody accounts for",
    "find out whose file it is; if nobody's, move it out of the archive (keep it). Nothing here deletes it",
    "check",
)
_ODD = "put back what was there, from a copy; the facts above say which one is not as recorded"

ADVICE: Mapping[str, Advice] = {
    "I-AMBIGUOUS": _FOREIGN_IDLE,
    "B-AMBIGUOUS": _FOREIGN_IDLE,
    "Q-AMBIGUOUS": Advice(
        "a quarantined lock is not as pending lists it, one that is not listed is there, or a claim is from the future",
        "put back or move away that file (keep it); if the clock of this machine is wrong, set it",
        "check",
    ),
    "C-AMBIGUOUS": Advice(
        "the formal lock and the claim in pending do not go together: no death of ours leaves this", _ODD, "check"
    ),
    "T9": Advice(
        "the planned holder's lock is there, and its process number belongs to another process now",
        "the process with that number ends: then the lock is moved aside as a failed attempt",
        "recover",
    ),
    "T-AMBIGUOUS": Advice(
        "lock, quarantine and takeover record do not go together: no death of ours leaves this", _ODD, "check"
    ),
    "X-AMBIGUOUS": Advice(
        "a manifest is neither what it was before the run nor what the run makes of it, or what the run needs is unsound",
        _ODD,
        "check",
    ),
    **dict.fromkeys(("C-ALIVE", "C-HELD-ALIVE", "T1-ALIVE", "T3-ALIVE", "T4-ALIVE", "T5-ALIVE", "T10-ALIVE"), _ALIVE),
    **dict.fromkeys(("C-REUSED", "C-HELD-REUSED", "T1-REUSED", "T3-REUSED", "T4-REUSED", "T10-REUSED"), _REUSED),
    **dict.fromkeys(
        ("C-UNPROVEN", "C-HELD-UNPROVEN", "T1-UNPROVEN", "T3-UNPROVEN", "T4-UNPROVEN", "T5-UNPROVEN", "T10-UNPROVEN"),
        _UNPROVEN,
    ),
}
"""By label of a refusing row."""

FACTS: Mapping[Enum, str] = {
    Present.ABSENT: "there is none",
    Present.PRESENT: "there is one",
    Begun.THIS_HOUR: "of the hour that it is now",
    Begun.PAST_HOUR: "of an hour that has passed",
    Phase.BEGUN: "the hour is taken, the evidence is still to come",
    Phase.PREPARED: "the evidence is stored, the archive is as before",
    Phase.TRANSACTION_INTENT: "every byte of the run is fixed; the manifests are being put in place",
    Phase.BUSINESS_COMMITTED: "both manifests are in place; slot and latest come next",
    Phase.TERMINAL: "the run's record is durable; quarantined locks are being deleted",
    Phase.RELEASING: "all is done; the lock and pending go",
    Items.EXACT: "the quarantine is exactly what pending lists",
    Items.GONE: "something that pending lists is gone",
    Items.OTHER: "something listed has other content, or something is there that nobody lists",
    Clock.PLAUSIBLE: "no claim is from the future",
    Clock.FUTURE: "a claim is from the future, by the clock of this machine",
    ClaimState.PLANNED: "the lock may not exist yet",
    ClaimState.HELD: "the lock was created and read back",
    TakeoverPhase.NONE: "nobody takes over",
    TakeoverPhase.TAKEOVER_PLANNED: "a takeover is planned",
    TakeoverPhase.OLD_LOCK_QUARANTINED: "the dead holder's lock is in quarantine",
    TakeoverPhase.CREATE_PLANNED: "the new holder is written down, its lock may not exist yet",
    TakeoverPhase.NEW_LOCK_HELD: "the new holder has its lock",
    MainLock.ABSENT: "there is no formal lock",
    MainLock.OLD: "the formal lock is exactly the old claim's",
    MainLock.NEW: "the formal lock is exactly the new claim's",
    MainLock.THIRD: "the formal lock is something else than pending knows",
    Quarantine.ABSENT: "the old lock is not in quarantine",
    Quarantine.EXACT: "the old lock is in quarantine, exactly",
    Quarantine.OTHER: "something else has the old lock's place in quarantine",
    Quarantine.NONE_DUE: "the old lock never became a file",
    Attempt.ABSENT: "no failed attempt lies aside",
    Attempt.EXACT: "the failed attempt's lock lies aside, exactly",
    Attempt.OTHER: "something else has the failed attempt's place in quarantine",
    Holder.SELF: "this very process",
    Holder.ALIVE: "it lives",
    Holder.DEAD: "it is dead, proven",
    Holder.REUSED: "its number belongs to another process now",
    Holder.UNPROVEN: "nothing is proven about it",
    Content.BASE: "as it was before the run",
    Content.CANDIDATE: "as the run makes it",
    Content.THIRD: "neither as before the run nor as the run makes it",
    Displaced.NONE: "nothing lies beside",
    Displaced.BASE: "the old content lies beside, to be deleted",
    Displaced.THIRD: "something unknown lies beside",
    Material.SOUND: "what the next step needs is there",
    Material.UNSOUND: "what the next step needs is not what it must be",
}
"""Every value of every column."""

STATE_LOCK: Mapping[str, tuple[str, str]] = {
    "S1": ("nobody holds it", ""),
    "S2": ("its last holder died; the next command moves that metadata aside", ""),
    "S3": ("this process holds it", ""),
    "S4": ("its holder is at work", "that process ends its command; --wait SECONDS waits for it"),
    "S5": ("its metadata names a number that another process has now", "the process with that number ends"),
    "S6": ("nobody can say whether its holder lives", "ask on its machine, as a user who may see that process"),
    "S7": ("its metadata is not of this program", "find out whose file it is, and move it away (keep it)"),
    "S8": ("nobody can say whether its holder lives", "ask on its machine, as a user who may see that process"),
}
"""By row of product.durable.owner: what it means for the next command, and what would unblock a refusal."""
_STATE_LOCK_CODES = {
    "S4": "E_STATE_LOCKED",
    "S5": "E_STATE_OWNER_PID_REUSE",
    "S6": "E_STATE_OWNER_UNPROVEN",
    "S7": "E_STATE_OWNER_THIRD_CONTENT",
    "S8": "E_STATE_OWNER_UNPROVEN",
}


@dataclass(frozen=True, slots=True)
class View:
    """What was found. ``rows`` are empty where ``fault`` says why no row could be found.

    ``owner_row`` is the row of the state lock's metadata; ``others``: what the next command would refuse besides.
    """

    pending: Pending | None
    rows: Sequence[Row[Action]]
    facts: Mapping[str, Enum]
    unsound: str
    holder: tuple[LockRecord, Holder] | None
    owner: OwnerObserved
    owner_row: str
    fault: CollectorError | None
    others: Sequence[CollectorError]


@dataclass(frozen=True, slots=True)
class InTheWay:
    code: str
    what: str
    unblocks: str

    def as_json(self) -> dict[str, str]:
        return {"code": self.code, "what": self.what, "unblocks": self.unblocks}


def asked_holder(pending: Pending) -> LockRecord | None:
    """Whose life the tables ask about: the new planned claim's, the old one's, or that of the claim held."""
    takeover = pending.takeover
    if takeover.phase in (TakeoverPhase.TAKEOVER_PLANNED, TakeoverPhase.OLD_LOCK_QUARANTINED):
        return takeover.old
    return takeover.new or (pending.claim.record if pending.claim else None)


def explain(view: View) -> dict[str, object]:
    """The answer as JSON fields."""
    row = view.rows[-1] if view.rows else None
    obstacles = in_the_way(view)
    return {
        "table": table_of(row.label) if row else None,
        "row": row.label if row else None,
        "rows": [row.label for row in view.rows],
        "action": row.action.value if row else None,
        "refuses": obstacles[0].code if obstacles else None,
        "facts": {name: value.value for name, value in view.facts.items()},
        "unsound": view.unsound or None,
        "file": view.fault.detail.get("file") if view.fault else None,
        "pointer": view.fault.detail.get("pointer") if view.fault else None,
        "holder": _describe_holder(view),
        "state_lock": _describe_owner(view),
        "in_the_way": [obstacle.as_json() for obstacle in obstacles],
        "run": command_of(view),
    }


def in_the_way(view: View) -> list[InTheWay]:
    """Everything that the next command would refuse for, in the order in which it would come to it."""
    found = []
    if (code := _STATE_LOCK_CODES.get(view.owner_row)) is not None:
        found.append(InTheWay(code, f"the StateLock: {STATE_LOCK[view.owner_row][0]}", STATE_LOCK[view.owner_row][1]))
    if view.fault is not None:
        unblocks = (
            "put back the file as it was, from a copy, or find out who wrote it. Nothing here repairs it by guess"
        )
        found.append(InTheWay(view.fault.code, view.fault.message, unblocks))
    row = view.rows[-1] if view.rows else None
    if row is not None and row.action in REFUSALS:
        advice = ADVICE[row.label]
        found.append(InTheWay(REFUSALS[row.action], advice.what, advice.unblocks))
    found += [InTheWay(error.code, error.message, "find out who changed it, and put it back") for error in view.others]
    return found


def command_of(view: View) -> str:
    row = view.rows[-1] if view.rows else None
    if view.owner_row == "S4":
        return f"{COMMAND} recover --wait 60"
    if row is None or view.others:
        return f"{COMMAND} check"
    if row.action in REFUSALS:
        return f"{COMMAND} {ADVICE[row.label].run}"
    if row.action in (Action.NOTHING, Action.WAIT_FOR_COMMIT):
        return f"{COMMAND} commit --evidence FILE"
    return f"{COMMAND} recover"


def table_of(label: str) -> str:
    return next(name for name, table in TABLES.items() if label in [row.label for row in table.rows])


def _describe_holder(view: View) -> dict[str, object] | None:
    if view.holder is None:
        return None
    record, holder = view.holder
    return {
        "pid": record.holder.pid,
        "run_id": record.run_id,
        "since": record.lock_created_at,
        "answer": holder.value,
        "words": FACTS[holder],
    }


def _describe_owner(view: View) -> dict[str, object]:
    record = view.owner.record or {}
    return {
        "row": view.owner_row,
        "pid": record.get("pid"),
        "run_id": record.get("run_id"),
        "since": record.get("acquired_at"),
        "words": STATE_LOCK[view.owner_row][0],
    }


def in_words(view: View) -> list[str]:
    """The same for people: at most one screen."""
    row = view.rows[-1] if view.rows else None
    obstacles = in_the_way(view)
    what = f"row {row.label} of table {table_of(row.label)}: {row.action.value}" if row else "no row could be found"
    lines = [("", what), ("in flight", _pending_in_words(view))]
    for name, value in view.facts.items():
        lines.append(("facts", f"{name} {value.value}: {FACTS[value]}"))
    if view.unsound:
        lines.append(("facts", view.unsound))
    if view.holder is not None:
        record, holder = view.holder
        text = f"pid {record.holder.pid} for run {record.run_id} since {record.lock_created_at}: {FACTS[holder]}"
        lines.append(("holder", text))
    owner = _describe_owner(view)
    who = f" (pid {owner['pid']} for {owner['run_id']} since {owner['since']})" if owner["pid"] else ""
    lines.append(("state lock", f"{owner['words']}{who}"))
    for obstacle in obstacles:
        lines += [("in the way", f"{obstacle.code}: {obstacle.what}"), ("unblocks", obstacle.unblocks)]
    lines.append(("in the way", "nothing") if not obstacles else ("then", "as the row of that moment says"))
    lines.append(("run", command_of(view)))
    return [f"{label:<12}{text}".rstrip() if label else text for label, text in lines]


def _pending_in_words(view: View) -> str:
    pending = view.pending
    if pending is None:
        return "nothing" if view.rows else "unknown"
    claim = f", claim {pending.claim.state.value}" if pending.claim else ""
    takeover = "" if pending.takeover.phase is TakeoverPhase.NONE else f", takeover {pending.takeover.phase.value}"
    return f"run {pending.run_id} of {pending.hour}, phase {pending.phase.value}{claim}{takeover}"
