"""Many cells at a time: every planned cell has a result, and on every way out nothing is left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness import runner
from harness.engine import Engine
from harness.model import Cell, CellResult, Run, Verdict
from harness.plan import plan_cells
from harness.report.tally import summarize
from harness.runner import Project, open_project, run_cells
from harness.spawn import SpawnError
from tests.harness import toy
from tests.harness.support import TIMEOUT_S, family_of, start_harness, still_running

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the little program and the warm servers need Linux"),
    pytest.mark.usefixtures("toy_imports"),
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    matrix = toy.small_matrix("Raises")
    return open_project(toy.write_toy(tmp_path_factory.mktemp("project"), matrix))


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    temp = tmp_path / "temp"
    temp.mkdir()
    monkeypatch.setenv("KILLMATRIX_TMP", str(temp))
    return temp


def cells_of(project: Project) -> tuple[Cell, ...]:
    return plan_cells(project.matrix)


# --- results


def test_every_cell_has_one_result_in_the_matrixs_order(project: Project, temp: Path) -> None:
    seen: list[CellResult] = []
    run = run_cells(project, cells_of(project), jobs=3, spawn="fork", whole=True, observe=seen.append)
    assert [result.cell for result in run.results] == list(cells_of(project))
    assert sorted(str(result.cell) for result in seen) == sorted(map(str, cells_of(project)))
    verdicts = {result.cell.scenario: result.verdict for result in run.results}
    assert verdicts == {
        toy.HEALTHY: Verdict.PASS,
        "toy.Raises": Verdict.UNKNOWN,
        toy.RECOVERING: Verdict.PASS,
    }
    assert (run.planned, run.jobs, run.whole, run.interrupted) == (13, 3, True, False)
    assert run.points_reached == run.listed_points == {"toy.pending", "toy.appended", "toy.cleared", "toy.redone"}
    assert summarize(run).exit_status == 2


def test_nothing_grows_while_cells_come_and_go(project: Project, temp: Path) -> None:
    """B206: at no time more than one sandbox a worker, and none in the end."""
    most = 0

    def look(_result: CellResult) -> None:
        nonlocal most
        most = max(most, len(list(temp.glob("killmatrix-*/worker-*/cell-*"))))

    run = run_cells(project, cells_of(project), jobs=2, spawn="fork", whole=True, observe=look)
    assert summarize(run).passed == 7 and most <= 2 and list(temp.iterdir()) == []


def test_kept_sandboxes_of_several_workers_do_not_collide(project: Project, temp: Path, tmp_path: Path) -> None:
    keep = tmp_path / "keep"
    keep.mkdir()
    run = run_cells(project, cells_of(project), jobs=3, spawn="fork", whole=True, keep=keep)
    kept = {result.kept_at for result in run.results}
    assert len(kept) == len(run.results) == len(list(keep.glob("worker-*")))
    assert all(path is not None and Path(path, "log").read_text() == "a\nb\nc\n" for path in kept)


def test_more_workers_than_cells(project: Project, temp: Path) -> None:
    """No server is started for nothing."""
    workers: list[Path] = []

    def look(_result: CellResult) -> None:
        workers.extend(temp.glob("killmatrix-*/worker-*"))

    run = run_cells(project, cells_of(project)[:1], jobs=8, spawn="fork", whole=False, observe=look)
    assert [result.verdict for result in run.results] == [Verdict.PASS] and len(workers) == 1


# --- workers that break


def break_at(broken: Cell) -> object:
    real = Engine.run_cell

    def run_cell(self: Engine, cell: Cell) -> CellResult:
        if cell == broken:
            raise MemoryError("a worker's own trouble")
        return real(self, cell)

    return run_cell


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_worker_that_breaks_drops_no_cell(
    project: Project, temp: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    """The cell it had is unknown; what another worker could not take over is unknown too, and says why."""
    cells = cells_of(project)[:6]
    monkeypatch.setattr(Engine, "run_cell", break_at(cells[2]))
    run = run_cells(project, cells, jobs=jobs, spawn="fork", whole=True)
    assert [result.cell for result in run.results] == list(cells)
    broken = [result for result in run.results if result.verdict is not Verdict.PASS]
    assert [result.cell for result in broken] == list(cells[2:] if jobs == 1 else cells[2:3])
    assert {result.why for result in broken} == {"the worker broke: MemoryError: a worker's own trouble"}
    assert {result.verdict for result in broken} == {Verdict.UNKNOWN} and summarize(run).exit_status == 2


def test_no_worker_can_start(project: Project, temp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_named: object) -> None:
        raise SpawnError("no process server can be had")

    monkeypatch.setattr(runner, "open_spawner", refuse)
    run = run_cells(project, cells_of(project)[:3], jobs=2, spawn="fork", whole=True)
    assert [result.why for result in run.results] == ["the worker broke: SpawnError: no process server can be had"] * 3
    assert summarize(run).exit_status == 2 and list(temp.iterdir()) == []


# --- ends that come early


def test_fail_fast_stops_at_the_first_that_does_not_pass(project: Project, temp: Path) -> None:
    cells = [cell for cell in cells_of(project) if cell.scenario == "toy.Raises"]
    run = run_cells(project, cells, jobs=1, spawn="fork", whole=True, fail_fast=True)
    assert len(run.results) == 1 and run.interrupted and not run.whole
    healthy = run_cells(project, cells_of(project)[:2], jobs=1, spawn="fork", whole=True, fail_fast=True)
    assert len(healthy.results) == 2 and not healthy.interrupted and summarize(healthy).exit_status == 0


def test_an_interruption_keeps_what_is_known_and_is_no_pass(project: Project, temp: Path) -> None:
    def stop(_result: CellResult) -> None:
        raise KeyboardInterrupt

    run: Run = run_cells(project, cells_of(project)[:6], jobs=2, spawn="fork", whole=True, observe=stop)
    assert run.interrupted and [result.verdict for result in run.results] == [Verdict.PASS] and run.planned == 6
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("worker-")]
    assert summarize(run).exit_status == 2 and "the run was interrupted" in summarize(run).reasons
    assert list(temp.iterdir()) == []


# --- the whole harness as a process


@pytest.fixture
def waiting(tmp_path: Path) -> tuple[Path, toy.Meeting]:
    """A project in which, after some cells, a program waits in the middle of its cell."""
    project = tmp_path / "project"
    toy.write_toy(project, toy.toy_matrix({toy.HEALTHY: toy.scenario(), "toy.waits": toy.scenario("waits")}))
    return project, toy.Meeting(project)


def run_until_it_waits(project: Path, meeting: toy.Meeting, temp: Path) -> tuple[subprocess.Popen[str], int]:
    harness = start_harness(project, temp, "run", "--fault", "kill", "--jobs", "1")
    return harness, meeting.wait()


def test_ctrl_c_in_the_middle(waiting: tuple[Path, toy.Meeting], tmp_path: Path) -> None:
    project, meeting = waiting
    harness, _ = run_until_it_waits(project, meeting, tmp_path / "temp")
    family = family_of(harness)
    assert family
    harness.send_signal(signal.SIGINT)  # nobody lets the program go on: it is ended
    out, err = harness.communicate(timeout=TIMEOUT_S)
    assert harness.returncode in (2, 130), err
    assert "interrupted" in out + err and "Traceback" not in err
    assert still_running(family) == []
    assert list((tmp_path / "temp").iterdir()) == []


def test_the_harness_is_killed_in_the_middle(waiting: tuple[Path, toy.Meeting], tmp_path: Path) -> None:
    """B184: what it started ends by itself, and its directory is swept by the next run."""
    project, meeting = waiting
    harness, pid = run_until_it_waits(project, meeting, tmp_path / "temp")
    family = family_of(harness)
    assert pid in {process.pid for process in family}
    harness.kill()
    harness.communicate(timeout=TIMEOUT_S)
    assert still_running(family) == []
    assert len(list((tmp_path / "temp").iterdir())) == 1
    again = start_harness(project, tmp_path / "temp", "run", "--scenario", toy.HEALTHY, "--fault", "kill")
    again.communicate(timeout=TIMEOUT_S)
    assert again.returncode == 0 and list((tmp_path / "temp").iterdir()) == []


def test_two_runs_at_the_same_time(tmp_path: Path) -> None:
    """B202: of one project, with one place for sandboxes."""
    project, temp = tmp_path / "project", tmp_path / "temp"
    toy.write_toy(project, toy.small_matrix())
    runs = [start_harness(project, temp, "run", "-j", "2", "--json", f"{number}.json") for number in range(2)]
    for process in runs:
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, out + err
    results = [json.loads((project / f"{number}.json").read_text()) for number in range(2)]
    assert [result["summary"]["passed"] for result in results] == [7, 7]
    assert results[0]["run_id"] != results[1]["run_id"]
    assert list(temp.iterdir()) == []


def test_a_run_leaves_nothing_in_any_temp(tmp_path: Path) -> None:
    """B206."""
    project, temp, system_temp = tmp_path / "project", tmp_path / "temp", tmp_path / "system"
    system_temp.mkdir()
    toy.write_toy(project, toy.small_matrix())
    process = start_harness(project, temp, "run", environ={"TMPDIR": str(system_temp), "PYTHONDONTWRITEBYTECODE": "1"})
    assert process.wait(TIMEOUT_S) == 0
    process.communicate()
    assert list(temp.iterdir()) == list(system_temp.iterdir()) == []
    names = [".killmatrix", "matrix.yaml", "toy.py", "toy_judge.py", "toy_points.py"]
    assert sorted(path.name for path in project.iterdir()) == names
    assert sorted(path.name for path in (project / ".killmatrix").iterdir()) == [".gitignore", "results.sqlite"]
