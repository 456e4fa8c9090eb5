"""counts.json: its exact bytes and its strict reading. Pure.

RFC 8785 like every document here, but written by the encoder of the standard library: it is as fast as the number of
keys needs, and exact for text and whole numbers once the keys are sorted. A test holds it against canonical.encode().
"""

from __future__ import annotations

import json
from typing import Any

from product.durable import canonical
from product.durable.canonical import Limits
from product.durable.errors import JsonRejected
from product.durable.evidence import EVIDENCE_FIELDS, Evidence, parse_evidence, require_object, require_whole
from product.signals.errors import SignalsError
from product.signals.tally import FIRST_MAX, REASONS, Rejected, Tally

SCHEMA = 1
SIZE_MAX_BYTES = 2**30
_LIMITS = Limits(size_bytes=SIZE_MAX_BYTES, depth=4, keys=SIZE_MAX_BYTES, string_chars=2**20)


def format_counts(tally: Tally, evidence: Evidence) -> bytes:
    """The whole document. Raises SignalsError E_SIGNAL_TOO_MANY before it would be one that nobody reads again."""
    document = {
        "schema": SCHEMA,
        **evidence.as_fields(),
        "counts": tally.counts,
        "carried": tally.carried,
        "rejected": {reason: {"count": r.count, "first": r.first} for reason, r in tally.rejected.items()},
    }
    data = json.dumps(_sorted(document), ensure_ascii=False, separators=(",", ":")).encode()
    if len(data) > SIZE_MAX_BYTES:
        raise SignalsError(
            "E_SIGNAL_TOO_MANY", f"{len(tally.counts)} keys are more than counts.json may hold", limit=SIZE_MAX_BYTES
        )
    return data


def _sorted(value: Any) -> Any:
    """RFC 8785: keys in the order of their UTF-16 code units."""
    if not isinstance(value, dict):
        return value
    return {key: _sorted(value[key]) for key in sorted(value, key=lambda key: key.encode("utf-16-be"))}


def parse_counts(data: bytes) -> tuple[Tally, Evidence]:
    """Raises JsonRejected, with the place, for everything that format_counts() does not write."""
    keys = {"schema", "counts", "carried", "rejected"} | EVIDENCE_FIELDS
    document = require_object(canonical.decode(data, limits=_LIMITS), "", set(keys))
    if require_whole(document["schema"], "/schema") != SCHEMA:
        raise JsonRejected(f"not schema {SCHEMA}", "/schema")
    evidence = parse_evidence(document)
    tally = Tally(
        _parse_counts(document["counts"], "/counts"),
        _parse_counts(document["carried"], "/carried"),
        _parse_rejected(document["rejected"]),
    )
    for key, count in tally.carried.items():
        if count > tally.counts.get(key, 0):
            raise JsonRejected("more than in /counts", f"/carried/{key}")
    if format_counts(tally, evidence) != data:
        raise JsonRejected("not canonical bytes (RFC 8785)")
    return tally, evidence


def _parse_counts(value: object, pointer: str) -> dict[str, int]:
    if not isinstance(value, dict):
        raise JsonRejected("not an object", pointer)
    for key, count in value.items():
        if type(count) is not int or count < 1:
            raise JsonRejected("not a whole number of at least 1", f"{pointer}/{key}")
    return value


def _parse_rejected(value: object) -> dict[str, Rejected]:
    if not isinstance(value, dict) or not value.keys() <= set(REASONS):
        raise JsonRejected(f"not an object of {', '.join(REASONS)}", "/rejected")
    return {reason: _parse_reason(entry, f"/rejected/{reason}") for reason, entry in value.items()}


def _parse_reason(value: object, pointer: str) -> Rejected:
    entry = require_object(value, pointer, {"count", "first"})
    count, first = require_whole(entry["count"], f"{pointer}/count", least=1), entry["first"]
    if not isinstance(first, list) or len(first) != min(count, FIRST_MAX):
        raise JsonRejected(f"not the first {FIRST_MAX} offsets", f"{pointer}/first")
    return Rejected(count, [require_whole(offset, f"{pointer}/first") for offset in first])
