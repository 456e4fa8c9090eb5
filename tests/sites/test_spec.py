"""SPEC.md and the code have the same tables, row by row and word by word; so has the page that it comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

import product.sites
from product.sites import states
from product.sites.explaining import dimensions
from product.sites.states import DOMAIN, SIGNALS, TABLES, Event, Move, Outcome, State
from tests.spec_tables import read_table, require_same_rows

SPEC = Path(product.sites.__file__).with_name("SPEC.md")

# outcome, its dimension, effect: the decision table of the page, word for word
PAGE = [
    ["network failure (DNS, connect, TLS, time-out)", "maybe domain",
     "DEAD after N in a row; with an `ok` in the history only after 3 in a row with nothing good between"],
    ["404, 410", "url", "UrlPool; domain only if the root URL fails as well"],
    ["5xx, 429", "domain, transient", "retry later (Retry-After honoured); nothing lasting"],
    ["challenge or block page", "domain", "ANTIBOT_SOFT, then HARD on repetition"],
    ["ok, wanted thing found", "domain, positive", "towards FRIENDLY by accumulation"],
    ["ok, wanted thing not found", "url", "UrlPool only; any number of them never touches the domain"],
    ["UrlPool hit", "url", "skip the fetch; the domain does not move"],
]  # fmt: skip
OUTCOMES = [Outcome.NETWORK_FAILURE, Outcome.GONE, Outcome.TRANSIENT, Outcome.CHALLENGE, Outcome.FOUND, Outcome.EMPTY,
            Outcome.POOL_HIT]  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_the_spec_and_the_code_have_the_same_rows(name: str) -> None:
    require_same_rows(SPEC.read_text(), f"### {name}", TABLES[name])


def test_the_spec_has_the_table_of_the_page() -> None:
    assert [row[:3] for row in read_table(SPEC.read_text(), "## Dimensions")[1]] == PAGE


@pytest.mark.parametrize(
    ("row", "outcome"), list(zip(read_table(SPEC.read_text(), "## Dimensions")[1], OUTCOMES, strict=True))
)
def test_each_row_of_the_page_is_kept_by_the_rows_it_names(row: list[str], outcome: Outcome) -> None:
    coded = [coded.label for coded in SIGNALS.rows if coded.when and coded.when["outcome"] is outcome]
    assert coded == row[3].split(", ")
    if row[1] == "url":
        assert all("url" in dimensions(label) for label in coded)
    else:
        assert "domain" in dimensions(coded[0])


def test_the_spec_has_the_terms_of_the_code() -> None:
    coded = [[state.value, term] for state, term in states.TERM_S.items()]
    coded += [[f"page {outcome.value}", term] for outcome, term in states.PAGE_TERM_S.items()]
    units = {"d": 86_400, "h": 3600}
    told = [
        [what, int(term.split()[0]) * units[term.split()[1]]]
        for what, term in read_table(SPEC.read_text(), "## Terms")[1]
    ]
    assert sorted(told) == sorted(coded)


def test_the_spec_says_the_numbers_of_the_code() -> None:
    text = " ".join(SPEC.read_text().split())
    for sentence in (
        f"{states.OUTAGE_SITES} different sites in a row within {states.OUTAGE_WINDOW_S / 60:.3g} minutes",
        f"REACHED at {states.FAILURES_TO_DEAD} failures in a row ({states.FAILURES_TO_DEAD_AFTER_OK} where `past` is GOOD)",
        f"at {states.CHALLENGES_TO_REPEAT} challenges in a row, at {states.GOODS_TO_FRIENDLY} good answers",
        f'more than {states.EVIDENCE_TERM_S / 86_400:.6g} d ago is not "in a row"',
        f"at most {states.RETRY_MAX_S / 86_400:.6g} d, {states.RETRY_DEFAULT_S / 60:.6g} min where there is none",
        f"more than {states.CLOCK_STEP_MAX_S / 3600:.6g} h in the future is past its term",
    ):
        assert sentence in text


def test_no_state_is_without_a_way_out() -> None:
    for state in State:
        assert state is State.NEUTRAL or states.TERM_S[state] > 0
        for seen, row in DOMAIN.states():
            if seen["state"] is state is not State.NEUTRAL and seen["event"] in (Event.EXPIRED, Event.REVIVED):
                assert row.action is Move.NEUTRAL


def test_what_answers_never_lowers() -> None:
    lower = {Move.SUSPECT, Move.ANTIBOT_SOFT, Move.ANTIBOT_HARD, Move.DEAD}
    for seen, row in DOMAIN.states():
        if seen["event"] in (Event.GOOD, Event.ANSWERED, Event.EXPIRED, Event.REVIVED, Event.WITHDRAWN):
            assert row.action not in lower, seen


def test_one_failure_never_lowers_what_has_been_good() -> None:
    for seen, row in DOMAIN.states():
        if seen["past"] is states.Past.GOOD and seen["weight"] is states.Weight.BELOW:
            assert row.action not in {Move.SUSPECT, Move.ANTIBOT_SOFT, Move.ANTIBOT_HARD, Move.DEAD}, seen
