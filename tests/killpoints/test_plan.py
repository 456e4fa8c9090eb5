"""The text form of a plan: what it can say round-trips, what it cannot is refused with the item that is wrong."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from killpoints import Action, Arming, Plan, PlanError

names = st.from_regex(
    r"[a-z][A-Za-z0-9_-]{0,8}(\.[A-Za-z][A-Za-z0-9_-]{0,8}){0,3}(/[a-z][a-z0-9-]{0,8})?", fullmatch=True
)
actions = st.one_of(
    st.sampled_from([Action("kill"), Action("term"), Action("pause")]),
    st.sampled_from(sorted(errno.errorcode.values())).map(lambda name: Action("error", name)),
)
armings = st.builds(Arming, names, st.integers(1, 999_999_999), actions)
plans = st.builds(
    Plan,
    st.lists(armings, max_size=5, unique_by=lambda arming: (arming.name, arming.hit)).map(tuple),
    st.booleans(),
)


@settings(max_examples=100, deadline=None)
@given(plans)
def test_a_plan_round_trips(plan: Plan) -> None:
    assert Plan.parse(str(plan)) == plan


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab.#=1:,/ kilerOEN*pus\n", max_size=30))
def test_whatever_can_be_read_says_the_same_when_written(text: str) -> None:
    try:
        plan = Plan.parse(text)
    except PlanError:
        return
    assert Plan.parse(str(plan)) == plan


def test_what_may_be_left_out() -> None:
    one = Arming("shop.saved", 1, Action("kill"))
    assert Plan.parse("shop.saved=kill").armings == (one,)
    assert Plan.parse(" shop.saved#1=kill , shop.paid#2=error:EIO ").armings == (
        one,
        Arming("shop.paid", 2, Action("error", "EIO")),
    )
    assert Plan.parse("") == Plan.parse(" \n") == Plan()
    assert str(Plan()) == ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("*=pause,*=pause", "is there twice"),
        ("*=kill", "is armed at every point"),
        ("*#2=pause", "is armed at every point"),
        ("shop.saved", "cannot read 'shop.saved'; write NAME#HIT=ACTION"),
        ("shop.saved=", "cannot read 'shop.saved='"),
        ("=kill", "cannot read '=kill'"),
        ("shop.saved=kill,", "cannot read ''"),
        ("shop.saved=kill,,shop.paid=kill", "cannot read ''"),
        ("shop.saved#x=kill", "cannot read 'shop.saved#x=kill'"),
        ("shop.saved#-1=kill", "cannot read"),
        ("shop.saved#1234567890=kill", "cannot read"),
        ("shop saved=kill", "cannot read 'shop saved=kill'"),
        ("shop.saved=kill=kill", "cannot read"),
        ("shop.saved#0=kill", "hit 0 of shop.saved: hits count from 1"),
        ("shop.saved=explode", "unknown action 'explode'; known: kill, term, pause, error:ERRNO"),
        ("shop.saved=error", "an error action names its errno"),
        ("shop.saved=error:", "unknown errno ''"),
        ("shop.saved=kill:EIO", "no other action does"),
        ("shop.saved=error:ENOPSC", "unknown errno 'ENOPSC'"),
        ("shop.saved=error:errorcode", "unknown errno 'errorcode'"),
        ("shop.saved=error:28", "unknown errno '28'"),
        ("shop.saved=kill,shop.saved#1=error:EIO", "shop.saved#1 is armed twice in one plan"),
    ],
)
def test_what_cannot_be_read(text: str, says: str) -> None:
    with pytest.raises(PlanError, match=says.replace("(", r"\(")):
        Plan.parse(text)


def test_one_point_may_be_armed_at_several_hits() -> None:
    assert len(Plan.parse("shop.saved#1=error:EIO,shop.saved#2=kill").armings) == 2


def test_an_error_has_its_number() -> None:
    assert Action.parse("error:ENOSPC").errno_value == errno.ENOSPC
    assert Action.parse("kill").errno_value == 0
