"""From a URL to the two keys that signals are filed under: the page and the site. Pure; no network, ever.

The site is the registrable domain by the public suffix list, private part included: two tenants of a shared host are two
sites. Keys are made once, when a signal enters the journal; what is in the journal does not change with the list.
"""

from __future__ import annotations

import functools
import hashlib
import ipaddress
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

import tldextract

URL_MAX_CHARS = 4096
_PORTS = {"http": 80, "https": 443}
_SAFE = "!$%&'()*+,/:;=?@[]~-._"


class UrlRejected(ValueError):
    """No http or https URL with a host, or one that no server can be asked for."""


def normalise_url(url: str) -> str:
    """One spelling of the URL: lower-case scheme and host, IDNA host, no default port, no fragment, no credentials."""
    parts, host = _split(url)
    netloc = host if parts.port in (None, _PORTS[parts.scheme]) else f"{host}:{parts.port}"
    path, query = quote(parts.path or "/", safe=_SAFE), quote(parts.query, safe=_SAFE)
    return urlunsplit((parts.scheme, netloc, path, query, ""))


def root_of(url: str) -> str:
    """The root URL of the same host and port. Takes a normalised URL."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, "/", "", ""))


def page_key(url: str) -> str:
    """32 hexadecimal digits for a normalised URL."""
    return hashlib.sha256(url.encode()).hexdigest()[:32]


def site_of(url: str) -> str:
    """``example.co.uk``, ``a.github.io``, ``192.0.2.1``, ``[2001:db8::1]``, ``example.com:8080``. Raises UrlRejected.

    A port of its own is a site of its own: what another server on that host does says nothing about this one.
    """
    parts, host = _split(url)
    key = host if _is_address(host) else _registrable(host)
    return key if parts.port in (None, *_PORTS.values()) else f"{key}:{parts.port}"


def site_named(text: str) -> str:
    """The key of what a person calls a site: a domain, a host, or a URL. Raises UrlRejected."""
    return site_of(text if "://" in text else f"http://{text}/")


def _split(url: str) -> tuple[SplitResult, str]:
    """The parts, scheme in lower case, and the host as it is asked for. Raises UrlRejected."""
    if len(url) > URL_MAX_CHARS or any(ord(char) < 33 or ord(char) == 127 or char == "\\" for char in url):
        raise UrlRejected("too long, or with blanks, control characters or a backslash")
    try:
        url.encode()
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # both may raise
    except ValueError as error:
        raise UrlRejected(str(error)) from error
    if parts.scheme not in _PORTS or not host:
        raise UrlRejected("not an http or https URL with a host")
    return parts, _normal_host(host)


def _normal_host(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
        return f"[{address}]" if address.version == 6 else str(address)
    except ValueError:
        pass
    host = host.rstrip(".")
    if host.isascii() and not host.startswith("xn--") and ".xn--" not in host:
        normal = host.lower()
    else:
        import idna  # some tens of milliseconds, and rare

        try:
            normal = idna.encode(host, uts46=True).decode()
        except idna.IDNAError as error:
            raise UrlRejected(f"not a host name: {error}") from error
    labels = normal.split(".")
    if len(normal) > 253 or not all(_is_label(label) for label in labels) or labels[-1].isdigit():
        raise UrlRejected(f"not a host name: {normal[:80]!r}")
    return normal


def _is_label(label: str) -> bool:
    return 0 < len(label) < 64 and all(char.isalnum() or char in "-_" for char in label)


def _is_address(host: str) -> bool:
    return host.startswith("[") or host.rpartition(".")[2].isdigit()


_suffixes = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None, include_psl_private_domains=True)
_suffixes("example.com")  # reads the bundled list now: a broken installation shows at the start, not in a probe


@functools.lru_cache(maxsize=65_536)
def _registrable(host: str) -> str:
    found = _suffixes(host)
    if found.top_domain_under_public_suffix:
        return found.top_domain_under_public_suffix
    if found.suffix:  # the host is a public suffix itself
        return host
    return ".".join(host.split(".")[-2:])  # a suffix that the list does not know: its rule is *
