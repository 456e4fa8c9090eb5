"""Who a post is: identifiers, the URL that names one, stable keys, and which cards are one post (V003 1.1). Pure.

A stable key is ``dynamic:<id>``, ``opus:<id>`` or ``video:<bvid>``. It comes from an identifier or from the source URL,
never from the extractor's word for it. Rejected: taking an opus id for a dynamic id because the site often gives both
the same number; often is not always, and a wrong join loses a post for good.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

SOURCE_URL_MOST = 512
_NUMBER = "[1-9][0-9]{0,19}"
_BVID = "BV[0-9A-Za-z]{10}"
NUMBER = re.compile(_NUMBER)
BVID = re.compile(_BVID)
_PATH = "(?:/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?"
# No user, port, query or fragment can match: those are where a session's secrets travel.
_SOURCE_URL = re.compile(rf"https://(?:[a-z0-9-]{{1,63}}\.){{0,4}}bilibili\.com{_PATH}")
_PAGE = r"(?:www\.|m\.)?bilibili\.com"
_NAMING_URL = re.compile(
    rf"https://(?:(?:t\.bilibili\.com|{_PAGE}/dynamic)/(?P<dynamic>{_NUMBER})"
    rf"|{_PAGE}/opus/(?P<opus>{_NUMBER})"
    rf"|{_PAGE}/video/(?P<video>{_BVID}))/?"
)


@dataclass(frozen=True, slots=True)
class Identifiers:
    """What a card or a post is called: decimal ids as text, a bvid with its case; None where it has no such name."""

    dynamic_id: str | None = None
    opus_id: str | None = None
    bvid: str | None = None

    def as_json(self) -> dict[str, object]:
        return {"dynamic_id": self.dynamic_id, "opus_id": self.opus_id, "bvid": self.bvid}

    @property
    def keys(self) -> tuple[str, ...]:
        named = (("dynamic", self.dynamic_id), ("opus", self.opus_id), ("video", self.bvid))
        return tuple(f"{kind}:{name}" for kind, name in named if name is not None)


def is_source_url(url: str) -> bool:
    """https, bilibili.com or a subdomain of it, and nothing but a path: no user, port, query or fragment."""
    return len(url) <= SOURCE_URL_MOST and _SOURCE_URL.fullmatch(url) is not None


def stable_keys(identifiers: Identifiers, source_url: str) -> tuple[str, ...]:
    """All keys that a card has, ascending, each once; two of one kind mean that it contradicts itself."""
    keys = set(identifiers.keys)
    named = _NAMING_URL.fullmatch(source_url)
    if named is not None and named.lastgroup is not None:
        keys.add(f"{named.lastgroup}:{named[named.lastgroup]}")
    return tuple(sorted(keys))


def contradict(keys: Collection[str]) -> bool:
    """Whether two of these keys, each given once, are of one kind: no post has two identifiers of a kind."""
    return len({key.partition(":")[0] for key in keys}) < len(keys)


def identifiers_of(keys: Iterable[str]) -> Identifiers:
    """The identifiers that these keys spell; they do not contradict."""
    named = dict(key.split(":", 1) for key in keys)
    return Identifiers(named.get("dynamic"), named.get("opus"), named.get("video"))


def group_by_keys(items: Iterable[T], keys_of: Callable[[T], Iterable[str]]) -> list[list[T]]:
    """Items that share a key, directly or through others, together: groups and items in the order first seen.

    Every item has at least one key. A union-find over the keys, so the cost hardly grows with the order they come in.
    """
    leader: dict[str, str] = {}

    def find(key: str) -> str:
        while leader.setdefault(key, key) != key:
            leader[key] = key = leader[leader[key]]
        return key

    placed: list[tuple[T, str]] = []
    for item in items:
        first, *others = keys_of(item)
        for other in others:
            leader[find(other)] = find(first)
        placed.append((item, first))
    groups: dict[str, list[T]] = {}
    for item, first in placed:
        groups.setdefault(find(first), []).append(item)
    return list(groups.values())
