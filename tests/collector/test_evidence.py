"""Evidence is read strictly: V003 1.1 and its counter-examples 1.3, collector.md section 5, B129 to B145."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from product.collector.evidence import EvidenceRejected, ReasonCode, hour_of, parse_evidence
from tests.collector.evidence_samples import (
    LIMIT_HIT,
    make_card,
    make_evidence,
    make_observation,
    make_unparsed,
    to_bytes,
)

Path = tuple[str | int, ...]
DROP = object()
EXTRA = "surprise"


def refusal_of(value: object) -> EvidenceRejected:
    with pytest.raises(EvidenceRejected) as caught:
        parse_evidence(value if isinstance(value, bytes) else to_bytes(value))
    return caught.value


def set_at(value: Any, path: Path, new: object) -> Any:
    """A copy of ``value`` with ``new`` at ``path`` (DROP removes the member)."""
    changed = copy.deepcopy(value)
    node = changed
    for step in path[:-1]:
        node = node[step]
    if new is DROP:
        del node[path[-1]]
    else:
        node[path[-1]] = new
    return changed


def pointer_of(path: Path) -> str:
    return "".join(f"/{step}" for step in path)


def leaves(value: Any, path: Path = ()) -> list[Path]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in leaves(item, (*path, key))]
    if isinstance(value, list):
        return [leaf for index, item in enumerate(value) for leaf in leaves(item, (*path, index))]
    return [path]


def objects(value: Any, path: Path = ()) -> list[Path]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    inner = [found for key, item in items for found in objects(item, (*path, key))]
    return [path, *inner] if isinstance(value, dict) else inner


FIRST: Path = ("observations", 0)
CARD: Path = (*FIRST, "cards", 0)
NODE: Path = (*FIRST, "unparsed_nodes", 0)
SAMPLE = make_evidence()


def test_valid_evidence_is_read_to_the_last_member() -> None:
    evidence = parse_evidence(to_bytes(SAMPLE))
    assert evidence.as_json() == SAMPLE
    assert [card.stable_keys for card in evidence.cards] == [
        ("dynamic:1000",), ("video:BV1xx411c7mD",), ("dynamic:7", "opus:8"),
    ]  # fmt: skip
    assert [card.pointer for card in evidence.cards][-1] == "/observations/1/cards/0"
    assert hour_of(evidence) == "2026-11-30T12:00:00Z"


def test_values_are_frozen_and_equal_by_what_was_seen() -> None:
    evidence = parse_evidence(to_bytes(SAMPLE))
    assert hash(evidence) == hash(parse_evidence(to_bytes(SAMPLE)))
    twice = make_evidence(make_observation([make_card(0)]), make_observation([make_card(0)], ordinal=1))
    one, other = parse_evidence(to_bytes(twice)).cards
    assert one == other
    assert one.pointer != other.pointer


@pytest.mark.parametrize("path", objects(SAMPLE), ids=pointer_of)
def test_every_object_has_exactly_its_keys(path: Path) -> None:
    refused = refusal_of(set_at(SAMPLE, (*path, EXTRA), 1))
    assert (refused.code, refused.pointer, refused.detail["pointer"]) == ("E_EVIDENCE_SCHEMA", *[pointer_of(path)] * 2)


@pytest.mark.parametrize("path", objects(SAMPLE), ids=pointer_of)
def test_no_object_lacks_a_key_or_is_something_else(path: Path) -> None:
    node = SAMPLE
    for step in path:
        node = node[step]  # type: ignore[index]
    for key in node:
        assert refusal_of(set_at(SAMPLE, (*path, key), DROP)).pointer == pointer_of(path)
    others: list[object] = [[], "x", None]
    for other in others:
        changed = set_at(SAMPLE, path, other) if path else other
        assert refusal_of(changed).pointer == pointer_of(path)


@pytest.mark.parametrize("path", leaves(SAMPLE), ids=pointer_of)
@pytest.mark.parametrize("wrong", [True, False, 1.5, {}, ["x"], -1, 2**60], ids=repr)
def test_every_leaf_has_its_type_and_true_is_no_number(path: Path, wrong: object) -> None:
    """B136: a bool is refused wherever a number stands, and everywhere else."""
    refused = refusal_of(set_at(SAMPLE, path, wrong))
    assert refused.code == "E_EVIDENCE_SCHEMA"
    # a stable key is wrong as a part of its list, which is compared as a whole
    outer = path[:-1] if path[-2:-1] == ("stable_keys",) else path
    assert refused.pointer in {pointer_of(path), pointer_of(outer)}


@pytest.mark.parametrize("key", ["cards", "unparsed_nodes"])
@pytest.mark.parametrize("wrong", [None, {}, "x", 3])
def test_arrays_are_arrays(key: str, wrong: object) -> None:
    assert refusal_of(set_at(SAMPLE, (*FIRST, key), wrong)).pointer == pointer_of((*FIRST, key))
    assert refusal_of(set_at(SAMPLE, ("observations",), wrong)).pointer == "/observations"


TEXTS: list[tuple[Path, list[str]]] = [
    (("task_id",), ["", "a/b", "..", "a b", "a\n", "a" * 65, "é"]),
    (("run_id",), ["", "../x", "a_b", "x\n", "a" * 65]),
    (("source",), ["", "Browser", "file"]),
    (("stop_reason",), ["", "END_OF_FEED", "bored"]),
    (("extractor", "name"), ["", "a b", "x" * 65]),
    (("extractor", "version"), ["", "1\n", "x" * 65]),
    (("extractor", "sha256"), ["", "AB" * 32, "ab" * 31, "ab" * 32 + "\n"]),
    ((*FIRST, "cursor_before"), ["a\nb", "x" * 513, "\u2028"]),
    ((*FIRST, "cursor_after"), ["\x7f", "x" * 513]),
    ((*FIRST, "limit_hit"), ["", LIMIT_HIT, "other"]),
    ((*CARD, "content_type"), ["", "a b", "<b>", "x" * 65]),
    ((*CARD, "identifiers", "dynamic_id"), ["", "0", "01", "-1", "1" * 21, "\u0661", "12\n", "x"]),
    ((*CARD, "identifiers", "opus_id"), ["", "0", "1.0", "1" * 21]),
    ((*CARD, "identifiers", "bvid"), ["", "av17", "BV1xx411c7m", "bv1xx411c7mD", "BV1xx411c7mDD", "BV1xx411c7m\n"]),
    ((*NODE, "node_fingerprint_sha256"), ["", "F" * 64, "0" * 63, "0" * 65]),
    ((*NODE, "reason_code"), ["", "identity_missing", "NO_IDEA"]),
]


@pytest.mark.parametrize(("path", "text"), [(path, text) for path, texts in TEXTS for text in texts])
def test_texts_are_bounded_and_of_their_form(path: Path, text: str) -> None:
    refused = refusal_of(set_at(SAMPLE, path, text))
    assert (refused.code, refused.pointer) == ("E_EVIDENCE_SCHEMA", pointer_of(path))
    assert len(refused.message) <= 500


TIMES: list[Path] = [("started_at",), ("ended_at",), (*FIRST, "observed_at"), (*CARD, "published_at")]
NO_INSTANTS = [
    "2026-02-30T12:00:00Z", "2025-02-29T12:00:00Z", "2026-13-01T12:00:00Z", "2026-11-30T24:00:00Z",
    "2026-11-30T12:60:00Z", "2026-11-30T12:00:60Z", "2026-11-30T12:00:00", "2026-11-30T12:00:00+00:00",
    "2026-11-30 12:00:00Z", "2026-11-30t12:00:00z", "2026-11-30T12:00Z", "20261130T120000Z", "0000-01-01T00:00:00Z",
    "2026-11-30T12:00:00.Z", "2026-11-30T12:00:00.1234567890Z", "2026-11-30T12:00:00Z\n", "",
]  # fmt: skip


@pytest.mark.parametrize("path", TIMES, ids=pointer_of)
@pytest.mark.parametrize("text", NO_INSTANTS)
def test_times_are_real_instants_in_utc(path: Path, text: str) -> None:
    assert refusal_of(set_at(SAMPLE, path, text)).pointer == pointer_of(path)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("ended_at",), "2026-11-30T12:09:59.4Z"),
        ((*FIRST, "observed_at"), "2026-11-30T12:09:59Z"),
        ((*FIRST, "observed_at"), "2026-11-30T13:00:00Z"),
        (("observations", 1, "observed_at"), "2026-11-30T12:09:59.9Z"),
        (("observations", 1, "observed_at"), "2026-11-30T13:00:00Z"),
    ],
)
def test_our_own_clock_goes_forward(path: Path, text: str) -> None:
    assert refusal_of(set_at(SAMPLE, path, text)).pointer == pointer_of(path)


def test_equal_times_and_a_post_of_the_future_are_allowed() -> None:
    """``published_at`` is another machine's clock: it is never compared with ours."""
    evidence = make_evidence(make_observation([{**make_card(0), "published_at": "2027-01-01T00:00:00Z"}]))
    evidence["started_at"] = evidence["ended_at"] = evidence["observations"][0]["observed_at"]
    assert hour_of(parse_evidence(to_bytes(evidence))) == "2026-11-30T12:00:00Z"


@pytest.mark.parametrize("ordinals", [(1, 2), (0, 0), (1, 0), (0, 2)])
def test_ordinals_count_from_zero(ordinals: tuple[int, int]) -> None:
    changed = SAMPLE
    for index, ordinal in enumerate(ordinals):
        changed = set_at(changed, ("observations", index, "ordinal"), ordinal)
    assert refusal_of(changed).pointer == f"/observations/{0 if ordinals[0] else 1}/ordinal"


def test_no_observation_and_too_many_are_refused() -> None:
    assert refusal_of(set_at(SAMPLE, ("observations",), [])).pointer == "/observations"
    many = [make_observation([], ordinal=number) for number in range(1001)]
    assert refusal_of(set_at(SAMPLE, ("observations",), many)).pointer == "/observations"


def test_an_empty_page_is_a_valid_observation() -> None:
    assert parse_evidence(to_bytes(make_evidence(make_observation([])))).observations[0].visible_node_count == 0


def test_end_of_feed_needs_a_last_cursor_of_null() -> None:
    parse_evidence(to_bytes({**SAMPLE, "stop_reason": "end_of_feed"}))
    open_end = set_at(SAMPLE, ("observations", 1, "cursor_after"), "more")
    parse_evidence(to_bytes(open_end))
    assert refusal_of({**open_end, "stop_reason": "end_of_feed"}).pointer == "/stop_reason"


# -- V003 1.3, one test for each counter-example ----------------------------------------------------------------------


def test_an_incomplete_node_is_only_among_the_unparsed() -> None:
    for reason in ReasonCode:
        observation = make_observation([make_card(0)], [make_unparsed(1, reason.value)])
        [seen] = parse_evidence(to_bytes(make_evidence(observation))).observations
        assert (len(seen.cards), len(seen.unparsed_nodes), seen.visible_node_count) == (1, 1, 2)
        assert seen.unparsed_nodes[0].reason_code is reason


def test_the_same_node_in_both_sets_is_refused() -> None:
    both = make_observation([make_card(0)], [make_unparsed(0)])
    assert refusal_of(make_evidence(both)).pointer == "/observations/0/unparsed_nodes/0/position"
    once = {**both, "visible_node_count": 1}
    assert refusal_of(make_evidence(once)).pointer == "/observations/0/visible_node_count"


@pytest.mark.parametrize(
    ("cards", "unparsed", "pointer"),
    [
        ([0, 0], [], "cards/1/position"),
        ([0, 2], [], "cards/1/position"),
        ([1, 2], [], "cards/1/position"),
        ([], [0, 0], "unparsed_nodes/1/position"),
        ([0], [2], "unparsed_nodes/0/position"),
        ([-1, 0], [], "cards/0/position"),
    ],
)
def test_positions_overlap_or_leave_a_gap(cards: list[int], unparsed: list[int], pointer: str) -> None:
    nodes = [{**make_unparsed(index), "position": position} for index, position in enumerate(unparsed)]
    named = [{**make_card(index), "position": position} for index, position in enumerate(cards)]
    assert refusal_of(make_evidence(make_observation(named, nodes))).pointer == f"/observations/0/{pointer}"


@pytest.mark.parametrize("key", ["visible_node_count", "complete_card_count", "unparsed_node_count"])
@pytest.mark.parametrize("drift", [-1, 1])
def test_counts_drift(key: str, drift: int) -> None:
    wrong = SAMPLE["observations"][0][key] + drift
    assert refusal_of(set_at(SAMPLE, (*FIRST, key), wrong)).pointer == pointer_of((*FIRST, key))


def test_a_reason_that_nobody_knows() -> None:
    assert refusal_of(make_evidence(make_observation([], [make_unparsed(0, "BAD_LUCK")]))).pointer == (
        "/observations/0/unparsed_nodes/0/reason_code"
    )


def test_a_fingerprint_twice_in_one_observation_but_not_in_two() -> None:
    twice = [make_unparsed(0), {**make_unparsed(1), "node_fingerprint_sha256": f"{0:064x}"}]
    refused = refusal_of(make_evidence(make_observation([], twice)))
    assert refused.pointer == "/observations/0/unparsed_nodes/1/node_fingerprint_sha256"
    parse_evidence(to_bytes(make_evidence(make_observation([], twice[:1]), make_observation([], twice[:1], ordinal=1))))


@pytest.mark.parametrize("key", list(make_card(0)))
def test_a_complete_card_that_lacks_a_field(key: str) -> None:
    refused = refusal_of(set_at(SAMPLE, (*CARD, key), DROP))
    assert (refused.code, refused.pointer) == ("E_EVIDENCE_SCHEMA", pointer_of(CARD))
    assert key in refused.message


def test_a_card_with_the_abolished_parse_complete() -> None:
    assert refusal_of(set_at(SAMPLE, (*CARD, "parse_complete"), True)).pointer == pointer_of(CARD)


def test_a_node_that_is_in_neither_set() -> None:
    observation = make_observation([make_card(0), make_card(2)], [make_unparsed(1)])
    gone = {**observation, "unparsed_nodes": [], "unparsed_node_count": 0}
    assert refusal_of(make_evidence(gone)).pointer == "/observations/0/visible_node_count"
    hidden = {**gone, "visible_node_count": 2}
    assert refusal_of(make_evidence(hidden)).pointer == "/observations/0/cards/1/position"


def test_49_cards_and_one_unparsed_are_the_limit() -> None:
    full = make_observation([make_card(position) for position in range(49)], [make_unparsed(49)])
    assert parse_evidence(to_bytes(make_evidence(full))).observations[0].limit_hit == LIMIT_HIT
    silent = {**full, "limit_hit": None}
    assert refusal_of(make_evidence(silent)).pointer == "/observations/0/limit_hit"
    over = make_observation([make_card(position) for position in range(50)], [make_unparsed(50)])
    assert refusal_of(make_evidence(over)).pointer == "/observations/0/visible_node_count"
    more = make_observation([make_card(position) for position in range(51)])
    assert refusal_of(make_evidence(more)).pointer == "/observations/0/cards"


def test_49_nodes_are_not_the_limit() -> None:
    observation = make_observation([make_card(position) for position in range(49)])
    assert parse_evidence(to_bytes(make_evidence(observation))).observations[0].limit_hit is None
    loud = {**observation, "limit_hit": LIMIT_HIT}
    assert refusal_of(make_evidence(loud)).pointer == "/observations/0/limit_hit"


@settings(deadline=None)
@given(st.permutations(range(8)), st.integers(0, 8))
def test_every_partition_is_accepted_in_any_order(order: list[int], split: int) -> None:
    observation = make_observation([make_card(p) for p in order[:split]], [make_unparsed(p) for p in order[split:]])
    evidence = parse_evidence(to_bytes(make_evidence(observation)))
    assert [card.position for card in evidence.cards] == sorted(order[:split])


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(0, 8))
def test_every_other_set_of_positions_is_refused(positions: list[int], split: int) -> None:
    cards = [{**make_card(index), "position": position} for index, position in enumerate(positions[:split])]
    nodes = [{**make_unparsed(index), "position": position} for index, position in enumerate(positions[split:])]
    value = make_evidence(make_observation(cards, nodes))
    if sorted(positions) == list(range(len(positions))):
        parse_evidence(to_bytes(value))
    else:
        assert refusal_of(value).pointer.endswith("/position")


# -- who a card is ----------------------------------------------------------------------------------------------------

URL_KEYS = {
    "https://t.bilibili.com/5": "dynamic:5",
    "https://t.bilibili.com/5/": "dynamic:5",
    "https://m.bilibili.com/dynamic/5": "dynamic:5",
    "https://www.bilibili.com/opus/5": "opus:5",
    "https://m.bilibili.com/opus/5": "opus:5",
    "https://www.bilibili.com/video/BV1xx411c7mD/": "video:BV1xx411c7mD",
    "https://bilibili.com/video/BV1xx411c7mD": "video:BV1xx411c7mD",
}
NAMELESS_URLS = [
    "https://www.bilibili.com", "https://www.bilibili.com/read/cv5", "https://live.bilibili.com/5",
    "https://www.bilibili.com/opus/05", "https://www.bilibili.com/opus/5/x", "https://www.bilibili.com/video/av5",
    "https://space.bilibili.com/5/opus/5", "https://www.bilibili.com/video/BV1xx411c7mDx",
    "https://t.bilibili.com/opus/5",
]  # fmt: skip


@pytest.mark.parametrize(("url", "key"), URL_KEYS.items())
def test_a_url_names_a_post_by_itself(url: str, key: str) -> None:
    nameless = {**make_card(0, url=url), "identifiers": {"dynamic_id": None, "opus_id": None, "bvid": None}}
    value = make_evidence(make_observation([{**nameless, "stable_keys": [key]}]))
    assert [card.stable_keys for card in parse_evidence(to_bytes(value)).cards] == [(key,)]
    refused = refusal_of(make_evidence(make_observation([{**nameless, "stable_keys": []}])))
    assert refused.pointer == "/observations/0/cards/0/stable_keys"


@pytest.mark.parametrize("url", NAMELESS_URLS)
def test_a_card_without_a_single_key_is_refused(url: str) -> None:
    parse_evidence(to_bytes(make_evidence(make_observation([make_card(0, url=url)]))))
    nameless = make_card(0, url=url)
    nameless |= {"identifiers": {"dynamic_id": None, "opus_id": None, "bvid": None}, "stable_keys": []}
    assert refusal_of(make_evidence(make_observation([nameless]))).pointer == "/observations/0/cards/0/stable_keys"


@pytest.mark.parametrize(
    "keys",
    [[], ["dynamic:7"], ["opus:8", "dynamic:7"], ["dynamic:7", "opus:8", "opus:8"], ["dynamic:7", "opus:9"],
     ["dynamic:7", "opus:8", "video:BV1xx411c7mD"], [7, 8], "dynamic:7"],
)  # fmt: skip
def test_stable_keys_are_recomputed(keys: object) -> None:
    path: Path = ("observations", 1, "cards", 0, "stable_keys")
    assert refusal_of(set_at(SAMPLE, path, keys)).pointer == pointer_of(path)


BAD_URLS = [
    "http://www.bilibili.com/opus/5", "HTTPS://www.bilibili.com/opus/5", "//www.bilibili.com/opus/5", "javascript:1",
    "https://evilbilibili.com/opus/5", "https://bilibili.com.evil.example/opus/5", "https://www.bilibili.com./opus/5",
    "https://www.bilibili.com@evil.example/", "https://u:p@www.bilibili.com/", "https://u@www.bilibili.com/",
    "https://www.bilibili.com:443/opus/5", "https://www.bilibili.com/opus/5?access_key=s3cret",
    "https://www.bilibili.com/opus/5#s3cret", "https://www.bilibili.com\\opus", "https://www.bilibili.com/a b",
    "https://www.bilibili.com/\u4e2d", "https://www.bilibili.com/opus/5\n", "https://WWW.bilibili.com/opus/5",
    "https://evil.example/bilibili.com", "https://.bilibili.com/", "https:///bilibili.com", "",
    "https://www.bilibili.com/" + "x" * 500,
]  # fmt: skip


def test_a_source_url_has_at_most_512_characters() -> None:
    longest = "https://www.bilibili.com/".ljust(512, "x")
    parse_evidence(to_bytes(set_at(SAMPLE, (*CARD, "source_url"), longest)))
    assert refusal_of(set_at(SAMPLE, (*CARD, "source_url"), longest + "x")).pointer == pointer_of((*CARD, "source_url"))


@pytest.mark.parametrize("url", BAD_URLS)
def test_source_urls_are_https_on_the_site_and_carry_nothing_else(url: str) -> None:
    refused = refusal_of(set_at(SAMPLE, (*CARD, "source_url"), url))
    assert refused.pointer == pointer_of((*CARD, "source_url"))
    assert "s3cret" not in f"{refused}{refused.detail}"


def test_identifiers_that_contradict_the_url() -> None:
    card = make_card(0, dynamic="7", url="https://t.bilibili.com/8")
    card["stable_keys"] = ["dynamic:7", "dynamic:8"]
    refused = refusal_of(make_evidence(make_observation([card])))
    assert (refused.code, refused.pointer) == ("E_IDENTITY_CONFLICT", "/observations/0/cards/0")
    assert refused.detail["values"] == ["7", "8"]


def test_a_post_twice_in_one_observation_but_not_in_two() -> None:
    one, two = make_card(0, dynamic="7"), make_card(1, dynamic="7", opus="8")
    refused = refusal_of(make_evidence(make_observation([one, two])))
    assert (refused.code, refused.pointer) == ("E_EVIDENCE_SCHEMA", "/observations/0/cards/1")
    assert refused.detail["first"] == "/observations/0/cards/0"
    two["position"] = 0
    parse_evidence(to_bytes(make_evidence(make_observation([one]), make_observation([two], ordinal=1))))


def test_a_post_twice_in_one_observation_as_a_later_one_shows() -> None:
    apart = make_observation([make_card(0, dynamic="7"), make_card(1, opus="8")])
    parse_evidence(to_bytes(make_evidence(apart)))
    link = make_observation([make_card(0, dynamic="7", opus="8")], ordinal=1)
    refused = refusal_of(make_evidence(apart, link))
    assert (refused.code, refused.pointer) == ("E_EVIDENCE_SCHEMA", "/observations/0/cards/1")


def test_two_values_of_one_kind_across_observations() -> None:
    one = make_observation([make_card(0), make_card(1, dynamic="7", bvid="BV1xx411c7mD")])
    two = make_observation([make_card(0, dynamic="9", bvid="BV1xx411c7mD")], ordinal=1)
    refused = refusal_of(make_evidence(one, two))
    assert (refused.code, refused.pointer) == ("E_IDENTITY_CONFLICT", "/observations/1/cards/0")
    assert refused.detail["values"] == ["7", "9"]
    assert refused.detail["where"] == ["/observations/0/cards/1", "/observations/1/cards/0"]


# -- the bytes --------------------------------------------------------------------------------------------------------

VALID = to_bytes(SAMPLE)


@pytest.mark.parametrize(
    ("label", "data"),
    [
        ("B129 key twice", VALID.replace(b'"schema_version": 2', b'"schema_version": 2, "schema_version": 2')),
        ("B129 equal once unescaped", VALID.replace(b'"run_id"', b'"task\\u005fid": "x", "run_id"')),
        ("B129 nested", VALID.replace(b'"bvid": null', b'"bvid": null, "bvid": null')),
        ("B131 infinity", VALID.replace(b'"schema_version": 2', b'"schema_version": 1e400')),
        ("B131 minus infinity", VALID.replace(b'"ordinal": 0', b'"ordinal": -1e400')),
        ("B132 5000 digits", VALID.replace(b'"ordinal": 0', b'"ordinal": ' + b"9" * 5000)),
        ("B142 lone high", VALID.replace(b'"next"', b'"\\ud800"')),
        ("B142 lone low, key", VALID.replace(b'"run_id"', b'"\\udc00": 1, "run_id"')),
        ("B144 deep objects", b'{"a":' * 10000 + b"1" + b"}" * 10000),
        ("B144 deep arrays", b"[" * 100000),
        ("B145 BOM", b"\xef\xbb\xbf" + VALID),
        ("B145 UTF-16", VALID.decode().encode("utf-16")),
        ("NaN", VALID.replace(b'"ordinal": 0', b'"ordinal": NaN')),
        ("torn", VALID[:-1]),
        ("trailing", VALID + b"{}"),
        ("no UTF-8", VALID.replace(b"page-extractor", b"\xff")),
        ("empty", b""),
        ("size", b" " * (8 * 1024 * 1024) + VALID),
    ],
)
def test_hostile_bytes_are_refused_as_evidence(label: str, data: bytes) -> None:
    assert data != VALID
    refused = refusal_of(data)
    assert refused.code == "E_EVIDENCE_SCHEMA"
    assert refused.detail["reason"], label


def test_a_repeated_key_is_named() -> None:
    data = VALID.replace(b'"bvid": null', b'"bvid": null, "bvid": null', 1)
    assert refusal_of(data).pointer == "/observations/0/cards/0/identifiers/bvid"


def test_a_cursor_may_hold_any_character_beyond_the_basic_plane() -> None:
    value = VALID.replace(b'"next"', b'"\\ud83d\\ude00"')
    assert parse_evidence(value).observations[0].cursor_after == "\U0001f600"


def test_one_bad_evidence_leaves_the_next_one_alone() -> None:
    """B132: in a batch of three the middle one is invalid, the others are read."""
    verdicts = []
    for data in (VALID, VALID.replace(b'"ordinal": 0', b'"ordinal": ' + b"9" * 5000), VALID):
        try:
            parse_evidence(data)
            verdicts.append(True)
        except EvidenceRejected:
            verdicts.append(False)
    assert verdicts == [True, False, True]


@pytest.mark.parametrize("depth", [0, 1, 40, 62])
def test_odd_values_never_raise_anything_else(depth: int) -> None:
    """Whatever stands at the top, it is refused as evidence, not by a traceback."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    assert refusal_of(value).pointer == ""


_json: Callable[[Any], Any] = lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)  # noqa: E731
ANYTHING = st.recursive(st.none() | st.booleans() | st.integers(-9, 99) | st.text(max_size=9), _json, max_leaves=5)


@settings(deadline=None)
@given(st.sampled_from([*leaves(SAMPLE), *objects(SAMPLE)]), ANYTHING)
def test_any_value_anywhere_is_read_or_refused(path: Path, new: object) -> None:
    value = to_bytes(set_at(SAMPLE, path, new) if path else new)
    try:
        assert parse_evidence(value).as_json() == set_at(SAMPLE, path, new)
    except EvidenceRejected as refused:
        assert refused.code in {"E_EVIDENCE_SCHEMA", "E_IDENTITY_CONFLICT"}
        assert refused.pointer.startswith("/") or refused.pointer == ""
