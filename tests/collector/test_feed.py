"""A feed answer becomes evidence: every item exactly one card or one unparsed node (collector.md section 6)."""

from __future__ import annotations

import contextlib
import copy
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from product.collector.evidence import Evidence, EvidenceRejected, parse_evidence
from product.collector.feed import evidence_from_feed

DATA = Path(__file__).parents[1] / "data"
AT = "2026-11-30T12:34:56Z"


def load(name: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((DATA / f"feed_{name}.json").read_bytes())
    return answer


def to_evidence(answer: object, **options: Any) -> bytes:
    data = answer if isinstance(answer, bytes) else json.dumps(answer, ensure_ascii=False).encode()
    return evidence_from_feed(data, **({"task_id": "task-1", "run_id": "run-1", "observed_at": AT} | options))


def read(answer: object, **options: Any) -> Evidence:
    return parse_evidence(to_evidence(answer, **options))


def refusal_of(answer: object, **options: Any) -> EvidenceRejected:
    with pytest.raises(EvidenceRejected) as caught:
        to_evidence(answer, **options)
    return caught.value


def answer_of(*items: object, has_more: object = False, offset: object = "") -> dict[str, Any]:
    return {"code": 0, "data": {"has_more": has_more, "items": list(items), "offset": offset}}


SPACE, ALL = load("space"), load("all")
OPUS, VIDEO = SPACE["data"]["items"][:2]
ARTICLE, DRAW, FORWARD = (ALL["data"]["items"][number] for number in (3, 2, 6))


def changed(item: dict[str, Any], path: str, *value: object) -> dict[str, Any]:
    """The item with another value at ``a.b.c``, or without that member."""
    result = copy.deepcopy(item)
    *steps, last = path.split(".")
    node = result
    for step in steps:
        node = node[step]
    if value:
        [node[last]] = value
    else:
        del node[last]
    return result


@pytest.mark.parametrize(
    ("name", "types", "kinds", "offset"),
    [
        (
            "space",
            {"draw": 1, "video": 5, "forward": 5, "common": 1},
            {"dynamic": 12, "opus": 1, "video": 5},
            "1263030297630100034",
        ),
        (
            "all",
            {"video": 7, "draw": 7, "article": 2, "forward": 4},
            {"dynamic": 20, "video": 7},
            "981062751530108479",
        ),
    ],
)
def test_real_shaped_answers(name: str, types: dict[str, int], kinds: dict[str, int], offset: str) -> None:
    answer = load(name)
    evidence = read(answer)
    [seen] = evidence.observations
    assert (len(seen.cards), len(seen.unparsed_nodes)) == (sum(types.values()), 0)
    assert Counter(card.content_type for card in seen.cards) == types
    assert Counter(key.partition(":")[0] for card in seen.cards for key in card.stable_keys) == kinds
    assert [card.identifiers.dynamic_id for card in seen.cards] == [item["id_str"] for item in answer["data"]["items"]]
    assert (seen.cursor_before, seen.cursor_after, seen.limit_hit) == (None, offset, None)
    assert (evidence.source, evidence.stop_reason) == ("api_feed", "page_limit")
    assert evidence.started_at == evidence.ended_at == seen.observed_at == AT


def test_the_bytes_are_canonical_and_always_the_same() -> None:
    data = to_evidence(SPACE)
    plain = json.dumps(json.loads(data), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert data == plain.encode()
    assert data == to_evidence(json.dumps(SPACE, indent=3).encode())


def test_no_text_of_the_page_gets_into_the_evidence() -> None:
    secret = json.loads(json.dumps(ALL).replace('"t"', '"s3cret"').replace('"xxx"', '"s3cret"'))
    for item in secret["data"]["items"][::2]:
        item["type"], item["s3cret"] = "DYNAMIC_TYPE_S3CRET", "s3cret"
    evidence = to_evidence(secret)
    assert b"s3cret" not in evidence.lower()
    assert b"up-10001" not in evidence
    assert len(parse_evidence(evidence).observations[0].unparsed_nodes) == 10


@pytest.mark.parametrize(
    ("item", "keys", "content_type", "url"),
    [
        (
            OPUS,
            ("dynamic:1131669469903023820", "opus:1131669469903023820"),
            "draw",
            "https://www.bilibili.com/opus/1131669469903023820",
        ),
        (
            VIDEO,
            ("dynamic:1681096468397559503", "video:BV1XrEgbMeGu"),
            "video",
            "https://www.bilibili.com/video/BV1XrEgbMeGu/",
        ),
        (ARTICLE, ("dynamic:900638888454693062",), "article", "https://www.bilibili.com/read/cv34581775"),
        (DRAW, ("dynamic:963556572645304551",), "draw", "https://t.bilibili.com/963556572645304551"),
        (FORWARD, ("dynamic:965650131221553305",), "forward", "https://t.bilibili.com/965650131221553305"),
        (
            changed(changed(DRAW, "type", "DYNAMIC_TYPE_LIVE_RCMD"), "modules.module_dynamic.major",
                    {"type": "MAJOR_TYPE_LIVE_RCMD", "live_rcmd": {"content": "{}"}}),
            ("dynamic:963556572645304551",), "live", "https://t.bilibili.com/963556572645304551",
        ),
        (
            changed(VIDEO, "modules.module_dynamic.major.archive.jump_url",
                    "http://www.bilibili.com/video/BV1XrEgbMeGu?spm_id_from=333#reply"),
            ("dynamic:1681096468397559503", "video:BV1XrEgbMeGu"), "video",
            "https://www.bilibili.com/video/BV1XrEgbMeGu",
        ),
        (changed(DRAW, "id_str", 963556572645304551), ("dynamic:963556572645304551",), "draw",
         "https://t.bilibili.com/963556572645304551"),
    ],
)  # fmt: skip
def test_each_kind_of_item(item: object, keys: tuple[str, ...], content_type: str, url: str) -> None:
    [card] = read(answer_of(item)).cards
    assert (card.stable_keys, card.content_type, card.source_url) == (keys, content_type, url)


def test_a_forward_never_takes_the_identity_of_what_it_forwards() -> None:
    forwarded_video = ALL["data"]["items"][13]
    assert forwarded_video["orig"]["modules"]["module_dynamic"]["major"]["type"] == "MAJOR_TYPE_ARCHIVE"
    own_major = changed(forwarded_video, "modules.module_dynamic.major", VIDEO["modules"]["module_dynamic"]["major"])
    for item in (forwarded_video, own_major):
        [card] = read(answer_of(item)).cards
        assert card.stable_keys == ("dynamic:918631736878718593",)


def test_published_at_is_pub_ts_in_utc() -> None:
    for pub_ts in (1746450829, "1746450829"):
        [card] = read(answer_of(changed(DRAW, "modules.module_author.pub_ts", pub_ts))).cards
        assert card.published_at == "2025-05-05T13:13:49Z"


PUB_TS = "modules.module_author.pub_ts"
ARCHIVE = "modules.module_dynamic.major.archive"
UNPARSED: list[tuple[object, str]] = [
    (changed(DRAW, "type", "DYNAMIC_TYPE_HOLOGRAM"), "CONTENT_TYPE_UNKNOWN"),
    (changed(DRAW, "type"), "CONTENT_TYPE_UNKNOWN"),
    (changed(DRAW, "type", ["DYNAMIC_TYPE_DRAW"]), "CONTENT_TYPE_UNKNOWN"),
    (changed(DRAW, "id_str"), "IDENTITY_MISSING"),
    (changed(DRAW, "id_str", ""), "IDENTITY_MISSING"),
    (changed(DRAW, "id_str", "0"), "IDENTITY_MISSING"),
    (changed(DRAW, "id_str", True), "IDENTITY_MISSING"),
    (changed(DRAW, "id_str", 9.6e17), "IDENTITY_MISSING"),
    (changed(DRAW, "id_str", "9" * 5000), "IDENTITY_MISSING"),
    (changed(DRAW, "id_str", int("9" * 30)), "IDENTITY_MISSING"),
    (changed(VIDEO, f"{ARCHIVE}.bvid"), "IDENTITY_MISSING"),
    (changed(VIDEO, f"{ARCHIVE}.bvid", "av128356974168263"), "IDENTITY_MISSING"),
    (changed(VIDEO, f"{ARCHIVE}.bvid", "BV1XrEgbMeGu7"), "IDENTITY_MISSING"),
    (changed(VIDEO, f"{ARCHIVE}.bvid", "BV1JiL2uADLe"), "IDENTITY_CONFLICT"),
    (changed(VIDEO, f"{ARCHIVE}.jump_url", "//t.bilibili.com/5"), "IDENTITY_CONFLICT"),
    (changed(DRAW, PUB_TS), "PUBLISHED_AT_MISSING"),
    (changed(DRAW, PUB_TS, None), "PUBLISHED_AT_MISSING"),
    (changed(DRAW, "modules.module_author"), "PUBLISHED_AT_MISSING"),
    (changed(DRAW, PUB_TS, 0), "PUBLISHED_AT_INVALID"),
    (changed(DRAW, PUB_TS, -1), "PUBLISHED_AT_INVALID"),
    (changed(DRAW, PUB_TS, True), "PUBLISHED_AT_INVALID"),
    (changed(DRAW, PUB_TS, 1.5), "PUBLISHED_AT_INVALID"),
    (changed(DRAW, PUB_TS, "yesterday"), "PUBLISHED_AT_INVALID"),
    (changed(DRAW, PUB_TS, "1746450829\n"), "PUBLISHED_AT_INVALID"),
    (changed(DRAW, PUB_TS, 253_402_300_800), "PUBLISHED_AT_INVALID"),
    (changed(DRAW, PUB_TS, int("9" * 40)), "PUBLISHED_AT_INVALID"),
    (changed(VIDEO, f"{ARCHIVE}.jump_url"), "SOURCE_URL_INVALID"),
    (changed(VIDEO, f"{ARCHIVE}.jump_url", "//evil.example/video/BV1XrEgbMeGu/"), "SOURCE_URL_INVALID"),
    (changed(VIDEO, f"{ARCHIVE}.jump_url", "//user:word@www.bilibili.com/"), "SOURCE_URL_INVALID"),
    (changed(DRAW, "modules"), "NODE_TRUNCATED"),
    (changed(DRAW, "modules.module_dynamic"), "NODE_TRUNCATED"),
    (changed(VIDEO, ARCHIVE), "NODE_TRUNCATED"),
    (None, "PARSER_REJECTED"),
    (17, "PARSER_REJECTED"),
    ("\ud800", "PARSER_REJECTED"),
    ([[[[[[[[DRAW]]]]]]]], "PARSER_REJECTED"),
]


@pytest.mark.parametrize(("item", "reason"), UNPARSED)
def test_what_is_no_complete_card_says_why(item: object, reason: str) -> None:
    data = json.dumps(answer_of(OPUS, item)).encode()  # ASCII: a lone surrogate has to arrive as one
    [seen] = read(data).observations
    assert [card.identifiers.dynamic_id for card in seen.cards] == [OPUS["id_str"]]
    assert [(node.position, node.reason_code) for node in seen.unparsed_nodes] == [(1, reason)]


@pytest.mark.parametrize("twin", [VIDEO, changed(VIDEO, "id_str", "5")])
def test_a_post_twice_on_one_page(twin: object) -> None:
    [seen] = read(answer_of(VIDEO, twin)).observations
    assert [(node.position, node.reason_code) for node in seen.unparsed_nodes] == [(1, "IDENTITY_CONFLICT")]


def fingerprints_of(*items: object) -> list[str]:
    return [node.node_fingerprint_sha256 for node in read(answer_of(*items)).observations[0].unparsed_nodes]


def test_a_fingerprint_is_of_the_structure_not_of_the_words() -> None:
    node = changed(DRAW, "type", "DYNAMIC_TYPE_NEW")
    [original] = fingerprints_of(node)
    assert fingerprints_of(changed(node, "modules.module_dynamic.desc.text", "yyy")) == [original]
    assert fingerprints_of(changed(node, "modules.module_author.name", "a longer name than before")) == [original]
    assert fingerprints_of(changed(node, "modules.module_dynamic.desc.text", "longer")) != [original]
    assert fingerprints_of(changed(node, "modules.module_dynamic.desc")) != [original]
    assert fingerprints_of({**node, "unheard_of": 1}) != [original]


def test_a_fingerprint_looks_only_so_deep_and_so_far() -> None:
    node: Any = 1
    for _ in range(500):
        node = {"major": node}
    plain = {"type": "DYNAMIC_TYPE_NEW", "major": {"items": [1, 2, 3, 4, 5]}}
    [deep, few] = fingerprints_of(node, plain)
    assert fingerprints_of({"major": {"major": {"major": {"major": {"major": {"major": {}}}}}}}) == [deep]
    assert fingerprints_of({"major": {"major": {"major": {"major": {"major": {"major": 1}}}}}}) != [deep]
    assert fingerprints_of({"type": "DYNAMIC_TYPE_NEW", "major": {"items": [1, 2, 3, 4, "x"]}}) == [few]
    assert fingerprints_of({"type": "DYNAMIC_TYPE_NEW", "major": {"items": [1, 2, 3, "x", 5]}}) != [few]
    assert fingerprints_of([[[[[[[1]]]]]]]) == fingerprints_of([[[[[[[2, 3]]]]]]])
    assert fingerprints_of({"major": {}, "x": 1}) == fingerprints_of({"major": {}, "y": "z"})
    assert fingerprints_of({"major": 1, "basic": 1, "x": 1}) != fingerprints_of({"major": 1, "basic": 1})


def test_nodes_that_look_alike_are_still_two() -> None:
    node = changed(DRAW, "type", "DYNAMIC_TYPE_NEW")
    first, second, third = fingerprints_of(node, node, node)
    assert len({first, second, third}) == 3
    assert fingerprints_of(node, VIDEO, node) == [first, second]


def many(count: int) -> list[dict[str, Any]]:
    return [changed(DRAW, "id_str", str(10**17 + number)) for number in range(count)]


@pytest.mark.parametrize(
    ("count", "kept", "limit_hit", "stop_reason"),
    [
        (0, 0, None, "end_of_feed"),
        (49, 49, None, "end_of_feed"),
        (50, 50, "CARD_PER_OBSERVATION_LIMIT", "card_limit"),
        (51, 50, "CARD_PER_OBSERVATION_LIMIT", "card_limit"),
        (120, 50, "CARD_PER_OBSERVATION_LIMIT", "card_limit"),
    ],
)
def test_the_limit_of_fifty(count: int, kept: int, limit_hit: str | None, stop_reason: str) -> None:
    evidence = read(answer_of(*many(count)))
    [seen] = evidence.observations
    assert (seen.visible_node_count, seen.limit_hit, evidence.stop_reason) == (kept, limit_hit, stop_reason)


@pytest.mark.parametrize(
    ("has_more", "offset", "after"), [(True, "123", "123"), (True, 123, "123"), (False, "123", None), (False, "", None)]
)
def test_the_next_cursor(has_more: bool, offset: object, after: str | None) -> None:
    assert read(answer_of(has_more=has_more, offset=offset)).observations[0].cursor_after == after


def test_the_cursor_that_was_asked_for() -> None:
    assert read(SPACE, cursor_before="99").observations[0].cursor_before == "99"
    assert read(SPACE, cursor_before="").observations[0].cursor_before is None


@pytest.mark.parametrize(
    ("answer", "pointer"),
    [
        ([], ""),
        (None, ""),
        ({}, "/code"),
        ({**SPACE, "code": -352, "message": "risk control"}, "/code"),
        ({**SPACE, "code": False}, "/code"),
        ({**SPACE, "code": "0"}, "/code"),
        ({"code": 0}, "/data"),
        ({"code": 0, "data": None}, "/data"),
        ({"code": 0, "data": {"has_more": False}}, "/data/items"),
        ({"code": 0, "data": {"has_more": False, "items": None}}, "/data/items"),
        ({"code": 0, "data": {"items": []}}, "/data/has_more"),
        (answer_of(has_more=1), "/data/has_more"),
        (answer_of(has_more=True), "/data/offset"),
        (answer_of(has_more=True, offset=None), "/data/offset"),
        (answer_of(has_more=True, offset=True), "/data/offset"),
        (answer_of(has_more=True, offset="x" * 513), "/data/offset"),
        (b'{"code":0,"data":{"has_more":true,"items":[],"offset":"\\ud800"}}', "/data/offset"),
        (b"", ""),
        (b"<html>", ""),
        (b'{"code":NaN}', ""),
        (b"\xff", ""),
        (b"[" * 100_000, ""),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, ""),
        (b"\xef\xbb\xbf" + json.dumps(SPACE).encode(), ""),
        (json.dumps(SPACE).encode("utf-16"), ""),
        (b" " * (8 * 1024 * 1024 + 1), ""),
    ],
)
def test_an_answer_that_cannot_be_read(answer: object, pointer: str) -> None:
    refused = refusal_of(answer)
    assert (refused.code, refused.pointer) == ("E_FEED", pointer)
    assert "risk control" not in str(refused)
    if isinstance(answer, bytes) and not pointer:
        assert re.search("over the limit|BOM|too deep|not JSON", refused.message)


def test_an_answer_of_exactly_the_limit_is_read_and_none_over_it() -> None:
    data = json.dumps(SPACE).encode()
    padded = data.ljust(8 * 1024 * 1024)
    assert read(padded).observations[0].visible_node_count == 12
    assert "over the limit" in refusal_of(padded + b" ").message


def test_a_byte_order_mark_is_called_by_its_name() -> None:
    assert "(BOM)" in refusal_of(b"\xef\xbb\xbf{}").message


def test_foreign_oddities_that_nobody_reads_are_let_be() -> None:
    odd = b'{"code":0,"x":1e400,"y":-0.5,"z":' + b"9" * 5000 + b',"code":0,"data":{"has_more":false,"items":[]}}'
    assert read(odd).observations[0].visible_node_count == 0


@pytest.mark.parametrize(
    ("option", "value", "pointer"),
    [
        ("task_id", "a/b", "/task_id"),
        ("run_id", "../x", "/run_id"),
        ("observed_at", "today", "/started_at"),
        ("cursor_before", "a\nb", "/observations/0/cursor_before"),
    ],
)
def test_what_is_given_beside_the_answer_is_checked(option: str, value: str, pointer: str) -> None:
    refused = refusal_of(SPACE, **{option: value})
    assert (refused.code, refused.pointer) == ("E_EVIDENCE_SCHEMA", pointer)


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in items for found in paths_of(item, (*path, key)))]


_ITEMS = [OPUS, VIDEO, ARTICLE, FORWARD, DRAW]
_PATHS = [path for path in paths_of(_ITEMS) if path]
_ODDS: list[Any] = [None, True, 0, -1, 1.5, "", "0", "x", "//t.bilibili.com/5", [], {}, [[]], {"type": "x"}, 2**70]
_ODD = st.sampled_from(_ODDS)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(_PATHS), _ODD), min_size=1, max_size=3))
def test_whatever_an_item_holds_every_node_is_accounted_for(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    items: Any = copy.deepcopy(_ITEMS)
    for path, odd in changes:
        node = items
        with contextlib.suppress(KeyError, IndexError, TypeError):  # an earlier change may have taken that place away
            for step in path[:-1]:
                node = node[step]
            node[path[-1]] = copy.deepcopy(odd)
    [seen] = read(answer_of(*items)).observations
    assert seen.visible_node_count == len(_ITEMS)
