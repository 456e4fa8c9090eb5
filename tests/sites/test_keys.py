"""Which site and which page a URL is about."""

from __future__ import annotations

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
        ("https://bücher.de/", "xn--bcher-kva.de"),
        ("https://www.xn--bcher-kva.de/", "xn--bcher-kva.de"),
        ("https://BÜCHER.de/", "xn--bcher-kva.de"),
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
