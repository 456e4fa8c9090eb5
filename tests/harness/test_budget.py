"""A budget: what is run first, that it stops taking cells, and that what it left out is never claimed."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.model import Cell, CellResult, Run, Seen, Step, Verdict
from harness.plan import PlanningError, order_by_need, parse_budget, plan_cells
from harness.report.tally import headline, not_covered, summarize
from harness.runner import Project, Supply, open_project, run_cells
from harness.store import Store, temporary_store
from tests.harness import toy
from tests.harness.support import TIMEOUT_S, start_harness
from tests.harness.test_report_sample import make_result, make_run

CELLS = [Cell("s", (Step("p", hit, "kill"),)) for hit in range(1, 7)]


def hits(cells: tuple[Cell, ...]) -> list[int]:
    return [cell.steps[0].hit for cell in cells]


def seen(*verdicts_and_times: tuple[Verdict, float] | None) -> dict[str, Seen]:
    return {
        str(cell): Seen(known[0], 1.0, known[1])
        for cell, known in zip(CELLS, verdicts_and_times, strict=False)
        if known is not None
    }


# --- the order


def test_never_run_then_not_passed_then_longest_unseen() -> None:
    known = seen((Verdict.PASS, 30.0), (Verdict.PASS, 10.0), None, (Verdict.FAIL, 40.0), (Verdict.HUNG, 20.0), None)
    assert hits(order_by_need(CELLS, known)) == [3, 6, 5, 4, 2, 1]


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.PASS])
def test_whatever_is_no_pass_comes_before_a_pass(verdict: Verdict) -> None:
    assert hits(order_by_need(CELLS[:2], seen((Verdict.PASS, 1.0), (verdict, 2.0)))) == [2, 1]


def test_what_is_equal_stays_in_the_order_of_the_matrix() -> None:
    assert order_by_need(CELLS, {}) == tuple(CELLS)
    assert order_by_need(CELLS, seen(*[(Verdict.PASS, 5.0)] * 6)) == tuple(CELLS)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("0.5h", 1800), (" 1s ", 1)])
def test_budgets(text: str, seconds: float) -> None:
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "m", "-1m", "0s", "0.0h", "1d", "1h30m", "1e3s", "٣m٣"])
def test_what_is_no_budget(text: str) -> None:
    with pytest.raises(PlanningError, match="for example 90s, 30m, 2h"):
        parse_budget(text)


# --- the end of it


def test_a_supply_ends_with_its_time() -> None:
    late = Supply(CELLS, 1e-9)
    assert list(late) == [] and late.left == 6
    early = Supply(CELLS, TIMEOUT_S)
    assert list(early) == CELLS and early.left == 0
    unbounded = Supply(CELLS, None)
    assert next(unbounded) == CELLS[0] and unbounded.left == 5


class CrewThatTakes:
    """Takes so many cells; then the time is up."""

    def __init__(self, supply: Supply, count: int, verdict: Verdict = Verdict.PASS) -> None:
        self._supply, self._count, self._verdict = supply, count, verdict

    def results(self) -> Iterator[CellResult]:
        for number, cell in enumerate(self._supply, 1):
            yield make_result(cell.steps[0].point, self._verdict, scenario=cell.scenario, hit=cell.steps[0].hit)
            if number == self._count:
                self._supply._deadline = time.monotonic()

    def stop(self) -> None:
        pass


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return open_project(toy.write_toy(tmp_path_factory.mktemp("project"), toy.small_matrix()))


def run_some(project: Project, store: Store, count: int, verdict: Verdict = Verdict.PASS) -> Run:
    return run_cells(
        project,
        plan_cells(project.matrix),
        jobs=1,
        spawn="fork",
        whole=True,
        store=store,
        budget_s=TIMEOUT_S,
        hire=lambda supply, _root: CrewThatTakes(supply, count, verdict),
    )


def test_a_run_that_its_budget_cut(project: Project) -> None:
    """It is not interrupted, and it is not whole: it says what it left out."""
    run = run_some(project, temporary_store(), 3)
    assert (run.planned, len(run.results), run.left_out) == (7, 3, 4)
    assert not run.interrupted and not run.whole
    summary = summarize(run)
    assert summary.exit_status == 0 and summary.reasons == ()
    assert headline(summary) == "The 3 cells that ran passed; the budget left out 4."
    assert "The budget left out 4 of 7 planned cells." in not_covered(run)


def test_a_budget_hides_no_violation_and_no_lost_result(project: Project) -> None:
    assert summarize(run_some(project, temporary_store(), 3, Verdict.FAIL)).exit_status == 1
    lost = make_run([make_result()], planned=7, left_out=4)
    assert summarize(lost).exit_status == 2 and summarize(lost).reasons == ("2 of 7 planned cells have no result",)


def test_the_next_run_goes_on_where_this_one_stopped(project: Project) -> None:
    store = temporary_store()
    first, second, third = (run_some(project, store, 3) for _ in range(3))
    cells = list(map(str, plan_cells(project.matrix)))
    assert [str(result.cell) for result in first.results] == cells[:3]
    assert [str(result.cell) for result in second.results] == cells[3:6]
    assert {str(result.cell) for result in third.results} == {*cells[:2], cells[6]}


def test_a_budget_that_is_long_enough_leaves_nothing_out(project: Project) -> None:
    run = run_some(project, temporary_store(), 99)
    assert (len(run.results), run.left_out, run.whole) == (7, 0, True)


@pytest.mark.skipif(sys.platform != "linux", reason="the little program needs Linux")
def test_a_budget_by_the_command_line(tmp_path: Path) -> None:
    """One that is over before the first cell: nothing ran, which is no pass, and everything was left out."""
    project, temp = tmp_path / "project", tmp_path / "temp"
    toy.write_toy(project, toy.small_matrix())
    for budget, status, says, left_out in (
        ("0.001s", 2, "left out by the budget: 7 of 7 planned cells", 7),
        ("1h", 0, "PASS: All 7 cells passed.", 0),
    ):
        process = start_harness(project, temp, "run", "--budget", budget, "--json", "a.json")
        out, err = process.communicate(timeout=TIMEOUT_S)
        document = json.loads((project / "a.json").read_text())
        assert process.returncode == status and says in out, out + err
        assert document["left_out"] == left_out and not document["interrupted"]


@pytest.mark.skipif(sys.platform != "linux", reason="the little program needs Linux")
def test_a_budget_that_cannot_be_read(tmp_path: Path) -> None:
    toy.write_toy(tmp_path / "project", toy.small_matrix())
    process = start_harness(tmp_path / "project", tmp_path / "temp", "run", "--budget", "soon")
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 64 and "--budget 'soon': write a number and s, m or h" in err
