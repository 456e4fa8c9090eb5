"""state.json: its exact bytes and its strict reading. Pure.

RFC 8785 like every document here, but written by the encoder of the standard library: it is as fast as the number of
sites needs, and exact since every key is ASCII. A test holds it against canonical.encode().
"""

from __future__ import annotations

import json
from typing import Any

from product.durable import canonical
from product.durable.canonical import Limits
from product.durable.errors import JsonRejected
from product.durable.evidence import EVIDENCE_FIELDS, Evidence, parse_evidence, require_object, require_whole
from product.sites.errors import SitesError
from product.sites.knowledge import Knowledge, Outage, Page, Piece, Site
from product.sites.states import TERM_S, Outcome, State

SCHEMA = 1
SIZE_MAX_BYTES = 2**30
_LIMITS = Limits(size_bytes=SIZE_MAX_BYTES, depth=8, keys=SIZE_MAX_BYTES, string_chars=2**16)
_PIECE = ("at", "id", "moved", "outcome", "row", "url")
_SITE = ("by", "challenges", "failures", "goods", "ok_at", "pieces", "retry_since", "retry_until", "rule", "since",
         "state", "until")  # fmt: skip
_PAGE = ("by", "outcome", "since", "site", "until", "url")


def format_knowledge(known: Knowledge, evidence: Evidence) -> bytes:
    """The whole document. Raises SitesError E_SITE_TOO_MANY before it would be one that nobody reads again."""
    data = _dump({"schema": SCHEMA, **evidence.as_fields(), "known": as_fields(known)})
    if len(data) > SIZE_MAX_BYTES:
        raise SitesError("E_SITE_TOO_MANY", f"{len(known.pages)} pages are more than state.json may hold")
    return data


def knowledge_bytes(known: Knowledge) -> bytes:
    """What is known without where it was read: the same for the same entries, wherever their journal lies."""
    return _dump(as_fields(known))


def _dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def as_fields(known: Knowledge) -> dict[str, Any]:
    return {
        "outcomes": known.outcomes,
        "rejected": known.rejected,
        "outage": {"failing": known.outage.failing, "at": known.outage.at},
        "sites": {key: site_fields(site) for key, site in known.sites.items()},
        "pages": {key: {name: getattr(page, name) for name in _PAGE} for key, page in known.pages.items()},
    }


def site_fields(site: Site) -> dict[str, Any]:
    fields = {name: getattr(site, name) for name in _SITE}
    fields["state"] = site.state.value
    fields["pieces"] = [{name: getattr(piece, name) for name in _PIECE} for piece in site.pieces]
    return fields


def parse_knowledge(data: bytes) -> tuple[Knowledge, Evidence]:
    """Raises JsonRejected, with the place, for everything that format_knowledge() does not write."""
    document = require_object(canonical.decode(data, limits=_LIMITS), "", {"schema", "known", *EVIDENCE_FIELDS})
    if require_whole(document["schema"], "/schema") != SCHEMA:
        raise JsonRejected(f"not schema {SCHEMA}", "/schema")
    evidence = parse_evidence(document)
    fields = require_object(document["known"], "/known", {"outcomes", "rejected", "outage", "sites", "pages"})
    known = Knowledge(
        {key: _site(value, f"/known/sites/{key}") for key, value in _entries(fields["sites"], "/known/sites")},
        {key: _page(value, f"/known/pages/{key}") for key, value in _entries(fields["pages"], "/known/pages")},
        _outage(fields["outage"]),
        dict(_entries(fields["outcomes"], "/known/outcomes")),
        require_whole(fields["rejected"], "/known/rejected"),
    )
    for name, count in known.outcomes.items():
        _require(name in _OUTCOMES, "not an outcome", f"/known/outcomes/{name}")
        require_whole(count, f"/known/outcomes/{name}", least=1)
    if format_knowledge(known, evidence) != data:
        raise JsonRejected("not canonical bytes (RFC 8785)")
    return known, evidence


_OUTCOMES = {outcome.value for outcome in Outcome}
_STATES = {state.value: state for state in State}


def _entries(value: object, pointer: str) -> Any:
    _require(isinstance(value, dict), "not an object", pointer)
    assert isinstance(value, dict)
    return value.items()


def _site(value: object, at: str) -> Site:
    fields = require_object(value, at, set(_SITE))
    _require(fields["state"] in _STATES, "not a state", f"{at}/state")
    state = _STATES[fields["state"]]
    _require((fields["until"] is None) == (state not in TERM_S), "NEUTRAL alone has no end", f"{at}/until")
    for name in ("goods", "retry_since", "since"):
        require_whole(fields[name], f"{at}/{name}")
    for name in ("ok_at", "retry_until", "until"):
        if fields[name] is not None:
            require_whole(fields[name], f"{at}/{name}")
    for name in ("failures", "challenges", "pieces"):
        _require(isinstance(fields[name], list), "not a list", f"{at}/{name}")
    for name in ("failures", "challenges"):
        for number in fields[name]:
            require_whole(number, f"{at}/{name}")
    _require(isinstance(fields["rule"], str) and isinstance(fields["by"], str), "not a text", f"{at}/rule")
    return Site(**fields | {"state": state, "pieces": [_piece(piece, f"{at}/pieces") for piece in fields["pieces"]]})


def _piece(value: object, at: str) -> Piece:
    fields = require_object(value, at, set(_PIECE))
    _require_texts(fields, ("id", "outcome", "row"), ("moved", "url"), at)
    require_whole(fields["at"], f"{at}/at")
    return Piece(**fields)


def _page(value: object, at: str) -> Page:
    fields = require_object(value, at, set(_PAGE))
    _require_texts(fields, ("by", "outcome", "site", "url"), (), at)
    for name in ("since", "until"):
        require_whole(fields[name], f"{at}/{name}")
    return Page(**fields)


def _outage(value: object) -> Outage:
    fields = require_object(value, "/known/outage", {"failing", "at"})
    for site, at in _entries(fields["failing"], "/known/outage/failing"):
        require_whole(at, f"/known/outage/failing/{site}")
    if fields["at"] is not None:
        require_whole(fields["at"], "/known/outage/at")
    return Outage(fields["failing"], fields["at"])


def _require_texts(fields: dict[str, Any], texts: tuple[str, ...], optional: tuple[str, ...], at: str) -> None:
    for name in (*texts, *optional):
        _require(
            isinstance(fields[name], str) or (name in optional and fields[name] is None), "not a text", f"{at}/{name}"
        )


def _require(holds: bool, words: str, pointer: str) -> None:
    if not holds:
        raise JsonRejected(words, pointer)
