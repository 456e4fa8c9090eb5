"""Coverage of processes that are killed: what ran right before the kill counts, and each line says which cell ran it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from coverage import CoverageData

from harness.coverage import gather
from harness.coverage.gather import CONTEXTS_MAX, Gathered, MeasuringSpawner
from harness.coverage.measurement import Measurement
from harness.matrix import CoverageSpec, MatrixError
from harness.model import Command, FileCoverage, ProcessResult, Run
from harness.plan import plan_cells
from harness.runner import Project, open_project, run_cells
from harness.spawn import RunningProcess
from harness.spawn.portable import PortableSpawner
from tests.harness.support import REPOSITORY, TIMEOUT_S, start_harness
from tests.harness.toy import PROGRAM, scenario, write_toy

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the checks here need Linux"),
    pytest.mark.usefixtures("toy_imports"),
]

ONCE = "toy.once/toy.pending#1=kill"
ONCE_JUDGE = """

class Once(Toy):
    def due(self, start):
        return {"b"}
"""


def matrix_of_one_kill(**more: Any) -> dict[str, Any]:
    """Only the process that is killed ever commits: what it alone runs, no other process can cover."""
    points = {
        name: {"spec": "toy", "scenarios": ["toy.once"], "faults": ["kill"]}
        for name in ("toy.pending", "toy.appended", "toy.cleared", "toy.redone")
    }
    spec = scenario(judge="Once", retry=None, rivals=None)
    return {"schema": 1, "catalogue": ["toy_points"], "scenarios": {"toy.once": spec}, "points": points, **more}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    directory = tmp_path_factory.mktemp("once")
    path = write_toy(directory, matrix_of_one_kill())
    with (directory / "toy_judge.py").open("a") as judges:
        judges.write(ONCE_JUDGE)
    return open_project(path)


def measure(
    project: Project, kind: Literal["fork", "exec"], data_file: Path, *, whole: bool = True, partly: bool = False
) -> Run:
    """The one cell, measured."""
    cells = [cell for cell in plan_cells(project.matrix) if str(cell) == ONCE]
    measurement = Measurement(project.matrix, project.root, data_file)
    run = run_cells(project, cells, jobs=1, spawn=kind, whole=whole, measurement=measurement)
    return measurement.finish(run, partly=partly)


@pytest.fixture(scope="module", params=["fork", "exec"])
def measured(request: pytest.FixtureRequest, project: Project, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return measure(project, request.param, tmp_path_factory.mktemp("data") / "coverage")


def line_of(text: str, source: str = PROGRAM) -> int:
    (found,) = (number for number, line in enumerate(source.splitlines(), 1) if line.strip() == text)
    return found


def file_of(run: Run, name: str = "toy.py") -> FileCoverage:
    assert run.coverage is not None
    (found,) = (file for file in run.coverage.files if file.path == name)
    return found


def contexts_of(run: Run, project: Project, text: str) -> list[str]:
    assert run.coverage is not None
    data = CoverageData(basename=run.coverage.data_file)
    data.read()
    return sorted(data.contexts_by_lineno(str(project.root / "toy.py"))[line_of(text)])


def test_the_cell_passes_as_without_a_measurement(measured: Run) -> None:
    assert [(result.verdict.value, result.why) for result in measured.results] == [("PASS", "")]
    assert measured.coverage is not None and (measured.coverage.processes, measured.coverage.silent) == (3, 0)


def test_what_ran_right_before_the_kill_is_covered(measured: Run) -> None:
    """Nothing but the save before the kill can have told."""
    file = file_of(measured)
    assert line_of("reach(PENDING)") in file.only_killed
    assert (
        line_of("reach(REDONE)") not in file.only_killed
        and line_of("import killpoints.actions") not in file.only_killed
    )
    after = line_of('attempt(APPENDED, append, LOG, record + "\\n")')
    assert [gap.name for gap in file.gaps if gap.line == after] == [
        'commit: attempt(APPENDED, append, LOG, record + "\\n")'
    ]


def test_every_line_says_which_cell_ran_it_and_as_what(measured: Run, project: Project) -> None:
    assert contexts_of(measured, project, "reach(PENDING)") == [f"{ONCE}|run|SIGKILL"]
    assert contexts_of(measured, project, "reach(REDONE)") == [f"{ONCE}|recovery"]
    assert contexts_of(measured, project, "return []") == [f"{ONCE}|again", f"{ONCE}|run|SIGKILL"]


def test_what_is_run_by_importing_is_covered(measured: Run, project: Project) -> None:
    """Forked processes found it imported."""
    points = file_of(measured, "toy_points.py")
    assert points.lines == points.lines_run == 5 and points.gaps == () and points.only_killed == ()
    assert measured.coverage is not None
    data = CoverageData(basename=measured.coverage.data_file)
    data.read()
    by_line = data.contexts_by_lineno(str(project.root / "toy_points.py"))
    assert by_line[4] == ["warm-up"] if measured.spawn == "fork" else "warm-up" not in by_line[4]


def test_fork_and_exec_agree(project: Project, tmp_path: Path) -> None:
    fork, fresh = (measure(project, kind, tmp_path / kind) for kind in ("fork", "exec"))
    assert fork.coverage is not None and fresh.coverage is not None
    assert fork.coverage.files == fresh.coverage.files
    assert all(step.fired for run in (fork, fresh) for result in run.results for step in result.steps)


def test_coverage_py_reads_the_file(measured: Run, project: Project, tmp_path: Path) -> None:
    assert measured.coverage is not None
    argv = [sys.executable, "-m", "coverage", "html", "--show-contexts", "--data-file", measured.coverage.data_file]
    done = subprocess.run([*argv, "--directory", str(tmp_path)], cwd=project.root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{ONCE}|run|SIGKILL".replace(">", "&gt;") in next(tmp_path.glob("*toy_py.html")).read_text()
    assert os.listdir(Path(measured.coverage.data_file).parent) == ["coverage"], "no data file of a process is left"


# --- what is asked of it


def problems_of(project: Project, spec: dict[str, Any], data_file: Path, **how: bool) -> tuple[str, ...]:
    matrix = project.matrix.model_copy(update={"coverage": CoverageSpec.model_validate(spec)})
    return measure(replace(project, matrix=matrix), "fork", data_file, **how).problems


def test_a_gap_has_a_reason_and_a_reason_a_gap(project: Project, measured: Run, tmp_path: Path) -> None:
    reasons = {gap.name: "the toy needs no more" for gap in file_of(measured).gaps}
    name = 'commit: attempt(APPENDED, append, LOG, record + "\\n")'
    held = {"complete": ["toy*.py"], "explained": {"toy.py": reasons}}
    assert problems_of(project, held, tmp_path / "1") == ()
    without = {**held, "explained": {"toy.py": {key: why for key, why in reasons.items() if key != name}}}
    (problem,) = problems_of(project, without, tmp_path / "2")
    assert name in problem and problem.startswith("coverage: no process reached toy.py:")
    stale = {**held, "explained": {"toy.py": reasons | {"commit: reach(PENDING)": "out of reach"}}}
    (problem,) = problems_of(project, stale, tmp_path / "3")
    assert "toy.py (commit: reach(PENDING)) is explained in matrix.yaml as not reached" in problem
    for how in ({"whole": False}, {"partly": True}):
        assert problems_of(project, stale, tmp_path / "4", **how) == (), "not every cell was measured"
    globs = {**held, "explained": {"toy.py": {"*": "the toy needs no more"}}}
    assert problems_of(project, globs, tmp_path / "7") == ()
    (problem,) = problems_of(project, {**held, "complete": ["toy*.py", "no*.py"]}, tmp_path / "5")
    assert problem == "coverage.complete: no*.py matches no file that was measured"
    assert problems_of(project, {}, tmp_path / "6") == ()


def test_a_package_that_is_not_there(project: Project) -> None:
    matrix = project.matrix.model_copy(update={"coverage": CoverageSpec(packages=["toy", "no_such", "toy.part"])})
    with pytest.raises(MatrixError) as caught:
        Measurement(matrix, project.root)
    assert len(caught.value.problems) == 2 and "'no_such'" in str(caught.value) and "'toy.part'" in str(caught.value)


# --- the command line


def run_harness(project: Path, temp: Path, *arguments: str) -> tuple[int | None, str, str]:
    process = start_harness(project, temp, "run", "--point", "toy.pending", *arguments)
    out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, err


def test_without_the_option_nothing_is_written_and_nobody_traces(project: Project, tmp_path: Path) -> None:
    status, out, _ = run_harness(project.root, tmp_path / "temp")
    assert status == 0 and "overage" not in out
    assert list(project.root.rglob("*coverage*")) == []
    blind = (
        "import sys, harness.cli, harness.runner\nsys.exit(any(name.startswith('coverage') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", blind], cwd=REPOSITORY, check=False)
    assert done.returncode == 0


def test_the_option_writes_beside_the_matrix_and_says_so(project: Project, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    status, out, err = run_harness(project.root, tmp_path / "temp", "--coverage", "--json", str(result))
    assert status == 0, out + err
    file = project.root / ".killmatrix" / "coverage"
    assert str(file) in out and "ran only in processes that were killed" in out
    assert json.loads(result.read_text())["coverage"]["data_file"] == str(file)
    assert file.read_bytes().startswith(b"SQLite") and list((tmp_path / "temp").iterdir()) == []
    assert list(project.root.rglob("*coverage*")) == [file]
    file.unlink()


def test_without_coverage_py_it_says_what_to_install(project: Project, tmp_path: Path) -> None:
    script = "import sys\nsys.modules['coverage'] = None\nfrom harness.cli import main\nmain()"
    argv = [sys.executable, "-c", script, "run", "--coverage"]
    done = subprocess.run(
        argv,
        cwd=project.root,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "KILLMATRIX_TMP": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 64 and "pip install 'killmatrix[coverage]'" in done.stderr
    assert "Traceback" not in done.stderr


# --- processes, one by one

POINTS = """
from killpoints import declare
SAVED = declare("shop.saved", "the cart is durable")
"""
HEAD = """
import atexit, os, signal, subprocess, sys
from points import SAVED
from killpoints import reach
"""
ENDS = {
    "falls off its end": "last = 1",
    "exits": "last = 1; sys.exit(3)",
    "raises": "last = 1; raise ValueError",
    "leaves at once": "last = 1; os._exit(3)",
    "is interrupted": "last = 1; raise KeyboardInterrupt",
    "has an exit function": "atexit.register(lambda: [\n1])",
    "is held and killed": "reach(SAVED)",
    "terminates": "signal.signal(signal.SIGTERM, signal.SIG_DFL); reach(SAVED)",
    "cleans up": "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3)); reach(SAVED)",
    "forks": "child = os.fork()\nif child == 0:\n    last = 1; os._exit(0)\nos.waitpid(child, 0)",
    "starts a Python": "subprocess.run([sys.executable, 'other.py'])",
}
PLANS = {"is held and killed": "pause", "terminates": "term", "cleans up": "term"}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp("shop")
    (project / "points.py").write_text(POINTS)
    (project / "other.py").write_text("last = 1\n")
    for name, body in ENDS.items():
        (project / f"{name.replace(' ', '_')}.py").write_text(f"{HEAD}{body}\n")
    return project


@pytest.fixture(params=["fork", "exec"])
def spawner(request: pytest.FixtureRequest, shop: Path, tmp_path: Path) -> Iterator[MeasuringSpawner]:
    with MeasuringSpawner(request.param, shop, tmp_path / "saved", [f"{shop}/*"], Gathered()) as spawner:
        yield spawner
    assert list((tmp_path / "saved").iterdir()) == []


def start(spawner: MeasuringSpawner, shop: Path, script: str, plan: str = "", **more: Any) -> RunningProcess:
    command = Command(("python", f"{shop}/{script}.py"), cwd=str(shop), plan=plan, context=f"{script}|run", **more)
    return spawner.start(command)


def run(spawner: MeasuringSpawner, shop: Path, script: str, plan: str = "", **more: Any) -> ProcessResult:
    return start(spawner, shop, script, plan, **more).wait()


def lines_run(spawner: MeasuringSpawner, path: Path) -> set[int]:
    return {
        line for file, arc, _ in spawner._gathered._all() if file == str(path) for line in arc if line > 0
    }  # what every process ran, whatever became of it


@pytest.mark.parametrize("end", ENDS)
def test_the_last_line_of_a_process_counts_however_it_ends(spawner: MeasuringSpawner, shop: Path, end: str) -> None:
    script = end.replace(" ", "_")
    plan = f"shop.saved#1={PLANS[end]}" if end in PLANS else ""
    running = start(spawner, shop, script, plan)
    if "pause" in plan:
        assert running.wait_for_pause() is not None
        running.kill()
    result = running.wait()
    last = HEAD.count("\n") + ENDS[end].count("\n") + 1
    assert last in lines_run(spawner, shop / f"{script}.py"), result.stderr
    assert (spawner._gathered.processes, spawner._gathered.silent) == (1, 0)
    assert b"killmatrix" not in result.stderr and b"overage" not in result.stderr
    if end == "starts a Python":
        assert lines_run(spawner, shop / "other.py") == {1}


def test_the_fork_child_counts(spawner: MeasuringSpawner, shop: Path) -> None:
    run(spawner, shop, "forks")
    assert HEAD.count("\n") + 3 in lines_run(spawner, shop / "forks.py")


def test_how_it_ends_is_not_changed(spawner: MeasuringSpawner, shop: Path) -> None:
    assert run(spawner, shop, "exits").exit_code == 3
    assert run(spawner, shop, "leaves_at_once").exit_code == 3
    assert run(spawner, shop, "is_interrupted").died_by == "SIGINT"
    assert run(spawner, shop, "terminates", "shop.saved=term").died_by == "SIGTERM"
    raised = run(spawner, shop, "raises")
    assert raised.exit_code == 1 and raised.stderr.count(b"File ") == 1 and raised.stderr.endswith(b"ValueError\n")


def test_what_is_ended_from_outside_is_counted_as_lost(spawner: MeasuringSpawner, shop: Path) -> None:
    (shop / "hangs.py").write_text("import signal\nprint('here', flush=True)\nsignal.pause()\n")
    result = run(spawner, shop, "hangs", timeout_s=2.0)
    assert result.timed_out and (spawner._gathered.processes, spawner._gathered.silent) == (1, 1)
    assert spawner.start(Command(("true",), cwd=str(shop))).wait().exit_code == 0
    assert (spawner._gathered.processes, spawner._gathered.silent) == (2, 2)


def test_a_kill_is_told_from_an_end(spawner: MeasuringSpawner, shop: Path) -> None:
    run(spawner, shop, "is_held_and_killed", "shop.saved=kill")
    last = HEAD.count("\n") + 1
    assert spawner._gathered.only_killed(str(shop / "is_held_and_killed.py")) >= {last}
    assert f"is_held_and_killed|run|{signal.Signals.SIGKILL.name}" in {c for *_, c in spawner._gathered._all()}
    run(spawner, shop, "is_held_and_killed")
    assert spawner._gathered.only_killed(str(shop / "is_held_and_killed.py")) == set()


def test_where_there_is_no_process_server(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "open_spawner", lambda _, *, project, measuring: PortableSpawner(project, measuring))
    gathered = Gathered()
    with MeasuringSpawner("exec", shop, tmp_path / "saved", [f"{shop}/*"], gathered) as spawner:
        assert run(spawner, shop, "is_held_and_killed", "shop.saved=kill").died_by == "SIGKILL"
    last = HEAD.count("\n") + 1
    assert last in gathered.only_killed(str(shop / "is_held_and_killed.py")) and gathered.silent == 0


def test_the_machines_own_sitecustomize_runs_too(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.own = __file__\n")
    (shop / "asks.py").write_text("import sys, sitecustomize\nprint(sys.own, sitecustomize.__file__, sys.path)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    gathered = Gathered()
    with MeasuringSpawner("exec", shop, tmp_path / "saved", [f"{shop}/*"], gathered) as spawner:
        out = run(spawner, shop, "asks").stdout.decode()
    own = str(tmp_path / "sitecustomize.py")
    assert out.startswith(f"{own} {own} ") and "afresh" not in out and gathered.silent == 0


def test_a_process_that_cannot_save_ends_as_it_would(spawner: MeasuringSpawner, shop: Path, tmp_path: Path) -> None:
    (shop / "blocks.py").write_text(f"import os\nos.rename('{tmp_path}/saved', '{tmp_path}/moved')\nos._exit(3)\n")
    result = run(spawner, shop, "blocks")
    assert result.exit_code == 3 and b"killmatrix: coverage is not saved: " in result.stderr
    (tmp_path / "moved").rename(tmp_path / "saved")


def test_a_file_that_is_not_whole_counts_as_lost(shop: Path, tmp_path: Path) -> None:
    gathered = Gathered()
    with MeasuringSpawner("exec", shop, tmp_path / "saved", [f"{shop}/*"], gathered) as spawner:
        (tmp_path / "saved" / "1.77").write_bytes(b"{torn")
        result = spawner.start(Command(("true",), cwd=str(shop))).wait()
    assert result.exit_code == 0 and (gathered.processes, gathered.silent) == (1, 1)


# --- what is kept


def test_what_is_kept_does_not_grow_with_the_processes() -> None:
    gathered = Gathered()
    for number in range(100):
        for killed in (True, False):
            gathered.add({"shop.py": {(1, 2), (2, 3)}}, f"cell-{number}|run{'|SIGKILL' * killed}", killed=killed)
    kept = list(gathered._all())
    assert len(kept) == 2 * 2 * CONTEXTS_MAX
    assert {context for *_, context in kept} == {
        f"cell-{number}|run{ended}" for number in range(CONTEXTS_MAX) for ended in ("", "|SIGKILL")
    }


def test_a_file_that_nobody_imports_is_in_the_data(tmp_path: Path) -> None:
    gathered = Gathered()
    gathered.add({str(tmp_path / "run.py"): {(-1, 1), (1, -1)}}, "cell|run", killed=False)
    gathered.write(tmp_path / "data", [str(tmp_path / "run.py"), str(tmp_path / "idle.py")])
    data = CoverageData(basename=str(tmp_path / "data"))
    data.read()
    assert data.measured_files() == {str(tmp_path / "run.py"), str(tmp_path / "idle.py")}
    assert data.lines(str(tmp_path / "idle.py")) == [] and data.measured_contexts() == {"cell|run"}
