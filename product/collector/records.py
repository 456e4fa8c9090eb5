"""pending.json (schema 2): its shape, read strictly; the lock and takeover in it are claims.py. Pure (collector.md 3)."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from product.collector import shape
from product.collector.claims import (
    Claim,
    Item,
    Takeover,
    TakeoverPhase,
    parse_claim,
    parse_digest,
    parse_item,
    parse_takeover,
)
from product.collector.layout import MANIFESTS, SLOTS, slot_of
from product.collector.shape import HEX64, HOUR, INSTANT, NAME, ShapeError
from product.collector.slots import parse_slot
from product.durable import canonical
from product.durable.errors import JsonRejected
from product.durable.files import Digest


class Phase(enum.Enum):
    BEGUN = "BEGUN"
    PREPARED = "PREPARED"
    TRANSACTION_INTENT = "TRANSACTION_INTENT"
    BUSINESS_COMMITTED = "BUSINESS_COMMITTED"
    TERMINAL = "TERMINAL"
    RELEASING = "RELEASING"


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
        shape.require_enum(Phase, fields["phase"], "/phase"),
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
        evidence=EvidenceFile(str(evidence["path"]), parse_digest(evidence, "/evidence")),
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
