"""What a reopen may do, as exhaustive tables (SPEC.md, collector.md section 4). Pure: observed facts in, one row out.

Each table is expanded over the full product of its columns at import; a state with no row or with two is an error there.
The labels are the spec's. Nothing in flight, or only a begun run: one table answers. Otherwise three are asked, the
quarantine items, the claim or takeover, and the transaction; the first that refuses is the answer, so that a refusal
comes before any step of a takeover and leaves no trace. Else the claim or takeover acts; where its row says CONTINUE,
the transaction does.
"""

from __future__ import annotations

import enum
from collections.abc import Set
from enum import Enum

from product.collector.records import ClaimState, Phase, TakeoverPhase
from product.durable.identity import Holder
from product.durable.table import ANY, Row, Table


class MainLock(enum.Enum):
    """What lies at the formal lock's path."""

    ABSENT = "ABSENT"
    OLD = "OLD"  # exactly the old claim
    NEW = "NEW"  # exactly the planned or held new claim
    THIRD = "THIRD"  # anything else, wrong type included


class Quarantine(enum.Enum):
    """What lies at the quarantine path of the old claim."""

    ABSENT = "ABSENT"
    EXACT = "EXACT"
    OTHER = "OTHER"
    NONE_DUE = "NONE_DUE"  # the old claim never became a file


class Attempt(enum.Enum):
    """What lies at the quarantine path of the planned new claim."""

    ABSENT = "ABSENT"
    EXACT = "EXACT"
    OTHER = "OTHER"


class Items(enum.Enum):
    """The quarantine directory against what pending lists."""

    EXACT = "EXACT"  # everything listed is there exactly, nothing else is
    GONE = "GONE"  # something listed is not there any more
    OTHER = "OTHER"  # something listed has other content, or something is there that nobody listed


class Clock(enum.Enum):
    """The times that the claims carry against the clock of now (V003 2.2: a future time is ambiguous)."""

    PLAUSIBLE = "PLAUSIBLE"
    FUTURE = "FUTURE"


class Content(enum.Enum):
    """A manifest's segment against the transaction."""

    BASE = "BASE"
    CANDIDATE = "CANDIDATE"
    THIRD = "THIRD"


class Displaced(enum.Enum):
    """What an exchange brought out and left beside."""

    NONE = "NONE"
    BASE = "BASE"
    THIRD = "THIRD"


class Material(enum.Enum):
    """Whether what the phase's action will need is what it must be: evidence and archive, or slot and latest."""

    SOUND = "SOUND"
    UNSOUND = "UNSOUND"


class Begun(enum.Enum):
    """The hour of a begun run against the hour of now."""

    THIS_HOUR = "THIS_HOUR"
    PAST_HOUR = "PAST_HOUR"


class Present(enum.Enum):
    ABSENT = "ABSENT"
    PRESENT = "PRESENT"


class Action(enum.Enum):
    """Everything that perform can do, and the refusals."""

    NOTHING = "nothing is in flight"
    CONTINUE = "ask the next table"
    WAIT_FOR_COMMIT = "leave the begun run"
    ABORT_BEGUN = "write ABORTED to its slot, latest, remove pending"
    CREATE_LOCK = "create the lock"
    ADVANCE_HELD = "advance to HELD"
    PLAN_TAKEOVER = "plan takeover"
    PLAN_TAKEOVER_NONE_DUE = "plan takeover (old claim never became a file)"
    REMOVE_PENDING = "remove pending"
    RENAME_OLD = "check volumes, rename old into quarantine"
    ADVANCE_QUARANTINED = "advance to OLD_LOCK_QUARANTINED"
    PLAN_CREATE = "write CREATE_PLANNED for this process"
    CREATE_NEW_LOCK = "create the new lock"
    REBIND = "rebind: same generation, claim_attempt + 1"
    ADVANCE_NEW_HELD = "advance to NEW_LOCK_HELD"
    RENAME_ATTEMPT = "move that lock aside as a failed attempt"
    REMOVE_DISPLACED = "delete the base left beside"
    BUILD_CANDIDATES = "build the candidates from the stored evidence"
    PUT_CARDS = "put cards in place"
    PUT_RUNS = "put runs in place"
    ADVANCE_COMMITTED = "advance to BUSINESS_COMMITTED"
    SETTLE = "slot, latest, then TERMINAL"
    CLEAN = "fold a takeover, delete the listed items, then RELEASING"
    RELEASE = "remove own lock, then pending"
    REFUSE_BUSY = "E_FORMAL_LOCK_BUSY"
    REFUSE_REUSED = "E_FORMAL_LOCK_PID_REUSE"
    REFUSE_UNPROVEN = "E_FORMAL_LOCK_OWNER_UNPROVEN"
    REFUSE_AMBIGUOUS = "E_RECOVERY_AMBIGUOUS"


REFUSALS = {
    Action.REFUSE_BUSY: "E_FORMAL_LOCK_BUSY",
    Action.REFUSE_REUSED: "E_FORMAL_LOCK_PID_REUSE",
    Action.REFUSE_UNPROVEN: "E_FORMAL_LOCK_OWNER_UNPROVEN",
    Action.REFUSE_AMBIGUOUS: "E_RECOVERY_AMBIGUOUS",
}

_DEAD_OR_REUSED = frozenset({Holder.DEAD, Holder.REUSED})
_DUE_OR_NOT = frozenset({Quarantine.EXACT, Quarantine.NONE_DUE})
_ANY_PHASE = frozenset(Phase) - {Phase.BEGUN}


def _ask_first(label: str, *, reused: bool = True, **when: Enum | Set[Enum]) -> tuple[Row[Action], ...]:
    """The rows that refuse because the holder is not proven dead ("refuse" in collector.md section 4)."""
    answers = [("ALIVE", Action.REFUSE_BUSY), ("UNPROVEN", Action.REFUSE_UNPROVEN)]
    if reused:
        answers.insert(1, ("REUSED", Action.REFUSE_REUSED))
    return tuple(Row(f"{label}-{name}", {**when, "holder": Holder[name]}, action) for name, action in answers)



IDLE = Table(
    {"lock": Present, "items": Present},
    (
        Row("I1", {"lock": Present.ABSENT, "items": Present.ABSENT}, Action.NOTHING),
        Row("I-AMBIGUOUS", None, Action.REFUSE_AMBIGUOUS),
    ),
)

BEGUN = Table(
    {"hour": Begun, "lock": Present, "items": Present},
    (
        Row(
            "B1",
            {"hour": Begun.THIS_HOUR, "lock": Present.ABSENT, "items": Present.ABSENT},
            Action.WAIT_FOR_COMMIT,
        ),
        Row("B2", {"hour": Begun.PAST_HOUR, "lock": Present.ABSENT, "items": Present.ABSENT}, Action.ABORT_BEGUN),
        Row("B-AMBIGUOUS", None, Action.REFUSE_AMBIGUOUS),
    ),
)

ITEMS = Table(
    {"phase": Phase, "items": Items, "clock": Clock},
    (
        Row("Q1", dict(phase=_ANY_PHASE, items=Items.EXACT, clock=Clock.PLAUSIBLE), Action.CONTINUE),
        Row("Q2", dict(phase=frozenset({Phase.TERMINAL, Phase.RELEASING}), items=Items.GONE, clock=Clock.PLAUSIBLE),
            Action.CONTINUE),
        Row("Q-AMBIGUOUS", None, Action.REFUSE_AMBIGUOUS),
    ),
)  # fmt: skip

CLAIM = Table(
    {"claim": ClaimState, "main_lock": MainLock, "holder": Holder, "phase": Phase},
    (
        Row("C1", dict(claim=ClaimState.PLANNED, main_lock=MainLock.ABSENT, holder=Holder.SELF, phase=Phase.PREPARED),
            Action.CREATE_LOCK),
        Row("C2", dict(claim=ClaimState.PLANNED, main_lock=MainLock.ABSENT, holder=Holder.DEAD, phase=Phase.PREPARED),
            Action.PLAN_TAKEOVER_NONE_DUE),
        Row("C3", dict(claim=ClaimState.PLANNED, main_lock=MainLock.OLD, holder=Holder.SELF, phase=Phase.PREPARED),
            Action.ADVANCE_HELD),
        Row("C4", dict(claim=ClaimState.PLANNED, main_lock=MainLock.OLD, holder=Holder.DEAD, phase=Phase.PREPARED),
            Action.PLAN_TAKEOVER),
        Row("C5", dict(claim=ClaimState.HELD, main_lock=MainLock.OLD, holder=Holder.SELF,
                       phase=_ANY_PHASE), Action.CONTINUE),
        Row("C6", dict(claim=ClaimState.HELD, main_lock=MainLock.OLD, holder=Holder.DEAD,
                       phase=_ANY_PHASE), Action.PLAN_TAKEOVER),
        Row("C7", dict(claim=ClaimState.HELD, main_lock=MainLock.ABSENT, holder=ANY, phase=Phase.RELEASING),
            Action.REMOVE_PENDING),
        *_ask_first("C", claim=ClaimState.PLANNED, main_lock=frozenset({MainLock.ABSENT, MainLock.OLD}),
                    phase=Phase.PREPARED),
        *_ask_first("C-HELD", claim=ClaimState.HELD, main_lock=MainLock.OLD, phase=_ANY_PHASE),
        Row("C-AMBIGUOUS", None, Action.REFUSE_AMBIGUOUS),
    ),
)  # fmt: skip

_T = TakeoverPhase
TAKEOVER = Table(
    {"takeover": TakeoverPhase, "main_lock": MainLock, "quarantine": Quarantine, "attempt": Attempt, "holder": Holder},
    (
        Row("T1", dict(takeover=_T.TAKEOVER_PLANNED, main_lock=MainLock.OLD, quarantine=Quarantine.ABSENT,
                       attempt=Attempt.ABSENT, holder=Holder.DEAD), Action.RENAME_OLD),
        Row("T2", dict(takeover=_T.TAKEOVER_PLANNED, main_lock=MainLock.ABSENT, quarantine=Quarantine.EXACT,
                       attempt=Attempt.ABSENT, holder=ANY), Action.ADVANCE_QUARANTINED),
        Row("T3", dict(takeover=_T.TAKEOVER_PLANNED, main_lock=MainLock.ABSENT, quarantine=Quarantine.NONE_DUE,
                       attempt=Attempt.ABSENT, holder=Holder.DEAD), Action.PLAN_CREATE),
        Row("T4", dict(takeover=_T.OLD_LOCK_QUARANTINED, main_lock=MainLock.ABSENT, quarantine=Quarantine.EXACT,
                       attempt=Attempt.ABSENT, holder=Holder.DEAD), Action.PLAN_CREATE),
        Row("T5", dict(takeover=_T.CREATE_PLANNED, main_lock=MainLock.ABSENT, quarantine=_DUE_OR_NOT,
                       attempt=Attempt.ABSENT, holder=Holder.SELF), Action.CREATE_NEW_LOCK),
        Row("T6", dict(takeover=_T.CREATE_PLANNED, main_lock=MainLock.ABSENT, quarantine=_DUE_OR_NOT,
                       attempt=frozenset({Attempt.ABSENT, Attempt.EXACT}), holder=_DEAD_OR_REUSED), Action.REBIND),
        Row("T7", dict(takeover=_T.CREATE_PLANNED, main_lock=MainLock.NEW, quarantine=_DUE_OR_NOT,
                       attempt=Attempt.ABSENT, holder=Holder.SELF), Action.ADVANCE_NEW_HELD),
        Row("T8", dict(takeover=_T.CREATE_PLANNED, main_lock=MainLock.NEW, quarantine=_DUE_OR_NOT,
                       attempt=Attempt.ABSENT, holder=Holder.DEAD), Action.RENAME_ATTEMPT),
        Row("T9", dict(takeover=_T.CREATE_PLANNED, main_lock=MainLock.NEW, quarantine=ANY,
                       attempt=ANY, holder=Holder.REUSED), Action.REFUSE_AMBIGUOUS),
        Row("T10", dict(takeover=_T.NEW_LOCK_HELD, main_lock=MainLock.NEW, quarantine=_DUE_OR_NOT,
                        attempt=Attempt.ABSENT, holder=Holder.SELF), Action.CONTINUE),
        Row("T11", dict(takeover=_T.NEW_LOCK_HELD, main_lock=MainLock.NEW, quarantine=_DUE_OR_NOT,
                        attempt=Attempt.ABSENT, holder=Holder.DEAD), Action.PLAN_TAKEOVER),
        *_ask_first("T1", takeover=_T.TAKEOVER_PLANNED, main_lock=MainLock.OLD, quarantine=Quarantine.ABSENT,
                    attempt=Attempt.ABSENT),
        *_ask_first("T3", takeover=_T.TAKEOVER_PLANNED, main_lock=MainLock.ABSENT, quarantine=Quarantine.NONE_DUE,
                    attempt=Attempt.ABSENT),
        *_ask_first("T4", takeover=_T.OLD_LOCK_QUARANTINED, main_lock=MainLock.ABSENT, quarantine=Quarantine.EXACT,
                    attempt=Attempt.ABSENT),
        *_ask_first("T5", reused=False, takeover=_T.CREATE_PLANNED, quarantine=_DUE_OR_NOT, attempt=Attempt.ABSENT,
                    main_lock=frozenset({MainLock.ABSENT, MainLock.NEW})),
        *_ask_first("T10", takeover=_T.NEW_LOCK_HELD, main_lock=MainLock.NEW, quarantine=_DUE_OR_NOT,
                    attempt=Attempt.ABSENT),
        Row("T-AMBIGUOUS", None, Action.REFUSE_AMBIGUOUS),
    ),
)  # fmt: skip

TRANSACTION = Table(
    {"phase": Phase, "cards": Content, "runs": Content, "displaced": Displaced, "material": Material},
    (
        Row("X0", dict(phase=Phase.TRANSACTION_INTENT, cards=Content.CANDIDATE,
                       runs=frozenset({Content.BASE, Content.CANDIDATE}), displaced=Displaced.BASE, material=Material.SOUND),
            Action.REMOVE_DISPLACED),
        Row("X1", dict(phase=Phase.PREPARED, cards=Content.BASE, runs=Content.BASE, displaced=Displaced.NONE, material=Material.SOUND),
            Action.BUILD_CANDIDATES),
        Row("X2", dict(phase=Phase.TRANSACTION_INTENT, cards=Content.BASE, runs=Content.BASE,
                       displaced=Displaced.NONE, material=Material.SOUND), Action.PUT_CARDS),
        Row("X3", dict(phase=Phase.TRANSACTION_INTENT, cards=Content.CANDIDATE, runs=Content.BASE,
                       displaced=Displaced.NONE, material=Material.SOUND), Action.PUT_RUNS),
        Row("X4", dict(phase=Phase.TRANSACTION_INTENT, cards=Content.CANDIDATE, runs=Content.CANDIDATE,
                       displaced=Displaced.NONE, material=Material.SOUND), Action.ADVANCE_COMMITTED),
        Row("X5", dict(phase=Phase.BUSINESS_COMMITTED, cards=Content.CANDIDATE, runs=Content.CANDIDATE,
                       displaced=Displaced.NONE, material=Material.SOUND), Action.SETTLE),
        Row("X6", dict(phase=Phase.TERMINAL, cards=Content.CANDIDATE, runs=Content.CANDIDATE,
                       displaced=Displaced.NONE, material=Material.SOUND), Action.CLEAN),
        Row("X7", dict(phase=Phase.RELEASING, cards=Content.CANDIDATE, runs=Content.CANDIDATE,
                       displaced=Displaced.NONE, material=Material.SOUND), Action.RELEASE),
        Row("X-AMBIGUOUS", None, Action.REFUSE_AMBIGUOUS),
    ),
)  # fmt: skip

TABLES = {
    "Idle": IDLE,
    "Begun": BEGUN,
    "Items": ITEMS,
    "Claim": CLAIM,
    "Takeover": TAKEOVER,
    "Transaction": TRANSACTION,
}
