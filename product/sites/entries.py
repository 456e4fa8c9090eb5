"""One line of the journal: a signal with its keys. Its exact bytes and its strict reading. Pure.

A signal that comes in has ``id``, ``outcome`` and ``url``; ``at`` (seconds since 1970, UTC) where it did not come just
now; ``root``, ``retry_after_s``, ``final_url`` and ``why`` where they are known. An entry has ``at`` and ``site`` too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from product.durable import canonical
from product.durable.canonical import Limits
from product.durable.errors import JsonRejected
from product.durable.evidence import require_whole
from product.sites.keys import UrlRejected, normalise_url, site_of
from product.sites.states import Outcome, Root

AT_MAX = 2**40
TEXT_MAX_CHARS = 200
_LIMITS = Limits(size_bytes=2**16, depth=2, keys=16, string_chars=3 * 4096)
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}
_ROOTS = {root.value.lower(): root for root in Root}
_OF_OURS = frozenset({Outcome.REVIVED, Outcome.TICK})
_OPTIONAL = frozenset({"root", "retry_after_s", "final_url", "why"})


@dataclass(frozen=True, slots=True)
class Entry:
    """``url`` is None for what is about a site or about all of them, ``site`` for what is about all of them."""

    id: str
    at: int
    outcome: Outcome
    url: str | None = None
    site: str | None = None
    root: Root = Root.UNKNOWN
    retry_after_s: int | None = None
    final_url: str | None = None
    why: str | None = None

    def format(self) -> bytes:
        """The line, with its end. Raises JsonRejected for text that is none."""
        fields: dict[str, Any] = {"id": self.id, "at": self.at, "outcome": self.outcome.value}
        for name in ("url", "site", "retry_after_s", "final_url", "why"):
            if (value := getattr(self, name)) is not None:
                fields[name] = value
        if self.root is not Root.UNKNOWN:
            fields["root"] = self.root.value.lower()
        return canonical.encode(fields) + b"\n"


def parse_entry(line: bytes) -> Entry:
    """An entry of the journal. Raises JsonRejected for everything that Entry.format() does not write."""
    fields = _object(line)
    outcome = _outcome(fields)
    entry = _read(fields, outcome, _whole_time(fields))
    wanted = {"id", "at", "outcome"}
    if outcome is not Outcome.TICK:
        wanted.add("site")
    if outcome not in _OF_OURS:
        wanted |= {"url"} | (_OPTIONAL & fields.keys())
    if fields.keys() != wanted:
        raise JsonRejected(f"has the keys {sorted(fields)}, not {sorted(wanted)}")
    return entry


def parse_signal(line: bytes, now: int) -> Entry:
    """A signal that comes in, as the entry that it becomes. Raises JsonRejected."""
    fields = _object(line)
    outcome = _outcome(fields)
    if outcome in _OF_OURS:
        raise JsonRejected("is a command's own", "/outcome")
    unknown = fields.keys() - {"id", "at", "outcome", "url"} - _OPTIONAL
    if unknown or "url" not in fields:
        raise JsonRejected(f"unknown keys {sorted(unknown)}" if unknown else "no url")
    url = _text(fields, "url", 4096)
    try:
        fields["url"] = normalise_url(url)
        fields["site"] = site_of(url)
    except UrlRejected as error:
        raise JsonRejected(str(error), "/url") from error
    return _read(fields, outcome, _whole_time(fields) if "at" in fields else now)


def _object(line: bytes) -> dict[str, Any]:
    fields = canonical.decode(line, limits=_LIMITS)
    if not isinstance(fields, dict):
        raise JsonRejected("not an object")
    return fields


def _outcome(fields: dict[str, Any]) -> Outcome:
    said = fields.get("outcome")
    if not isinstance(said, str) or said not in _OUTCOMES:
        raise JsonRejected(f"none of {', '.join(_OUTCOMES)}", "/outcome")
    return _OUTCOMES[said]


def _whole_time(fields: dict[str, Any]) -> int:
    at = require_whole(fields.get("at"), "/at")
    if at > AT_MAX:
        raise JsonRejected(f"later than {AT_MAX}", "/at")
    return at


def _read(fields: dict[str, Any], outcome: Outcome, at: int) -> Entry:
    root = fields.get("root", "unknown")
    if not isinstance(root, str) or root not in _ROOTS:
        raise JsonRejected(f"none of {', '.join(_ROOTS)}", "/root")
    retry = fields.get("retry_after_s")
    return Entry(
        _text(fields, "id", TEXT_MAX_CHARS),
        at,
        outcome,
        _text(fields, "url", 3 * 4096) if "url" in fields else None,
        _text(fields, "site", TEXT_MAX_CHARS + 100) if "site" in fields else None,
        _ROOTS[root],
        None if retry is None else require_whole(retry, "/retry_after_s"),
        _text(fields, "final_url", 3 * 4096) if "final_url" in fields else None,
        _text(fields, "why", TEXT_MAX_CHARS) if "why" in fields else None,
    )


def _text(fields: dict[str, Any], name: str, most_chars: int) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= most_chars:
        raise JsonRejected(f"not a text of 1 to {most_chars} characters", f"/{name}")
    return value
