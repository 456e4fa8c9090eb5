"""What an extractor saw, read strictly: evidence bytes in, frozen values out (V003 1.1, collector.md section 5). Pure.

The input carries no derived totals; what it does say twice (stable keys, counts, the limit) is computed again and has
to agree. Whatever is wrong, the JSON pointer of the first wrong place is named, before anything is written.

Fixed here: ordinals count from 0; at least one observation; stable keys ascending; times in UTC with ``Z`` and at most
nine decimals. Only our own clock is ordered (started <= observed ... <= ended): ``published_at`` is the site's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from product.collector import shape
from product.collector.errors import CollectorError
from product.collector.keys import (
    BVID,
    NUMBER,
    Identifiers,
    group_by_keys,
    is_source_url,
    stable_keys,
)
from product.collector.shape import HEX64, NAME, ShapeError
from product.durable import canonical
from product.durable.errors import JsonRejected

E = TypeVar("E", bound=StrEnum)

SCHEMA_VERSION = 2
CARDS_LIMIT = 50
LIMIT_HIT = "CARD_PER_OBSERVATION_LIMIT"
OBSERVATIONS_MOST = 1000
_MESSAGE_MOST = 500

_UTC = re.compile(
    r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?Z"
)
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_CONTENT_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
CURSOR = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]{0,512}")


class EvidenceRejected(CollectorError):
    """``code`` (E_EVIDENCE_SCHEMA, E_IDENTITY_CONFLICT, E_FEED), ``message``, ``detail`` and ``pointer`` (RFC 6901)."""

    def __init__(self, code: str, message: str, pointer: str, **detail: object) -> None:
        super().__init__(code, message[:_MESSAGE_MOST])
        self.detail = {"pointer": pointer, **detail}
        self.pointer = pointer


class Source(StrEnum):
    BROWSER = "browser"
    API_FEED = "api_feed"


class StopReason(StrEnum):
    """Why the extractor stopped looking. Told for people; coverage is proven from what was observed, never from it."""

    END_OF_FEED = "end_of_feed"
    REACHED_KNOWN = "reached_known"
    CARD_LIMIT = "card_limit"
    PAGE_LIMIT = "page_limit"
    TIME_LIMIT = "time_limit"
    NO_PROGRESS = "no_progress"
    INTERRUPTED = "interrupted"


class ReasonCode(StrEnum):
    """Why a visible node is not a complete card (V003 1.1)."""

    IDENTITY_MISSING = "IDENTITY_MISSING"
    IDENTITY_CONFLICT = "IDENTITY_CONFLICT"
    PUBLISHED_AT_MISSING = "PUBLISHED_AT_MISSING"
    PUBLISHED_AT_INVALID = "PUBLISHED_AT_INVALID"
    CONTENT_TYPE_UNKNOWN = "CONTENT_TYPE_UNKNOWN"
    SOURCE_URL_INVALID = "SOURCE_URL_INVALID"
    NODE_TRUNCATED = "NODE_TRUNCATED"
    PARSER_REJECTED = "PARSER_REJECTED"


@dataclass(frozen=True, slots=True)
class Extractor:
    name: str
    version: str
    sha256: str

    def as_json(self) -> dict[str, object]:
        return {"name": self.name, "version": self.version, "sha256": self.sha256}


@dataclass(frozen=True, slots=True)
class Card:
    """One complete visible node. ``pointer`` is where it stands in the evidence; equal cards may stand elsewhere."""

    position: int
    identifiers: Identifiers
    stable_keys: tuple[str, ...]
    published_at: str
    content_type: str
    source_url: str
    pointer: str = field(default="", compare=False)

    def as_json(self) -> dict[str, object]:
        return {
            "position": self.position,
            "identifiers": self.identifiers.as_json(),
            "stable_keys": list(self.stable_keys),
            "published_at": self.published_at,
            "content_type": self.content_type,
            "source_url": self.source_url,
        }


@dataclass(frozen=True, slots=True)
class UnparsedNode:
    position: int
    node_fingerprint_sha256: str
    reason_code: ReasonCode

    def as_json(self) -> dict[str, object]:
        return {
            "position": self.position,
            "node_fingerprint_sha256": self.node_fingerprint_sha256,
            "reason_code": self.reason_code.value,
        }


@dataclass(frozen=True, slots=True)
class Observation:
    """One look at the page: every visible node is either a card or an unparsed node, at its own position."""

    ordinal: int
    observed_at: str
    cursor_before: str | None
    cursor_after: str | None
    cards: tuple[Card, ...]
    unparsed_nodes: tuple[UnparsedNode, ...]

    @property
    def visible_node_count(self) -> int:
        return len(self.cards) + len(self.unparsed_nodes)

    @property
    def limit_hit(self) -> str | None:
        return LIMIT_HIT if self.visible_node_count == CARDS_LIMIT else None

    def as_json(self) -> dict[str, object]:
        return {
            "ordinal": self.ordinal,
            "observed_at": self.observed_at,
            "cursor_before": self.cursor_before,
            "cursor_after": self.cursor_after,
            "visible_node_count": self.visible_node_count,
            "complete_card_count": len(self.cards),
            "unparsed_node_count": len(self.unparsed_nodes),
            "cards": [card.as_json() for card in self.cards],
            "unparsed_nodes": [node.as_json() for node in self.unparsed_nodes],
            "limit_hit": self.limit_hit,
        }


@dataclass(frozen=True, slots=True)
class Evidence:
    """A whole run of an extractor. Only :func:`read_evidence` promises that its parts agree."""

    task_id: str
    run_id: str
    source: Source
    extractor: Extractor
    started_at: str
    ended_at: str
    stop_reason: StopReason
    observations: tuple[Observation, ...]

    @property
    def cards(self) -> Iterator[Card]:
        """All cards as the page showed them: by observation, then by position."""
        for observation in self.observations:
            yield from sorted(observation.cards, key=lambda card: card.position)

    def as_json(self) -> dict[str, object]:
        return {
            "schema_version": SCHEMA_VERSION,
            "task_id": self.task_id,
            "run_id": self.run_id,
            "source": self.source.value,
            "extractor": self.extractor.as_json(),
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "stop_reason": self.stop_reason.value,
            "observations": [observation.as_json() for observation in self.observations],
        }


_EVIDENCE_KEYS = frozenset((
    "schema_version", "task_id", "run_id", "source", "extractor", "started_at", "ended_at", "stop_reason",
    "observations",
))  # fmt: skip
_OBSERVATION_KEYS = frozenset((
    "ordinal", "observed_at", "cursor_before", "cursor_after", "visible_node_count", "complete_card_count",
    "unparsed_node_count", "cards", "unparsed_nodes", "limit_hit",
))  # fmt: skip
_CARD_KEYS = frozenset(("position", "identifiers", "stable_keys", "published_at", "content_type", "source_url"))
_IDENTIFIER_KEYS = frozenset(("dynamic_id", "opus_id", "bvid"))
_UNPARSED_KEYS = frozenset(("position", "node_fingerprint_sha256", "reason_code"))
_EXTRACTOR_KEYS = frozenset(("name", "version", "sha256"))


def parse_evidence(data: bytes) -> Evidence:
    """Evidence from its exact bytes. Raises EvidenceRejected with the JSON pointer of what is wrong."""
    try:
        value = canonical.decode(data)
    except JsonRejected as error:
        raise EvidenceRejected("E_EVIDENCE_SCHEMA", error.message, error.pointer, reason=error.reason) from None
    return read_evidence(value)


def read_evidence(value: object) -> Evidence:
    """The same from a decoded value. Raises EvidenceRejected."""
    try:
        evidence = _evidence(value)
    except ShapeError as error:
        raise EvidenceRejected("E_EVIDENCE_SCHEMA", str(error), error.pointer) from None
    for group in group_by_keys(evidence.cards, lambda card: card.stable_keys):
        require_one_post((key, card.pointer) for card in group for key in card.stable_keys)
        _require_unrepeated(group)
    return evidence


def hour_of(evidence: Evidence) -> str:
    """The UTC hour in which the run started, ``2026-11-30T12:00:00Z``: one run per hour, by its own word."""
    return f"{evidence.started_at[:13]}:00:00Z"


def require_one_post(named: Iterable[tuple[str, str]]) -> None:
    """All these ``(stable key, where it stands)``, in the order seen, name one post.

    Raises EvidenceRejected E_IDENTITY_CONFLICT at the second of two values of one kind, with both and where they stand.
    """
    first: dict[str, tuple[str, str]] = {}
    for key, where in named:
        kind, _, value = key.partition(":")
        other, there = first.setdefault(kind, (value, where))
        if other != value:
            message = f"one post has two {kind} identities, {other} ({there}) and {value} ({where})"
            detail = {"kind": kind, "values": [other, value], "where": [there, where]}
            raise EvidenceRejected("E_IDENTITY_CONFLICT", message, where, **detail)


def _require_unrepeated(group: Sequence[Card]) -> None:
    """One observation shows one post once; again in a later observation is how a page that stands still looks."""
    seen: dict[str, str] = {}
    for card in group:
        observation = card.pointer.rpartition("/cards/")[0]
        first = seen.setdefault(observation, card.pointer)
        if first != card.pointer:
            message = f"{card.pointer}: the same post as {first}, in the same observation"
            raise EvidenceRejected("E_EVIDENCE_SCHEMA", message, card.pointer, first=first)


def _evidence(value: object) -> Evidence:
    node = shape.require_object(value, _EVIDENCE_KEYS, "")
    shape.require_equal(node["schema_version"], SCHEMA_VERSION, "/schema_version")
    task_id = shape.require_text(node["task_id"], "/task_id", NAME)
    run_id = shape.require_text(node["run_id"], "/run_id", NAME)
    source = _enum(Source, node["source"], "/source")
    extractor = _extractor(node["extractor"], "/extractor")
    started_at, started = _instant(node["started_at"], "/started_at")
    ended_at, ended = _instant(node["ended_at"], "/ended_at")
    if ended < started:
        raise ShapeError("/ended_at", "it lies before started_at")
    stop_reason = _enum(StopReason, node["stop_reason"], "/stop_reason")
    items = shape.require_list(node["observations"], "/observations", most=OBSERVATIONS_MOST)
    if not items:
        raise ShapeError("/observations", "at least one observation is due")
    observations: list[Observation] = []
    last = started
    for ordinal, item in enumerate(items):
        pointer = f"/observations/{ordinal}"
        observation, observed = _observation(item, ordinal, pointer)
        if not last <= observed <= ended:
            raise ShapeError(f"{pointer}/observed_at", "it is out of order: started, observed one by one, ended")
        last = observed
        observations.append(observation)
    if stop_reason is StopReason.END_OF_FEED and observations[-1].cursor_after is not None:
        raise ShapeError("/stop_reason", "end_of_feed, but the last observation has a cursor_after")
    return Evidence(
        task_id, run_id, source, extractor, started_at, ended_at, stop_reason, tuple(observations)
    )  # fmt: skip


def _observation(value: object, ordinal: int, pointer: str) -> tuple[Observation, datetime]:
    node = shape.require_object(value, _OBSERVATION_KEYS, pointer)
    shape.require_equal(node["ordinal"], ordinal, f"{pointer}/ordinal")
    observed_at, observed = _instant(node["observed_at"], f"{pointer}/observed_at")
    before = _cursor(node["cursor_before"], f"{pointer}/cursor_before")
    after = _cursor(node["cursor_after"], f"{pointer}/cursor_after")
    cards = shape.require_list(node["cards"], f"{pointer}/cards", most=CARDS_LIMIT)
    unparsed = shape.require_list(node["unparsed_nodes"], f"{pointer}/unparsed_nodes", most=CARDS_LIMIT)
    visible = shape.require_integer(node["visible_node_count"], f"{pointer}/visible_node_count", high=CARDS_LIMIT)
    shape.require_equal(visible, len(cards) + len(unparsed), f"{pointer}/visible_node_count")
    shape.require_equal(node["complete_card_count"], len(cards), f"{pointer}/complete_card_count")
    shape.require_equal(node["unparsed_node_count"], len(unparsed), f"{pointer}/unparsed_node_count")
    # Positions that are all different and all below their number cover it exactly: nothing is counted twice or lost.
    taken: dict[object, str] = {}
    fingerprints: dict[object, str] = {}
    observation = Observation(
        ordinal,
        observed_at,
        before,
        after,
        tuple(_card(item, visible, taken, f"{pointer}/cards/{index}") for index, item in enumerate(cards)),
        tuple(
            _unparsed(item, visible, taken, fingerprints, f"{pointer}/unparsed_nodes/{index}")
            for index, item in enumerate(unparsed)
        ),
    )
    shape.require_equal(node["limit_hit"], observation.limit_hit, f"{pointer}/limit_hit")
    return observation, observed


def _card(value: object, visible: int, taken: dict[object, str], pointer: str) -> Card:
    node = shape.require_object(value, _CARD_KEYS, pointer)
    position = _position(node["position"], visible, taken, f"{pointer}/position")
    identifiers = _identifiers(node["identifiers"], f"{pointer}/identifiers")
    published_at, _ = _instant(node["published_at"], f"{pointer}/published_at")
    content_type = shape.require_text(node["content_type"], f"{pointer}/content_type", _CONTENT_TYPE)
    source_url = node["source_url"]
    if not isinstance(source_url, str) or not is_source_url(source_url):
        # its text is not repeated: what does not belong in a URL may well be a secret
        raise ShapeError(f"{pointer}/source_url", "https on bilibili.com with a path only is due")
    keys = stable_keys(identifiers, source_url)
    if not keys:
        raise ShapeError(f"{pointer}/stable_keys", "neither the identifiers nor the source_url name this post")
    shape.require_equal(node["stable_keys"], list(keys), f"{pointer}/stable_keys")
    return Card(position, identifiers, keys, published_at, content_type, source_url, pointer)


def _unparsed(
    value: object, visible: int, taken: dict[object, str], fingerprints: dict[object, str], pointer: str
) -> UnparsedNode:
    node = shape.require_object(value, _UNPARSED_KEYS, pointer)
    position = _position(node["position"], visible, taken, f"{pointer}/position")
    fingerprint = shape.require_text(node["node_fingerprint_sha256"], f"{pointer}/node_fingerprint_sha256", HEX64)
    _require_first(fingerprint, fingerprints, f"{pointer}/node_fingerprint_sha256")
    return UnparsedNode(position, fingerprint, _enum(ReasonCode, node["reason_code"], f"{pointer}/reason_code"))


def _position(value: object, visible: int, taken: dict[object, str], pointer: str) -> int:
    position = shape.require_integer(value, pointer, high=visible - 1)
    _require_first(position, taken, pointer)
    return position


def _require_first(value: object, seen: dict[object, str], pointer: str) -> None:
    first = seen.setdefault(value, pointer)
    if first != pointer:
        raise ShapeError(pointer, f"the same as {first}")


def _identifiers(value: object, pointer: str) -> Identifiers:
    node = shape.require_object(value, _IDENTIFIER_KEYS, pointer)

    def text(key: str, pattern: re.Pattern[str]) -> str | None:
        name = node[key]
        return None if name is None else shape.require_text(name, f"{pointer}/{key}", pattern)

    return Identifiers(text("dynamic_id", NUMBER), text("opus_id", NUMBER), text("bvid", BVID))


def _extractor(value: object, pointer: str) -> Extractor:
    node = shape.require_object(value, _EXTRACTOR_KEYS, pointer)
    return Extractor(
        shape.require_text(node["name"], f"{pointer}/name", _WORD),
        shape.require_text(node["version"], f"{pointer}/version", _WORD),
        shape.require_text(node["sha256"], f"{pointer}/sha256", HEX64),
    )


def _cursor(value: object, pointer: str) -> str | None:
    return None if value is None else shape.require_text(value, pointer, CURSOR)


def _instant(value: object, pointer: str) -> tuple[str, datetime]:
    text = shape.require_text(value, pointer, _UTC)
    try:
        return text, datetime.fromisoformat(text)
    except ValueError:
        raise ShapeError(pointer, f"{text!r} is no day of the calendar") from None


def _enum(kind: type[E], value: object, pointer: str) -> E:
    for member in kind:
        if value == member.value:
            return member
    raise ShapeError(pointer, f"one of {', '.join(kind)} is due")
