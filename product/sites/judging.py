"""From what a server answered to an outcome, and from what is known to whether a page is fetched. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from product.durable.table import Row
from product.sites import states
from product.sites.keys import page_key
from product.sites.knowledge import Knowledge, Site, in_force
from product.sites.states import FETCH, Fetch, Outcome, Page, Retry

WANTED_DEFAULT = r"mailto:|tel:|[\w.+-]{1,64}@[\w-]{1,63}\.\w"  # bounded: a hostile page costs no square of its size
_CHALLENGE_STATUS = frozenset({401, 403, 429, 503})
_CHALLENGE = re.compile(
    rb"just a moment\.\.\.|cf-chl|challenge-platform|captcha|attention required|are you a robot|verify you are human",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Response:
    """What came: ``headers`` by lower-case name, ``body`` as far as it is looked at."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def classify(response: Response, wanted: re.Pattern[bytes]) -> tuple[Outcome, str]:
    """The outcome, and why, for people. A redirect that leads on is not asked about here."""
    status = response.status
    if is_challenge(response):
        return Outcome.CHALLENGE, f"{status}, a challenge"
    if status in (404, 410):
        return Outcome.GONE, str(status)
    if status == 429 or status >= 500:
        return Outcome.TRANSIENT, str(status)
    if not 200 <= status < 300:
        return Outcome.REFUSED, str(status)
    if wanted.search(response.body):
        return Outcome.FOUND, str(status)
    return Outcome.EMPTY, str(status)


def is_challenge(response: Response) -> bool:
    if response.headers.get("cf-mitigated", "").lower() in ("challenge", "block"):
        return True
    return response.status in _CHALLENGE_STATUS and _CHALLENGE.search(response.body) is not None


def retry_after_s(headers: Mapping[str, str], now: int) -> int | None:
    """Seconds from ``now``, at most RETRY_MAX_S; None where the header is not there or says nothing."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:10]), states.RETRY_MAX_S)
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    wait_s = int((when - datetime.fromtimestamp(now, UTC)).total_seconds())
    return min(max(wait_s, 0), states.RETRY_MAX_S)


def decide_fetch(known: Knowledge, url: str, site: str, now: int) -> Row[Fetch]:
    """Whether a page is to be fetched. Takes a normalised URL."""
    page, about = known.pages.get(page_key(url)), known.sites.get(site, Site())
    held = page is not None and in_force(page.since, page.until, now)
    return FETCH.decide(
        page=Page.HELD if held else Page.UNKNOWN,
        state=about.effective(now),
        retry=Retry.WAIT if about.waits(now) else Retry.FREE,
    )
