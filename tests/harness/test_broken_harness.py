"""A harness that is broken is noticed: whatever of it does nothing, a run of cells that would all pass is no pass.

Each test breaks one thing, in this process or in the children, and runs the little project of toy.py as `killmatrix run`
does; with nothing broken that run is green. Broken elsewhere:

  a program that hangs, is shot, or leaves a set-up undone                       test_engine
  the record of another point, hit or process; a rival that is no rival          test_engine (proof of fire)
  a judge that raises or looks at nothing; one that reads no records             test_engine, test_canary
  a scenario that protects nothing                                               test_canary
  a worker thread that breaks, or of which none can start                        test_runner
  a worker process of pytest-xdist that is killed                                test_plugin
  a run that is interrupted, a harness that is killed                            test_runner
  a process server that is shot                                                  test_engine, test_spawn_lifetime
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import harness.judge.invariants as invariants
from harness import conduct, engine, runner
from harness.conduct import Conduct
from harness.engine import Engine
from harness.judge.scenario import Judgement
from harness.judge.tree import Entry, Tree, observe_tree
from harness.model import Cell, CellResult, Run
from harness.plan import plan_cells
from harness.report import json_result
from harness.report.tally import summarize
from harness.runner import open_project, run_cells
from tests.harness import toy
from tests.harness.test_plugin import XDIST, report_again, run_pytest

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the little program and the warm servers need Linux"),
    pytest.mark.usefixtures("toy_imports"),
]
CELLS = 7


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of seven cells that all pass."""
    (tmp_path / "temp").mkdir()
    monkeypatch.setenv("KILLMATRIX_TMP", str(tmp_path / "temp"))
    return toy.write_toy(tmp_path / "project", toy.small_matrix())


def run(matrix: Path) -> Run:
    project = open_project(matrix)
    return run_cells(project, plan_cells(project.matrix), jobs=2, spawn="fork", whole=True)


def reasons(done: Run, *, fired: bool = True) -> str:
    """Why it is no pass; fails for one that is, and for one that is none because no kill happened."""
    summary = summarize(done)
    assert summary.exit_status in (1, 2), "nothing noticed that the harness is broken"
    assert not fired or all(step.fired for result in done.results for step in result.steps)
    return "\n".join([*summary.reasons, *(f"{r.why} {' '.join(map(str, r.violations))}" for r in done.results)])


def test_with_nothing_broken_it_is_a_pass(small: Path) -> None:
    """Or none of the others would show anything."""
    done = run(small)
    assert (len(done.results), summarize(done).exit_status) == (CELLS, 0), reasons(done)


# --- the kill


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("kill-does-nothing", "the kill did not end it"),
        ("kill-is-another-signal", "died by SIGTERM"),
        ("kill-without-record", "died by SIGKILL without reaching"),
        ("shot", "died by SIGKILL without reaching"),
    ],
)
def test_the_kill(small: Path, wrong: str, says: str) -> None:
    """That it happened, how, and that it was ours, is proven by the record and by the death, never by one of them."""
    matrix = toy.small_matrix()
    matrix["scenarios"][toy.HEALTHY] = toy.scenario(wrong)
    done = run(toy.write_toy(small.parent, matrix))
    assert says in reasons(done, fired=False) and summarize(done).passed == 1


# --- what is seen


def empty(_root: object, *_known: object) -> Tree:
    return Tree({})


def without_content(root: str | Path, *_known: object) -> Tree:
    return Tree({path: Entry(entry.kind, entry.mode) for path, entry in observe_tree(root).entries.items()})


class Stale:
    """The first snapshot, for ever."""

    def __init__(self) -> None:
        self._first: dict[str, Tree] = {}

    def __call__(self, root: str | Path, *_known: object) -> Tree:
        return self._first.setdefault(Path(root).parent.name, observe_tree(root))


@pytest.mark.parametrize("snapshot", [empty, without_content, Stale()])
def test_the_snapshot(small: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Callable[[Any], Tree]) -> None:
    monkeypatch.setattr(conduct, "observe_tree", snapshot)
    done = run(small)
    assert reasons(done) and summarize(done).passed == 0
    monkeypatch.setattr(engine, "observe_tree", snapshot)
    done = run(small)
    assert reasons(done, fired=False) and summarize(done).passed == 0


# --- the judge


def happy(*_arguments: object, **_named: object) -> Judgement:
    from harness.judge.scenario import Judgement

    return Judgement((), 1)


def nothing(*_arguments: object, **_named: object) -> None:
    return None


def break_function(monkeypatch: pytest.MonkeyPatch, function: Any, instead: Any) -> None:
    """Everywhere at once, under whatever name somebody imported it."""
    monkeypatch.setattr(function, "__code__", instead.__code__)


@pytest.mark.parametrize("instead", [happy, nothing])
def test_the_judge_as_a_whole(small: Path, monkeypatch: pytest.MonkeyPatch, instead: Any) -> None:
    break_function(monkeypatch, invariants.judge_history, instead)
    done = run(small)
    assert reasons(done) and summarize(done).passed == 0


@pytest.mark.parametrize("name", [invariant.__name__ for invariant in invariants.INVARIANTS])
def test_an_invariant_that_is_taken_out_or_blind(small: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(invariants, "INVARIANTS", tuple(i for i in invariants.INVARIANTS if i.__name__ != name))
        done = run(small)
        assert summarize(done).passed == 0 and name in reasons(done)
    break_function(monkeypatch, getattr(invariants, name), happy)
    done = run(small)
    assert summarize(done).passed == 0 and name in reasons(done)


def test_every_invariant_has_something_planted_for_it() -> None:
    from harness.judge.planted import PLANTED

    assert [*PLANTED] == [invariant.__name__ for invariant in invariants.INVARIANTS]


# --- the recovery


@pytest.mark.parametrize("what", ["settle", "_recover"])
def test_a_recovery_that_is_never_started(small: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(Conduct, what, nothing)
    done = run(small)
    assert summarize(done).passed == 0 and "no recovery was started" in reasons(done)


def test_a_recovery_that_is_not_repeated(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Conduct.plain

    def plain(self: Conduct, role: str, *rest: Any) -> Any:
        return None if role == "again" else real(self, role, *rest)

    monkeypatch.setattr(Conduct, "plain", plain)
    done = run(small)
    assert summarize(done).passed == 0 and "or none again" in reasons(done)


# --- the gate


def test_the_gate(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A point that no row lists gets through; that no cell has a fault there is noticed at the end."""
    matrix = toy.small_matrix()
    del matrix["points"]["toy.cleared"]
    toy.write_toy(small.parent, matrix)
    monkeypatch.setattr(runner, "check_gate", nothing)
    done = run(small)
    assert "toy.cleared is declared and no row lists it" in reasons(done)
    assert summarize(done).verdict.value == "UNREACHED" and summarize(done).passed == len(done.results)


def test_the_catalogue(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it nothing is known about what was not reached."""

    def read_nothing(*_arguments: object) -> tuple[()]:
        return ()

    monkeypatch.setattr(runner, "check_gate", nothing)
    monkeypatch.setattr(runner, "read_catalogue", read_nothing)
    assert "toy.cleared is listed and no cell reached it" in reasons(run(small))


# --- results


def result_of_another(real: Callable[[Engine, Cell], CellResult]) -> Callable[[Engine, Cell], CellResult]:
    """The first result of each engine, for every cell."""
    first: dict[int, CellResult] = {}

    def run_cell(self: Engine, cell: Cell) -> CellResult:
        if id(self) not in first:
            first[id(self)] = real(self, cell)
        return first[id(self)]

    return run_cell


def test_a_result_that_is_counted_for_another_cell(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "run_cell", result_of_another(Engine.run_cell))
    assert "planned cells have no result" in reasons(run(small))


def test_a_result_that_gets_lost_between_the_worker_and_the_run(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = runner.ThreadCrew.results

    def results(self: runner.ThreadCrew) -> Any:
        return (result for number, result in enumerate(real(self)) if number != 3)

    monkeypatch.setattr(runner.ThreadCrew, "results", results)
    assert f"1 of {CELLS} planned cells have no result" in reasons(run(small))


@pytest.mark.parametrize("instead", ["nothing", "another's"])
def test_a_result_file_without_a_cell(small: Path, tmp_path: Path, instead: str) -> None:
    """Also where a cell is there twice, so that the number is right."""
    json_result.write_json(done := run(small), tmp_path / "result.json")
    assert summarize(done).exit_status == 0
    document = json.loads((tmp_path / "result.json").read_text())
    del document["cells"][3], document["detail"]["cells"][3]
    if instead != "nothing":
        document["cells"].append(document["cells"][0])
        document["detail"]["cells"].append(document["detail"]["cells"][0])
    (tmp_path / "result.json").write_text(json.dumps(document))
    saved = report_again(tmp_path / "result.json")
    assert saved.returncode == 2 and f"1 of {CELLS} planned cells have no result" in saved.stdout, saved.stdout


DROP = """
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report):
    if report.when == "call" and "toy.cleared#2" in report.nodeid:
        report.user_properties[:] = []
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_result_that_gets_lost_on_its_way_to_the_controller(small: Path, workers: tuple[str, ...]) -> None:
    """pytest knows that the node passed, and the run has no result of it."""
    (small.parent / "conftest.py").write_text(DROP)
    plugins = XDIST if workers else XDIST[:1]
    ended = run_pytest(small.parent, *workers, "--killmatrix-json", "a.json", plugins=plugins)
    assert ended.status == 1 and f"1 of {CELLS} planned cells have no result" in ended.out, ended.out
    assert report_again(small.parent / "a.json").returncode == 2
