"""The ring of 168 UTC hours: one terminal record an hour, and latest.json that points at the newest. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from product.collector import shape
from product.collector.layout import SLOTS, hour_number, slot_of
from product.collector.shape import HEX64, HOUR, NAME
from product.durable import canonical
from product.durable.files import Digest

STATES = ("NEW_APPENDED", "NEW_APPENDED_PARTIAL", "NO_NEW", "INCOMPLETE", "ABORTED")
SLOT_KEYS = (
    "schema_version", "task_id", "run_id", "transaction_id", "hour", "slot", "state", "no_new_token",
    "cards_appended", "evidence_sha256", "coverage_proof_sha256", "cards", "runs",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Slot:
    """One hour's terminal record. ``cards`` and ``runs``: {segment, size, sha256, last_seq} after the run."""

    task_id: str
    run_id: str
    transaction_id: str
    hour: str
    state: str
    no_new_token: int
    cards_appended: int
    evidence_sha256: str | None
    coverage_proof_sha256: str | None
    cards: dict[str, object] | None
    runs: dict[str, object] | None

    @property
    def data(self) -> bytes:
        return canonical.encode(
            {
                "schema_version": 1,
                "task_id": self.task_id,
                "run_id": self.run_id,
                "transaction_id": self.transaction_id,
                "hour": self.hour,
                "slot": slot_of(self.hour),
                "state": self.state,
                "no_new_token": self.no_new_token,
                "cards_appended": self.cards_appended,
                "evidence_sha256": self.evidence_sha256,
                "coverage_proof_sha256": self.coverage_proof_sha256,
                "cards": self.cards,
                "runs": self.runs,
            }
        )


@lru_cache(maxsize=8)  # the disk is read anew in every turn; what the same bytes say is not found out again
def parse_slot(data: bytes) -> Slot:
    """Raises ShapeError or JsonRejected."""
    fields = shape.require_object(canonical.decode_canonical(data), SLOT_KEYS, "")
    shape.require_equal(fields["schema_version"], 1, "/schema_version")
    state = shape.require_text(fields["state"], "/state")
    if state not in STATES:
        raise shape.ShapeError("/state", f"{state!r} is none of {', '.join(STATES)}")
    slot = Slot(
        shape.require_text(fields["task_id"], "/task_id", NAME),
        shape.require_text(fields["run_id"], "/run_id", NAME),
        shape.require_text(fields["transaction_id"], "/transaction_id", HEX64),
        shape.require_time(fields["hour"], "/hour", HOUR),
        state,
        shape.require_integer(fields["no_new_token"], "/no_new_token", high=1),
        shape.require_integer(fields["cards_appended"], "/cards_appended"),
        _optional_hash(fields["evidence_sha256"], "/evidence_sha256"),
        _optional_hash(fields["coverage_proof_sha256"], "/coverage_proof_sha256"),
        _optional_tip(fields["cards"], "/cards"),
        _optional_tip(fields["runs"], "/runs"),
    )
    shape.require_equal(fields["slot"], slot_of(slot.hour), "/slot")
    return slot


def _optional_hash(value: object, pointer: str) -> str | None:
    return None if value is None else shape.require_text(value, pointer, HEX64)


def _optional_tip(value: object, pointer: str) -> dict[str, object] | None:
    if value is None:
        return None
    fields = shape.require_object(value, ("segment", "size", "sha256", "last_seq"), pointer)
    for key in ("segment", "size", "last_seq"):
        shape.require_integer(fields[key], f"{pointer}/{key}")
    shape.require_text(fields["sha256"], f"{pointer}/sha256", HEX64)
    return fields


@dataclass(frozen=True, slots=True)
class Latest:
    """Points at the newest slot and pins its bytes."""

    hour: str
    run_id: str
    state: str
    slot_sha256: str

    @classmethod
    def of(cls, slot: Slot) -> Latest:
        return cls(slot.hour, slot.run_id, slot.state, Digest.of(slot.data).sha256)

    @property
    def data(self) -> bytes:
        return canonical.encode(
            {
                "schema_version": 1,
                "hour": self.hour,
                "slot": slot_of(self.hour),
                "run_id": self.run_id,
                "state": self.state,
                "slot_sha256": self.slot_sha256,
            }
        )


def parse_latest(data: bytes) -> Latest:
    """Raises ShapeError or JsonRejected."""
    keys = ("schema_version", "hour", "slot", "run_id", "state", "slot_sha256")
    fields = shape.require_object(canonical.decode_canonical(data), keys, "")
    shape.require_equal(fields["schema_version"], 1, "/schema_version")
    hour = shape.require_time(fields["hour"], "/hour", HOUR)
    shape.require_equal(fields["slot"], slot_of(hour), "/slot")
    return Latest(
        hour,
        shape.require_text(fields["run_id"], "/run_id", NAME),
        shape.require_text(fields["state"], "/state"),
        shape.require_text(fields["slot_sha256"], "/slot_sha256", HEX64),
    )


def may_write(existing: Slot | None, hour: str) -> bool:
    """A slot is reused only for an hour at least 168 hours later."""
    return existing is None or hour_number(hour) - hour_number(existing.hour) >= SLOTS
