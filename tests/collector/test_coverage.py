"""The coverage proof and the terminal state that follows from it (V003 1.2, collector.md section 5)."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from product.collector.components import join_cards
from product.collector.coverage import CoverageProof, Gap, TerminalState, no_new_token, prove_coverage, terminal_state
from product.collector.evidence import parse_evidence
from tests.collector.evidence_samples import make_card, make_evidence, make_observation, make_unparsed, to_bytes


def prove(*observations: dict[str, Any], reached_known: bool = False) -> CoverageProof:
    evidence = parse_evidence(to_bytes(make_evidence(*observations)))
    return prove_coverage(evidence, join_cards(evidence.cards), reached_known=reached_known)


def sha256_of(value: object) -> str:
    """Canonical for what stands here: ASCII texts, small integers."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def test_counts_and_hashes_are_those_of_the_observations() -> None:
    first = make_observation([make_card(3), make_card(0, dynamic="7")], [make_unparsed(2), make_unparsed(1)], after="b")
    second = make_observation([make_card(0, dynamic="7", opus="8")], [make_unparsed(1)], ordinal=1, before="b")
    proof = prove(first, second).as_json()
    assert proof["counts"] == {
        "observation_count": 2,
        "total_visible_node_count": 6,
        "total_complete_card_count": 3,
        "total_unparsed_node_count": 3,
        "unique_card_count": 2,
        "unique_unparsed_node_count": 2,
    }
    assert proof["observation_sha256"] == [sha256_of(first), sha256_of(second)]
    content = {"published_at": "2026-11-29T08:00:00Z", "content_type": "video"}
    content["source_url"] = "https://space.bilibili.com/10001/dynamic"
    seen_first = {"keys": ["dynamic:7", "opus:8"], "identifiers": {"dynamic_id": "7", "opus_id": "8", "bvid": None}}
    seen_last = {"keys": ["dynamic:1003"], "identifiers": {"dynamic_id": "1003", "opus_id": None, "bvid": None}}
    assert proof["component_sha256"] == [sha256_of(seen_first | content), sha256_of(seen_last | content)]
    assert proof["unparsed_fingerprint_sha256"] == [f"{1:064x}", f"{2:064x}"]
    assert (proof["parse_complete"], proof["complete"], proof["reasons"]) == (False, False, ["UNPARSED_NODES"])


def test_a_proof_is_frozen_and_without_unparsed_nodes_the_parse_is_complete() -> None:
    proof = prove(make_observation([make_card(0)], after="b"))
    assert (proof.parse_complete, proof.complete) == (True, False)
    assert hash(proof) == hash(prove(make_observation([make_card(0)], after="b")))


def test_a_hash_changes_with_what_was_observed() -> None:
    one, other = (prove(make_observation([make_card(0, dynamic=name)])) for name in ("7", "8"))
    assert one.observation_sha256 != other.observation_sha256
    assert one.component_sha256 != other.component_sha256


FULL = [make_card(position) for position in range(50)]


@pytest.mark.parametrize(
    ("observations", "reached_known", "reasons"),
    [
        ([make_observation([make_card(0)])], False, []),
        ([make_observation([])], False, []),
        ([make_observation([make_card(0)], after="b")], True, []),
        ([make_observation([make_card(0)], after="b")], False, [Gap.NEITHER_KNOWN_NOR_END]),
        ([make_observation([make_card(0)], [make_unparsed(1)])], True, [Gap.UNPARSED_NODES]),
        ([make_observation(FULL)], True, [Gap.CARD_PER_OBSERVATION_LIMIT]),
        (
            [make_observation(FULL[:49], [make_unparsed(49)])],
            False,
            [Gap.UNPARSED_NODES, Gap.CARD_PER_OBSERVATION_LIMIT],
        ),
        ([make_observation([], after="b"), make_observation([make_card(0)], ordinal=1, before="b")], False, []),
        (
            [make_observation([], [make_unparsed(0)], after="b"), make_observation([], ordinal=1, before="b")],
            False,
            [Gap.UNPARSED_NODES],
        ),
        (
            [make_observation(FULL, after="b"), make_observation([], ordinal=1, before="b")],
            False,
            [Gap.CARD_PER_OBSERVATION_LIMIT],
        ),
        (
            [make_observation([], after="b"), make_observation([make_card(0)], ordinal=1, before="c")],
            True,
            [Gap.CURSOR_BROKEN],
        ),
        (
            [make_observation([], after="b"), make_observation([make_card(0)], ordinal=1)],
            True,
            [Gap.CURSOR_BROKEN],
        ),
        (
            [make_observation([]), make_observation([make_card(0)], ordinal=1, before="b")],
            True,
            [Gap.CURSOR_BROKEN],
        ),
        (
            [make_observation([]), make_observation([make_card(0)], ordinal=1, after="b")],
            False,
            [Gap.NEITHER_KNOWN_NOR_END],
        ),
    ],
)
def test_coverage_is_complete_only_without_any_gap(
    observations: list[dict[str, Any]], reached_known: bool, reasons: list[Gap]
) -> None:
    proof = prove(*observations, reached_known=reached_known)
    assert list(proof.reasons) == reasons
    assert proof.complete is (not reasons)
    assert proof.as_json()["reasons"] == [reason.value for reason in reasons]


@pytest.mark.parametrize(
    ("new_count", "complete", "state", "token"),
    [
        (0, True, TerminalState.NO_NEW, 1),
        (0, False, TerminalState.INCOMPLETE, 0),
        (1, True, TerminalState.NEW_APPENDED, 0),
        (1, False, TerminalState.NEW_APPENDED_PARTIAL, 0),
        (50, True, TerminalState.NEW_APPENDED, 0),
        (50, False, TerminalState.NEW_APPENDED_PARTIAL, 0),
    ],
)
def test_terminal_states(new_count: int, complete: bool, state: TerminalState, token: int) -> None:
    assert terminal_state(new_count, complete) is state
    assert no_new_token(state) == token


def test_only_no_new_carries_the_token() -> None:
    assert {state for state in TerminalState if no_new_token(state)} == {TerminalState.NO_NEW}
    assert [state.value for state in TerminalState] == [
        "NEW_APPENDED", "NEW_APPENDED_PARTIAL", "NO_NEW", "INCOMPLETE", "ABORTED",
    ]  # fmt: skip


@pytest.mark.parametrize("reached_known", [False, True])
def test_49_cards_and_one_unparsed_can_never_be_no_new(reached_known: bool) -> None:
    proof = prove(make_observation(FULL[:49], [make_unparsed(49)]), reached_known=reached_known)
    assert no_new_token(terminal_state(0, proof.complete)) == 0
