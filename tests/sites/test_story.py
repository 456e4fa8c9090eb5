"""The stories of the page, and what follows from them: B106, B111, B112, B117, B122, B125."""

from __future__ import annotations

import pytest

from product.sites import states
from tests.sites.helpers import NOW, Bench

URL = "https://clinic.example/{}".format


def pages(*names: object, site: str = "clinic.example") -> list[str]:
    return [f"https://{site}/{name}" for name in names]


def test_a_page_dead_on_a_living_site_does_not_kill_it(bench: Bench) -> None:
    bench.give("found", URL(""))
    bench.give("network-failure", URL("team"))
    assert bench.state_of("clinic.example") == "NEUTRAL"
    told = bench.explain("clinic.example")
    assert told["ever_ok"] and told["failures_in_a_row"] == 1
    assert any("F2" in line and "past GOOD" in line for line in told["story"])


def test_three_failures_in_a_row_kill_a_site_that_was_ok_and_nothing_less(bench: Bench) -> None:
    bench.give("found", URL(""))
    bench.give("network-failure", *pages(1, 2))
    bench.give("empty", URL("3"))  # something good between
    bench.give("network-failure", *pages(4, 5))
    assert bench.state_of("clinic.example") == "NEUTRAL"
    bench.give("network-failure", URL("6"))
    assert bench.state_of("clinic.example") == "DEAD"
    assert bench.explain("clinic.example")["by"] == f"s{bench.number}"


def test_two_failures_kill_a_site_that_was_never_ok(bench: Bench) -> None:
    bench.give("network-failure", URL("1"))
    assert bench.state_of("clinic.example") == "SUSPECT"
    bench.give("network-failure", URL("2"))
    assert bench.state_of("clinic.example") == "DEAD"


def test_five_empty_pages_leave_the_domain_alone(bench: Bench) -> None:
    bench.give("empty", *pages(*range(5)))
    told = bench.explain("clinic.example")
    assert (told["state"], told["rule"], told["pages"]) == ("NEUTRAL", None, {"empty": 5})
    assert len(told["story"]) < 20
    assert any("5 empty" in line and "the site is not" in line for line in told["story"])


def test_fifty_missing_pages_are_fifty_pages(bench: Bench) -> None:
    bench.give("gone", *pages(*range(50)))
    assert bench.state_of("clinic.example") == "NEUTRAL"
    assert bench.explain("clinic.example")["pages"] == {"gone": 50}


def test_a_missing_page_counts_for_the_site_only_where_its_root_fails(bench: Bench) -> None:
    bench.give("gone", *pages(1, 2, 3), root="alive")
    assert bench.state_of("clinic.example") == "NEUTRAL"
    bench.give("gone", *pages(4, 5), root="fails")
    assert bench.state_of("clinic.example") == "DEAD"


def test_a_bad_caller_marks_its_pages_alone(bench: Bench) -> None:
    bench.give("refused", *pages(*range(20)), why="422")
    bench.give("found", *pages(*range(50, 52)))
    told = bench.explain("clinic.example")
    assert (told["state"], told["pages"]) == ("NEUTRAL", {"found": 2, "refused": 20})


def test_ten_empty_results_then_a_hit(bench: Bench) -> None:
    bench.give("empty", *pages(*range(10)))
    bench.give("found", URL(11))
    assert bench.state_of("clinic.example") == "NEUTRAL"


def test_good_answers_add_up_to_friendly_and_one_bad_row_takes_nothing(bench: Bench) -> None:
    bench.give("found", *pages(1, 2, 3))
    assert bench.state_of("clinic.example") == "FRIENDLY"
    for outcome in ("network-failure", "challenge", "transient", "gone", "refused", "empty", "row", "pool-hit"):
        bench.give(outcome, URL(outcome))
        assert bench.state_of("clinic.example") == "FRIENDLY", outcome


def test_a_challenge_is_soft_and_hard_on_repetition(bench: Bench) -> None:
    bench.give("challenge", URL(1))
    assert bench.state_of("clinic.example") == "ANTIBOT_SOFT"
    bench.give("challenge", URL(2))
    assert bench.state_of("clinic.example") == "ANTIBOT_HARD"


def test_a_busy_server_is_asked_later_and_nothing_lasts(bench: Bench) -> None:
    bench.give("transient", *pages(*range(30)), retry_after_s=10**9)
    told = bench.explain("clinic.example")
    assert (told["state"], told["retry_at"]) == ("NEUTRAL", NOW + states.RETRY_MAX_S)
    assert bench.explain("clinic.example", NOW + states.RETRY_MAX_S)["retry_at"] is None


# ---------------------------------------------------------------------------------------------------- correlation


def everybody(number: int) -> list[str]:
    return [f"https://site{n}.example/" for n in range(number)]


def test_a_failure_that_everybody_has_kills_nobody(bench: Bench) -> None:
    for again in range(4):
        bench.give("network-failure", *everybody(100), now=NOW + again * 10)
    status = bench.run("status", now=NOW + 40).require_done()
    assert status["by_state"] == {"NEUTRAL": 100} and status["outage"] is True
    bench.give("empty", *everybody(100), now=NOW + 60)
    assert bench.run("status", now=NOW + 60).require_done()["outage"] is False


def test_what_an_outage_began_with_is_taken_back(bench: Bench) -> None:
    bench.give("network-failure", *everybody(1), *everybody(1), *everybody(1), now=NOW)
    assert bench.state_of("site0.example", NOW) == "DEAD"
    bench.give("network-failure", *everybody(5)[1:], now=NOW + 30)
    assert bench.run("status", now=NOW + 30).require_done()["by_state"] == {"NEUTRAL": 5}
    assert bench.explain("site0.example", NOW + 30)["rule"] == "Z1"


def test_many_that_fail_at_different_times_are_no_outage(bench: Bench) -> None:
    for number, url in enumerate(everybody(8)):
        bench.give("network-failure", url, url, now=NOW + number * 2 * states.OUTAGE_WINDOW_S)
    assert bench.run("status", now=NOW + 4000).require_done()["by_state"] == {"DEAD": 8}


def test_an_answer_from_anybody_shows_that_it_is_not_our_network(bench: Bench) -> None:
    for url in everybody(8):
        bench.give("network-failure", url, url)
        bench.give("transient", "https://lives.example/")
    assert bench.run("status").require_done()["by_state"] == {"DEAD": 8, "NEUTRAL": 1}


# ----------------------------------------------------------------------------------------------------- the way out


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [
        (["network-failure"], "SUSPECT"),
        (["network-failure"] * 2, "DEAD"),
        (["challenge"], "ANTIBOT_SOFT"),
        (["challenge"] * 2, "ANTIBOT_HARD"),
        (["found"] * 3, "FRIENDLY"),
    ],
)
def test_every_state_ends_by_itself_and_by_hand(bench: Bench, outcomes: list[str], state: str) -> None:
    for number, outcome in enumerate(outcomes):
        bench.give(outcome, URL(number))
    term_s = states.TERM_S[states.State[state]]
    assert bench.state_of("clinic.example", NOW + term_s - 1) == state
    assert bench.state_of("clinic.example", NOW + term_s) == "NEUTRAL"  # nothing was written for it

    assert bench.run("expire", now=NOW + term_s - 1).require_done()["recorded"] in (0, 1)  # pages may have gone
    assert bench.run("expire", now=NOW + term_s).require_done()["recorded"] == 1
    assert bench.run("expire", now=NOW + term_s).require_done()["recorded"] == 0
    assert bench.run("status", now=NOW).require_done()["by_state"] == {"NEUTRAL": 1}  # it is in the journal

    bench.give(outcomes[0], *pages(*range(10, 13)), now=NOW + 10 * term_s)
    assert bench.run("revive", "clinic.example", now=NOW + 10 * term_s).require_done()["recorded"] == 1
    assert bench.state_of("clinic.example", NOW + 10 * term_s) == "NEUTRAL"
    assert bench.run("revive", "clinic.example", now=NOW + 10 * term_s).require_done()["recorded"] == 0


def test_a_dead_site_that_fails_on_is_not_dead_for_longer(bench: Bench) -> None:
    bench.give("network-failure", *pages(1, 2))
    bench.give("network-failure", URL(3), now=NOW + states.DAY_S - 10)
    assert bench.state_of("clinic.example", NOW + states.DAY_S) == "NEUTRAL"


def test_failures_of_yesterday_are_not_in_a_row_with_one_of_today(bench: Bench) -> None:
    bench.give("found", URL(""))
    bench.give("network-failure", *pages(1, 2))
    bench.give("network-failure", URL(3), now=NOW + states.EVIDENCE_TERM_S)
    assert bench.explain("clinic.example", NOW + states.EVIDENCE_TERM_S)["failures_in_a_row"] == 1


@pytest.mark.parametrize("back_s", [states.HOUR_S, states.HOUR_S + 1, 10**4, NOW - 1])
def test_a_clock_that_is_set_back_prolongs_nothing_by_more_than_a_step(bench: Bench, back_s: int) -> None:
    bench.give("network-failure", *pages(1, 2))
    due = "DEAD" if back_s <= states.CLOCK_STEP_MAX_S else "NEUTRAL"
    assert bench.state_of("clinic.example", NOW - back_s) == due


def test_dns_fails_for_five_minutes_and_the_clock_is_set_back(bench: Bench) -> None:
    for minute in range(5):
        bench.give("network-failure", URL(minute), now=NOW + 60 * minute)
    assert bench.state_of("clinic.example", NOW + 300) == "DEAD"
    bench.give("empty", URL("again"), now=NOW + 300 - states.HOUR_S)
    assert bench.state_of("clinic.example", NOW + 300 - states.HOUR_S) == "NEUTRAL"


def test_two_tenants_of_a_host_are_two_sites(bench: Bench) -> None:
    bench.give("network-failure", *["https://a.github.io/"] * 2)
    assert bench.state_of("a.github.io") == "DEAD"
    assert bench.state_of("b.github.io") == "NEUTRAL"
