"""Why a site is where it is, in one screen. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from product.durable.table import ANY, Row
from product.sites.knowledge import Knowledge, Page, Piece, Site, in_force
from product.sites.states import DOMAIN, FAILURES_TO_DEAD, FAILURES_TO_DEAD_AFTER_OK, SIGNALS, State

_SIGNAL_ROWS = {row.label: row for row in SIGNALS.rows}
_DOMAIN_ROWS = {row.label: row for row in DOMAIN.rows}


def dimensions(row: str) -> list[str]:
    """The dimensions that a row of Signals acts in."""
    return [part.split(":")[0] for part in str(_SIGNAL_ROWS[row].action.value).split("; ")]


def say_rule(label: str) -> str:
    """A row of Domain in words."""
    row: Row[Any] | None = _DOMAIN_ROWS.get(label)
    if row is None:
        return "nothing has moved it yet"
    assert row.when is not None
    when = "; ".join(f"{name} {_say(value)}" for name, value in row.when.items() if value is not ANY)
    return f"{label}: {when} -> {row.action.value}"


def _say(value: Any) -> str:
    members = [value] if isinstance(value, Enum) else sorted(value, key=lambda member: str(member.value))
    return "/".join(str(member.value) for member in members)


def explain(known: Knowledge, name: str, now: int) -> dict[str, Any]:
    """The fields of an answer; ``story`` is for people, a line each."""
    site = known.sites.get(name, Site())
    state = site.effective(now)
    pages = [p for p in known.pages.values() if p.site == name and in_force(p.since, p.until, now)]
    return {
        "site": name,
        "state": state.value,
        "since": site.since,
        "expires_at": site.until if state is site.state else None,
        "rule": site.rule or None,
        "by": site.by or None,
        "failures_in_a_row": len(site.failures),
        "ever_ok": site.ok_at is not None,
        "retry_at": site.retry_until if site.waits(now) else None,
        "evidence": [_piece_fields(piece) for piece in site.pieces],
        "pages": dict(sorted(Counter(page.outcome for page in pages).items())),
        "story": _story(site, state, name, pages, now),
    }


def _piece_fields(piece: Piece) -> Mapping[str, Any]:
    return {
        "id": piece.id,
        "at": piece.at,
        "outcome": piece.outcome,
        "url": piece.url,
        "row": piece.row,
        "dimension": dimensions(piece.row),
        "moved": piece.moved,
    }


def _story(site: Site, state: State, name: str, pages: list[Page], now: int) -> list[str]:
    lines = [f"{name} is {state.value}."]
    if state is not site.state:
        lines.append(f"It was {site.state.value}; that is past its term.")
    if site.rule:
        lines.append(f"Rule {say_rule(site.rule)} (signal {site.by}, {_when(site.since)}).")
    else:
        lines.append("No signal has moved it.")
    if site.failures and state is not State.DEAD:
        needed = FAILURES_TO_DEAD if site.ok_at is None else FAILURES_TO_DEAD_AFTER_OK
        lines.append(f"{len(site.failures)} failures in a row with nothing good between; {needed} make it DEAD.")
    if state is site.state and site.until is not None:
        lines.append(f"It leaves this state by itself at {_when(site.until)}; revive leaves it now.")
    if site.waits(now) and site.retry_until is not None:
        lines.append(f"It asked to wait until {_when(site.retry_until)}; that is not kept after it.")
    kinds = Counter(page.outcome for page in pages)
    if kinds:
        counted = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        lines.append(f"Pages: {counted}. They are skipped one by one; the site is not.")
    lines += [f"  {_say_piece(piece)}" for piece in site.pieces]
    return lines


def _say_piece(piece: Piece) -> str:
    effect = _SIGNAL_ROWS[piece.row].action.value
    moved = f" [{say_rule(piece.moved)}]" if piece.moved else ""
    return f"{_when(piece.at)} {piece.outcome} {piece.url or ''} -> {effect} ({piece.row}){moved}"


def _when(at: int) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{at} s"
