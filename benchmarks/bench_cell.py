"""One cell beside its floor, and a fork beside a fresh interpreter.

``floor``: two forks of an equally warm process, killed and reaped. ``processes``: the very processes of the cell, bare: forked
from a warm process, the command run in them, killed where the cell kills, reaped; no harness. Goal: what the harness adds to
the processes is at most twice the floor.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import killpoints
from benchmarks.measure import measure_side_by_side, tell
from harness.engine import Engine
from harness.judge.tree import observe_tree, restore_tree
from harness.plan import parse_cell
from harness.runner import Project, open_engine, open_project
from harness.sandbox import sandbox_base, session_directory

ROOT = Path(__file__).resolve().parent.parent
CELL = "collector.takeover-held/collector.takeover.rename#1=kill"
ROUNDS = 120


def fork_and_kill() -> None:
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)


class BareCell:
    """The cell's processes without a harness: same set-up, same commands, same kill."""

    def __init__(self, project: Project, engine: Engine, directory: Path) -> None:
        import product.collector.cli  # as warm as the server is

        self._main = product.collector.cli.main
        cell = parse_cell(CELL, project.matrix)
        spec = project.matrix.scenarios[cell.scenario]
        self._tree = engine._prepare(cell.scenario, engine._scenario(cell.scenario), spec).tree
        self._sandbox = directory / "bare"
        evidence = str(self._sandbox / "first.evidence.json")
        self._commands = [
            (["recover"], f"{cell.steps[0].point}#1=kill"),
            (["recover"], ""),
            (["recover"], ""),
            (["commit", "--evidence", evidence], ""),
        ]

    def set_up(self) -> None:
        shutil.rmtree(self._sandbox, ignore_errors=True)
        self._sandbox.mkdir()
        restore_tree(self._tree, self._sandbox)

    def run(self) -> None:
        for argv, plan in self._commands:
            self._fork(argv, plan)

    def _fork(self, argv: list[str], plan: str) -> None:
        pid = os.fork()
        if pid == 0:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 1)
            os.dup2(null, 2)
            os.environ["COLLECTOR_STATE_DIR"] = str(self._sandbox / "state")
            os.environ["COLLECTOR_ARCHIVE_DIR"] = str(self._sandbox / "archive")
            if plan:
                killpoints.arm(plan)
            os._exit(self._main(argv))
        status = os.waitpid(pid, 0)[1]
        assert os.WIFSIGNALED(status) == bool(plan), (argv, status)


def main() -> None:
    sys.path.insert(0, str(ROOT))
    project = open_project(ROOT / "matrix.yaml")
    cell = parse_cell(CELL, project.matrix)
    with (
        session_directory() as root,
        open_engine(project, "fork", root / "fork") as fork,
        open_engine(project, "exec", root / "exec") as fresh,
        tempfile.TemporaryDirectory(dir=sandbox_base()) as directory,
    ):
        bare = BareCell(project, fork, Path(directory))
        gc.collect()
        gc.freeze()

        def run_bare() -> None:
            bare.set_up()
            bare.run()

        for engine in (fork, fresh):
            assert engine.run_cell(cell).verdict.value == "PASS"
        took = measure_side_by_side(
            {"floor": fork_and_kill, "processes": run_bare, "fork": lambda: fork.run_cell(cell)}, rounds=ROUNDS
        )
        exec_s = measure_side_by_side({"exec": lambda: fresh.run_cell(cell)}, rounds=8)["exec"]
        snapshot = measure_side_by_side({"snapshot": lambda: observe_tree(Path(directory) / "bare")}, rounds=50)[
            "snapshot"
        ]
    added = took["fork"] - took["processes"]
    tell(
        f"one cell: {CELL}",
        {
            "floor: two warm forks, killed and reaped": f"{took['floor'] * 1e3:.2f} ms",
            "its four processes, bare": f"{took['processes'] * 1e3:.2f} ms",
            "the cell by fork": f"{took['fork'] * 1e3:.2f} ms",
            "(cell - processes) / floor": f"{added / took['floor']:.2f}  (goal at most 2)",
            "cell / processes": f"{took['fork'] / took['processes']:.2f}",
            "exec / fork": f"{exec_s / took['fork']:.1f}",
            "one snapshot / floor": f"{snapshot / took['floor']:.2f}",
        },
    )
