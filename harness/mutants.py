"""Runs the matrix against wrong programs: a green matrix is worth what a red one would have shown.

A red cell counts only if the right program passes it here and now: a harness that is broken is red for everything. And
it must have been judged: a cell of which nothing is known (UNKNOWN) shows no mistake.

A project names in matrix.yaml the module that runs one of its commands with a mistake in it (``mutants: MODULE``):
``python -m MODULE --list`` prints the catalogue, ``python -m MODULE MUTANT PROGRAM ARGS`` runs it. Set-ups are made by
the right program. For each mutant the cells run, the likely ones first, until the first one that does not pass.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from harness.engine import Engine
from harness.matrix import Matrix, MatrixError, ScenarioSpec
from harness.model import Cell, CellResult, Verdict
from harness.plan import nearest
from harness.runner import Project, SpawnKind, open_engine
from harness.sandbox import session_directory

EXCUSED_SAMPLE = 60


@dataclass(frozen=True, slots=True)
class MutantSpec:
    id: str
    says: str
    cells: tuple[str, ...]
    excuse: str | None


@dataclass(frozen=True, slots=True)
class MutantResult:
    """``killed_by``: the first cell that did not pass; ``invariant``: what it broke, or its verdict.

    ``unproven``: the cell that did not pass and why it shows nothing: the right program does not pass it either, or
    nobody could judge it. ``seen_unharmed``: that scenario is wrong, too, where nothing happens to the command: any test
    of the plain command would see this mistake. None where that is not known.
    """

    mutant: MutantSpec
    killed_by: Cell | None
    invariant: str | None
    cells_run: int
    duration_s: float
    unproven: str | None = None
    seen_unharmed: bool | None = None

    @property
    def survived(self) -> bool:
        """No cell saw it, and there is no reason why none can; or nothing is known about what a red cell is worth."""
        return self.killed_by is None and (self.mutant.excuse is None or self.unproven is not None)


def read_mutants(project: Project) -> tuple[MutantSpec, ...]:
    """The project's catalogue. Raises MatrixError when matrix.yaml names none, or it cannot be read."""
    module = project.matrix.mutants
    if module is None:
        raise MatrixError(["matrix.yaml names no catalogue of wrong programs; add  mutants: MODULE"])
    command = [sys.executable, "-m", module, "--list"]
    done = subprocess.run(command, cwd=project.root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MatrixError([f"mutants {module}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"])
    return tuple(
        MutantSpec(item["id"], item["says"], tuple(item["cells"]), item["excuse"]) for item in json.loads(done.stdout)
    )


def mutate(matrix: Matrix, mutant: str) -> Matrix:
    """The same matrix with the mistake in every command but those of the set-up."""
    assert matrix.mutants is not None

    def wrap(argv: list[str] | None) -> list[str] | None:
        if argv is None or argv[:2] != ["python", "-m"]:
            return argv
        return ["python", "-m", str(matrix.mutants), mutant, *argv[2:]]

    def change(spec: ScenarioSpec) -> ScenarioSpec:
        commands = {name: wrap(getattr(spec, name)) for name in ("run", "recover", "retry")}
        rivals = {name: wrap(argv) for name, argv in spec.rivals.items()}
        return spec.model_copy(update={**commands, "rivals": rivals})

    return matrix.model_copy(update={"scenarios": {name: change(spec) for name, spec in matrix.scenarios.items()}})


def with_mutant(project: Project, mutant: str | None) -> Project:
    """The project with that mistake in it; as it is for None. Raises MatrixError for an id that the catalogue has not."""
    if mutant is None:
        return project
    ids = [spec.id for spec in read_mutants(project)]
    if mutant not in ids:
        raise MatrixError(
            [f"no wrong program is called {mutant!r}{nearest(mutant, ids)}; killmatrix mutants runs them"]
        )
    return Project(project.root, mutate(project.matrix, mutant), project.points)


def order_cells(cells: Sequence[Cell], likely: Sequence[str]) -> list[Cell]:
    """Likely cells first, then all others in the order of the matrix."""
    first = [cell for cell in cells if any(fnmatch.fnmatchcase(str(cell), glob) for glob in likely)]
    rest = [cell for cell in cells if cell not in first]
    return first + rest


def run_mutant(mutant: MutantSpec, cells: Sequence[Cell], engine: Engine, control: Engine) -> MutantResult:
    """Run cells until the first that does not pass; for one with an excuse a sample over the whole matrix.

    ``control`` runs the right program.
    """
    started = time.perf_counter()
    if mutant.excuse is not None:
        cells = cells[:: max(1, len(cells) // EXCUSED_SAMPLE)]
    for number, cell in enumerate(order_cells(cells, mutant.cells), 1):
        result = engine.run_cell(cell)
        if result.verdict is not Verdict.PASS:
            unproven = what_is_unproven(result, control)
            if unproven is not None:
                return MutantResult(mutant, None, None, number, time.perf_counter() - started, unproven)
            unharmed = is_seen_unharmed(cell.scenario, engine, control)
            took = time.perf_counter() - started
            return MutantResult(mutant, cell, what_broke(result), number, took, seen_unharmed=unharmed)
    return MutantResult(mutant, None, None, len(cells), time.perf_counter() - started)


def what_is_unproven(red: CellResult, control: Engine) -> str | None:
    """Why this red cell shows no mistake, or None: it was judged, and the right program passes it."""
    if red.verdict is Verdict.UNKNOWN:
        return f"{red.cell}: it could not be judged: {red.why}"
    right = control.run_cell(red.cell)
    if right.verdict is not Verdict.PASS:
        return f"{red.cell}: the right program does not pass it either: {what_broke(right)} {right.why}"
    return None


def is_seen_unharmed(scenario: str, engine: Engine, control: Engine) -> bool | None:
    """Whether the scenario is wrong with nothing done to its command; None where that is so of the right program too."""
    nothing = Cell(scenario, ())
    if engine.run_cell(nothing).verdict is Verdict.PASS:
        return False
    return True if control.run_cell(nothing).verdict is Verdict.PASS else None


def what_broke(result: CellResult) -> str:
    """The first broken invariant, or the verdict where none is broken."""
    return result.violations[0].invariant if result.violations else result.verdict.value


def select_mutants(mutants: Sequence[MutantSpec], only: str | None) -> tuple[MutantSpec, ...]:
    """Those that the glob names. Raises MatrixError when it names none."""
    chosen = tuple(mutant for mutant in mutants if only is None or fnmatch.fnmatchcase(mutant.id, only))
    if not chosen:
        raise MatrixError([f"no wrong program is called {only!r}; there are: {', '.join(m.id for m in mutants)}"])
    return chosen


def run_mutants(
    project: Project,
    mutants: Sequence[MutantSpec],
    cells: Sequence[Cell],
    *,
    jobs: int,
    spawn: SpawnKind,
    observe: Callable[[MutantResult], None] = lambda _result: None,
) -> tuple[MutantResult, ...]:
    """Each mutant with an engine of its own, each thread with one for the right program; in the catalogue's order."""
    controls = threading.local()

    def control() -> Engine:
        if not hasattr(controls, "engine"):
            place = root / f"control-{threading.get_ident()}"
            controls.engine = stack.enter_context(open_engine(project, spawn, place))
        engine: Engine = controls.engine
        return engine

    def run_one(numbered: tuple[int, MutantSpec]) -> MutantResult:
        number, mutant = numbered
        wrong = Project(project.root, mutate(project.matrix, mutant.id), project.points)
        with open_engine(wrong, spawn, root / f"mutant-{number}") as engine:
            result = run_mutant(mutant, cells, engine, control())
        observe(result)
        return result

    with session_directory() as root, contextlib.ExitStack() as stack, ThreadPoolExecutor(jobs) as pool:
        return tuple(pool.map(run_one, enumerate(mutants)))
