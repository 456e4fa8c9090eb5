"""Many cells: one engine and one spawner a worker thread, results as they come, and an end on every path.

The processes under test are real and run in parallel; a thread here only waits for them and judges. Workers share one
queue, and a queue item whose worker broke becomes an UNKNOWN result: nothing is dropped.
"""

from __future__ import annotations

import contextlib
import os
import platform
import queue
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from harness.engine import Engine
from harness.matrix import Matrix, check_gate, load_matrix, read_catalogue
from harness.model import Cell, CellResult, DeclaredPoint, Run, Verdict
from harness.sandbox import session_directory
from harness.spawn import open_spawner

SpawnKind = Literal["fork", "exec"]


@dataclass(frozen=True, slots=True)
class Project:
    """A matrix that passed its gate, and where it lies."""

    root: Path
    matrix: Matrix
    points: tuple[DeclaredPoint, ...]


def open_project(matrix_file: Path) -> Project:
    """Load the matrix and hold it against the code, both ways. Raises MatrixError."""
    matrix_file = matrix_file.resolve()
    matrix = load_matrix(matrix_file)
    points = read_catalogue(matrix.catalogue, matrix_file.parent)
    check_gate(matrix, points)
    return Project(matrix_file.parent, matrix, points)


def default_spawn() -> SpawnKind:
    """Fork where a warm server can be had, a fresh interpreter elsewhere."""
    return "fork" if sys.platform == "linux" else "exec"


@contextlib.contextmanager
def open_engine(project: Project, spawn: SpawnKind, root: Path, keep: Path | None = None) -> Iterator[Engine]:
    """One engine with its own spawner, both gone at the end."""
    root.mkdir(exist_ok=True)
    with open_spawner(spawn, project=project.root) as spawner:
        yield Engine(project.root, project.matrix, spawner, root, keep=keep)


def run_cells(
    project: Project,
    cells: Sequence[Cell],
    *,
    jobs: int,
    spawn: SpawnKind,
    whole: bool,
    keep: Path | None = None,
    fail_fast: bool = False,
    observe: Callable[[CellResult], None] = lambda _result: None,
) -> Run:
    """Run every cell and return the run. Ctrl-C ends it early: ``interrupted`` is set and nothing is left behind."""
    started_at, started = datetime.now(UTC), time.perf_counter()
    results: dict[str, CellResult] = {}
    interrupted = False
    with session_directory() as root:
        crew = _Crew(project, cells, min(jobs, len(cells)), spawn, root, keep)
        try:
            for result in crew.results():
                results[str(result.cell)] = result
                observe(result)
                if fail_fast and result.verdict is not Verdict.PASS:
                    break
        except KeyboardInterrupt:
            interrupted = True
        finally:
            crew.stop()
    ordered = tuple(results[str(cell)] for cell in cells if str(cell) in results)
    return Run(
        run_id=f"{started_at:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}",
        started_at=started_at.isoformat(timespec="seconds"),
        duration_s=time.perf_counter() - started,
        jobs=jobs,
        spawn=spawn,
        host=describe_host(),
        planned=len(cells),
        results=ordered,
        points=project.points,
        listed_points=frozenset(project.matrix.points),
        listed_rows=frozenset(project.matrix.rows),
        whole=whole and not fail_fast,
        interrupted=interrupted or (fail_fast and len(ordered) < len(cells)),
    )


def describe_host() -> dict[str, Any]:
    return {"python": platform.python_version(), "os": sys.platform, "cpus": os.cpu_count() or 1}


class _Crew:
    """Worker threads over one queue. Stopping lets each finish its cell at the most."""

    def __init__(
        self, project: Project, cells: Sequence[Cell], jobs: int, spawn: SpawnKind, root: Path, keep: Path | None
    ) -> None:
        self._project, self._spawn, self._root, self._keep = project, spawn, root, keep
        self._cells = iter(cells)
        self._take = threading.Lock()
        self._done: queue.SimpleQueue[CellResult | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._broke = ""
        self._threads = [threading.Thread(target=self._work, args=(n,), name=f"worker-{n}") for n in range(jobs)]

    def results(self) -> Iterator[CellResult]:
        """Each result as it comes; ends when every worker has ended. What no worker is left for is UNKNOWN."""
        for thread in self._threads:
            thread.start()
        running = len(self._threads)
        while running:
            result = self._done.get()
            if result is None:
                running -= 1
            else:
                yield result
        while (cell := self._next()) is not None:
            yield lost_cell(cell, self._broke)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _next(self) -> Cell | None:
        with self._take:
            return None if self._stopping.is_set() else next(self._cells, None)

    def _work(self, number: int) -> None:
        cell: Cell | None = None
        try:
            with open_engine(self._project, self._spawn, self._root / f"worker-{number}", self._keep) as engine:
                while (cell := self._next()) is not None:
                    self._done.put(engine.run_cell(cell))
        except BaseException as error:  # whatever it is, it ends this thread, and nothing else would tell
            self._broke = f"the worker broke: {type(error).__name__}: {error}"
            if cell is not None:
                self._done.put(lost_cell(cell, self._broke))
        finally:
            self._done.put(None)


def lost_cell(cell: Cell, why: str) -> CellResult:
    """A cell that could not be tried: never a pass."""
    return CellResult(cell, Verdict.UNKNOWN, (), None, (), None, 0, (), why, frozenset(), (), 0.0)
