"""The claim of the formal lock and its takeover: the lock's record (schema 1) and what pending.json says of both. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import lru_cache

from product.collector import shape
from product.collector.layout import LOCK_NAME, QUARANTINE_NAME, quarantine_name
from product.collector.shape import HEX64, INSTANT, NAME, ShapeError
from product.durable import canonical
from product.durable.files import Digest
from product.durable.identity import ProcessIdentity, is_wellformed


class ClaimState(enum.Enum):
    PLANNED = "PLANNED"
    HELD = "HELD"


class TakeoverPhase(enum.Enum):
    NONE = "NONE"
    TAKEOVER_PLANNED = "TAKEOVER_PLANNED"
    OLD_LOCK_QUARANTINED = "OLD_LOCK_QUARANTINED"
    CREATE_PLANNED = "CREATE_PLANNED"
    NEW_LOCK_HELD = "NEW_LOCK_HELD"


LOCK_KEYS = (
    "schema_version", "task_id", "run_id", "owner_nonce", "transaction_id", "recovery_generation",
    "holder_pid", "holder_process_created_at", "lock_created_at",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LockRecord:
    """The content of the formal lock, schema 1. Equal records have equal bytes."""

    task_id: str
    run_id: str
    owner_nonce: str
    transaction_id: str
    recovery_generation: int
    holder: ProcessIdentity
    lock_created_at: str

    def as_json(self) -> dict[str, object]:
        return {
            "schema_version": 1,
            "task_id": self.task_id,
            "run_id": self.run_id,
            "owner_nonce": self.owner_nonce,
            "transaction_id": self.transaction_id,
            "recovery_generation": self.recovery_generation,
            "holder_pid": self.holder.pid,
            "holder_process_created_at": self.holder.created_at,
            "lock_created_at": self.lock_created_at,
        }

    @property
    def data(self) -> bytes:
        return _lock_bytes(self)


@lru_cache(maxsize=64)
def _lock_bytes(record: LockRecord) -> bytes:
    """Asked for a hundred times in one recovery: names, hashes and comparisons are all made from it."""
    return canonical.encode(record.as_json())


def parse_lock_record(value: object, pointer: str) -> LockRecord:
    """Raises ShapeError; a malformed holder is one too, so that no call is ever made with it."""
    fields = shape.require_object(value, LOCK_KEYS, pointer)
    shape.require_equal(fields["schema_version"], 1, f"{pointer}/schema_version")
    pid, created_at = fields["holder_pid"], fields["holder_process_created_at"]
    if not is_wellformed(pid, created_at):
        key = "holder_pid" if is_wellformed(1, created_at) else "holder_process_created_at"
        raise ShapeError(f"{pointer}/{key}", f"{pid!r:.40} with {created_at!r:.120} names no process")
    assert isinstance(pid, int) and isinstance(created_at, str)
    return LockRecord(
        shape.require_text(fields["task_id"], f"{pointer}/task_id", NAME),
        shape.require_text(fields["run_id"], f"{pointer}/run_id", NAME),
        shape.require_text(fields["owner_nonce"], f"{pointer}/owner_nonce", HEX64),
        shape.require_text(fields["transaction_id"], f"{pointer}/transaction_id", HEX64),
        shape.require_integer(fields["recovery_generation"], f"{pointer}/recovery_generation"),
        ProcessIdentity(pid, created_at),
        shape.require_time(fields["lock_created_at"], f"{pointer}/lock_created_at", INSTANT),
    )


@dataclass(frozen=True, slots=True)
class Claim:
    """formal_lock_claim: what the lock's bytes are, before it exists (PLANNED) or since (HELD)."""

    state: ClaimState
    record: LockRecord

    def as_json(self) -> dict[str, object]:
        data = self.record.data
        return {
            "claim_state": self.state.value,
            "lock_path": LOCK_NAME,
            "lock_bytes": data.decode(),
            "lock_sha256": Digest.of(data).sha256,
            "lock_record": self.record.as_json(),
        }


def parse_claim(value: object, pointer: str) -> Claim:
    fields = shape.require_object(
        value, ("claim_state", "lock_path", "lock_bytes", "lock_sha256", "lock_record"), pointer
    )
    claim = Claim(
        shape.require_enum(ClaimState, fields["claim_state"], f"{pointer}/claim_state"),
        parse_lock_record(fields["lock_record"], f"{pointer}/lock_record"),
    )
    for key, due in claim.as_json().items():
        if key != "lock_record":
            shape.require_equal(fields[key], due, f"{pointer}/{key}")
    return claim


@dataclass(frozen=True, slots=True)
class Item:
    """A quarantined lock that pending lists: path relative to the archive root, and its exact content."""

    path: str
    digest: Digest

    def as_json(self) -> dict[str, object]:
        return {"path": self.path, "size": self.digest.size, "sha256": self.digest.sha256}


def parse_item(value: object, pointer: str) -> Item:
    fields = shape.require_object(value, ("path", "size", "sha256"), pointer)
    path = shape.require_text(fields["path"], f"{pointer}/path", most=300)
    directory, slash, name = path.partition("/")
    if directory != QUARANTINE_NAME or not slash or "/" in name or "\\" in name or not name.endswith(".json"):
        raise ShapeError(f"{pointer}/path", f"{path[:80]!r} is not in the quarantine directory")
    return Item(path, parse_digest(fields, pointer))


@dataclass(frozen=True, slots=True)
class Takeover:
    """The takeover in progress. From TAKEOVER_PLANNED on ``old`` is the dead holder's claim; ``new`` only in
    CREATE_PLANNED (after that it is the claim itself): a plan never freezes who will recover."""

    phase: TakeoverPhase = TakeoverPhase.NONE
    claim_attempt: int = 0
    old: LockRecord | None = None
    old_materialised: bool = False
    planned_at: str = ""
    new: LockRecord | None = None

    @property
    def quarantine_path(self) -> str:
        old = self.old
        assert old is not None
        return quarantine_name(old.run_id, old.recovery_generation, Digest.of(old.data).sha256)

    def as_json(self) -> dict[str, object]:
        fields: dict[str, object] = {"phase": self.phase.value, "claim_attempt": self.claim_attempt}
        if self.old is None:
            return fields
        data = self.old.data
        fields |= {
            "old_claim": self.old.as_json(),
            "old_lock_path": LOCK_NAME,
            "old_lock_bytes": data.decode(),
            "old_lock_sha256": Digest.of(data).sha256,
            "old_lock_materialised": self.old_materialised,
            "quarantine_path": self.quarantine_path,
            "next_generation": self.old.recovery_generation + 1,
            "takeover_reason": "OWNER_DEAD_PROVEN",
            "planned_at": self.planned_at,
        }
        if self.new is not None:
            new = self.new.data
            fields |= {
                "new_claim_state": "CREATE_PLANNED",
                "new_lock_bytes": new.decode(),
                "new_lock_sha256": Digest.of(new).sha256,
                "new_lock_record": self.new.as_json(),
            }
        return fields


_PLAN_KEYS = (
    "phase", "claim_attempt", "old_claim", "old_lock_path", "old_lock_bytes", "old_lock_sha256",
    "old_lock_materialised", "quarantine_path", "next_generation", "takeover_reason", "planned_at",
)  # fmt: skip
_NEW_KEYS = ("new_claim_state", "new_lock_bytes", "new_lock_sha256", "new_lock_record")
_TAKEOVER_KEYS = {
    TakeoverPhase.NONE: ("phase", "claim_attempt"),
    TakeoverPhase.TAKEOVER_PLANNED: _PLAN_KEYS,
    TakeoverPhase.OLD_LOCK_QUARANTINED: _PLAN_KEYS,
    TakeoverPhase.CREATE_PLANNED: _PLAN_KEYS + _NEW_KEYS,
    TakeoverPhase.NEW_LOCK_HELD: _PLAN_KEYS,
}


def parse_takeover(value: object, pointer: str) -> Takeover:
    """A plan that names its new holder has keys too many and is refused (V004 section 2)."""
    name = value.get("phase") if isinstance(value, dict) else None
    phase = shape.require_enum(TakeoverPhase, name, f"{pointer}/phase")
    fields = shape.require_object(value, _TAKEOVER_KEYS[phase], pointer)
    attempt = shape.require_integer(fields["claim_attempt"], f"{pointer}/claim_attempt")
    if phase is TakeoverPhase.NONE:
        return Takeover(claim_attempt=attempt)
    materialised = fields["old_lock_materialised"]
    if not isinstance(materialised, bool):
        raise ShapeError(f"{pointer}/old_lock_materialised", "true or false is due")
    takeover = Takeover(
        phase,
        attempt,
        parse_lock_record(fields["old_claim"], f"{pointer}/old_claim"),
        materialised,
        shape.require_time(fields["planned_at"], f"{pointer}/planned_at", INSTANT),
        parse_lock_record(fields["new_lock_record"], f"{pointer}/new_lock_record")
        if phase is TakeoverPhase.CREATE_PLANNED
        else None,
    )
    for key, due in takeover.as_json().items():
        if key not in ("old_claim", "new_lock_record"):
            shape.require_equal(fields[key], due, f"{pointer}/{key}")
    return takeover


def parse_digest(fields: dict[str, object], pointer: str) -> Digest:
    return Digest(
        shape.require_integer(fields["size"], f"{pointer}/size"),
        shape.require_text(fields["sha256"], f"{pointer}/sha256", HEX64),
    )
