"""Lines by themselves: the older schema before the chain, the last line of a segment, the names on a card's line."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from product.collector.keys import Identifiers
from product.collector.manifests import (
    GENESIS,
    SEGMENT_MAX_BYTES,
    ChainBroken,
    Tip,
    append_lines,
    last_line,
    names_of,
    read_lines,
)
from tests.collector.helpers import canonical
from tests.collector.test_manifests import THREE, change_line, entry, with_fields

OLD = [canonical({"schema_version": 1, **entry(number)}) + b"\n" for number in range(2)]
TOO_DEEP = b"[" * 100_000


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_what_a_line_of_today_says_of_itself() -> None:
    data, tip = append_lines(Tip(), [entry(0)])
    assert json.loads(data) == {"schema_version": 2, "seq": 1, "prev": GENESIS, **entry(0)}
    assert tip == Tip(0, 1, sha256(data[:-1]), 0)


def test_a_segment_takes_four_mebibytes() -> None:
    assert SEGMENT_MAX_BYTES == 4_194_304


# ----------------------------------------------------------------------------------------------- the older schema


def test_old_lines_have_their_place_in_the_chain_without_saying_so() -> None:
    new, _ = append_lines(Tip(1, 2, sha256(OLD[1][:-1])), [entry(2)])
    lines = list(read_lines("cards", [(1, b"".join(OLD)), (2, new)]))
    assert [line.seq for line, _ in lines] == [1, 2, 3]
    assert [tip.sha256 for _, tip in lines] == [sha256(raw[:-1]) for raw in (*OLD, new)]


def test_an_old_line_never_follows_a_new_one() -> None:
    new, tip = append_lines(Tip(), [entry(0)])
    for segments, start in (([(1, new + OLD[0])], None), ([(2, OLD[0])], Tip(1, tip.seq, tip.sha256, len(new)))):
        with pytest.raises(ChainBroken, match="a line of schema 1 after one of schema 2"):
            list(read_lines("cards", segments, start))


def test_only_the_older_schema_may_leave_out_its_number() -> None:
    for version in (0, 2, 3, "1"):
        with pytest.raises(ChainBroken, match="not a line of ours: 'seq'"):
            list(read_lines("cards", [(1, canonical({"schema_version": version, **entry(0)}) + b"\n")]))


def test_a_new_line_may_not_call_itself_old() -> None:
    with pytest.raises(ChainBroken, match="other keys"):
        list(read_lines("cards", [(1, canonical({"schema_version": 1, "seq": 1, "prev": GENESIS}) + b"\n")]))


def test_whoever_goes_on_in_the_middle_counts_lines_from_the_start() -> None:
    broken = change_line(THREE, 2, 3, with_fields(seq=9))[1:]
    line, tip = list(read_lines("cards", THREE))[3]
    with pytest.raises(ChainBroken) as caught:
        list(read_lines("cards", broken, tip, line.offset + line.size + 1))
    assert (caught.value.segment, caught.value.line) == (2, 3)


# ----------------------------------------------------------------------------------------------------- the last line


def test_the_last_line_of_a_segment() -> None:
    for data in (b'{"a":1}\n', b'{"a":0}\n{"a":1}\n', b'\n{"a":1}\n'):
        assert last_line("runs", 7, data) == ({"a": 1}, sha256(b'{"a":1}'))


@pytest.mark.parametrize(
    ("data", "line", "reason"),
    [
        (b"", 1, "torn"),
        (b"{}", 1, "torn"),
        (b"{}\n{}\n{", 3, "torn"),
        (b"{}\n\n", 2, "not a line of ours"),
        (b"{}\n[]\n", 2, "no object"),
        (b"{\n", 1, "not a line of ours"),
        (b"\xff\n", 1, "not a line of ours"),
        (TOO_DEEP + b"\n", 1, "not a line of ours"),
    ],
)
def test_a_last_line_that_is_none(data: bytes, line: int, reason: str) -> None:
    with pytest.raises(ChainBroken, match=reason) as caught:
        last_line("runs", 7, data)
    assert (caught.value.manifest, caught.value.segment, caught.value.line) == ("runs", 7, line)


# ------------------------------------------------------------------------------------------------ the names on it

NAMES: dict[str, Any] = {
    "identifiers": {"dynamic_id": "1", "opus_id": None, "bvid": None},
    "stable_keys": ["dynamic:1", "opus:2"],
    "source_url": "https://www.bilibili.com/opus/3",
}


def test_the_older_schema_finds_its_keys_in_the_url() -> None:
    identifiers = Identifiers("1", None, None)
    assert names_of(NAMES | {"schema_version": 2}) == (("dynamic:1", "opus:2"), identifiers)
    assert names_of(NAMES | {"schema_version": 1}) == (("dynamic:1", "opus:3"), identifiers)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"identifiers": None}, "no identifiers"),
        ({"identifiers": ["dynamic_id"]}, "no identifiers"),
        ({"identifiers": {"dynamic_id": "1"}}, "no 'opus_id'"),
        ({"stable_keys": "dynamic:1"}, "no array of texts"),
        ({"stable_keys": ["dynamic:1", 2]}, "no array of texts"),
        ({"stable_keys": {"dynamic:1": 1}}, "no array of texts"),
    ],
)
def test_what_is_no_card_names_nothing(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        names_of(NAMES | {"schema_version": 2} | change)


@pytest.mark.parametrize("key", ["schema_version", "stable_keys"])
def test_a_card_without_a_key_names_nothing(key: str) -> None:
    card = NAMES | {"schema_version": 2}
    del card[key]
    with pytest.raises(ValueError, match=f"no '{key}'"):
        names_of(card)
