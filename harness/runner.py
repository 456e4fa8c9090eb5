"""Many cells: a crew runs them, the store takes each result as it comes, and there is an end on every path.

The crew here has one engine and one spawner a worker thread: the processes under test are real and run in parallel, and a
thread only waits for them and judges. A cell whose worker broke becomes an UNKNOWN result: nothing is dropped.
No result is held in memory: the run that is returned reads its stories from the store.
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
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from harness.engine import Engine
from harness.fingerprint import fingerprint_project
from harness.matrix import Matrix, check_gate, load_matrix, read_catalogue
from harness.model import Cell, CellResult, DeclaredPoint, Run, Shard, Verdict
from harness.plan import order_by_need
from harness.sandbox import session_directory
from harness.spawn import open_spawner
from harness.store import Recording, Store, temporary_store

if TYPE_CHECKING:
    from harness.coverage.measurement import Measurement

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
def open_engine(
    project: Project, spawn: SpawnKind, root: Path, keep: Path | None = None, measurement: Measurement | None = None
) -> Iterator[Engine]:
    """One engine with its own spawner, both gone at the end."""
    root.mkdir(exist_ok=True)
    with (
        open_spawner(spawn, project=project.root)
        if measurement is None
        else measurement.open_spawner(spawn, root / "coverage")
    ) as spawner:
        yield Engine(project.root, project.matrix, spawner, root, keep=keep)


class Crew(Protocol):
    """Who runs cells. It takes them one by one, when it can run one, from a :class:`Supply` that may end at any time."""

    def results(self) -> Iterator[CellResult]:
        """Each result as it comes, in any order; ends when every cell that was taken has one."""

    def stop(self) -> None:
        """End what runs, whose cells have no result then, and leave nothing behind. Called once, whatever happened."""


Hire = Callable[["Supply", Path], Crew]  # with a directory for sandboxes, which is removed afterwards


class Supply(Iterator[Cell]):
    """The cells that are still to run, in this order, until the time is up. ``left``: how many nobody has taken."""

    def __init__(self, cells: Sequence[Cell], budget_s: float | None) -> None:
        self.left = len(cells)
        self._cells = iter(cells)
        self._deadline = None if budget_s is None else time.monotonic() + budget_s

    def __next__(self) -> Cell:
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise StopIteration
        cell = next(self._cells)
        self.left -= 1
        return cell


def run_cells(
    project: Project,
    cells: Sequence[Cell],
    *,
    jobs: int,
    spawn: SpawnKind,
    whole: bool,
    keep: Path | None = None,
    fail_fast: bool = False,
    measurement: Measurement | None = None,
    observe: Callable[[CellResult], None] = lambda _result: None,
    store: Store | None = None,
    selection: str = "",
    shard: Shard | None = None,
    budget_s: float | None = None,
    resume: str | None = None,
    hire: Hire | None = None,
) -> Run:
    """Run every cell and return the run, its results in the order of ``cells``.

    Ctrl-C ends it early: ``interrupted`` is set and nothing is left behind. ``budget_s``: cells are taken by need (see
    :func:`harness.plan.order_by_need`) until so many seconds are over; those that run then may finish. ``resume``: the
    stored run to go on with; cells that have a result in it are not run again. Without ``store`` the results are in a
    temporary one. Raises StoreError.
    """
    store = store if store is not None else temporary_store()
    head = replace(_describe_run(project, len(cells), jobs, spawn), selection=selection, shard=shard, whole=whole)
    head = replace(head, fingerprints=fingerprint_project(project.root, project.matrix, project.points))
    with store.resume(resume) if resume else store.begin(head) as recording, session_directory() as root:
        if resume:
            head = _go_on(store.read_head(resume), head, len(recording.done))
        due = [cell for cell in cells if str(cell) not in recording.done]
        if budget_s is not None:
            due = list(order_by_need(due, store.seen()))
        supply = Supply(due, budget_s)
        if hire is None:
            crew: Crew = ThreadCrew(project, supply, min(jobs, len(due)), spawn, root, keep, measurement)
        else:
            crew = hire(supply, root)
        ended_early = _collect(crew, recording, cells, fail_fast, observe)
        left_out = 0 if ended_early else supply.left
        head = replace(
            head,
            duration_s=recording.duration_s,
            whole=whole and not fail_fast and not left_out,
            interrupted=ended_early and len(recording.done) < len(cells),
            left_out=left_out,
        )
        recording.finish(head)
    return store.read_run(head.run_id)


def _collect(
    crew: Crew,
    recording: Recording,
    cells: Sequence[Cell],
    fail_fast: bool,
    observe: Callable[[CellResult], None],
) -> bool:
    """Record what comes until all has come, and end the crew. True when somebody, or ``fail_fast``, ended it before."""
    places = {str(cell): place for place, cell in enumerate(cells)}
    try:
        for result in crew.results():
            if recording.record(result, places[str(result.cell)]):
                observe(result)
            if fail_fast and result.verdict is not Verdict.PASS:
                return True
    except KeyboardInterrupt:
        return True
    finally:
        crew.stop()
    return False


def _describe_run(project: Project, planned: int, jobs: int, spawn: SpawnKind) -> Run:
    """What is known of a run before it has results."""
    started_at = datetime.now(UTC)
    return Run(
        run_id=f"{started_at:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}",
        started_at=started_at.isoformat(timespec="seconds"),
        duration_s=0.0,
        jobs=jobs,
        spawn=spawn,
        host=describe_host(),
        planned=planned,
        results=(),
        points=project.points,
        listed_points=frozenset(project.matrix.points),
        listed_rows=frozenset(project.matrix.rows),
    )


def _go_on(stored: Run, head: Run, done: int) -> Run:
    """The head of a run that is resumed."""
    note = f"resumed: {done} of {head.planned} cells had their result from before it was interrupted"
    return replace(head, run_id=stored.run_id, started_at=stored.started_at, notes=(*stored.notes, note))


def describe_host() -> dict[str, Any]:
    return {"python": platform.python_version(), "os": sys.platform, "cpus": os.cpu_count() or 1}


class ThreadCrew:
    """Worker threads over one supply."""

    def __init__(
        self,
        project: Project,
        supply: Iterator[Cell],
        jobs: int,
        spawn: SpawnKind,
        root: Path,
        keep: Path | None = None,
        measurement: Measurement | None = None,
    ) -> None:
        self._project, self._spawn, self._root, self._keep = project, spawn, root, keep
        self._measurement = measurement
        self._supply = supply
        self._take = threading.Lock()
        self._done: queue.SimpleQueue[CellResult | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._engines: list[Engine] = []
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
        """See :meth:`Crew.stop`."""
        self._stopping.set()
        for engine in tuple(self._engines):
            engine.abandon()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _next(self) -> Cell | None:
        with self._take:
            return None if self._stopping.is_set() else next(self._supply, None)

    def _work(self, number: int) -> None:
        cell: Cell | None = None
        try:
            root = self._root / f"worker-{number}"
            with open_engine(self._project, self._spawn, root, self._keep, self._measurement) as engine:
                self._engines.append(engine)
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
