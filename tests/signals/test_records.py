"""counts.json is exactly RFC 8785, and nothing else is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from product.durable import canonical
from product.durable.errors import JsonRejected
from product.durable.evidence import Evidence, Identity
from product.durable.plain import Digest
from product.signals import records
from product.signals.errors import SignalsError
from product.signals.records import format_counts, parse_counts
from product.signals.tally import REASONS, Rejected, Tally

HASH = "0" * 64
EVIDENCE = Evidence(3, 80, Identity("2049", str(2**64 - 1), Digest(80, HASH), Digest(80, HASH)))
TALLY = Tally({"K": 3, "ß": 1}, {"K": 2}, {"not-json": Rejected(12, list(range(10)))})

counts = st.dictionaries(st.text(), st.integers(1, 2**53), max_size=8)


@given(counts)
def test_it_is_the_canonical_form_of_every_python(found: dict[str, int]) -> None:
    data = format_counts(Tally(found, found), EVIDENCE)
    assert data == canonical.encode(json.loads(data))
    assert parse_counts(data) == (Tally(found, found), EVIDENCE)


def test_every_reason_may_be_there_once() -> None:
    tally = Tally({}, {}, {reason: Rejected(1, [0]) for reason in REASONS})
    data = format_counts(tally, EVIDENCE)
    assert parse_counts(data) == (tally, EVIDENCE) and json.loads(data)["schema"] == 1


def test_a_key_has_at_most_2_to_the_20_characters() -> None:
    fits = Tally({"K" * 2**20: 1})
    assert parse_counts(format_counts(fits, EVIDENCE)) == (fits, EVIDENCE)
    with pytest.raises(JsonRejected):
        parse_counts(format_counts(Tally({"K" * (2**20 + 1): 1}), EVIDENCE))


def test_keys_are_in_the_order_of_utf16() -> None:
    """U+FB33 comes after U+1F600 there, and before it in the order of Python."""
    data = format_counts(Tally({"\ufb33": 1, "\U0001f600": 1}), EVIDENCE)
    assert data.index("\U0001f600".encode()) < data.index("\ufb33".encode())


SPOILT: dict[str, Any] = {
    "/schema": {"schema": 2},
    "/epoch": {"epoch": 0},
    "/epoch bool": {"epoch": True},
    "/applied": {"applied": -1},
    "/applied text": {"applied": "80"},
    "/file": {"file": None},
    "/file/device": {"file": {"device": 2049, "inode": "1", "head": {}, "tail": {}}},
    "/file/head/size": {"applied": 81},
    "/counts": {"counts": []},
    "/counts/K": {"counts": {"K": 0}},
    "/counts/K bool": {"counts": {"K": True}},
    "/counts/K float": {"counts": {"K": 1.0}},
    "/carried/K": {"carried": {"K": 4}},
    "/carried/L": {"carried": {"L": 1}},
    "/rejected": {"rejected": {"other": {"count": 1, "first": [0]}}},
    "/rejected/no-key/first": {"rejected": {"no-key": {"count": 2, "first": [0]}}},
    "/rejected/no-key/count": {"rejected": {"no-key": {"count": 0, "first": []}}},
    " more": {"more": 1},
}


@pytest.mark.parametrize("place", SPOILT)
def test_another_shape_is_refused_with_its_place(place: str) -> None:
    document = json.loads(format_counts(TALLY, EVIDENCE)) | SPOILT[place]
    data = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    with pytest.raises(JsonRejected) as raised:
        parse_counts(data)
    assert raised.value.pointer == place.partition(" ")[0]


@pytest.mark.parametrize("missing", json.loads(format_counts(TALLY, EVIDENCE)))
def test_a_missing_field_is_refused(missing: str) -> None:
    document = json.loads(format_counts(TALLY, EVIDENCE))
    del document[missing]
    with pytest.raises(JsonRejected):
        parse_counts(canonical.encode(document))


@pytest.mark.parametrize("spoil", [lambda d: d + b"\n", lambda d: b" " + d, lambda d: d.replace(b":", b": ")])
def test_other_bytes_of_the_same_document_are_refused(spoil: Callable[[bytes], bytes]) -> None:
    with pytest.raises(JsonRejected):
        parse_counts(spoil(format_counts(TALLY, EVIDENCE)))


def test_more_than_can_be_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    assert records.SIZE_MAX_BYTES == 1_073_741_824
    data = format_counts(TALLY, EVIDENCE)
    monkeypatch.setattr(records, "SIZE_MAX_BYTES", len(data))
    assert format_counts(TALLY, EVIDENCE) == data
    monkeypatch.setattr(records, "SIZE_MAX_BYTES", len(data) - 1)
    with pytest.raises(SignalsError, match="E_SIGNAL_TOO_MANY"):
        format_counts(TALLY, EVIDENCE)
