"""Valid evidence as plain values, for tests to change one thing in. Shapes are written out here."""

from __future__ import annotations

import json
from typing import Any

SHA = "ab" * 32
LIMIT_HIT = "CARD_PER_OBSERVATION_LIMIT"


def make_card(
    position: int, dynamic: str | None = None, opus: str | None = None, bvid: str | None = None, url: str | None = None
) -> dict[str, Any]:
    """A complete card; without a name of its own it is the post with dynamic id 1000 + position."""
    if dynamic is opus is bvid is None:
        dynamic = str(1000 + position)
    names = (("dynamic", dynamic), ("opus", opus), ("video", bvid))
    return {
        "position": position,
        "identifiers": {"dynamic_id": dynamic, "opus_id": opus, "bvid": bvid},
        "stable_keys": [f"{kind}:{name}" for kind, name in names if name is not None],
        "published_at": "2026-11-29T08:00:00Z",
        "content_type": "video",
        "source_url": url or "https://space.bilibili.com/10001/dynamic",
    }


def make_unparsed(position: int, reason: str = "IDENTITY_MISSING") -> dict[str, Any]:
    return {"position": position, "node_fingerprint_sha256": f"{position:064x}", "reason_code": reason}


def make_observation(
    cards: list[dict[str, Any]],
    unparsed: list[dict[str, Any]] | None = None,
    *,
    ordinal: int = 0,
    before: str | None = None,
    after: str | None = None,
) -> dict[str, Any]:
    nodes = unparsed or []
    visible = len(cards) + len(nodes)
    return {
        "ordinal": ordinal,
        "observed_at": f"2026-11-30T12:{10 + ordinal:02d}:00Z",
        "cursor_before": before,
        "cursor_after": after,
        "visible_node_count": visible,
        "complete_card_count": len(cards),
        "unparsed_node_count": len(nodes),
        "cards": cards,
        "unparsed_nodes": nodes,
        "limit_hit": LIMIT_HIT if visible == 50 else None,
    }


def make_evidence(*observations: dict[str, Any]) -> dict[str, Any]:
    """Without arguments: two cards and an unparsed node, then one card more, to the end of the feed."""
    seen = list(observations) or [
        make_observation([make_card(0), make_card(2, bvid="BV1xx411c7mD")], [make_unparsed(1)], after="next"),
        make_observation([make_card(0, dynamic="7", opus="8")], ordinal=1, before="next"),
    ]
    return {
        "schema_version": 2,
        "task_id": "task-1",
        "run_id": "run-1",
        "source": "browser",
        "extractor": {"name": "page-extractor", "version": "3.1", "sha256": SHA},
        "started_at": "2026-11-30T12:09:59.5Z",
        "ended_at": "2026-11-30T12:59:59Z",
        "stop_reason": "page_limit",
        "observations": seen,
    }


def to_bytes(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
