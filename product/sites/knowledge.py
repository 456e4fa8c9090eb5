"""What is known of sites and pages, and how one entry of the journal changes it. Pure: entries in, knowledge out.

No clock is read here: time is what the entries say. ``past its term`` is bounded against a clock that is set back:
nothing that began more than CLOCK_STEP_MAX_S in the future is in force.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from product.durable.errors import JsonRejected
from product.durable.lines import Block
from product.sites import states
from product.sites.entries import Entry, parse_entry
from product.sites.keys import page_key
from product.sites.states import DOMAIN, SIGNALS, Effect, Event, Move, Outcome, Past, Spread, State, Weight

PIECES_MAX = 8
_MOVES = {move: State[move.name] for move in Move if move.name in State.__members__}  # STAY and RENEW go nowhere


def in_force(since: int, until: int, now: int) -> bool:
    """Whether what began at ``since`` still holds; never longer than its term and one step of the clock."""
    return since - states.CLOCK_STEP_MAX_S <= now < until


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of evidence about a site, for people. ``row``: of Signals; ``moved``: of Domain, or None."""

    id: str
    at: int
    outcome: str
    row: str
    moved: str | None
    url: str | None


@dataclass(slots=True)
class Site:
    """``failures`` and ``challenges``: when each of those in a row was. ``until`` is None for NEUTRAL only."""

    state: State = State.NEUTRAL
    since: int = 0
    until: int | None = None
    rule: str = ""
    by: str = ""
    failures: list[int] = field(default_factory=list)
    challenges: list[int] = field(default_factory=list)
    goods: int = 0
    ok_at: int | None = None
    retry_since: int = 0
    retry_until: int | None = None
    pieces: list[Piece] = field(default_factory=list)

    def effective(self, now: int) -> State:
        if self.until is None or in_force(self.since, self.until, now):
            return self.state
        return State.NEUTRAL

    def waits(self, now: int) -> bool:
        return self.retry_until is not None and in_force(self.retry_since, self.retry_until, now)


@dataclass(frozen=True, slots=True)
class Page:
    """What a page held. ``since`` and ``until``: the term of what is known."""

    url: str
    site: str
    outcome: str
    since: int
    until: int
    by: str


@dataclass(slots=True)
class Outage:
    """``failing``: sites that failed in a row with no answer from any, until they are so many; ``at``: it goes on."""

    failing: dict[str, int] = field(default_factory=dict)
    at: int | None = None

    def is_open(self, now: int) -> bool:
        return self.at is not None and abs(now - self.at) <= states.OUTAGE_WINDOW_S


@dataclass(slots=True)
class Knowledge:
    sites: dict[str, Site] = field(default_factory=dict)
    pages: dict[str, Page] = field(default_factory=dict)
    outage: Outage = field(default_factory=Outage)
    outcomes: dict[str, int] = field(default_factory=dict)
    rejected: int = 0

    def apply_block(self, block: Block) -> None:
        """Apply the entries of these lines, in order. A line that is no entry is counted and passed."""
        if block.data is None:
            self.rejected += 1
        for line in block.lines():
            try:
                entry = parse_entry(line)
            except JsonRejected:
                self.rejected += 1
                continue
            self.apply(entry)

    def apply(self, entry: Entry) -> None:
        self.outcomes[entry.outcome.value] = self.outcomes.get(entry.outcome.value, 0) + 1
        if entry.site is None:
            self._expire(entry)
            return
        site = self.sites.get(entry.site)
        if site is None:
            site = self.sites[entry.site] = Site()
        self._settle(site, entry)
        spread = self._observe_spread(entry)
        row = SIGNALS.decide(outcome=entry.outcome, spread=spread, root=entry.root)
        moved = self._perform(row.action, site, entry)
        if row.action is not Effect.NOTHING_ROW:
            piece = Piece(entry.id, entry.at, entry.outcome.value, row.label, moved, entry.url)
            site.pieces = [*site.pieces[1 - PIECES_MAX :], piece]

    def _perform(self, effect: Effect, site: Site, entry: Entry) -> str | None:
        """Do it; the row of Domain, where the site's state was asked about."""
        if effect in (Effect.PAGE, Effect.PAGE_ANSWERED, Effect.PAGE_FAILURE, Effect.PAGE_GOOD):
            self._keep_page(entry)
        match effect:
            case Effect.FAILURE | Effect.PAGE_FAILURE:
                site.failures = [*site.failures[1 - states.FAILURES_TO_DEAD_AFTER_OK :], entry.at]
                return _move(site, Event.FAILURE, entry)
            case Effect.CHALLENGE:
                site.failures.clear()
                site.challenges = [*site.challenges[1 - states.CHALLENGES_TO_REPEAT :], entry.at]
                return _move(site, Event.CHALLENGE, entry)
            case Effect.PAGE_GOOD:
                site.goods += 1
                moved = _move(site, Event.GOOD, entry)
                _answered(site, entry)
                site.challenges.clear()
                return moved
            case Effect.PAGE_ANSWERED:
                moved = _move(site, Event.ANSWERED, entry)
                _answered(site, entry)
                return moved
            case Effect.REVIVE:
                moved = _move(site, Event.REVIVED, entry)
                site.failures.clear()
                site.challenges.clear()
                site.retry_until = None
                self._forget_pages(entry.site)
                return moved
            case Effect.RETRY:
                wait_s = states.RETRY_DEFAULT_S if entry.retry_after_s is None else entry.retry_after_s
                site.retry_since, site.retry_until = entry.at, entry.at + min(wait_s, states.RETRY_MAX_S)
            case _:
                pass
        return None

    def _keep_page(self, entry: Entry) -> None:
        assert entry.url is not None and entry.site is not None
        until = entry.at + states.PAGE_TERM_S[entry.outcome]
        self.pages[page_key(entry.url)] = Page(entry.url, entry.site, entry.outcome.value, entry.at, until, entry.id)

    def _forget_pages(self, site: str | None) -> None:
        self.pages = {key: page for key, page in self.pages.items() if page.site != site}

    def _settle(self, site: Site, entry: Entry) -> None:
        """What is past its term when the entry comes does not weigh in."""
        if site.until is not None and not in_force(site.since, site.until, entry.at):
            _move(site, Event.EXPIRED, entry)
        for evidence in (site.failures, site.challenges):
            if evidence:
                evidence[:] = [at for at in evidence if abs(entry.at - at) < states.EVIDENCE_TERM_S]

    def _observe_spread(self, entry: Entry) -> Spread:
        """Whether this failure is one of many. An answer from anybody ends an outage."""
        outage, at = self.outage, entry.at
        if entry.outcome is not Outcome.NETWORK_FAILURE:
            if entry.outcome in _ANSWERS and (outage.failing or outage.at is not None):
                self.outage = Outage()
            return Spread.CORRELATED if outage.is_open(at) and entry.outcome not in _ANSWERS else Spread.ALONE
        assert entry.site is not None
        if not outage.is_open(at):
            outage.at = None
            near = {site: t for site, t in outage.failing.items() if abs(at - t) <= states.OUTAGE_WINDOW_S}
            outage.failing = {**near, entry.site: at}
            if len(outage.failing) < states.OUTAGE_SITES:
                return Spread.ALONE
            for name in outage.failing:
                self._withdraw(self.sites[name], entry)
            outage.failing = {}
        outage.at = at
        return Spread.CORRELATED

    def _withdraw(self, site: Site, entry: Entry) -> None:
        """It was counted for the site before it was clear that everybody failed."""
        site.failures[:] = [at for at in site.failures if abs(entry.at - at) > states.OUTAGE_WINDOW_S]
        if abs(entry.at - site.since) <= states.OUTAGE_WINDOW_S:
            _move(site, Event.WITHDRAWN, entry)

    def _expire(self, entry: Entry) -> None:
        for site in self.sites.values():
            self._settle(site, entry)
            if site.retry_until is not None and not site.waits(entry.at):
                site.retry_until = None
        self.pages = {key: page for key, page in self.pages.items() if in_force(page.since, page.until, entry.at)}

    def is_due(self, now: int) -> bool:
        """Whether a tick at ``now`` would let anything go."""
        return (
            any(site.effective(now) is not site.state for site in self.sites.values())
            or any(site.retry_until is not None and not site.waits(now) for site in self.sites.values())
            or not all(in_force(page.since, page.until, now) for page in self.pages.values())
        )


_ANSWERS = frozenset(
    {Outcome.GONE, Outcome.TRANSIENT, Outcome.CHALLENGE, Outcome.FOUND, Outcome.EMPTY, Outcome.REFUSED}
)


def _answered(site: Site, entry: Entry) -> None:
    site.failures.clear()
    if entry.outcome in (Outcome.FOUND, Outcome.EMPTY):
        site.ok_at = entry.at


def _move(site: Site, event: Event, entry: Entry) -> str:
    """Ask Domain what the event does to the site, and do it; the row's label."""
    past = Past.NEVER if site.ok_at is None else Past.GOOD
    row = DOMAIN.decide(event=event, state=site.state, past=past, weight=_weigh(site, event, past))
    state = _MOVES.get(row.action, site.state)
    if row.action is not Move.STAY:
        site.state, site.since, site.rule, site.by = state, entry.at, row.label, entry.id
        site.until = entry.at + states.TERM_S[state] if state in states.TERM_S else None
        if state in _LOWERED:
            site.goods = 0
    return row.label


_LOWERED = frozenset({State.SUSPECT, State.ANTIBOT_SOFT, State.ANTIBOT_HARD, State.DEAD})


def _weigh(site: Site, event: Event, past: Past) -> Weight:
    needed = states.FAILURES_TO_DEAD if past is Past.NEVER else states.FAILURES_TO_DEAD_AFTER_OK
    reached = (
        (event is Event.FAILURE and len(site.failures) >= needed)
        or (event is Event.CHALLENGE and len(site.challenges) >= states.CHALLENGES_TO_REPEAT)
        or (event is Event.GOOD and site.goods >= states.GOODS_TO_FRIENDLY)
    )
    return Weight.REACHED if reached else Weight.BELOW
