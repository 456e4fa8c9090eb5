"""A feed answer of the site, as saved by anybody, turned into evidence (collector.md section 6, import-feed). Pure.

The answer is foreign: unknown members, floats and odd values in places that nobody reads are let be, and only what
cannot be read is refused (E_FEED). One answer is one observation; each item becomes exactly one card or one unparsed
node. No text of the page goes into the evidence. A forward is a post of its own: what it forwards is another post and
lends it no identity. Of an answer with more than 50 items the first 50 are taken and the limit says so, which keeps
anybody from concluding that nothing new was there; several observations would need cursors that nobody gave.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from datetime import UTC, datetime, timedelta

from product.collector.evidence import (
    CARDS_LIMIT,
    CURSOR,
    Card,
    Evidence,
    EvidenceRejected,
    Extractor,
    Observation,
    ReasonCode,
    Source,
    StopReason,
    UnparsedNode,
    read_evidence,
)
from product.collector.keys import BVID, NUMBER, Identifiers, contradict, is_source_url, stable_keys
from product.durable import canonical

FEED_MOST_BYTES = 8 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_ID_DIGITS_MOST = 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS = re.compile("[1-9][0-9]{0,11}")
_SECONDS_END = 253_402_300_800  # 10000-01-01

CONTENT_TYPES = {
    "DYNAMIC_TYPE_AV": "video",
    "DYNAMIC_TYPE_UGC_SEASON": "video",
    "DYNAMIC_TYPE_PGC": "episode",
    "DYNAMIC_TYPE_PGC_UNION": "episode",
    "DYNAMIC_TYPE_DRAW": "draw",
    "DYNAMIC_TYPE_WORD": "word",
    "DYNAMIC_TYPE_ARTICLE": "article",
    "DYNAMIC_TYPE_MUSIC": "music",
    "DYNAMIC_TYPE_FORWARD": "forward",
    "DYNAMIC_TYPE_COMMON_SQUARE": "common",
    "DYNAMIC_TYPE_COMMON_VERTICAL": "common",
    "DYNAMIC_TYPE_LIVE": "live",
    "DYNAMIC_TYPE_LIVE_RCMD": "live",
}
# major.type -> the member of major that has the post's own page; every other post is known by its dynamic id alone
PAGES = {
    "MAJOR_TYPE_ARCHIVE": "archive",
    "MAJOR_TYPE_UGC_SEASON": "ugc_season",
    "MAJOR_TYPE_OPUS": "opus",
    "MAJOR_TYPE_ARTICLE": "article",
}
# Of a node that could not be parsed, only members of these names leave a trace, and of a text only its length.
FINGERPRINT_MEMBERS = (
    "archive", "article", "basic", "bvid", "comment_type", "common", "desc", "draw", "id", "id_str", "items",
    "jump_url", "live", "live_rcmd", "major", "module_author", "module_dynamic", "modules", "music", "opus", "orig",
    "pgc", "pub_ts", "text", "title", "type", "ugc_season", "visible",
)  # fmt: skip
_FINGERPRINT_DEPTH = 6
_FINGERPRINT_ITEMS = 4


class _Unparsable(Exception):
    """This item is no complete card."""

    def __init__(self, reason: ReasonCode) -> None:
        self.reason = reason


def evidence_from_feed(
    feed: bytes, *, task_id: str, run_id: str, observed_at: str, cursor_before: str | None = None
) -> bytes:
    """Canonical evidence bytes of one feed answer, as ``parse_evidence`` accepts them.

    Raises EvidenceRejected: E_FEED for the answer, E_EVIDENCE_SCHEMA for what was given beside it.
    """
    items, offset = _page(_load(feed))
    cards, unparsed = _nodes(items[:CARDS_LIMIT])
    observation = Observation(0, observed_at, cursor_before or None, offset, tuple(cards), tuple(unparsed))
    if len(items) >= CARDS_LIMIT:
        stop_reason = StopReason.CARD_LIMIT
    else:
        stop_reason = StopReason.PAGE_LIMIT if offset is not None else StopReason.END_OF_FEED
    evidence = Evidence(
        task_id, run_id, Source.API_FEED, _EXTRACTOR, observed_at, observed_at, stop_reason, (observation,)
    ).as_json()
    read_evidence(evidence)
    return canonical.encode(evidence)


def _load(feed: bytes) -> object:
    if len(feed) > FEED_MOST_BYTES:
        raise EvidenceRejected("E_FEED", f"{len(feed)} bytes are over the limit of {FEED_MOST_BYTES}", "")
    if feed.startswith(_BOM):
        raise EvidenceRejected("E_FEED", "it starts with a byte order mark (BOM); UTF-8 without one is due", "")
    try:
        return json.loads(feed.decode("utf-8"), parse_int=_integer, parse_constant=_refuse_constant)
    except RecursionError:
        raise EvidenceRejected("E_FEED", "it is nested too deep", "") from None
    except ValueError as error:
        raise EvidenceRejected("E_FEED", f"it is not JSON in UTF-8: {error}", "") from None


def _integer(digits: str) -> int | str:
    """Longer than any id or count: kept as text, so that no number of digits costs time or raises."""
    return int(digits) if len(digits) <= _ID_DIGITS_MOST else digits


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _page(answer: object) -> tuple[list[object], str | None]:
    """The items, and the cursor of the next page (None at the end of the feed)."""
    if not isinstance(answer, dict):
        raise EvidenceRejected("E_FEED", "an object is due", "")
    code = answer.get("code")
    if type(code) is not int or code != 0:
        raise EvidenceRejected("E_FEED", "the site did not answer with code 0", "/code", feed_code=f"{code!r:.40}")
    data = answer.get("data")
    if not isinstance(data, dict):
        raise EvidenceRejected("E_FEED", "an object is due", "/data")
    items, has_more, offset = data.get("items"), data.get("has_more"), data.get("offset")
    if not isinstance(items, list):
        raise EvidenceRejected("E_FEED", "an array is due", "/data/items")
    if not isinstance(has_more, bool):
        raise EvidenceRejected("E_FEED", "true or false is due", "/data/has_more")
    if not has_more:
        return items, None
    if type(offset) is int:
        offset = str(offset)
    if not isinstance(offset, str) or not offset or not CURSOR.fullmatch(offset):
        raise EvidenceRejected("E_FEED", "there is more, so a cursor is due", "/data/offset")
    return items, offset


def _nodes(items: list[object]) -> tuple[list[Card], list[UnparsedNode]]:
    cards: list[Card] = []
    unparsed: list[UnparsedNode] = []
    taken: set[str] = set()
    alike: Counter[str] = Counter()
    for position, item in enumerate(items):
        try:
            card = _card(item, position)
            if not taken.isdisjoint(card.stable_keys):
                # a page shows a post once: a second time is a contradiction, or the feed moved under the request
                raise _Unparsable(ReasonCode.IDENTITY_CONFLICT)
            taken.update(card.stable_keys)
            cards.append(card)
        except _Unparsable as error:
            structure = _sha256(_structure(item, _FINGERPRINT_DEPTH))
            fingerprint = _sha256({"occurrence": alike[structure], "structure": structure})
            alike[structure] += 1
            unparsed.append(UnparsedNode(position, fingerprint, error.reason))
    return cards, unparsed


def _card(item: object, position: int) -> Card:
    if not isinstance(item, dict):
        raise _Unparsable(ReasonCode.PARSER_REJECTED)
    kind = item.get("type")
    content_type = CONTENT_TYPES.get(kind) if isinstance(kind, str) else None
    if content_type is None:
        raise _Unparsable(ReasonCode.CONTENT_TYPE_UNKNOWN)
    dynamic_id = item.get("id_str")
    if type(dynamic_id) is int:
        dynamic_id = str(dynamic_id)
    if not isinstance(dynamic_id, str) or not NUMBER.fullmatch(dynamic_id):
        raise _Unparsable(ReasonCode.IDENTITY_MISSING)
    modules = item.get("modules")
    if not isinstance(modules, dict):
        raise _Unparsable(ReasonCode.NODE_TRUNCATED)
    published_at = _published_at(modules.get("module_author"))
    identifiers, source_url = Identifiers(dynamic_id), f"https://t.bilibili.com/{dynamic_id}"
    if content_type != "forward":
        identifiers, source_url = _own_page(modules.get("module_dynamic"), identifiers, source_url)
    keys = stable_keys(identifiers, source_url)
    if contradict(keys):
        raise _Unparsable(ReasonCode.IDENTITY_CONFLICT)
    return Card(position, identifiers, keys, published_at, content_type, source_url)


def _published_at(author: object) -> str:
    pub_ts = author.get("pub_ts") if isinstance(author, dict) else None
    if pub_ts is None:
        raise _Unparsable(ReasonCode.PUBLISHED_AT_MISSING)
    text = str(pub_ts) if type(pub_ts) is int else pub_ts
    if not isinstance(text, str) or not _SECONDS.fullmatch(text) or int(text) >= _SECONDS_END:
        raise _Unparsable(ReasonCode.PUBLISHED_AT_INVALID)
    return f"{_EPOCH + timedelta(seconds=int(text)):%Y-%m-%dT%H:%M:%SZ}"


def _own_page(dynamic: object, identifiers: Identifiers, source_url: str) -> tuple[Identifiers, str]:
    """Identifiers and URL of a post that has a page of its own: a video, an opus, an article."""
    if not isinstance(dynamic, dict):
        raise _Unparsable(ReasonCode.NODE_TRUNCATED)
    major = dynamic.get("major")
    kind = major.get("type") if isinstance(major, dict) else None
    member = PAGES.get(kind) if isinstance(kind, str) else None
    if member is None or not isinstance(major, dict):
        return identifiers, source_url
    page = major.get(member)
    if not isinstance(page, dict):
        raise _Unparsable(ReasonCode.NODE_TRUNCATED)
    url = _clean_url(page.get("jump_url"))
    named = dict(key.split(":", 1) for key in stable_keys(Identifiers(), url))
    bvid = named.get("video")
    if member == "archive":
        bvid = page.get("bvid")
        if not isinstance(bvid, str) or not BVID.fullmatch(bvid):
            raise _Unparsable(ReasonCode.IDENTITY_MISSING)
    return Identifiers(identifiers.dynamic_id, named.get("opus"), bvid), url


def _clean_url(url: object) -> str:
    """https, without query and fragment: both are left out, never checked, for they may hold anything."""
    if isinstance(url, str):
        url = re.split("[?#]", url, maxsplit=1)[0]
        url = re.sub("^(?:http:)?//", "https://", url)
        if is_source_url(url):
            return url
    raise _Unparsable(ReasonCode.SOURCE_URL_INVALID)


def _structure(value: object, depth: int) -> object:
    """What a node looks like without anything that it says: kinds, listed names, lengths of texts; bounded."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "flag"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return {"text": len(value)}
    if depth == 0:
        return "deeper"
    if isinstance(value, list):
        return {"array": len(value), "first": [_structure(item, depth - 1) for item in value[:_FINGERPRINT_ITEMS]]}
    assert isinstance(value, dict)
    listed = {name: _structure(value[name], depth - 1) for name in FINGERPRINT_MEMBERS if name in value}
    return {"members": listed, "others": len(value) - len(listed)}


def _sha256(value: object) -> str:
    return hashlib.sha256(canonical.encode(value)).hexdigest()


# The identity of this extractor is its rules: a changed table is another extractor.
_RULES: dict[str, object] = {
    "content_types": CONTENT_TYPES,
    "pages": PAGES,
    "fingerprint": [list(FINGERPRINT_MEMBERS), _FINGERPRINT_DEPTH, _FINGERPRINT_ITEMS],
}
_EXTRACTOR = Extractor("collector.import-feed", "1", _sha256(_RULES))
