"""pending.json (schema 2) and the formal lock (schema 1): their shapes, read strictly. Pure (collector.md sections 2, 3)."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

from product.collector import shape
from product.collector.layout import LOCK_NAME, MANIFESTS, QUARANTINE_NAME, SLOTS, quarantine_name, slot_of
from product.collector.shape import HEX64, HOUR, INSTANT, NAME, ShapeError
from product.collector.slots import parse_slot
from product.durable import canonical
from product.durable.errors import JsonRejected
from product.durable.files import Digest
from product.durable.identity import ProcessIdentity, is_wellformed

E = TypeVar("E", bound=enum.Enum)


class Phase(enum.Enum):
    BEGUN = "BEGUN"
    PREPARED = "PREPARED"
    TRANSACTION_INTENT = "TRANSACTION_INTENT"
    BUSINESS_COMMITTED = "BUSINESS_COMMITTED"
    TERMINAL = "TERMINAL"
    RELEASING = "RELEASING"


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
        _enum(ClaimState, fields["claim_state"], f"{pointer}/claim_state"),
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
    return Item(path, _digest(fields, pointer))


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
    phase = _enum(TakeoverPhase, name, f"{pointer}/phase")
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


@dataclass(frozen=True, slots=True)
class ManifestPlan:
    """One manifest's half of the transaction. ``base`` is None where the candidate starts a new segment."""

    segment: int
    base: Digest | None
    candidate: Digest | None

    @property
    def unchanged(self) -> bool:
        return self.base == self.candidate

    def as_json(self) -> dict[str, object]:
        return {
            "segment": self.segment,
            "base_size": self.base.size if self.base else None,
            "base_sha256": self.base.sha256 if self.base else None,
            "candidate_size": self.candidate.size if self.candidate else None,
            "candidate_sha256": self.candidate.sha256 if self.candidate else None,
        }


def _parse_manifest(value: object, pointer: str) -> ManifestPlan:
    keys = ("segment", "base_size", "base_sha256", "candidate_size", "candidate_sha256")
    fields = shape.require_object(value, keys, pointer)

    def digest(prefix: str) -> Digest | None:
        size, sha256 = fields[f"{prefix}_size"], fields[f"{prefix}_sha256"]
        if size is None and sha256 is None:
            return None
        return Digest(
            shape.require_integer(size, f"{pointer}/{prefix}_size"),
            shape.require_text(sha256, f"{pointer}/{prefix}_sha256", HEX64),
        )

    segment = shape.require_integer(fields["segment"], f"{pointer}/segment", low=1, high=999_999)
    return ManifestPlan(segment, digest("base"), digest("candidate"))


@dataclass(frozen=True, slots=True)
class Terminal:
    """The slot's exact bytes, frozen with the transaction."""

    state: str
    slot: int
    data: bytes

    def as_json(self) -> dict[str, object]:
        return {
            "state": self.state,
            "slot": self.slot,
            "bytes": self.data.decode(),
            "sha256": Digest.of(self.data).sha256,
        }


def _parse_terminal(value: object, pointer: str) -> Terminal:
    fields = shape.require_object(value, ("state", "slot", "bytes", "sha256"), pointer)
    terminal = Terminal(
        shape.require_text(fields["state"], f"{pointer}/state", most=40),
        shape.require_integer(fields["slot"], f"{pointer}/slot", high=SLOTS - 1),
        shape.require_text(fields["bytes"], f"{pointer}/bytes", most=1_000_000).encode(),
    )
    shape.require_equal(fields["sha256"], Digest.of(terminal.data).sha256, f"{pointer}/sha256")
    return terminal


@dataclass(frozen=True, slots=True)
class EvidenceFile:
    path: str
    digest: Digest

    def as_json(self) -> dict[str, object]:
        return {"path": self.path, "size": self.digest.size, "sha256": self.digest.sha256}


@dataclass(frozen=True, slots=True)
class Pending:
    """The write-ahead record of the one transaction in flight, schema 2 (collector.md section 3)."""

    task_id: str
    run_id: str
    owner_nonce: str
    transaction_id: str
    hour: str
    phase: Phase
    updated_at: str
    evidence: EvidenceFile | None = None
    proof: dict[str, object] | None = None
    cards: ManifestPlan | None = None
    runs: ManifestPlan | None = None
    terminal: Terminal | None = None
    claim: Claim | None = None
    takeover: Takeover = Takeover()
    quarantined: tuple[Item, ...] = ()

    def advanced(self, **changes: object) -> Pending:
        return replace(self, **changes)  # type: ignore[arg-type]

    def manifest(self, name: str) -> ManifestPlan:
        plan = self.cards if name == "cards" else self.runs
        assert plan is not None
        return plan

    def as_json(self) -> dict[str, object]:
        manifests = None if self.cards is None or self.runs is None else (self.cards.as_json(), self.runs.as_json())
        return {
            "schema_version": 2,
            "task_id": self.task_id,
            "run_id": self.run_id,
            "owner_nonce": self.owner_nonce,
            "transaction_id": self.transaction_id,
            "hour": self.hour,
            "phase": self.phase.value,
            "evidence": self.evidence.as_json() if self.evidence else None,
            "proof": self.proof,
            "manifests": dict(zip(MANIFESTS, manifests, strict=True)) if manifests else None,
            "terminal": self.terminal.as_json() if self.terminal else None,
            "formal_lock_claim": self.claim.as_json() if self.claim else None,
            "takeover": self.takeover.as_json(),
            "quarantined": [item.as_json() for item in self.quarantined],
            "updated_at": self.updated_at,
        }

    @property
    def data(self) -> bytes:
        return canonical.encode(self.as_json())


PENDING_KEYS = (
    "schema_version", "task_id", "run_id", "owner_nonce", "transaction_id", "hour", "phase", "evidence", "proof",
    "manifests", "terminal", "formal_lock_claim", "takeover", "quarantined", "updated_at",
)  # fmt: skip


def parse_pending(data: bytes) -> Pending:
    """The record from its exact bytes. Raises ShapeError, or canonical's JsonRejected, with the JSON pointer."""
    fields = shape.require_object(canonical.decode_canonical(data), PENDING_KEYS, "")
    shape.require_equal(fields["schema_version"], 2, "/schema_version")
    pending = Pending(
        shape.require_text(fields["task_id"], "/task_id", NAME),
        shape.require_text(fields["run_id"], "/run_id", NAME),
        shape.require_text(fields["owner_nonce"], "/owner_nonce", HEX64),
        shape.require_text(fields["transaction_id"], "/transaction_id", HEX64),
        shape.require_time(fields["hour"], "/hour", HOUR),
        _enum(Phase, fields["phase"], "/phase"),
        shape.require_time(fields["updated_at"], "/updated_at", INSTANT),
        takeover=parse_takeover(fields["takeover"], "/takeover"),
        quarantined=tuple(
            parse_item(item, f"/quarantined/{number}")
            for number, item in enumerate(shape.require_list(fields["quarantined"], "/quarantined"))
        ),
    )
    if pending.phase is Phase.BEGUN:
        return _require_begun(pending, fields)
    return _with_transaction(pending, fields)


def _require_begun(pending: Pending, fields: dict[str, object]) -> Pending:
    for key in ("evidence", "proof", "manifests", "terminal", "formal_lock_claim"):
        shape.require_equal(fields[key], None, f"/{key}")
    shape.require_equal(fields["takeover"], Takeover().as_json(), "/takeover")
    shape.require_equal(fields["quarantined"], [], "/quarantined")
    return pending


def _with_transaction(pending: Pending, fields: dict[str, object]) -> Pending:
    evidence = shape.require_object(fields["evidence"], ("path", "size", "sha256"), "/evidence")
    shape.require_equal(evidence["path"], f"refresh/runs/{pending.run_id}/evidence.json", "/evidence/path")
    manifests = shape.require_object(fields["manifests"], MANIFESTS, "/manifests")
    frozen = pending.phase is not Phase.PREPARED
    pending = pending.advanced(
        evidence=EvidenceFile(str(evidence["path"]), _digest(evidence, "/evidence")),
        cards=_parse_manifest(manifests["cards"], "/manifests/cards"),
        runs=_parse_manifest(manifests["runs"], "/manifests/runs"),
        claim=parse_claim(fields["formal_lock_claim"], "/formal_lock_claim"),
    )
    if frozen:
        proof = fields["proof"]
        if not isinstance(proof, dict):
            raise ShapeError("/proof", "an object is due once the transaction is frozen")
        pending = pending.advanced(terminal=_parse_terminal(fields["terminal"], "/terminal"), proof=proof)
        _require_frozen(pending, Digest.of(canonical.encode(proof)))
    else:
        shape.require_equal(fields["proof"], None, "/proof")
        shape.require_equal(fields["terminal"], None, "/terminal")
        for name in MANIFESTS:
            shape.require_equal(pending.manifest(name).candidate, None, f"/manifests/{name}/candidate_size")
    _require_one_identity(pending)
    return pending


def _require_frozen(pending: Pending, proof: Digest) -> None:
    """The terminal record is this very transaction's: what it says again is what the rest of pending says."""
    terminal, evidence = pending.terminal, pending.evidence
    assert terminal is not None and evidence is not None
    shape.require_equal(terminal.slot, slot_of(pending.hour), "/terminal/slot")
    if pending.manifest("runs").candidate is None:
        raise ShapeError("/manifests/runs/candidate_size", "the runs candidate is due once the transaction is frozen")
    try:
        slot = parse_slot(terminal.data)
    except (ShapeError, JsonRejected) as error:
        raise ShapeError("/terminal/bytes", f"not a slot: {error}") from None
    due = {
        "task_id": pending.task_id,
        "run_id": pending.run_id,
        "transaction_id": pending.transaction_id,
        "hour": pending.hour,
        "state": terminal.state,
        "evidence_sha256": evidence.digest.sha256,
        "coverage_proof_sha256": proof.sha256,
    }
    for key, value in due.items():
        shape.require_equal(getattr(slot, key), value, "/terminal/bytes")
    for name in MANIFESTS:
        plan, end = pending.manifest(name), getattr(slot, name)
        ends = None if end is None else (end["segment"], Digest(end["size"], end["sha256"]))
        shape.require_equal(ends, plan.candidate and (plan.segment, plan.candidate), "/terminal/bytes")


def _require_one_identity(pending: Pending) -> None:
    """Every lock record in it is of this task, run, nonce and transaction: another run's is never taken over."""
    claim, takeover = pending.claim, pending.takeover
    assert claim is not None
    named = (
        ("/formal_lock_claim/lock_record", claim.record),
        ("/takeover/old_claim", takeover.old),
        ("/takeover/new_lock_record", takeover.new),
    )
    for pointer, record in named:
        if record is not None:
            for key in ("task_id", "run_id", "owner_nonce", "transaction_id"):
                shape.require_equal(getattr(record, key), getattr(pending, key), f"{pointer}/{key}")
    if takeover.old is None:
        return
    due = takeover.old.recovery_generation + 1
    if takeover.new is not None:
        shape.require_equal(takeover.new.recovery_generation, due, "/takeover/new_lock_record/recovery_generation")
    if takeover.phase is TakeoverPhase.NEW_LOCK_HELD:
        generation = claim.record.recovery_generation
        shape.require_equal(generation, due, "/formal_lock_claim/lock_record/recovery_generation")
    else:
        shape.require_equal(takeover.old, claim.record, "/takeover/old_claim")


def _digest(fields: dict[str, object], pointer: str) -> Digest:
    return Digest(
        shape.require_integer(fields["size"], f"{pointer}/size"),
        shape.require_text(fields["sha256"], f"{pointer}/sha256", HEX64),
    )


def _enum(kind: type[E], value: object, pointer: str) -> E:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(str(member.value) for member in kind)
        raise ShapeError(pointer, f"{value!r:.60} is none of {known}") from None
