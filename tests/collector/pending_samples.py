"""One pending record of every phase and every step of a takeover, as values, for tests to change one thing in."""

from __future__ import annotations

from product.collector.claims import Claim, ClaimState, Item, LockRecord, Takeover, TakeoverPhase
from product.collector.layout import QUARANTINE_NAME, slot_of
from product.collector.records import EvidenceFile, ManifestPlan, Pending, Phase, Terminal
from product.collector.slots import Slot
from product.durable import canonical
from product.durable.files import Digest
from product.durable.identity import ProcessIdentity

HOUR = "2026-11-30T12:00:00Z"
NOW = "2026-11-30T12:34:56Z"
STAMP = f"linux:{'0' * 32}:01234567-89ab-cdef-0123-456789abcdef:4026531836:{{}}"
NONCE, TRANSACTION, OTHER = "a1" * 32, "b2" * 32, "c3" * 32
PROOF: dict[str, object] = {"complete": True}
ITEM = Item(f"{QUARANTINE_NAME}/run-1-g0-{OTHER}.json", Digest(9, OTHER))


def make_lock(generation: int, ticks: int = 1) -> LockRecord:
    holder = ProcessIdentity(4000 + ticks, STAMP.format(ticks))
    return LockRecord("task-1", "run-1", NONCE, TRANSACTION, generation, holder, NOW)


def make_pending(phase: Phase) -> Pending:
    begun = Pending("task-1", "run-1", NONCE, TRANSACTION, HOUR, Phase.BEGUN, NOW)
    if phase is Phase.BEGUN:
        return begun
    prepared = begun.advanced(
        phase=Phase.PREPARED,
        evidence=EvidenceFile("refresh/runs/run-1/evidence.json", Digest(100, OTHER)),
        cards=ManifestPlan(1, Digest(200, OTHER), None),
        runs=ManifestPlan(2, None, None),
        claim=Claim(ClaimState.PLANNED, make_lock(0)),
    )
    if phase is Phase.PREPARED:
        return prepared
    cards, runs = Digest(300, NONCE), Digest(50, TRANSACTION)
    ends = [{"segment": 1, "size": 300, "sha256": NONCE, "last_seq": 3}, {"segment": 2, "size": 50, "sha256": TRANSACTION,
            "last_seq": 2}]  # fmt: skip
    proof = Digest.of(canonical.encode(PROOF)).sha256
    slot = Slot("task-1", "run-1", TRANSACTION, HOUR, "NEW_APPENDED", 0, 1, OTHER, proof, *ends)
    return prepared.advanced(
        phase=phase,
        proof=PROOF,
        cards=ManifestPlan(1, Digest(200, OTHER), cards),
        runs=ManifestPlan(2, None, runs),
        terminal=Terminal("NEW_APPENDED", slot_of(HOUR), slot.data),
        claim=Claim(ClaimState.HELD, make_lock(0)),
    )


def make_takeover(phase: TakeoverPhase, materialised: bool = True) -> Pending:
    """A takeover in TRANSACTION_INTENT, as far as ``phase``; the plan is for generation 4."""
    pending = make_pending(Phase.TRANSACTION_INTENT).advanced(quarantined=(ITEM,))
    new = make_lock(4, 2) if phase is TakeoverPhase.CREATE_PLANNED else None
    held = make_lock(4, 2) if phase is TakeoverPhase.NEW_LOCK_HELD else make_lock(3)
    takeover = Takeover(phase, 7, make_lock(3), materialised, NOW, new)
    return pending.advanced(takeover=takeover, claim=Claim(ClaimState.HELD, held))


SAMPLES = {phase.value: make_pending(phase) for phase in Phase} | {
    phase.value: make_takeover(phase) for phase in TakeoverPhase if phase is not TakeoverPhase.NONE
}
FULL = SAMPLES["CREATE_PLANNED"].as_json()
"""Every kind of object that pending can have is in it."""
