"""Asks a web server about one page, and about its root where the page is gone. Only reads; nothing here knows a state.

Everything is bounded: redirects, bytes, and the time of the whole, however slowly the bytes come. What fails before a
server has answered is a network failure; what fails after that is the server's, and passes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from product.sites.errors import SitesError
from product.sites.judging import Response, classify, retry_after_s
from product.sites.keys import UrlRejected, normalise_url, root_of, site_of
from product.sites.states import Outcome, Root

if TYPE_CHECKING:
    import httpx

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {"user-agent": "sites-probe", "accept-encoding": "identity"}  # no body that unfolds to gigabytes


@dataclass(frozen=True, slots=True)
class Bounds:
    """``total_s``: for one page with all its redirects. ``body_bytes``: how much of it is looked at."""

    total_s: float = 20.0
    step_s: float = 10.0
    redirects: int = 5
    body_bytes: int = 2**20


@dataclass(frozen=True, slots=True)
class Result:
    """``site`` is the one that gave the outcome: after a redirect it may be another than that of the page."""

    url: str
    site: str
    outcome: Outcome
    why: str
    final_url: str
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True)
class Probed:
    """A page, and its root where that was asked about."""

    page: Result
    root: Root = Root.UNKNOWN
    root_result: Result | None = None


def probe(url: str, wanted: re.Pattern[bytes], bounds: Bounds, now: int) -> Probed:
    """Fetch the page; where it is gone fetch the root once, before anything is said about the site.

    Takes a normalised URL. Raises SitesError E_CONFIG where httpx is not installed.
    """
    page = asyncio.run(_fetch(url, wanted, bounds, now))
    if page.outcome is not Outcome.GONE:
        return Probed(page)
    root_url = root_of(url)
    if root_url == url:
        return Probed(page, Root.FAILS)
    root = asyncio.run(_fetch(root_url, wanted, bounds, now))
    if root.outcome in (Outcome.GONE, Outcome.NETWORK_FAILURE):
        return Probed(page, Root.FAILS, root)
    return Probed(page, Root.ALIVE, root)


class _Hop:
    """How far a fetch has come."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.status: int | None = None


async def _fetch(url: str, wanted: re.Pattern[bytes], bounds: Bounds, now: int) -> Result:
    try:
        import httpx  # a quarter of a second, and only this command needs it
    except ImportError as error:
        raise SitesError("E_CONFIG", "probe needs the package httpx: pip install httpx") from error
    hop = _Hop(url)
    headers: Mapping[str, str] = {}
    try:
        async with (
            asyncio.timeout(bounds.total_s),
            httpx.AsyncClient(
                timeout=bounds.step_s, follow_redirects=False, headers=_HEADERS, trust_env=False
            ) as client,
        ):
            response = await _follow(client, hop, bounds)
        headers = response.headers
        outcome, why = classify(response, wanted)
    except (httpx.TransportError, httpx.InvalidURL, TimeoutError, OSError) as error:
        words = f"{type(error).__name__}: {error}"[:150]
        outcome, why = (
            (Outcome.NETWORK_FAILURE, words)
            if hop.status is None
            else (Outcome.TRANSIENT, f"{hop.status}, then {words}")
        )
    except _EndlessRedirects as error:
        outcome, why = Outcome.REFUSED, str(error)
    wait_s = retry_after_s(headers, now) if outcome is Outcome.TRANSIENT else None
    return Result(url, site_of(hop.url), outcome, why, hop.url, wait_s)


class _EndlessRedirects(Exception):
    pass


async def _follow(client: httpx.AsyncClient, hop: _Hop, bounds: Bounds) -> Response:
    """The first answer that is no redirect. Raises _EndlessRedirects, httpx.TransportError."""
    for _ in range(bounds.redirects + 1):
        hop.status = None
        async with client.stream("GET", hop.url) as response:
            hop.status = response.status_code
            headers = {name.lower(): value for name, value in response.headers.items()}
            if response.status_code not in _REDIRECTS or "location" not in headers:
                return Response(response.status_code, headers, await _read(response, bounds.body_bytes))
            try:
                hop.url = normalise_url(str(response.url.join(headers["location"])))
            except (UrlRejected, ValueError) as error:
                raise _EndlessRedirects(f"{response.status_code} to nowhere: {error}"[:150]) from error
    raise _EndlessRedirects(f"more than {bounds.redirects} redirects")


async def _read(response: httpx.Response, most_bytes: int) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) >= most_bytes:
            break
    return bytes(body[:most_bytes])
