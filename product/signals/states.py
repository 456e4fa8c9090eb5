"""What ``adopt`` may do, as an exhaustive table (SPEC.md). Pure. What a reopen may do is RESUME of product.durable.cursor."""

from __future__ import annotations

import enum
from enum import Enum
from typing import Any

from product.durable.cursor import RESUME, Action, CursorState, EffectState, SourceState
from product.durable.table import ANY, Row, Table


class Claim(enum.Enum):
    """What the user says about the file."""

    NEW = "NEW"  # another history: all its lines are new
    MOVED = "MOVED"  # the same history, under another device or inode


class Adoption(enum.Enum):
    """Everything that adopt can do, and the refusals."""

    NEXT_EPOCH = "save the counts as carried, with applied 0 of the next epoch, then the cursor"
    KEEP_EPOCH = "recount; if it is equal save the new identity"
    FINISH = "save the cursor"
    NOTHING = "nothing"
    REFUSE_CHANGED = "refuse: these are not the lines that were counted"
    REFUSE_STATE = "refuse: the state is not sound"


REFUSALS: dict[Enum, str] = {
    Action.REFUSE_CHANGED: "E_SIGNAL_FILE_CHANGED",
    Action.REFUSE_STATE: "E_SIGNAL_STATE",
    Adoption.REFUSE_CHANGED: "E_SIGNAL_FILE_CHANGED",
    Adoption.REFUSE_STATE: "E_SIGNAL_STATE",
}

_SOUND = EffectState.SOUND
_ANY_READABLE = frozenset({CursorState.ABSENT, CursorState.EARLIER, CursorState.BEHIND, CursorState.LEVEL})
_IN_EPOCH = _ANY_READABLE - {CursorState.EARLIER}
_CHANGED = frozenset({SourceState.MOVED, SourceState.SHORTER, SourceState.OTHER})
_NOT_MOVED = _CHANGED - {SourceState.MOVED}


def _row(label: str, effect: Any, cursor: Any, source: Any, claim: Any, action: Adoption) -> Row[Adoption]:
    return Row(label, {"effect": effect, "cursor": cursor, "source": source, "claim": claim}, action)


ADOPT: Table[Adoption] = Table(
    {"effect": EffectState, "cursor": CursorState, "source": SourceState, "claim": Claim},
    (
        _row("A1", _SOUND, _ANY_READABLE, _CHANGED, Claim.NEW, Adoption.NEXT_EPOCH),
        _row("A2", _SOUND, _ANY_READABLE, SourceState.MOVED, Claim.MOVED, Adoption.KEEP_EPOCH),
        _row("A3", _SOUND, CursorState.EARLIER, SourceState.SAME, ANY, Adoption.FINISH),
        _row("A4", _SOUND, _IN_EPOCH, SourceState.SAME, ANY, Adoption.NOTHING),
        _row("A5", EffectState.ABSENT, CursorState.ABSENT, SourceState.NEW, ANY, Adoption.NOTHING),
        _row("A-CHANGED", _SOUND, _ANY_READABLE, _NOT_MOVED, Claim.MOVED, Adoption.REFUSE_CHANGED),
        Row("A-UNSOUND", None, Adoption.REFUSE_STATE),
    ),
)

TABLES: dict[str, Table[Any]] = {"Resume": RESUME, "Adopt": ADOPT}
