"""Probes of a real server that misbehaves on purpose."""

from __future__ import annotations

import socket
import sys
from typing import Any

import pytest

from product.sites import keys
from tests.sites.helpers import NOW, Bench
from tests.sites.server import Server, page, reset, status


def probe(bench: Bench, url: str, *options: str, now: int = NOW) -> dict[str, Any]:
    return bench.run("probe", "--timeout", "5", *options, url, now=now).require_done()


@pytest.mark.parametrize(
    ("path", "outcome"),
    [
        ("/", "found"),
        ("/here", "found"),
        ("/empty", "empty"),
        ("/article-about-captcha", "empty"),
        ("/gone", "gone"),
        ("/gone-for-good", "gone"),
        ("/busy", "transient"),
        ("/error", "transient"),
        ("/half", "transient"),
        ("/bad-request", "refused"),
        ("/forbidden", "refused"),
        ("/loop", "refused"),
        ("/nowhere", "refused"),
        ("/challenge", "challenge"),
        ("/block-page", "challenge"),
        ("/garbage", "network-failure"),
        ("/reset", "network-failure"),
    ],
)
def test_what_comes_of_an_answer(bench: Bench, server: Server, path: str, outcome: str) -> None:
    assert probe(bench, server.url(path))["outcome"] == outcome


def test_a_missing_page_on_a_living_site_carries_its_root(bench: Bench, server: Server) -> None:
    told = probe(bench, server.url("/gone"))
    assert (told["root"], told["root_outcome"], told["final_url"]) == ("alive", "found", server.url("/"))
    assert server.paths == ["/gone", "/"]
    assert bench.state_of(server.site) == "NEUTRAL"
    assert bench.explain(server.site)["pages"] == {"found": 1, "gone": 1}


@pytest.mark.parametrize("root", [status(404, "Not Found"), reset])
def test_a_missing_page_whose_root_fails_is_one_failure(bench: Bench, server: Server, root: Any) -> None:
    server.answers["/"] = root
    assert probe(bench, server.url("/gone"))["root"] == "fails"
    assert bench.explain(server.site)["failures_in_a_row"] == 1
    assert bench.state_of(server.site) == "SUSPECT"


def test_a_root_that_is_missing_is_its_own_root(bench: Bench, server: Server) -> None:
    server.answers["/"] = status(404, "Not Found")
    assert probe(bench, server.url("/"))["root"] == "fails"
    assert server.paths == ["/"]


def test_a_root_that_lives_by_a_challenge_is_not_dead(bench: Bench, server: Server) -> None:
    server.answers["/"] = server.answers["/challenge"]
    assert probe(bench, server.url("/gone"))["root"] == "alive"
    assert bench.state_of(server.site) == "ANTIBOT_SOFT"


@pytest.mark.parametrize(("path", "wait_s"), [("/busy", 120), ("/busy-date", 400), ("/busy-nonsense", 60)])
def test_retry_after_is_honoured(bench: Bench, server: Server, path: str, wait_s: int) -> None:
    probe(bench, server.url(path))
    assert bench.explain(server.site)["retry_at"] == NOW + wait_s
    told = probe(bench, server.url("/empty"), now=NOW + wait_s - 1)
    assert (told["fetched"], told["rule"]) == (False, "K4")
    assert probe(bench, server.url("/empty"), now=NOW + wait_s)["fetched"] is True
    assert server.paths == [path, "/empty"]


def test_a_page_that_is_known_is_not_fetched_and_the_site_does_not_move(bench: Bench, server: Server) -> None:
    probe(bench, server.url("/empty"))
    before = bench.snapshot()
    assert probe(bench, server.url("/empty"))["rule"] == "K1"
    assert server.paths == ["/empty"] and bench.snapshot() == before
    assert probe(bench, server.url("/empty"), "--force")["fetched"] is True


def test_a_dead_site_is_not_fetched_until_its_term_is_over(bench: Bench, server: Server) -> None:
    for path in ("/reset", "/reset"):
        probe(bench, server.url(path))
    assert bench.state_of(server.site) == "DEAD"
    assert probe(bench, server.url("/"))["rule"] == "K2"
    assert probe(bench, server.url("/"), now=NOW + 86_400)["outcome"] == "found"


def test_a_site_that_keeps_robots_out_is_not_fetched(bench: Bench, server: Server) -> None:
    probe(bench, server.url("/challenge"))
    probe(bench, server.url("/block-page"))
    assert probe(bench, server.url("/"))["rule"] == "K3"


@pytest.mark.parametrize(("path", "outcome"), [("/silent", "network-failure"), ("/slow", "transient")])
def test_time_is_bounded_however_slowly_the_bytes_come(bench: Bench, server: Server, path: str, outcome: str) -> None:
    told = bench.run("probe", "--timeout", "0.4", server.url(path)).require_done()
    assert told["outcome"] == outcome and "Time" in told["why"]


def test_bytes_are_bounded_however_many_come(bench: Bench, server: Server) -> None:
    assert probe(bench, server.url("/endless"), "--body-bytes", "100000")["outcome"] == "empty"


def test_redirects_are_bounded(bench: Bench, server: Server) -> None:
    probe(bench, server.url("/loop"), "--redirects", "3")
    assert server.paths == ["/loop"] * 4


def test_a_redirect_to_no_page_is_not_asked_for_again(bench: Bench, server: Server) -> None:
    assert "to nowhere" in probe(bench, server.url("/nowhere"))["why"] and server.paths == ["/nowhere"]


def test_without_httpx_it_says_what_to_install(bench: Bench, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    ran = bench.run("probe", server.url())
    assert (ran.status, ran.code) == (78, "E_CONFIG") and "pip install httpx" in ran.words
    assert server.paths == [] and bench.explain(server.site)["state"] == "NEUTRAL"


def test_after_a_redirect_the_site_is_the_one_that_failed(bench: Bench, server: Server) -> None:
    with Server() as other:
        other.answers["/"] = reset
        server.answers["/away"] = status(302, "Found", f"location: {other.url('/')}")
        told = probe(bench, server.url("/away"))
        assert (told["outcome"], told["final_url"]) == ("network-failure", other.url("/"))
        assert bench.state_of(other.site) == "SUSPECT"
    assert bench.state_of(server.site) == "NEUTRAL"


def test_nobody_listens_and_no_tls(bench: Bench, server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    assert probe(bench, f"http://127.0.0.1:{port}/")["outcome"] == "network-failure"
    assert probe(bench, server.url("/").replace("http:", "https:"), "--timeout", "0.4")["outcome"] == "network-failure"


def test_what_is_wanted_can_be_said(bench: Bench, server: Server) -> None:
    server.answers["/price"] = page(b"<b>Price: 4</b>")
    assert probe(bench, server.url("/price"), "--want", "price: \\d")["outcome"] == "found"


def test_a_probe_that_is_sent_again_is_one_signal(bench: Bench, server: Server) -> None:
    bench.kill_at("sites.journal", "probe", "--id", "p1", server.url("/reset"))
    told = probe(bench, server.url("/reset"), "--id", "p1")
    assert (told["fetched"], told["already"]) == (False, True)
    assert server.paths == ["/reset"]
    assert bench.explain(server.site)["failures_in_a_row"] == 1


def test_a_probe_that_died_before_it_was_written_down_never_was(bench: Bench, server: Server) -> None:
    bench.kill_at("sites.fetched", "probe", "--id", "p1", server.url("/reset"))
    assert probe(bench, server.url("/reset"), "--id", "p1")["fetched"] is True
    assert bench.explain(server.site)["failures_in_a_row"] == 1


def test_what_is_no_page_is_said(bench: Bench) -> None:
    for address in ("ftp://a.example/", "http://", "http://a b/", "no url", "http://[::1", "http://x:99999/"):
        ran = bench.run("probe", address)
        assert (ran.status, ran.code) == (65, "E_INPUT"), address
        with pytest.raises(keys.UrlRejected):
            keys.normalise_url(address)
