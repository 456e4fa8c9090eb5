"""JSON in one form: what is refused, where the error points, and that what is written can be read."""

from __future__ import annotations

import enum
import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from product.durable import canonical
from product.durable.canonical import INTEGER_MAX, Limits, decode, decode_canonical, encode
from product.durable.errors import JsonRejected

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = st.none() | st.booleans() | st.integers(-INTEGER_MAX, INTEGER_MAX) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4))


def rejected(data: bytes | str, **limits: int) -> JsonRejected:
    with pytest.raises(JsonRejected) as caught:
        decode(data, limits=Limits(**limits))
    assert caught.value.code == "E_JSON"
    assert caught.value.message.isprintable()
    caught.value.message.encode()  # words and pointer can always be printed
    return caught.value


def both_ways(text: str, **limits: int) -> JsonRejected:
    """The verdict on the bytes, which must be that on the decoded text too."""
    as_bytes, as_text = rejected(text.encode(), **limits), rejected(text, **limits)
    assert (as_bytes.reason, as_bytes.pointer) == (as_text.reason, as_text.pointer)
    return as_bytes


# ------------------------------------------------------------------------------------------------- round trips


@given(VALUES)
def test_what_is_written_is_read(value: Any) -> None:
    data = encode(value)
    assert decode_canonical(data) == value
    assert decode(data.decode()) == value


def independent(value: Any) -> str:
    """RFC 8785 for values without floats, written again from its text."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode("utf-16be"))
        return "{" + ",".join(f"{independent(key)}:{independent(value[key])}" for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(independent, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


@given(VALUES)
def test_bytes_are_those_of_rfc_8785(value: Any) -> None:
    assert encode(value) == independent(value).encode()


@given(st.recursive(SCALARS | st.floats(), lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner)))
def test_reading_agrees_with_the_standard_library_or_refuses(value: Any) -> None:
    text = json.dumps(value)
    try:
        assert decode(text) == json.loads(text)
    except JsonRejected:
        assert any(mark in text for mark in (".", "e", "Infinity", "NaN"))


ALMOST_CANONICAL = [
    b'{"a":1,"a":1}', b'{"b":1,"a":1}', b'{"a": 1}', b'{"a":1.0}', b'{"a":1e1}', b"-0", b"01", b"NaN", b'"\\ud800"',
    b'"\\u0061"', b'"\\/"', b'{"a":9007199254740993}', b"[" * 65 + b"]" * 65, b'"\\u007f"', b'"\x7f"', b"true ", b"1" * 5000,
]  # fmt: skip


@given(st.binary(max_size=40) | st.text(max_size=40))
def test_any_input_is_read_or_rejected(data: bytes | str) -> None:
    try:
        decode(data)
    except JsonRejected:
        pass


@given(VALUES, st.data())
def test_any_damage_is_read_or_rejected(value: Any, data: st.DataObject) -> None:
    good = encode({"a": value})
    place = data.draw(st.integers(0, len(good) - 1))
    damaged = good[:place] + data.draw(st.binary(max_size=3)) + good[data.draw(st.integers(place, len(good))) :]
    try:
        read = decode_canonical(damaged)
    except JsonRejected:
        return
    assert encode(read) == damaged


def test_b044_every_cut_is_rejected() -> None:
    good = encode({"phase": "BEGUN", "list": [1, {"é\U0001f600": None}], "n": -5})
    for length in range(len(good)):
        rejected(good[:length])
    assert decode(good)


def test_not_canonical_bytes_are_refused_though_they_are_json() -> None:
    for data in (b'{"a": 1}', b'{"b":1,"a":2}', b'"\\u0061"', b"-0", b" 1", b'{"a":1}\n', b'"\\/"'):
        decode(data)
        with pytest.raises(JsonRejected, match="canonical"):
            decode_canonical(data)


def test_keys_are_ordered_by_utf_16() -> None:
    assert list(json.loads(encode({"\ue000": 1, "\U0001f600": 2, "a": 3}))) == ["a", "\U0001f600", "\ue000"]


# ---------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        ('{"roles":["a"],"roles":[]}', "/roles"),
        ('{"x":[0,{"roles":1,"b":2,"roles":3}]}', "/x/1/roles"),
        ('{"a":1,"\\u0061":2}', "/a"),
        ('[{"a/b~":{"":1,"":2}}]', "/0/a~1b~0/"),
    ],
)
def test_b129_duplicate_keys(text: str, pointer: str) -> None:
    error = both_ways(text)
    assert (error.pointer, error.reason) == (pointer, "duplicate key")


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1e309", "1.0", "0.1", "1E2", "-0.0", "1e-7"])
def test_b131_no_float_however_it_is_written(number: str) -> None:
    assert both_ways(number).pointer == ""
    assert both_ways(f"[{number}]").pointer == "/0"
    assert both_ways(f'{{"n":[1,{{"m":{number}}}]}}').pointer == "/n/1/m"


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_no_constant_that_is_not_json(word: str) -> None:
    assert both_ways(f'{{"n":{word}}}').pointer == "/n"


def test_b132_integers_are_bounded_and_never_converted() -> None:
    batch = ['{"n":1}', '{"n":' + "9" * 5000 + "}", '{"n":-2}']
    verdicts: list[Any] = []
    for item in batch:
        try:
            verdicts.append(decode(item))
        except JsonRejected as error:
            verdicts.append(error.pointer)
    assert verdicts == [{"n": 1}, "/n", {"n": -2}]


def test_integer_bounds_are_inclusive_on_both_sides() -> None:
    for number in (INTEGER_MAX, -INTEGER_MAX, INTEGER_MAX - 1):
        assert decode(str(number)) == number
        assert decode_canonical(encode({"a": [number, 1, True, None, "x"]})) == {"a": [number, 1, True, None, "x"]}
    for number in (INTEGER_MAX + 1, -INTEGER_MAX - 1):
        assert both_ways(f"[{number}]").pointer == "/0"
        with pytest.raises(JsonRejected) as caught:
            encode([number])
        assert caught.value.pointer == "/0"


@pytest.mark.parametrize(
    ("text", "pointer"), [('{"a":["\\ud800"]}', "/a/0"), ('{"a":{"\\udc00":1}}', "/a"), ('["\\udc00\\ud800"]', "/0")]
)
def test_b142_lone_surrogates(text: str, pointer: str) -> None:
    error = both_ways(text)
    assert "surrogate" in error.reason
    assert error.pointer == pointer


def test_b142_a_pair_is_a_character_and_a_raw_surrogate_is_none() -> None:
    assert decode('"\\ud83d\\ude00"') == "\U0001f600"
    assert rejected('{"a":["\ud800"]}').pointer == "/a/0"
    with pytest.raises(JsonRejected, match="surrogate"):
        encode({"a": "\ud800"})
    with pytest.raises(JsonRejected, match="surrogate"):
        encode({"\ud800": 1})


def test_b142_a_pointer_through_a_bad_key_can_be_printed() -> None:
    rejected('{"\\ud800":1,"\\ud800":2}').pointer.encode()
    rejected('{"\\ud800":[1,}').pointer.encode()


def test_b144_depth_is_bounded_and_never_a_crash() -> None:
    assert decode("[" * 64 + "]" * 64)
    assert both_ways("[" * 65 + "]" * 65).pointer == "/0" * 64
    for text, token in (("[" * 100_000, "/0"), ('{"a":' * 10_000 + "1" + "}" * 10_000, "/a")):
        error = both_ways(text)
        assert "deep" in error.reason
        assert error.pointer == token * 64
    assert both_ways("[[[1]]]", depth=2).pointer == "/0/0"
    deep: Any = 1
    for _ in range(64):
        deep = [deep]
    assert decode_canonical(encode(deep)) == deep
    with pytest.raises(JsonRejected, match="deep"):
        encode([deep])
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(JsonRejected, match="deep"):
        encode(endless)
    assert decode("[1]") == [1]


def test_b145_a_byte_order_mark_gets_one_verdict() -> None:
    error = both_ways('\ufeff{"a":1}')
    assert "BOM" in error.reason
    for codec in ("utf-16", "utf-16-be", "utf-16-le", "utf-32"):
        reason = rejected('{"a":1}'.encode(codec)).reason
        assert "UTF" in reason
    assert "BOM" in rejected('{"a":1}'.encode("utf-16")).reason


def test_b064_nul_bytes_are_not_an_empty_document() -> None:
    assert "NUL" in rejected(b"\0" * 200).reason
    good = encode({"phase": "BEGUN", "x": "y" * 5000})
    rejected(good[:4096] + b"\0" * (len(good) - 4096))
    rejected(good + b"\0" * 4096)
    rejected(b"")


@pytest.mark.parametrize(
    ("data", "pointer"),
    [
        (b'{"a":["x","\xff"]}', "/a/1"),
        (b'{"a":[1,2,}', "/a/2"),
        (b'{"a":{"b":tru}}', "/a/b"),
        (b'{"a":1}garbage', ""),
        (b'{"a":1} {"b":2}', ""),
        (b'{"a":"\x01"}', "/a"),
        (b'{"a":01}', "/a"),
        (b'{"a":+1}', "/a"),
        (b"{'a':1}", ""),
        (b'{"a":[{"b":1},{"c":"unfinished', "/a/1/c"),
    ],
)
def test_a_syntax_error_points_to_the_nearest_place(data: bytes, pointer: str) -> None:
    assert rejected(data).pointer == pointer


def test_limits_are_enforced_at_their_edge() -> None:
    assert decode('"aa"', limits=Limits(size_bytes=4)) == "aa"
    both_ways('"aaa"', size_bytes=4)
    rejected('"é€"', size_bytes=6)
    assert decode('{"a":{"b":1}}', limits=Limits(keys=2))
    assert both_ways('{"a":{"b":1,"c":2}}', keys=2).pointer == "/a"
    assert decode('["ab"]', limits=Limits(string_chars=2))
    assert both_ways('["abc"]', string_chars=2).pointer == "/0"
    assert both_ways('{"abc":1}', string_chars=2).pointer == ""


class Word(enum.StrEnum):
    BEGUN = "BEGUN"


def test_encode_refuses_what_is_not_json() -> None:
    for value, pointer in (
        ([1.0], "/0"),
        ({"a": float("nan")}, "/a"),
        ({1: 2}, ""),
        ([{"a": {1, 2}}], "/0/a"),
        ((b"x",), "/0"),
    ):
        with pytest.raises(JsonRejected) as caught:
            encode(value)
        assert caught.value.pointer == pointer
    assert encode((Word.BEGUN, True)) == b'["BEGUN",true]'


def test_a_short_stack_is_a_refusal_not_a_crash() -> None:
    depth = 5000
    with pytest.raises(JsonRejected, match="deep"):
        decode("[" * depth + "]" * depth, limits=Limits(depth=depth))
    deep: Any = 1
    for _ in range(depth):
        deep = [deep]
    with pytest.raises(JsonRejected, match="deep"):  # where a later Python's parser gets further than its stack
        canonical._require_valid(deep, Limits(depth=depth + 1))


def test_the_parser_of_the_standard_library_is_used_with_all_hooks() -> None:
    """The stdlib would read each of these; only our hooks refuse them."""
    for text in ("1e400", '{"a":1,"a":2}', "NaN", "1.5", str(10**30)):
        json.loads(text)
        rejected(text)
    assert Limits() == canonical.DEFAULT_LIMITS


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
def test_the_fast_way_gives_what_the_careful_one_gives(value: Any) -> None:
    data = canonical.encode(value)
    assert canonical.decode_canonical(data) == canonical.decode(data) == value
    assert data == reference(value)


def reference(value: Any) -> bytes:
    """rfc8785 itself, the two integers aside that it refuses."""
    return rfc8785.dumps(canonical._with_edges_as_doubles(value))


ALMOST_CANONICAL = [
    b'{"a":1,"a":1}', b'{"b":1,"a":1}', b'{"a": 1}', b'{"a":1.0}', b'{"a":1e1}', b"-0", b"01", b"NaN", b'"\\ud800"',
    b'"\\u0061"', b'"\\/"', b'{"a":9007199254740993}', b"[" * 65 + b"]" * 65, b'"\\u007f"', b'"\x7f"', b"true ", b"1" * 5000,
]  # fmt: skip


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode) | st.sampled_from(ALMOST_CANONICAL))
def test_the_fast_way_never_takes_what_the_careful_one_refuses(data: bytes) -> None:
    if canonical._read_at_once(data, canonical.Limits()) is not canonical._DOUBT:
        assert canonical.encode(canonical.decode(data)) == data
