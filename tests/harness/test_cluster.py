"""Cells on a real Dask cluster: nothing is lost, nothing counts twice, and nothing is left behind on any worker."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.cli import main
from harness.cluster import pool
from harness.cluster.seat import make_order
from harness.plan import plan_cells
from harness.runner import open_project
from tests.harness import toy
from tests.harness.dask_cluster import LocalCluster
from tests.harness.support import REPOSITORY, TIMEOUT_S, family_of, start_harness, still_running

pytest.importorskip("distributed", reason="Dask is not installed: pip install 'killmatrix[dask]'")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the little program and the warm servers need Linux")

ENDS_ITS_WORKER = """
import os, signal
import toy_judge

class EndsItsWorker(toy_judge.Toy):
    def judge(self, history):
        with open(os.path.dirname(__file__) + "/engines", "a") as file:
            print(os.getpid(), file=file)
        os.kill(os.getppid(), signal.SIGKILL)
        while True:
            signal.pause()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two workers; judges that end the process of an engine see that they are in one."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), PYTEST_XDIST_WORKER="a worker") as cluster:
        cluster.add_worker()
        cluster.add_worker()
        cluster.settle()
        yield cluster


def run(project: Path, *arguments: str) -> tuple[int, str, dict[str, str]]:
    """Exit status, what is said, and the verdict of each cell."""
    process = start_harness(project, project.parent / "temp", "run", "--no-store", "--json", "run.json", *arguments)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert list((project.parent / "temp").iterdir()) == []
    cells = json.loads((project / "run.json").read_text())["cells"] if (project / "run.json").exists() else []
    assert max(Counter(cell["id"] for cell in cells).values(), default=1) == 1
    return process.returncode, out + err, {cell["id"]: cell["verdict"] for cell in cells}


def write_project(directory: Path, **scenarios: Any) -> Path:
    """One healthy cell, then one of each of these (so not the first of its batch), then a healthy scenario's six."""
    matrix = toy.small_matrix()
    healthy = matrix["scenarios"].pop(toy.HEALTHY)
    matrix["scenarios"] |= {f"toy.{name}": spec for name, spec in scenarios.items()} | {toy.HEALTHY: healthy}
    order = [*(f"toy.{name}" for name in scenarios), toy.HEALTHY]
    matrix["points"]["toy.pending"] |= {"scenarios": order, "hits": {toy.HEALTHY: 2}}
    toy.write_toy(directory / "project", matrix)
    return directory / "project"


def lives(process: psutil.Process) -> bool:
    """Now: nobody waits for it here."""
    return bool(process.is_running()) and process.status() != psutil.STATUS_ZOMBIE


# --- a cluster


def test_verdicts_are_those_of_this_machine(cluster: LocalCluster, tmp_path: Path) -> None:
    """But for the cell whose judge ends the process it runs in: only on a worker does it, and costs no other cell."""
    crash = "toy.crashes/toy.pending#1=kill"
    project = write_project(
        tmp_path,
        loses=toy.scenario("loses"),
        exits=toy.scenario("exits"),
        crashes=toy.scenario(judge="CrashesTheProcess"),
    )
    status, told, there = run(project, "--dask", cluster.address)
    assert status == 1 and there.pop(crash) == "UNKNOWN", told
    assert "the engine's process ended with exit status 3" in told
    _, _, here = run(project, "--scenario", "toy.[!c]*")
    assert there == here and set(here.values()) == {"PASS", "FAIL", "UNREACHED"} and len(here) == 9


@pytest.fixture
def waiting(tmp_path: Path) -> tuple[Path, toy.Meeting]:
    project = write_project(tmp_path, waits=toy.scenario("waits"))
    return project, toy.Meeting(project)


def test_ctrl_c(cluster: LocalCluster, waiting: tuple[Path, toy.Meeting]) -> None:
    """In the middle of a cell: when the run has ended, so have its processes on the workers."""
    project, meeting = waiting
    harness = start_harness(project, project.parent / "temp", "run", "--dask", cluster.address)
    program = psutil.Process(meeting.wait())
    engines = family_of(cluster.worker_of(program.pid))
    harness.send_signal(signal.SIGINT)
    out, err = harness.communicate(timeout=TIMEOUT_S)
    assert harness.returncode == 2 and "the run was interrupted" in out and "Traceback" not in err, err
    assert program in engines and not [process for process in engines if lives(process)]
    assert list(cluster.temp.iterdir()) == []


def test_a_worker_with_something_else_refuses(cluster: LocalCluster, tmp_path: Path) -> None:
    """Before anything runs, and whatever else could run it."""
    for package in ("harness", "killpoints"):
        shutil.copytree(REPOSITORY / package, tmp_path / "other" / package)
    (tmp_path / "other" / "harness" / "changed.py").touch()
    other = cluster.add_worker(PYTHONPATH=str(tmp_path / "other"))
    cluster.settle()
    project = write_project(tmp_path)
    try:
        status, told, verdicts = run(project, "--dask", cluster.address)
    finally:
        other.kill()
        other.wait()
    assert (status, verdicts) == (64, {}), told
    assert "not the same here as in the run: killmatrix itself" in told and told.count("worker tcp://") == 1
    assert list(cluster.temp.iterdir()) == []


def test_a_worker_is_lost_in_the_middle(cluster: LocalCluster, waiting: tuple[Path, toy.Meeting]) -> None:
    """Its batch is run again by the other worker; its engine cleans up by itself."""
    project, meeting = waiting
    options = ("run", "--dask", cluster.address, "--json", "run.json")
    harness = start_harness(project, project.parent / "temp", *options)
    program = psutil.Process(meeting.wait())
    lost = cluster.worker_of(program.pid)
    engines = family_of(lost)
    lost.kill()
    assert program in engines and still_running(engines) == []
    assert cluster.worker_of(meeting.wait()) != lost
    meeting.let_go()
    out, err = harness.communicate(timeout=TIMEOUT_S)
    assert harness.returncode == 0 and "PASS: All 8 cells passed." in out, out + err
    cells = json.loads((project / "run.json").read_text())["cells"]
    assert [cell["id"] for cell in cells] == [
        str(cell) for cell in plan_cells(open_project(project / "matrix.yaml").matrix)
    ]
    assert list(cluster.temp.iterdir()) == []


def test_the_scheduler_is_lost_in_the_middle(cluster: LocalCluster, waiting: tuple[Path, toy.Meeting]) -> None:
    """Last of those that share a cluster. What has no result is unknown, which is no pass; engines end with their workers."""
    project, meeting = waiting
    options = ("run", "--dask", cluster.address, "--json", "run.json")
    harness = start_harness(project, project.parent / "temp", *options)
    program = psutil.Process(meeting.wait())
    engines = family_of(cluster.worker_of(program.pid))
    cluster.scheduler.kill()
    out, err = harness.communicate(timeout=TIMEOUT_S)
    meeting.let_go()  # a worker without a scheduler waits for its task before it ends
    assert harness.returncode == 2 and "the cluster gave it up" in out and "Traceback" not in out + err, out + err
    cells = json.loads((project / "run.json").read_text())["cells"]
    assert len(cells) == 8 and {cell["verdict"] for cell in cells} <= {"PASS", "UNKNOWN"}
    assert program in engines and still_running(engines) == []
    assert list(cluster.temp.iterdir()) == []


def test_a_cell_that_ends_its_workers(tmp_path: Path) -> None:
    """It is found, and no endless loop; the others of its batch have their results. No engine stays with a judge that hangs."""
    project = write_project(tmp_path, ends=toy.scenario(judge="EndsItsWorker") | {"judge": "ends:EndsItsWorker"})
    (project / "ends.py").write_text(ENDS_ITS_WORKER)
    with LocalCluster(tmp_path / "cluster", DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0") as cluster:
        for _ in range(3):
            cluster.add_worker()
        cluster.settle()
        status, told, verdicts = run(project, "--dask", cluster.address)
        assert status == 2 and "it ends the Dask workers that run it" in told, told
        assert Counter(verdicts.values()) == {"PASS": 7, "UNKNOWN": 1}
        assert verdicts["toy.ends/toy.pending#1=kill"] == "UNKNOWN"
        assert [worker.poll() for worker in cluster.workers].count(-signal.SIGKILL) == 2
        engines = [int(pid) for pid in (project / "engines").read_text().split()]
        assert len(engines) == 2
        assert still_running([psutil.Process(pid) for pid in engines if psutil.pid_exists(pid)]) == []
        assert list(cluster.temp.iterdir()) == []


# --- no cluster


def test_nobody_listens(tmp_path: Path) -> None:
    project = write_project(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    status, told, _ = run(project, "--dask", f"tcp://127.0.0.1:{port}")
    assert status == 64 and f"tcp://127.0.0.1:{port}: no Dask scheduler can be reached there" in told
    assert "Traceback" not in told and not (project / ".killmatrix").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--dask", "no.json"], "no.json: no scheduler file is there; write tcp://HOST:PORT"),
        (["--dask", "tcp:/127.0.0.1"], "no scheduler file is there"),
        (["--dask", "nothing://127.0.0.1:1"], "no Dask scheduler can be reached there"),
        (["--dask", "tcp://127.0.0.1:1", "--coverage"], "--coverage measures on this machine only"),
        (["--dask", "tcp://127.0.0.1:1", "--keep", "kept"], "killmatrix repro CELL --keep DIR"),
    ],
)
def test_what_cannot_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    monkeypatch.chdir(write_project(tmp_path))
    monkeypatch.setattr(sys, "argv", ["killmatrix", "run", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 64 and says in capfd.readouterr().err
    assert not Path("kept").exists() and not Path(".killmatrix").exists()


def test_without_dask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(write_project(tmp_path))
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.setattr(sys, "argv", ["killmatrix", "run", "--dask", "tcp://127.0.0.1:1"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 64 and "pip install 'killmatrix[dask]'" in capfd.readouterr().err


# --- an engine


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("toy.py", "# another program\n", "the project's Python sources"),
        ("toy_points.py", 'MORE = declare("toy.more", "more", "toy 5")\n', "the declared points, the project's"),
    ],
)
def test_a_project_that_has_changed_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, says: str
) -> None:
    monkeypatch.setenv("KILLMATRIX_TMP", str(tmp_path))
    project = open_project(write_project(tmp_path) / "matrix.yaml")
    order = make_order(project, "fork")
    with (project.root / name).open("a") as file:
        file.write(text)
    ((packed, why),) = pool.run_batch("a run", str(project.root), order, [b"a cell"])
    assert packed is None and f"not the same here as in the run: {says}" in why


@pytest.fixture
def order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, bytes]:
    monkeypatch.setenv("KILLMATRIX_TMP", str(tmp_path))
    project = open_project(write_project(tmp_path) / "matrix.yaml")
    return str(project.root), make_order(project, "fork")


def test_an_engine_is_kept_and_replaced_when_it_was_lost(order: tuple[str, bytes]) -> None:
    engines = pool.Pool()
    try:
        first = engines.take(*order)
        engines.give_back(first)
        assert engines.take(*order) is first
        engines.give_back(first)
        psutil.Process(first.pid).kill()
        assert first.close() == "the engine's process was killed by signal 9"
        second = engines.take(*order)
        assert second is not first and second.lives
    finally:
        engines.end()
    assert not second.lives
    with pytest.raises(pool.Refused, match="the run is over"):
        engines.take(*order)


def test_an_engine_that_nobody_asks_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: tuple[str, bytes]
) -> None:
    monkeypatch.setattr(pool, "IDLE_S", 0.0)
    engines = pool.Pool()
    seat = engines.take(*order)
    process = psutil.Process(seat.pid)
    engines.give_back(seat)
    assert still_running([process]) == [] and list(tmp_path.glob("killmatrix-*")) == []


def test_a_project_that_is_not_there(tmp_path: Path) -> None:
    answers = pool.run_batch("a run", str(tmp_path / "nowhere"), b"", [b"a cell", b"another"])
    assert [packed for packed, _ in answers] == [None, None]
    assert "No such file or directory: the project has to lie there on every worker" in answers[0][1]
