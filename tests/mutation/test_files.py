"""What `make mutation` goes by is there: modules, tests, and every line that a reason is about."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from tests.mutation.targets import REPOSITORY, Change, Reason, Target, choose_targets, load_reasons, load_targets


@pytest.mark.parametrize("target", load_targets(), ids=lambda target: target.module)
def test_a_target_and_its_tests_are_there(target: Target) -> None:
    assert (REPOSITORY / target.module).is_file() and all((REPOSITORY / path).exists() for path in target.tests)


@pytest.mark.parametrize("reason", load_reasons(), ids=lambda reason: f"{reason.module}: {reason.before}"[:70])
def test_a_reason_is_about_a_line_that_is_there(reason: Reason) -> None:
    modules = [target.module for target in load_targets() if fnmatchcase(target.module, reason.module)]
    assert modules and reason.reason and reason.after
    texts = [" ".join((REPOSITORY / module).read_text().split()) for module in modules]
    assert any(reason.before in text for text in texts), "the line is another one by now: run make mutation again"


def test_a_reason_excuses_its_own_change_only() -> None:
    reason = Reason("a.py", "x = 1", ("x = 2", ""), "whatever")
    assert reason.excuses(Change("a.py", 7, "x = 1", "x = 2")) and reason.excuses(Change("a.py", 7, "x = 1", ""))
    for other in (
        Change("b.py", 7, "x = 1", "x = 2"),
        Change("a.py", 7, "x = 1", "x = 0"),
        Change("a.py", 7, "", "x = 2"),
    ):
        assert not reason.excuses(other)


def test_a_part_of_a_path_chooses() -> None:
    chosen = [target.module for target in choose_targets(["killpoints", "durable/table"])]
    assert chosen[0] == "killpoints/plan.py" and chosen[-1] == "product/durable/table.py"
    assert choose_targets([]) == load_targets() and choose_targets(["none such"]) == ()
