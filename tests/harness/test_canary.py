"""The judge is itself judged: one that looks at nothing, or does not see what is planted for it to see, is no judge."""

from __future__ import annotations

from typing import Any

import pytest

from harness.judge.invariants import INVARIANTS, BlindJudge, check_sight, judge_history
from harness.judge.scenario import Answer, History, Judgement, Moment, Scenario
from harness.judge.tree import Entry, Tree
from harness.model import Expect
from tests.harness.histories import Shop, healthy, moment, result, tree


@pytest.mark.parametrize("answer", [Judgement((), 0), None, ()])
def test_a_judge_that_looks_at_nothing_is_blind(answer: Any) -> None:
    class Blind(Shop):
        def judge(self, history: History) -> Judgement:
            return answer  # type: ignore[no-any-return]

    with pytest.raises(BlindJudge, match="judge of Blind looked at nothing"):
        judge_history(Blind(), healthy(), Expect())


def blind(scenario: Scenario, history: History | None = None) -> str:
    with pytest.raises(BlindJudge) as caught:
        check_sight(scenario, history or healthy(), Expect())
    return str(caught.value)


def test_a_judge_that_sees_passes_the_canary() -> None:
    check_sight(Shop(), healthy(), Expect())
    check_sight(Shop(), History(healthy().moments[:-1]), Expect())


def test_what_is_planted() -> None:
    """One change at a time, in every protected file that has content, whatever stands before it."""
    shown: list[Tree] = []

    class Attentive(Shop):
        def judge(self, history: History) -> Judgement:
            shown.append(history.moments[-1].tree)
            return super().judge(history)

    files = {"a": "not ours", "notes": "mine", "orders": "one\ntwo\nfour\n", "seal": "wax", "seal/empty": ""}
    end = tree(files, **{"": Entry("directory", 0o755), "seal/to": Entry("symlink", 0o777, b"wax")})
    check_sight(Attentive(), History((Moment("set-up", end), Moment("retry", end, result({"ok": True})))), Expect())
    unspoilt, *spoilt = [{path: entry.data.decode() for path, entry in tree.entries.items()} for tree in shown]
    assert unspoilt == files | {"": "", "seal/to": "wax"}
    assert [{path: text for path, text in one.items() if text != unspoilt[path]} for one in spoilt] == [
        {"notes": "minex"},
        {"orders": "one\ntwo\nfour\nfour\n"},
        {"orders": "one\ntwo\n"},
        {"orders": "nne\ntwo\nfour\n"},
        {"seal": "waxx"},
    ]


def test_a_judge_that_reads_no_records_is_blind() -> None:
    class NoRecords(Shop):
        def records(self, tree: Tree) -> list[str]:
            return []

        def acknowledged(self, answer: Answer) -> set[str]:
            return set()

        def due(self, start: Tree) -> set[str]:
            return set()

    assert "did not see a repeated record in orders" in blind(NoRecords())


@pytest.mark.parametrize(
    ("invariant", "says"),
    [("append_at_most_once", "a repeated record in orders"), ("nothing_overwritten", "a changed file notes")],
)
def test_the_canary_sees_that_an_invariant_is_missing(
    invariant: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tuple(known for known in INVARIANTS if known.__name__ != invariant)
    monkeypatch.setattr("harness.judge.invariants.INVARIANTS", kept)
    assert f"did not see {says}" in blind(Shop())


def test_a_scenario_that_protects_nothing_is_blind() -> None:
    class Careless(Shop):
        append_only: tuple[str, ...] = ()
        immutable = foreign = ()
        allowed = ("*",)

    assert "Careless declares nothing protected" in blind(Careless())

    class Elsewhere(Careless):
        append_only = ("order",)

    assert "Elsewhere declares nothing protected that is there" in blind(Elsewhere())


def test_an_empty_snapshot_is_blind() -> None:
    assert "the snapshot is empty" in blind(Shop(), History((*healthy().moments, moment("retry", {}, {"ok": True}))))


def test_a_violation_that_was_there_before_is_no_sight() -> None:
    """A judge that objects to everything sees as little as one that objects to nothing."""

    class Grumbler(Shop):
        append_only: tuple[str, ...] = ()
        foreign = ()
        immutable: tuple[str, ...] = ("seal",)
        allowed = ("*",)

        def may_vanish(self, path: str, tree: Tree) -> bool:
            return True

        def records(self, tree: Tree) -> list[str]:
            return ["same", "same"]

    check_sight(Grumbler(), healthy(), Expect())
    Grumbler.immutable = ()
    Grumbler.append_only = ("orders",)
    assert "did not see a repeated record" in blind(Grumbler())
