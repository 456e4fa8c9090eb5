"""How much of the page a run has seen, as a proof that anybody can compute again (V003 1.2, collector.md 5). Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from product.collector.components import Component
from product.collector.evidence import Evidence
from product.durable import canonical


class Gap(StrEnum):
    """Why coverage is incomplete."""

    UNPARSED_NODES = "UNPARSED_NODES"
    CARD_PER_OBSERVATION_LIMIT = "CARD_PER_OBSERVATION_LIMIT"
    CURSOR_BROKEN = "CURSOR_BROKEN"
    NEITHER_KNOWN_NOR_END = "NEITHER_KNOWN_NOR_END"
    STARTED_MIDWAY = "STARTED_MIDWAY"  # nobody looked at what stands above the first cursor


class TerminalState(StrEnum):
    """How a run ended. ABORTED is never computed from evidence: it was begun and had none when it was given up."""

    NEW_APPENDED = "NEW_APPENDED"
    NEW_APPENDED_PARTIAL = "NEW_APPENDED_PARTIAL"
    NO_NEW = "NO_NEW"
    INCOMPLETE = "INCOMPLETE"
    ABORTED = "ABORTED"


# (something new, coverage complete) -> state
_STATES = {
    (True, True): TerminalState.NEW_APPENDED,
    (True, False): TerminalState.NEW_APPENDED_PARTIAL,
    (False, True): TerminalState.NO_NEW,
    (False, False): TerminalState.INCOMPLETE,
}
_NO_NEW_TOKENS = {
    TerminalState.NEW_APPENDED: 0,
    TerminalState.NEW_APPENDED_PARTIAL: 0,
    TerminalState.NO_NEW: 1,
    TerminalState.INCOMPLETE: 0,
    TerminalState.ABORTED: 0,
}


@dataclass(frozen=True, slots=True)
class CoverageProof:
    """Counts and ordered hashes (SHA-256, 64 lowercase hex). Components and fingerprints: each once, as first seen."""

    observation_count: int
    total_visible_node_count: int
    total_complete_card_count: int
    total_unparsed_node_count: int
    unique_card_count: int
    unique_unparsed_node_count: int
    observation_sha256: tuple[str, ...]
    component_sha256: tuple[str, ...]
    unparsed_fingerprint_sha256: tuple[str, ...]
    reasons: tuple[Gap, ...]

    @property
    def complete(self) -> bool:
        return not self.reasons

    @property
    def parse_complete(self) -> bool:
        return self.total_unparsed_node_count == 0

    def as_json(self) -> dict[str, object]:
        return {
            "counts": {
                "observation_count": self.observation_count,
                "total_visible_node_count": self.total_visible_node_count,
                "total_complete_card_count": self.total_complete_card_count,
                "total_unparsed_node_count": self.total_unparsed_node_count,
                "unique_card_count": self.unique_card_count,
                "unique_unparsed_node_count": self.unique_unparsed_node_count,
            },
            "observation_sha256": list(self.observation_sha256),
            "component_sha256": list(self.component_sha256),
            "unparsed_fingerprint_sha256": list(self.unparsed_fingerprint_sha256),
            "parse_complete": self.parse_complete,
            "complete": self.complete,
            "reasons": [reason.value for reason in self.reasons],
        }


def prove_coverage(evidence: Evidence, components: Sequence[Component], *, reached_known: bool) -> CoverageProof:
    """The proof for valid evidence and its components; ``reached_known``: the archive already has one of them."""
    observations = evidence.observations
    fingerprints = [
        node.node_fingerprint_sha256
        for observation in observations
        for node in sorted(observation.unparsed_nodes, key=lambda node: node.position)
    ]
    unique_fingerprints = tuple(dict.fromkeys(fingerprints))
    return CoverageProof(
        observation_count=len(observations),
        total_visible_node_count=sum(observation.visible_node_count for observation in observations),
        total_complete_card_count=sum(len(observation.cards) for observation in observations),
        total_unparsed_node_count=len(fingerprints),
        unique_card_count=len(components),
        unique_unparsed_node_count=len(unique_fingerprints),
        observation_sha256=tuple(_sha256(observation.as_json()) for observation in observations),
        component_sha256=tuple(_sha256(component.as_json()) for component in components),
        unparsed_fingerprint_sha256=unique_fingerprints,
        reasons=tuple(_find_gaps(evidence, reached_known)),
    )


def _find_gaps(evidence: Evidence, reached_known: bool) -> list[Gap]:
    observations = evidence.observations
    gaps = {
        Gap.UNPARSED_NODES: any(observation.unparsed_nodes for observation in observations),
        Gap.CARD_PER_OBSERVATION_LIMIT: any(observation.limit_hit for observation in observations),
        Gap.CURSOR_BROKEN: any(one.cursor_after != next_.cursor_before for one, next_ in pairwise(observations)),
        Gap.STARTED_MIDWAY: observations[0].cursor_before is not None,
        Gap.NEITHER_KNOWN_NOR_END: not reached_known and observations[-1].cursor_after is not None,
    }
    return [gap for gap, found in gaps.items() if found]


def terminal_state(new_count: int, complete: bool) -> TerminalState:
    """How a committed run with ``new_count`` new posts ended."""
    return _STATES[new_count > 0, complete]


def no_new_token(state: TerminalState) -> int:
    """1 for the one state that proves that nothing new was there, else 0."""
    return _NO_NEW_TOKENS[state]


def _sha256(value: object) -> str:
    return hashlib.sha256(canonical.encode(value)).hexdigest()
