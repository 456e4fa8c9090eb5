"""What a reopen may do, as exhaustive tables (SPEC.md, collector.md section 4). Pure: observed facts in, one row out.

Each table is expanded over the full product of its columns at import; a state with no row or with two is an error there.
The labels are the spec's. Nothing in flight, or only a begun run: one table answers. Otherwise three are asked, the
quarantine items, the claim or takeover, and the transaction; the first that refuses is the answer, so that a refusal
comes before any step of a takeover and leaves no trace. Else the claim or takeover acts; where its row says CONTINUE,
the transaction does.
"""

from __future__ import annotations

import enum
from enum import Enum
from typing import Any

from product.collector.claims import ClaimState, TakeoverPhase
from product.collector.records import Phase
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

ANY_PHASE = "PREPARED / TRANSACTION_INTENT / BUSINESS_COMMITTED / TERMINAL / RELEASING"


def _table(columns: dict[str, type[Enum]], *lines: tuple[str | Action, ...]) -> Table[Action]:
    """A table from lines as the spec has them: label, one word a column ("A / B": either, "any", "else"), action."""
    return Table(columns, tuple(_row(columns, line) for line in lines))


def _row(columns: dict[str, type[Enum]], line: tuple[str | Action, ...]) -> Row[Action]:
    label, *words, action = line
    assert isinstance(label, str) and isinstance(action, Action)
    if words == ["else"]:
        return Row(label, None, action)
    when = {name: _values(column, str(word)) for (name, column), word in zip(columns.items(), words, strict=True)}
    return Row(label, when, action)


def _values(column: type[Enum], word: str) -> Any:
    if word == "any":
        return ANY
    values = frozenset(column(value) for value in word.split(" / "))
    return next(iter(values)) if len(values) == 1 else values


# fmt: off

IDLE = _table(
    {"lock": Present, "items": Present},
    # row   lock      items     only action
    ("I1", "ABSENT", "ABSENT", Action.NOTHING),
    ("I-AMBIGUOUS", "else", Action.REFUSE_AMBIGUOUS),
)

BEGUN = _table(
    {"hour": Begun, "lock": Present, "items": Present},
    # row   hour         lock      items     only action
    ("B1", "THIS_HOUR", "ABSENT", "ABSENT", Action.WAIT_FOR_COMMIT),
    ("B2", "PAST_HOUR", "ABSENT", "ABSENT", Action.ABORT_BEGUN),
    ("B-AMBIGUOUS", "else", Action.REFUSE_AMBIGUOUS),
)

ITEMS = _table(
    {"phase": Phase, "items": Items, "clock": Clock},
    # row   phase                   items    clock        only action
    ("Q1", ANY_PHASE,              "EXACT", "PLAUSIBLE", Action.CONTINUE),
    ("Q2", "TERMINAL / RELEASING", "GONE",  "PLAUSIBLE", Action.CONTINUE),
    ("Q-AMBIGUOUS", "else", Action.REFUSE_AMBIGUOUS),
)

CLAIM = _table(
    {"claim": ClaimState, "main_lock": MainLock, "holder": Holder, "phase": Phase},
    # row                claim      main_lock       holder      phase        only action
    ("C1",              "PLANNED", "ABSENT",       "SELF",     "PREPARED",  Action.CREATE_LOCK),
    ("C2",              "PLANNED", "ABSENT",       "DEAD",     "PREPARED",  Action.PLAN_TAKEOVER_NONE_DUE),
    ("C3",              "PLANNED", "OLD",          "SELF",     "PREPARED",  Action.ADVANCE_HELD),
    ("C4",              "PLANNED", "OLD",          "DEAD",     "PREPARED",  Action.PLAN_TAKEOVER),
    ("C5",              "HELD",    "OLD",          "SELF",     ANY_PHASE,   Action.CONTINUE),
    ("C6",              "HELD",    "OLD",          "DEAD",     ANY_PHASE,   Action.PLAN_TAKEOVER),
    ("C7",              "HELD",    "ABSENT",       "any",      "RELEASING", Action.REMOVE_PENDING),
    ("C-ALIVE",         "PLANNED", "ABSENT / OLD", "ALIVE",    "PREPARED",  Action.REFUSE_BUSY),
    ("C-REUSED",        "PLANNED", "ABSENT / OLD", "REUSED",   "PREPARED",  Action.REFUSE_REUSED),
    ("C-UNPROVEN",      "PLANNED", "ABSENT / OLD", "UNPROVEN", "PREPARED",  Action.REFUSE_UNPROVEN),
    ("C-HELD-ALIVE",    "HELD",    "OLD",          "ALIVE",    ANY_PHASE,   Action.REFUSE_BUSY),
    ("C-HELD-REUSED",   "HELD",    "OLD",          "REUSED",   ANY_PHASE,   Action.REFUSE_REUSED),
    ("C-HELD-UNPROVEN", "HELD",    "OLD",          "UNPROVEN", ANY_PHASE,   Action.REFUSE_UNPROVEN),
    ("C-AMBIGUOUS", "else", Action.REFUSE_AMBIGUOUS),
)

TAKEOVER = _table(
    {"takeover": TakeoverPhase, "main_lock": MainLock, "quarantine": Quarantine, "attempt": Attempt, "holder": Holder},
    # row             takeover                main_lock       quarantine          attempt           holder           only action
    ("T1",           "TAKEOVER_PLANNED",     "OLD",          "ABSENT",           "ABSENT",         "DEAD",          Action.RENAME_OLD),
    ("T2",           "TAKEOVER_PLANNED",     "ABSENT",       "EXACT",            "ABSENT",         "any",           Action.ADVANCE_QUARANTINED),
    ("T3",           "TAKEOVER_PLANNED",     "ABSENT",       "NONE_DUE",         "ABSENT",         "DEAD",          Action.PLAN_CREATE),
    ("T4",           "OLD_LOCK_QUARANTINED", "ABSENT",       "EXACT",            "ABSENT",         "DEAD",          Action.PLAN_CREATE),
    ("T5",           "CREATE_PLANNED",       "ABSENT",       "EXACT / NONE_DUE", "ABSENT",         "SELF",          Action.CREATE_NEW_LOCK),
    ("T6",           "CREATE_PLANNED",       "ABSENT",       "EXACT / NONE_DUE", "ABSENT / EXACT", "DEAD / REUSED", Action.REBIND),
    ("T7",           "CREATE_PLANNED",       "NEW",          "EXACT / NONE_DUE", "ABSENT",         "SELF",          Action.ADVANCE_NEW_HELD),
    ("T8",           "CREATE_PLANNED",       "NEW",          "EXACT / NONE_DUE", "ABSENT",         "DEAD",          Action.RENAME_ATTEMPT),
    ("T9",           "CREATE_PLANNED",       "NEW",          "any",              "any",            "REUSED",        Action.REFUSE_AMBIGUOUS),
    ("T10",          "NEW_LOCK_HELD",        "NEW",          "EXACT / NONE_DUE", "ABSENT",         "SELF",          Action.CONTINUE),
    ("T11",          "NEW_LOCK_HELD",        "NEW",          "EXACT / NONE_DUE", "ABSENT",         "DEAD",          Action.PLAN_TAKEOVER),
    ("T1-ALIVE",     "TAKEOVER_PLANNED",     "OLD",          "ABSENT",           "ABSENT",         "ALIVE",         Action.REFUSE_BUSY),
    ("T1-REUSED",    "TAKEOVER_PLANNED",     "OLD",          "ABSENT",           "ABSENT",         "REUSED",        Action.REFUSE_REUSED),
    ("T1-UNPROVEN",  "TAKEOVER_PLANNED",     "OLD",          "ABSENT",           "ABSENT",         "UNPROVEN",      Action.REFUSE_UNPROVEN),
    ("T3-ALIVE",     "TAKEOVER_PLANNED",     "ABSENT",       "NONE_DUE",         "ABSENT",         "ALIVE",         Action.REFUSE_BUSY),
    ("T3-REUSED",    "TAKEOVER_PLANNED",     "ABSENT",       "NONE_DUE",         "ABSENT",         "REUSED",        Action.REFUSE_REUSED),
    ("T3-UNPROVEN",  "TAKEOVER_PLANNED",     "ABSENT",       "NONE_DUE",         "ABSENT",         "UNPROVEN",      Action.REFUSE_UNPROVEN),
    ("T4-ALIVE",     "OLD_LOCK_QUARANTINED", "ABSENT",       "EXACT",            "ABSENT",         "ALIVE",         Action.REFUSE_BUSY),
    ("T4-REUSED",    "OLD_LOCK_QUARANTINED", "ABSENT",       "EXACT",            "ABSENT",         "REUSED",        Action.REFUSE_REUSED),
    ("T4-UNPROVEN",  "OLD_LOCK_QUARANTINED", "ABSENT",       "EXACT",            "ABSENT",         "UNPROVEN",      Action.REFUSE_UNPROVEN),
    ("T5-ALIVE",     "CREATE_PLANNED",       "ABSENT / NEW", "EXACT / NONE_DUE", "ABSENT",         "ALIVE",         Action.REFUSE_BUSY),
    ("T5-UNPROVEN",  "CREATE_PLANNED",       "ABSENT / NEW", "EXACT / NONE_DUE", "ABSENT",         "UNPROVEN",      Action.REFUSE_UNPROVEN),
    ("T10-ALIVE",    "NEW_LOCK_HELD",        "NEW",          "EXACT / NONE_DUE", "ABSENT",         "ALIVE",         Action.REFUSE_BUSY),
    ("T10-REUSED",   "NEW_LOCK_HELD",        "NEW",          "EXACT / NONE_DUE", "ABSENT",         "REUSED",        Action.REFUSE_REUSED),
    ("T10-UNPROVEN", "NEW_LOCK_HELD",        "NEW",          "EXACT / NONE_DUE", "ABSENT",         "UNPROVEN",      Action.REFUSE_UNPROVEN),
    ("T-AMBIGUOUS", "else", Action.REFUSE_AMBIGUOUS),
)

TRANSACTION = _table(
    {"phase": Phase, "cards": Content, "runs": Content, "displaced": Displaced, "material": Material},
    # row   phase                 cards        runs                displaced  material  only action
    ("X0", "TRANSACTION_INTENT", "CANDIDATE", "BASE / CANDIDATE", "BASE", "SOUND", Action.REMOVE_DISPLACED),
    ("X1", "PREPARED",           "BASE",      "BASE",             "NONE", "SOUND", Action.BUILD_CANDIDATES),
    ("X2", "TRANSACTION_INTENT", "BASE",      "BASE",             "NONE", "SOUND", Action.PUT_CARDS),
    ("X3", "TRANSACTION_INTENT", "CANDIDATE", "BASE",             "NONE", "SOUND", Action.PUT_RUNS),
    ("X4", "TRANSACTION_INTENT", "CANDIDATE", "CANDIDATE",        "NONE", "SOUND", Action.ADVANCE_COMMITTED),
    ("X5", "BUSINESS_COMMITTED", "CANDIDATE", "CANDIDATE",        "NONE", "SOUND", Action.SETTLE),
    ("X6", "TERMINAL",           "CANDIDATE", "CANDIDATE",        "NONE", "SOUND", Action.CLEAN),
    ("X7", "RELEASING",          "CANDIDATE", "CANDIDATE",        "NONE", "SOUND", Action.RELEASE),
    ("X-AMBIGUOUS", "else", Action.REFUSE_AMBIGUOUS),
)

# fmt: on

TABLES = {
    "Idle": IDLE,
    "Begun": BEGUN,
    "Items": ITEMS,
    "Claim": CLAIM,
    "Takeover": TAKEOVER,
    "Transaction": TRANSACTION,
}
