"""Which site and which page a URL is about."""

from __future__ import annotations

import hashlib
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from product.sites import keys


@pytest.mark.parametrize(
    ("url", "site"),
    [
        ("https://www.example.com/a", "example.com"),
        ("HTTPS://WWW.EXAMPLE.COM./a", "example.com"),
        ("http://a.b.example.co.uk/", "example.co.uk"),
        ("https://a.github.io/", "a.github.io"),
        ("https://deep.a.github.io/", "a.github.io"),
        ("https://github.io/", "github.io"),
        ("https://k12.ca.us/", "k12.ca.us"),
        ("https://bücher.de/", "xn--bcher-kva.de"),
        ("https://www.xn--bcher-kva.de/", "xn--bcher-kva.de"),
        ("https://BÜCHER.de/", "xn--bcher-kva.de"),
        ("https://ｅxample。com/", "example.com"),
        ("http://example.com:80/", "example.com"),
        ("https://example.com:443/", "example.com"),
        ("https://example.com:8443/", "example.com:8443"),
        ("http://192.0.2.7/", "192.0.2.7"),
        ("http://192.0.2.7:8080/", "192.0.2.7:8080"),
        ("http://[2001:DB8::1]/", "[2001:db8::1]"),
        ("http://[2001:db8:0::1]:81/", "[2001:db8::1]:81"),
        ("http://localhost:9/", "localhost:9"),
        ("http://a.b.internal-name/", "b.internal-name"),
        ("https://user:secret@example.com/", "example.com"),
    ],
)
def test_the_site_of_a_url(url: str, site: str) -> None:
    assert keys.site_of(url) == site
    assert keys.site_of(keys.normalise_url(url)) == site


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("HTTP://Example.com", "http://example.com/"),
        ("http://example.com:80/a#part", "http://example.com/a"),
        ("http://user:secret@example.com/a?b=ü", "http://example.com/a?b=%C3%BC"),
        ("http://example.com/a%20b", "http://example.com/a%20b"),
    ],
)
def test_one_spelling_of_a_page(url: str, same: str) -> None:
    assert keys.normalise_url(url) == same
    assert keys.normalise_url(same) == same


LABEL, LAST = "a" * 63, "b" * 61
LONGEST = ".".join([LABEL, LABEL, LABEL, LAST])
assert len(LONGEST) == 253


@pytest.mark.parametrize(
    ("fits", "does_not"),
    [
        (f"http://{LONGEST}/", f"http://{LONGEST}b/"),
        (f"http://{LABEL}.de/", f"http://{LABEL}a.de/"),
        ("http://a.de/", "http://a..de/"),
        ("http://a.1a/", "http://a.1/"),
        ("http://a-_1.de/", "http://a,1.de/"),
        (f"http://a.de/{'x' * 4084}", f"http://a.de/{'x' * 4085}"),
        ("http://a.de/!", "http://a.de/ "),
        ("http://a.de/!", "http://a.de/\x1f"),
        ("http://a.de/~", "http://a.de/\x7f"),
        ("http://a.de/\x80", "http://a.de/\\"),
        ("http://a.de/\ud7ff", "http://a.de/\ud800"),
        ("http://xn--bcher-kva.de/", "http://xn--a.de/"),
        ("http://b.xn--bcher-kva.de/", "http://b.xn--a.de/"),
    ],
)
def test_where_a_url_ends(fits: str, does_not: str) -> None:
    keys.normalise_url(fits)
    with pytest.raises(keys.UrlRejected):
        keys.normalise_url(does_not)


def test_what_a_person_calls_a_site() -> None:
    for text in ("example.com", "www.example.com", "https://www.example.com/a", "EXAMPLE.com."):
        assert keys.site_named(text) == "example.com"
    assert keys.site_named("BÜCHER.de:8443") == "xn--bcher-kva.de:8443"


def test_a_page_is_known_by_half_a_hash() -> None:
    assert keys.page_key("http://example.com/") == hashlib.sha256(b"http://example.com/").hexdigest()[:32]
    assert len(keys.page_key("http://example.com/")) == 32


@given(st.text(max_size=40).map(lambda text: f"http://{text}") | st.text(max_size=40))
def test_whatever_is_no_url_is_rejected_and_nothing_else_happens(text: str) -> None:
    try:
        url = keys.normalise_url(text)
    except keys.UrlRejected:
        return
    assert keys.normalise_url(url) == url
    assert keys.site_of(url) == keys.site_of(text)


def test_no_network_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("asked the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    keys._registrable.cache_clear()
    assert keys.site_of("https://www.example.org/") == "example.org"
