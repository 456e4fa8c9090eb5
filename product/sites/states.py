"""What a signal may do, as three exhaustive tables (SPEC.md), and the numbers they are about. Pure.

``Signals``: in which dimension a signal acts. ``Domain``: what an event does to the state of a site. ``Fetch``: whether a
page is to be fetched. What a reopen may do is RESUME of product.durable.cursor.
"""

from __future__ import annotations

import enum
from typing import Any

from product.durable.cursor import RESUME
from product.durable.table import ANY, Row, Table

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400

FAILURES_TO_DEAD = 2  # in a row, for a site that has never been good
FAILURES_TO_DEAD_AFTER_OK = 3  # in a row, with an `ok` in its history
CHALLENGES_TO_REPEAT = 2
GOODS_TO_FRIENDLY = 3
EVIDENCE_TERM_S = DAY_S  # a failure or challenge longer ago is no longer "in a row" with one of now
OUTAGE_SITES = 5  # so many different sites in a row without an answer from anybody: it is our own network
OUTAGE_WINDOW_S = 2 * MINUTE_S
CLOCK_STEP_MAX_S = HOUR_S  # how long a clock that is set back may prolong anything
RETRY_DEFAULT_S, RETRY_MAX_S = MINUTE_S, DAY_S


class Outcome(enum.Enum):
    """What a signal says."""

    NETWORK_FAILURE = "network-failure"
    GONE = "gone"
    TRANSIENT = "transient"
    CHALLENGE = "challenge"
    FOUND = "found"
    EMPTY = "empty"
    POOL_HIT = "pool-hit"
    REFUSED = "refused"
    ROW = "row"
    REVIVED = "revived"
    TICK = "tick"


class Spread(enum.Enum):
    """Whether other sites fail at the same time."""

    ALONE = "ALONE"
    CORRELATED = "CORRELATED"


class Root(enum.Enum):
    """What is known of the root URL after a page was gone."""

    UNKNOWN = "UNKNOWN"
    ALIVE = "ALIVE"
    FAILS = "FAILS"


class Effect(enum.Enum):
    """Every dimension that a signal can act in, and how."""

    PAGE = "url: the page alone"
    PAGE_ANSWERED = "url: the page; domain: it answered"
    PAGE_FAILURE = "url: the page; domain: one more failure in a row"
    PAGE_GOOD = "url: the page; domain: one more good answer"
    FAILURE = "domain: one more failure in a row"
    CHALLENGE = "domain: one more challenge in a row"
    RETRY = "domain: retry later, nothing lasting"
    REVIVE = "domain: revived by hand"
    OUTAGE = "global: an outage of our own, no site is counted"
    EXPIRE = "global: whatever is past its term goes"
    NOTHING_URL = "url: the fetch was skipped, nothing moves"
    NOTHING_ROW = "row: nothing moves"


class State(enum.Enum):
    FRIENDLY = "FRIENDLY"
    NEUTRAL = "NEUTRAL"
    SUSPECT = "SUSPECT"
    ANTIBOT_SOFT = "ANTIBOT_SOFT"
    ANTIBOT_HARD = "ANTIBOT_HARD"
    DEAD = "DEAD"


class Event(enum.Enum):
    """What reaches a site."""

    FAILURE = "failure"
    CHALLENGE = "challenge"
    GOOD = "good"
    ANSWERED = "answered"
    EXPIRED = "expired"
    REVIVED = "revived"
    WITHDRAWN = "withdrawn"  # what was counted in the beginning of an outage


class Past(enum.Enum):
    """Whether an `ok` is in the history of the site."""

    NEVER = "NEVER"
    GOOD = "GOOD"


class Weight(enum.Enum):
    """The evidence, this event included, against the number that it needs."""

    BELOW = "BELOW"
    REACHED = "REACHED"


class Move(enum.Enum):
    STAY = "stay"
    RENEW = "stay, a new term begins"
    FRIENDLY = "to FRIENDLY"
    NEUTRAL = "to NEUTRAL"
    SUSPECT = "to SUSPECT"
    ANTIBOT_SOFT = "to ANTIBOT_SOFT"
    ANTIBOT_HARD = "to ANTIBOT_HARD"
    DEAD = "to DEAD"


class Page(enum.Enum):
    """The URL pool about the page."""

    UNKNOWN = "UNKNOWN"
    HELD = "HELD"


class Retry(enum.Enum):
    FREE = "FREE"
    WAIT = "WAIT"


class Fetch(enum.Enum):
    GO = "fetch"
    SKIP_PAGE = "skip: the page is known"
    SKIP_DEAD = "skip: the site is dead"
    SKIP_ANTIBOT = "skip: the site keeps robots out"
    SKIP_RETRY = "skip: the site asked to wait"


TERM_S: dict[State, int] = {
    State.FRIENDLY: 90 * DAY_S,
    State.SUSPECT: HOUR_S,
    State.ANTIBOT_SOFT: 6 * HOUR_S,
    State.ANTIBOT_HARD: 7 * DAY_S,
    State.DEAD: DAY_S,
}
PAGE_TERM_S: dict[Outcome, int] = {
    Outcome.FOUND: 7 * DAY_S,
    Outcome.EMPTY: 30 * DAY_S,
    Outcome.GONE: 30 * DAY_S,
    Outcome.REFUSED: DAY_S,
}


def _signal(label: str, outcome: Any, spread: Any, root: Any, effect: Effect) -> Row[Effect]:
    return Row(label, {"outcome": outcome, "spread": spread, "root": root}, effect)


SIGNALS: Table[Effect] = Table(
    {"outcome": Outcome, "spread": Spread, "root": Root},
    (
        _signal("N1", Outcome.NETWORK_FAILURE, Spread.ALONE, ANY, Effect.FAILURE),
        _signal("N2", Outcome.NETWORK_FAILURE, Spread.CORRELATED, ANY, Effect.OUTAGE),
        _signal("P1", Outcome.GONE, ANY, Root.UNKNOWN, Effect.PAGE),
        _signal("P2", Outcome.GONE, ANY, Root.ALIVE, Effect.PAGE_ANSWERED),
        _signal("P3", Outcome.GONE, ANY, Root.FAILS, Effect.PAGE_FAILURE),
        _signal("T1", Outcome.TRANSIENT, ANY, ANY, Effect.RETRY),
        _signal("H1", Outcome.CHALLENGE, ANY, ANY, Effect.CHALLENGE),
        _signal("O1", Outcome.FOUND, ANY, ANY, Effect.PAGE_GOOD),
        _signal("O2", Outcome.EMPTY, ANY, ANY, Effect.PAGE_ANSWERED),
        _signal("U1", Outcome.POOL_HIT, ANY, ANY, Effect.NOTHING_URL),
        _signal("Q1", Outcome.REFUSED, ANY, ANY, Effect.PAGE),
        _signal("W1", Outcome.ROW, ANY, ANY, Effect.NOTHING_ROW),
        _signal("V1", Outcome.REVIVED, ANY, ANY, Effect.REVIVE),
        _signal("X1", Outcome.TICK, ANY, ANY, Effect.EXPIRE),
    ),
)

_N, _F, _S, _D = State.NEUTRAL, State.FRIENDLY, State.SUSPECT, State.DEAD
_SOFT, _HARD = State.ANTIBOT_SOFT, State.ANTIBOT_HARD
_ANTIBOT = frozenset({_SOFT, _HARD})
_NOT_NEUTRAL = frozenset(State) - {_N}
_LOW = frozenset({_S, _D})


def _move(label: str, event: Event, state: Any, past: Any, weight: Any, move: Move) -> Row[Move]:
    return Row(label, {"event": event, "state": state, "past": past, "weight": weight}, move)


DOMAIN: Table[Move] = Table(
    {"event": Event, "state": State, "past": Past, "weight": Weight},
    (
        _move("F1", Event.FAILURE, _N, Past.NEVER, Weight.BELOW, Move.SUSPECT),
        _move("F2", Event.FAILURE, _N, Past.GOOD, Weight.BELOW, Move.STAY),
        _move("F3", Event.FAILURE, _NOT_NEUTRAL - {_D}, ANY, Weight.BELOW, Move.STAY),
        _move("F4", Event.FAILURE, frozenset(State) - {_D}, ANY, Weight.REACHED, Move.DEAD),
        _move("F5", Event.FAILURE, _D, ANY, ANY, Move.STAY),
        _move("C1", Event.CHALLENGE, {_N, _S, _D}, Past.NEVER, Weight.BELOW, Move.ANTIBOT_SOFT),
        _move("C2", Event.CHALLENGE, _N, Past.GOOD, Weight.BELOW, Move.STAY),
        _move("C3", Event.CHALLENGE, {_F, _SOFT}, ANY, Weight.BELOW, Move.STAY),
        _move("C4", Event.CHALLENGE, _LOW, Past.GOOD, Weight.BELOW, Move.NEUTRAL),
        _move("C5", Event.CHALLENGE, {_F, _N, _S, _D}, ANY, Weight.REACHED, Move.ANTIBOT_SOFT),
        _move("C6", Event.CHALLENGE, _SOFT, ANY, Weight.REACHED, Move.ANTIBOT_HARD),
        _move("C7", Event.CHALLENGE, _HARD, ANY, ANY, Move.STAY),
        _move("G1", Event.GOOD, _F, ANY, ANY, Move.RENEW),
        _move("G2", Event.GOOD, frozenset(State) - {_F}, ANY, Weight.REACHED, Move.FRIENDLY),
        _move("G3", Event.GOOD, _LOW | _ANTIBOT, ANY, Weight.BELOW, Move.NEUTRAL),
        _move("G4", Event.GOOD, _N, ANY, Weight.BELOW, Move.STAY),
        _move("A1", Event.ANSWERED, _LOW, ANY, ANY, Move.NEUTRAL),
        _move("A2", Event.ANSWERED, frozenset(State) - _LOW, ANY, ANY, Move.STAY),
        _move("E1", Event.EXPIRED, _NOT_NEUTRAL, ANY, ANY, Move.NEUTRAL),
        _move("E2", Event.EXPIRED, _N, ANY, ANY, Move.STAY),
        _move("V2", Event.REVIVED, _NOT_NEUTRAL, ANY, ANY, Move.NEUTRAL),
        _move("V3", Event.REVIVED, _N, ANY, ANY, Move.STAY),
        _move("Z1", Event.WITHDRAWN, _LOW, ANY, ANY, Move.NEUTRAL),
        _move("Z2", Event.WITHDRAWN, frozenset(State) - _LOW, ANY, ANY, Move.STAY),
    ),
)


def _fetch(label: str, page: Any, state: Any, retry: Any, action: Fetch) -> Row[Fetch]:
    return Row(label, {"page": page, "state": state, "retry": retry}, action)


FETCH: Table[Fetch] = Table(
    {"page": Page, "state": State, "retry": Retry},
    (
        _fetch("K1", Page.HELD, ANY, ANY, Fetch.SKIP_PAGE),
        _fetch("K2", Page.UNKNOWN, _D, ANY, Fetch.SKIP_DEAD),
        _fetch("K3", Page.UNKNOWN, _HARD, ANY, Fetch.SKIP_ANTIBOT),
        _fetch("K4", Page.UNKNOWN, {_F, _N, _S, _SOFT}, Retry.WAIT, Fetch.SKIP_RETRY),
        _fetch("K5", Page.UNKNOWN, {_F, _N, _S, _SOFT}, Retry.FREE, Fetch.GO),
    ),
)

TABLES: dict[str, Table[Any]] = {"Signals": SIGNALS, "Domain": DOMAIN, "Fetch": FETCH, "Resume": RESUME}
