"""Builds the one transaction of a run from stored evidence and the archive as it is. Pure: same input, same bytes.

A rebuild after a crash (row X1) therefore freezes exactly what the dead process would have frozen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from product.collector.components import Component, Joined, join_cards, join_with_archive
from product.collector.coverage import no_new_token, prove_coverage, terminal_state
from product.collector.evidence import Evidence
from product.collector.keys import Identifiers
from product.collector.layout import slot_of
from product.collector.manifests import Tip, append_lines, card_entry, next_segment
from product.collector.records import ManifestPlan, Pending, Phase, Terminal
from product.collector.slots import Slot
from product.durable import canonical
from product.durable.files import Digest


@dataclass(frozen=True, slots=True)
class Archive:
    """What a transaction must know of the archive: where both manifests end, and who is known by which key."""

    cards_tip: Tip
    runs_tip: Tip
    post_of: Callable[[str], str | None]
    identifiers_of: Callable[[str], Identifiers]


@dataclass(frozen=True, slots=True)
class Built:
    """The frozen transaction: ``pending`` in TRANSACTION_INTENT, and what each candidate adds to its base.

    ``*_added`` are the new lines; a candidate is the base's bytes and then these (or these alone in a new segment).
    """

    pending: Pending
    cards: bytes | None
    runs: bytes


def build_transaction(
    pending: Pending, evidence: Evidence, archive: Archive, bases: dict[str, bytes], segment_max_bytes: int
) -> Built:
    """Freeze every byte. ``bases``: the bytes of each manifest's highest segment (empty where there is none).

    Raises EvidenceRejected (E_IDENTITY_CONFLICT) when a post contradicts one in the archive.
    """
    components, (new, known) = join(evidence, archive)
    proof = prove_coverage(evidence, components, reached_known=bool(known))
    state = terminal_state(len(new), proof.complete)
    proof_json = proof.as_json()
    proof_sha256 = Digest.of(canonical.encode(proof_json)).sha256
    assert pending.evidence is not None

    card_lines, cards_tip = append_lines(archive.cards_tip, (card_entry(pending.run_id, item) for item in new))
    run_line: dict[str, object] = {
        "task_id": pending.task_id,
        "run_id": pending.run_id,
        "transaction_id": pending.transaction_id,
        "hour": pending.hour,
        "state": state.value,
        "cards_appended": len(new),
        "first_card_seq": archive.cards_tip.seq + 1 if new else None,
        "evidence_sha256": pending.evidence.digest.sha256,
        "coverage_proof_sha256": proof_sha256,
    }
    run_lines, runs_tip = append_lines(archive.runs_tip, [run_line])
    cards_plan, cards_data = _plan(archive.cards_tip, card_lines, bases["cards"], segment_max_bytes)
    runs_plan, runs_data = _plan(archive.runs_tip, run_lines, bases["runs"], segment_max_bytes)
    assert runs_data is not None
    slot = Slot(
        pending.task_id,
        pending.run_id,
        pending.transaction_id,
        pending.hour,
        state.value,
        no_new_token(state),
        len(new),
        pending.evidence.digest.sha256,
        proof_sha256,
        _tip_json(cards_plan, cards_tip),
        _tip_json(runs_plan, runs_tip),
    )
    frozen = pending.advanced(
        phase=Phase.TRANSACTION_INTENT,
        proof=proof_json,
        cards=cards_plan,
        runs=runs_plan,
        terminal=Terminal(state.value, slot_of(pending.hour), slot.data),
    )
    return Built(frozen, cards_data, runs_data)


def join(evidence: Evidence, archive: Archive) -> tuple[tuple[Component, ...], Joined]:
    """All posts of the evidence, and which of them the archive has. Raises EvidenceRejected E_IDENTITY_CONFLICT."""
    components = join_cards(evidence.cards)
    return components, join_with_archive(components, archive.post_of, archive.identifiers_of)


def plan_base(tip: Tip, base: Digest | None, segment_max_bytes: int) -> ManifestPlan:
    """A manifest's half of PREPARED: which segment, on which base. The candidate is not known yet."""
    segment, starts_new = next_segment(tip, segment_max_bytes)
    return ManifestPlan(segment, None if starts_new else base, None)


def _plan(tip: Tip, lines: bytes, base: bytes, segment_max_bytes: int) -> tuple[ManifestPlan, bytes | None]:
    segment, starts_new = next_segment(tip, segment_max_bytes)
    base_digest = None if starts_new else Digest.of(base)
    if not lines:
        return ManifestPlan(segment, base_digest, base_digest), None
    data = lines if starts_new else base + lines
    return ManifestPlan(segment, base_digest, Digest.of(data)), data


def _tip_json(plan: ManifestPlan, tip: Tip) -> dict[str, object] | None:
    if plan.candidate is None:
        return None
    return {
        "segment": plan.segment,
        "size": plan.candidate.size,
        "sha256": plan.candidate.sha256,
        "last_seq": tip.seq,
    }
