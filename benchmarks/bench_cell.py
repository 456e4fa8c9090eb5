"""One cell beside its floor, and a fork beside a fresh interpreter.

``floor``: two forks of an equally warm process, killed and reaped, and the file operations of the run and of the recovery
in a plain loop: no interpreter decides anything. ``processes``: the very processes of the cell, bare: forked from a warm
process, the command run in them, killed where the cell kills, reaped; no harness. Goals: a cell is at most twice the floor,
and what the harness adds to the processes at most twice the two forks.
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
from benchmarks.replay import Operation, read_operations, record_operations, replay
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
        self._tree = engine._prepare(cell.scenario, engine.scenario(cell.scenario), spec).tree
        self._sandbox = directory / "bare"
        evidence = str(self._sandbox / "first.evidence.json")
        self._point = cell.steps[0].point
        self._commands = [
            (["recover"], f"{self._point}#1=kill"),
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

    def record(self) -> list[Operation]:
        """The file operations of the run, up to where it is killed, and of the recovery."""
        self.set_up()
        found = []
        for argv, plan in self._commands[:2]:
            mine, theirs = os.pipe()
            if os.fork() == 0:
                os.close(mine)
                self._record(argv, plan, theirs)
            os.close(theirs)
            found += read_operations(mine)
            os.wait()
        return found

    def _record(self, argv: list[str], plan: str, pipe_fd: int) -> None:
        self._become()
        tell_all = record_operations(pipe_fd)
        if plan:
            import killpoints.actions as actions

            def end(_number: int) -> None:
                tell_all()
                os._exit(0)

            actions._end_self = end  # type: ignore[assignment]
            killpoints.arm(plan)
        self._main(argv)
        tell_all()
        os._exit(0)

    def _become(self) -> None:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os.environ["COLLECTOR_STATE_DIR"] = str(self._sandbox / "state")
        os.environ["COLLECTOR_ARCHIVE_DIR"] = str(self._sandbox / "archive")

    def _fork(self, argv: list[str], plan: str) -> None:
        pid = os.fork()
        if pid == 0:
            self._become()
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
        operations = bare.record()
        gc.collect()
        gc.freeze()
        for engine in (fork, fresh):
            assert engine.run_cell(cell).verdict.value == "PASS"
        took = measure_side_by_side(
            {
                "forks": fork_and_kill,
                "files": lambda: replay(operations),
                "processes": bare.run,
                "fork": lambda: fork.run_cell(cell),
            },
            rounds=ROUNDS,
            before=bare.set_up,
        )
        exec_s = measure_side_by_side({"exec": lambda: fresh.run_cell(cell)}, rounds=8)["exec"]
        snapshot = measure_side_by_side({"snapshot": lambda: observe_tree(Path(directory) / "bare")}, rounds=50)[
            "snapshot"
        ]
    floor, added = took["forks"] + took["files"], took["fork"] - took["processes"]
    tell(
        f"one cell: {CELL}",
        {
            "two warm forks, killed and reaped": f"{took['forks'] * 1e3:.2f} ms",
            f"the {len(operations)} file operations of run and recovery": f"{took['files'] * 1e3:.2f} ms",
            "its four processes, bare": f"{took['processes'] * 1e3:.2f} ms",
            "the cell by fork": f"{took['fork'] * 1e3:.2f} ms",
            "cell / floor (forks and file operations)": f"{took['fork'] / floor:.1f}  (goal at most 2)",
            "(cell - processes) / two forks": f"{added / took['forks']:.2f}  (goal at most 2)",
            "cell / processes": f"{took['fork'] / took['processes']:.2f}",
            "exec / fork": f"{exec_s / took['fork']:.1f}  (goal at least 15)",
            "one snapshot / two forks": f"{snapshot / took['forks']:.2f}",
        },
    )
