"""What may happen to the evidence of a run that is in the runs manifest: the table Move (SPEC.md). Pure.

The evidence is in the state root, in the archive, or in both; at no time in neither. A row does one step, then the
disk is read again: so every death in between is a state of this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from product.durable.table import ANY, Row, Table


class Copy(Enum):
    """One of the two places of a run's evidence, against the hash that the run's line has."""

    ABSENT = "ABSENT"
    EXACT = "EXACT"
    OTHER = "OTHER"  # other bytes, or no plain file, or not reached through ordinary directories


class Volumes(Enum):
    """Whether a rename between the two places can be atomic."""

    ONE = "ONE"
    TWO = "TWO"  # or not provably one


class MoveAction(Enum):
    RENAME = "rename it into the archive"
    COPY = "copy it into the archive"
    REMOVE_SOURCE = "make the copy durable, remove the source"
    REMOVE_DIRECTORY = "remove the run's empty directory"
    REFUSE = "E_RECOVERY_AMBIGUOUS"


_EXACT_OR_NOT = {"source": Copy.EXACT, "target": Copy.ABSENT}
MOVE: Table[MoveAction] = Table(
    {"source": Copy, "target": Copy, "volumes": Volumes},
    (
        Row("M1", {**_EXACT_OR_NOT, "volumes": Volumes.ONE}, MoveAction.RENAME),
        Row("M2", {**_EXACT_OR_NOT, "volumes": Volumes.TWO}, MoveAction.COPY),
        Row("M3", {"source": Copy.EXACT, "target": Copy.EXACT, "volumes": ANY}, MoveAction.REMOVE_SOURCE),
        Row("M4", {"source": Copy.ABSENT, "target": Copy.EXACT, "volumes": ANY}, MoveAction.REMOVE_DIRECTORY),
        Row("M-AMBIGUOUS", None, MoveAction.REFUSE),
    ),
)


@dataclass(frozen=True, slots=True)
class CompletedRun:
    """What the runs manifest says of a run: its id, its hour, the hash of its evidence."""

    run_id: str
    hour: str
    evidence_sha256: str
