"""A run that was interrupted goes on, as one run; and only where it would be one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.model import CellResult
from harness.plan import plan_cells
from harness.runner import Supply, open_project, run_cells
from harness.store import StoredRun, default_path, open_store, temporary_store
from tests.harness import toy
from tests.harness.support import TIMEOUT_S, start_harness
from tests.harness.test_budget import CrewThatTakes
from tests.harness.test_report_sample import make_result, make_run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the little program and the warm servers need Linux")

CHOSEN = ("--point", "toy.pending", "--jobs", "1")  # two cells that just run, then two in which the program waits


class Waiting:
    """A project in which the third and the fourth cell wait in their middle."""

    def __init__(self, directory: Path) -> None:
        self.root, self._temp = directory / "project", directory / "temp"
        matrix = toy.toy_matrix({toy.HEALTHY: toy.scenario(), "toy.waits": toy.scenario("waits")})
        for row in matrix["points"].values():
            row["faults"], row["expect"] = ["kill"], {"kill": row["expect"]["kill"]}
        toy.write_toy(self.root, matrix)
        self.meeting = toy.Meeting(self.root)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return start_harness(self.root, self._temp, "run", *arguments)

    def finish(self, *arguments: str, meetings: int = 0) -> tuple[int, str]:
        process = self.start(*arguments)
        for _ in range(meetings):
            self.meeting.wait()
            self.meeting.let_go()
        out, err = process.communicate(timeout=TIMEOUT_S)
        return int(process.returncode), out + err

    def stop_in_the_third_cell(self, number: signal.Signals, *arguments: str) -> None:
        process = self.start(*CHOSEN, *arguments)
        assert process.stderr is not None
        for _ in range(2):
            process.stderr.readline()  # a line for each cell, once it is recorded
        self.meeting.wait()
        process.send_signal(number)
        process.communicate(timeout=TIMEOUT_S)

    def runs(self) -> tuple[StoredRun, ...]:
        with open_store(default_path(self.root / "matrix.yaml")) as store:
            return store.runs()

    def results(self) -> tuple[CellResult, ...]:
        with open_store(default_path(self.root / "matrix.yaml")) as store:
            found = store.read_run(store.runs()[0].run_id).results
            return tuple(replace(result, story=tuple(result.story)) for result in found)

    def change(self, name: str, old: str, new: str) -> None:
        path = self.root / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Waiting]:
    yield Waiting(tmp_path)


@pytest.mark.parametrize(("number", "state"), [(signal.SIGKILL, "killed"), (signal.SIGINT, "interrupted")])
def test_a_run_goes_on(waiting: Waiting, number: signal.Signals, state: str) -> None:
    """What has a result is not run again: its processes are those of the first time."""
    waiting.stop_in_the_third_cell(number)
    (stopped,) = waiting.runs()
    before = waiting.results()
    assert (stopped.state, stopped.cells, stopped.planned) == (state, 2, 4)
    status, told = waiting.finish(*CHOSEN, "--resume", "--json", "a.json", meetings=2)
    assert status == 0 and f"resuming run {stopped.run_id}: 2 of 4 cells have a result" in told
    assert "PASS: All 4 cells passed." in told and "note: resumed: 2 of 4 cells had their result" in told
    (run,) = waiting.runs()
    assert (run.run_id, run.state, run.cells) == (stopped.run_id, "complete", 4)
    assert waiting.results()[:2] == before and all(result.steps[0].pid for result in before)
    document = json.loads((waiting.root / "a.json").read_text())
    assert document["run_id"] == stopped.run_id and len(document["cells"]) == document["planned"] == 4
    assert document["duration_s"] > 0


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        ("toy.py", "how = 0", "", "the project's Python sources"),
        ("matrix.yaml", "timeout_s", "timeout_s", "matrix.yaml"),
        ("toy_points.py", '"toy 1"', '"toy 1.1"', "the declared points"),
    ],
)
def test_a_run_of_something_else_does_not_go_on(waiting: Waiting, name: str, old: str, new: str, says: str) -> None:
    """It is refused, and nothing of it is touched; without --resume it starts afresh."""
    waiting.stop_in_the_third_cell(signal.SIGKILL)
    if name == "toy.py":
        with (waiting.root / name).open("a") as file:
            file.write("# another program\n")
    elif name == "matrix.yaml":
        waiting.change(name, "recoveries_max: 3", "recoveries_max: 4")
    else:
        waiting.change(name, old, new)
    (before,) = waiting.runs()
    status, told = waiting.finish(*CHOSEN, "--resume")
    assert status == 64 and f"since run {before.run_id} was interrupted there was a change of " in told
    assert says in told and "run without --resume to start afresh" in told
    assert waiting.runs() == (before,)
    assert waiting.finish(*CHOSEN, meetings=2)[0] == 0
    assert [run.state for run in waiting.runs()] == ["complete", "killed"]


def test_a_comment_in_the_matrix_is_no_change(waiting: Waiting) -> None:
    waiting.stop_in_the_third_cell(signal.SIGKILL)
    with (waiting.root / "matrix.yaml").open("a") as file:
        file.write("# nothing of substance\n")
    assert waiting.finish(*CHOSEN, "--resume", meetings=2)[0] == 0
    assert len(waiting.runs()) == 1


def test_only_what_has_no_result_is_given_out_again(tmp_path: Path) -> None:
    project = open_project(toy.write_toy(tmp_path, toy.small_matrix()))
    cells, store = plan_cells(project.matrix), temporary_store()
    taken: list[str] = []

    def hire(supply: Supply, _root: Path) -> CrewThatTakes:
        given = list(supply)
        taken.extend(map(str, given))
        return CrewThatTakes(Supply(given, None), len(cells))

    with store.begin(make_run([], run_id="stopped", planned=len(cells))) as recording:
        for place in (0, 3):
            recording.record(make_result(cells[place].steps[0].point, scenario=cells[place].scenario), place)
    done = {str(result.cell) for result in store.read_run("stopped").results}
    run = run_cells(
        project, cells, jobs=1, spawn="fork", whole=True, store=store, resume="stopped", hire=hire
    )  # fmt: skip
    assert taken == [str(cell) for cell in cells if str(cell) not in done] and len(taken) == len(cells) - len(done)
    assert run.run_id == "stopped" and not run.interrupted


def test_processes_of_another_kind_do_not_go_on(waiting: Waiting) -> None:
    waiting.stop_in_the_third_cell(signal.SIGKILL)
    status, told = waiting.finish(*CHOSEN, "--resume", "--spawn", "exec")
    assert status == 64 and "a change of --spawn" in told


def test_nothing_to_go_on_with(waiting: Waiting) -> None:
    """Then it starts afresh, and says so."""
    chosen = ("--scenario", toy.HEALTHY, "--point", "toy.pending")
    status, told = waiting.finish(*chosen, "--resume")
    assert status == 0 and "nothing to resume: no run of these cells is stored; starting afresh" in told
    status, told = waiting.finish(*chosen, "--resume")
    assert status == 0 and "came to its end; starting afresh" in told
    assert [run.cells for run in waiting.runs()] == [2, 2]


def test_a_run_of_other_cells_is_left_alone(waiting: Waiting) -> None:
    waiting.stop_in_the_third_cell(signal.SIGKILL)
    status, told = waiting.finish("--scenario", toy.HEALTHY, "--point", "toy.pending", "--resume")
    assert status == 0 and "no run of these cells is stored" in told
    assert [run.state for run in waiting.runs()] == ["complete", "killed"]


def test_a_run_that_is_still_running_is_not_taken_over(waiting: Waiting) -> None:
    first = waiting.start(*CHOSEN)
    waiting.meeting.wait()
    status, told = waiting.finish(*CHOSEN, "--resume")
    assert status == 64 and "is still running in another process" in told
    waiting.meeting.let_go()
    waiting.meeting.wait()
    waiting.meeting.let_go()
    first.communicate(timeout=TIMEOUT_S)
    assert first.returncode == 0 and [run.state for run in waiting.runs()] == ["complete"]


def test_what_is_kept_cannot_be_half_of_a_run(waiting: Waiting) -> None:
    status, told = waiting.finish(*CHOSEN, "--resume", "--keep", "kept")
    assert status == 64 and "--resume" in told and not (waiting.root / "kept").exists()
