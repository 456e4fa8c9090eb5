"""Formal manifests: numbered segments of canonical lines, each with ``seq`` and the SHA-256 of the line before. Pure.

A line of schema 2 has exactly CARD_KEYS or RUN_KEYS. One pass over the segments proves that nothing was lost, repeated
or rewritten (collector.md section 1).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from product.collector.components import Component
from product.collector.keys import Identifiers, stable_keys
from product.durable import canonical

SEGMENT_MAX_BYTES = 4 * 1024 * 1024
GENESIS = "0" * 64
CARD_KEYS = frozenset(
    {"schema_version", "seq", "prev", "run_id", "stable_keys", "identifiers", "published_at", "content_type",
     "source_url"}
)  # fmt: skip
RUN_KEYS = frozenset(
    {"schema_version", "seq", "prev", "task_id", "run_id", "transaction_id", "hour", "state", "cards_appended",
     "first_card_seq", "evidence_sha256", "coverage_proof_sha256"}
)  # fmt: skip
KEYS = {"cards": CARD_KEYS, "runs": RUN_KEYS}


class ChainBroken(Exception):
    """A manifest is not what was appended: ``reason`` says which line of which segment and why."""

    def __init__(self, manifest: str, segment: int, line: int, reason: str) -> None:
        super().__init__(f"{manifest}/{segment:06d}.jsonl line {line}: {reason}")
        self.manifest, self.segment, self.line, self.reason = manifest, segment, line, reason


@dataclass(frozen=True, slots=True)
class Tip:
    """The end of a manifest: what the next line's ``seq`` and ``prev`` follow from. ``size`` is the last segment's."""

    segment: int = 0
    seq: int = 0
    sha256: str = GENESIS
    size: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """One line and where it stands: bytes [offset, offset + size) of its segment, the newline not counted."""

    seq: int
    fields: dict[str, object]
    segment: int
    offset: int
    size: int


def read_lines(
    manifest: str, segments: Iterable[tuple[int, bytes]], start: Tip | None = None, offset: int = 0
) -> Iterator[tuple[Line, Tip]]:
    """Every line in order with the tip after it; from ``start`` on, which ends at ``offset`` of the first segment given.

    Lines of schema 1 carry no seq and no prev; they stand before all others, and the chain goes over their bytes.
    Raises ChainBroken at the first line that does not follow.
    """
    tip = start or Tip()
    chained = tip.seq > 0
    for number, data in segments:
        if not data.endswith(b"\n"):
            raise ChainBroken(manifest, number, data.count(b"\n") + 1, "torn: no newline at the end")
        index = data.count(b"\n", 0, offset)
        while offset < len(data):
            end = data.index(b"\n", offset)
            raw = data[offset:end]
            index += 1
            try:
                fields = json.loads(raw)
                old = fields["schema_version"] == 1 and "seq" not in fields
                seq, prev = (tip.seq + 1, tip.sha256) if old else (fields["seq"], fields["prev"])
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise ChainBroken(manifest, number, index, f"not a line of ours: {error}") from error
            if old and chained:
                raise ChainBroken(manifest, number, index, "a line of schema 1 after one of schema 2")
            if type(seq) is not int or seq != tip.seq + 1:
                raise ChainBroken(manifest, number, index, f"seq {seq!r} where {tip.seq + 1} is due")
            if prev != tip.sha256:
                raise ChainBroken(manifest, number, index, "prev is not the hash of the line before")
            if not old and fields.keys() != KEYS[manifest]:
                raise ChainBroken(manifest, number, index, "not a line of ours: other keys")
            chained = not old
            tip = Tip(number, seq, hashlib.sha256(raw).hexdigest(), len(data))
            yield Line(seq, fields, number, offset, len(raw)), tip
            offset = end + 1
        offset = 0


def last_line(manifest: str, number: int, data: bytes) -> tuple[dict[str, object], str]:
    """Fields and SHA-256 of the last whole line of a segment. Raises ChainBroken for a torn or foreign one."""
    if not data.endswith(b"\n"):
        raise ChainBroken(manifest, number, data.count(b"\n") + 1, "torn: no newline at the end")
    raw = data[data.rfind(b"\n", 0, -1) + 1 : -1]
    try:
        fields = json.loads(raw)
        if not isinstance(fields, dict):
            raise ValueError("no object")
    except (ValueError, RecursionError) as error:
        raise ChainBroken(manifest, number, data.count(b"\n"), f"not a line of ours: {error}") from error
    return fields, hashlib.sha256(raw).hexdigest()


def names_of(fields: dict[str, object]) -> tuple[tuple[str, ...], Identifiers]:
    """Stable keys and identifiers of a card line, of either schema. Raises ValueError for what is no card."""
    kinds = fields.get("identifiers")
    if not isinstance(kinds, dict):
        raise ValueError("no identifiers")
    try:
        identifiers = Identifiers(kinds["dynamic_id"], kinds["opus_id"], kinds["bvid"])
        keys = fields["stable_keys"] if fields["schema_version"] != 1 else None
        if keys is None:
            return stable_keys(identifiers, str(fields["source_url"])), identifiers
    except KeyError as error:
        raise ValueError(f"no {error}") from error
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ValueError("stable_keys is no array of texts")
    return tuple(keys), identifiers


def append_lines(tip: Tip, entries: Iterable[dict[str, object]]) -> tuple[bytes, Tip]:
    """The bytes of the new lines, and the tip after them; its segment and size are still the base's."""
    out: list[bytes] = []
    seq, sha256 = tip.seq, tip.sha256
    for entry in entries:
        seq += 1
        raw = canonical.encode({"schema_version": 2, "seq": seq, "prev": sha256, **entry})
        sha256 = hashlib.sha256(raw).hexdigest()
        out.append(raw + b"\n")
    return b"".join(out), Tip(tip.segment, seq, sha256, tip.size)


def next_segment(tip: Tip, segment_max_bytes: int) -> tuple[int, bool]:
    """(number, starts new): only the highest segment is ever replaced, and not once it is at or over the limit."""
    if tip.segment == 0 or tip.size >= segment_max_bytes:
        return tip.segment + 1, True
    return tip.segment, False


def card_entry(run_id: str, component: Component) -> dict[str, object]:
    return {
        "run_id": run_id,
        "stable_keys": list(component.keys),
        "identifiers": {
            "dynamic_id": component.identifiers.dynamic_id,
            "opus_id": component.identifiers.opus_id,
            "bvid": component.identifiers.bvid,
        },
        "published_at": component.published_at,
        "content_type": component.content_type,
        "source_url": component.source_url,
    }
