"""The nouns of the harness: frozen dataclasses with no behaviour beyond themselves (harness.md, "Words").

Everything else passes these around; nothing here imports anything of ours.
"""

from __future__ import annotations

import enum
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class Verdict(enum.Enum):
    """What is known about one cell. FAIL beats everything, then the unknowns, then PASS."""

    PASS = "PASS"
    FAIL = "FAIL"
    UNREACHED = "UNREACHED"
    HUNG = "HUNG"
    FOREIGN_DEATH = "FOREIGN_DEATH"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Step:
    """One fault of a cell: at the ``hit``-th time one process reaches ``point``, ``fault`` happens (``kill``, ...)."""

    point: str
    hit: int
    fault: str

    def __str__(self) -> str:
        return f"{self.point}#{self.hit}={self.fault}"


@dataclass(frozen=True, slots=True)
class Expect:
    """What must come of a fault.

    ``row``, ``resumes``: the first row that the first recovery takes, and the first of its kind that it resumes at.
    ``refuses``: the error code that every recovery answers. ``code``: what the process under the fault answers, or, while
    it is held, its rival.
    """

    row: str | None = None
    resumes: str | None = None
    code: str | None = None
    refuses: str | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """scenario x point x hit x fault, possibly more than one deep. ``str(cell)`` is its id and its only coordinates."""

    scenario: str
    steps: tuple[Step, ...]
    expect: Expect = Expect()

    @property
    def depth(self) -> int:
        return len(self.steps)

    def __str__(self) -> str:
        return f"{self.scenario}/{'>'.join(map(str, self.steps))}"


@dataclass(frozen=True, slots=True)
class Record:
    """One line of the control pipe: ``kind`` is the action that fired, or ``pass`` for a point that was passed."""

    kind: str
    point: str
    hit: int
    pid: int


@dataclass(frozen=True, slots=True)
class Command:
    """A process to start. ``plan`` is the text form of what is armed in it; paths are absolute; ``env`` is added.

    ``context``: whose process it is (``CELL|ROLE``), for what is measured of it.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = field(default_factory=dict)
    plan: str = ""
    timeout_s: float = 20.0
    context: str = ""


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """How one real process ended. ``exit_code`` xor ``signal_number`` is set once it has ended.

    ``timed_out``: it was ended by us because its time was up; ``records`` is everything its hooks wrote, in order.
    """

    argv: tuple[str, ...]
    pid: int
    exit_code: int | None
    signal_number: int | None
    stdout: bytes
    stderr: bytes
    records: tuple[Record, ...]
    timed_out: bool
    duration_s: float

    @property
    def died_by(self) -> str | None:
        """The signal's name (``SIGKILL``), or None for a process that exited."""
        if self.signal_number is None:
            return None
        try:
            return signal.Signals(self.signal_number).name
        except ValueError:
            return f"SIG{self.signal_number}"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken invariant: its name (harness.md, "What is judged"), where, and what was found against what is due."""

    invariant: str
    path: str
    detail: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.path}: {self.detail}" if self.path else f"{self.invariant}: {self.detail}"


@dataclass(frozen=True, slots=True)
class StepResult:
    """Proof of fire of one step: whether the record names it and the process died as this cell meant it to."""

    step: Step
    fired: bool
    pid: int | None
    died_by: str | None


@dataclass(frozen=True, slots=True)
class Chapter:
    """One process of a cell's story, for people: who ran, how it ended, which points it passed, the tree after it."""

    title: str
    argv: tuple[str, ...]
    pid: int | None
    ended: str
    points: tuple[str, ...]
    tree: tuple[str, ...]
    stdout: str
    stderr: str
    duration_ms: float


@dataclass(frozen=True, slots=True)
class CellResult:
    """What is known about one cell. ``story`` may be read from a store when it is asked for: take what is needed once."""

    cell: Cell
    verdict: Verdict
    steps: tuple[StepResult, ...]
    row: str | None
    rows: tuple[str, ...]
    code: str | None
    recoveries: int
    violations: tuple[Violation, ...]
    why: str
    points_reached: frozenset[str]
    story: Sequence[Chapter]
    duration_s: float
    kept_at: str | None = None
    rows_reached: frozenset[str] = frozenset()

    @property
    def repro(self) -> str:
        return f"killmatrix repro '{self.cell}'"


@dataclass(frozen=True, slots=True)
class Seen:
    """What the last run that had a cell knew about it. ``seen_at`` is a Unix time in seconds."""

    verdict: Verdict
    duration_s: float
    seen_at: float


@dataclass(frozen=True, slots=True)
class DeclaredPoint:
    """A point as the code's catalogue tells it."""

    name: str
    says: str
    spec: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Code that no process of the run reached.

    line, last:  the lines themselves, or, with ``to``, the way from ``line`` to the line ``to`` (0: out of the function)
    name:        ``FUNCTION: TEXT OF LINE`` (for a way ``... -> TEXT OF TO``), which stays when lines move
    why:         the reason why no process reaches it, where the project gives one
    """

    line: int
    last: int
    to: int | None
    name: str
    why: str | None = None


@dataclass(frozen=True, slots=True)
class FileCoverage:
    """One source file, its path below the project. ``only_killed``: lines that only processes ran which were killed."""

    path: str
    lines: int
    lines_run: int
    branches: int
    branches_run: int
    only_killed: tuple[int, ...]
    gaps: tuple[Gap, ...]

    @property
    def unexplained(self) -> tuple[Gap, ...]:
        return tuple(gap for gap in self.gaps if gap.why is None)


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the processes of a run ran of the code under test.

    silent:    how many of ``processes`` left no data: ended from outside, not Python, without the code under test
    problems:  what the project asks of its coverage and does not hold
    """

    files: tuple[FileCoverage, ...]
    processes: int
    silent: int
    data_file: str
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shard:
    """Part ``index`` (from 1) of ``count`` of one plan.

    plan:   a hash over every cell of the plan and the shard that it is in; parts of one plan have the same
    cells:  how many cells all shards have together
    whole:  the plan was made from the whole matrix, without a filter
    """

    index: int
    count: int
    plan: str
    cells: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the matrix. ``interrupted``: it was stopped before every planned cell had a result.

    selection:     what it was about, as the options that chose it; runs of one selection can be compared
    fingerprints:  what it was made of (``matrix``, ``catalogue``, ``sources``, ``harness``) -> hash
    left_out:      how many of the planned cells its budget left no time for
    problems:      why it can be no pass, whatever its cells say (shards that do not fit together)
    """

    run_id: str
    started_at: str
    duration_s: float
    jobs: int
    spawn: str
    host: Mapping[str, Any]
    planned: int
    results: Sequence[CellResult]
    points: tuple[DeclaredPoint, ...]
    listed_points: frozenset[str]
    whole: bool = (
        True  # False when a filter or a shard left cells out: unreached points are then not counted against it
    )
    interrupted: bool = False
    notes: tuple[str, ...] = ()
    listed_rows: frozenset[str] = frozenset()
    selection: str = ""
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    shard: Shard | None = None
    left_out: int = 0
    problems: tuple[str, ...] = ()
    coverage: Coverage | None = None

    @property
    def rows_reached(self) -> frozenset[str]:
        return frozenset().union(*(result.rows_reached for result in self.results)) & self.listed_rows

    @property
    def points_reached(self) -> frozenset[str]:
        return frozenset().union(*(result.points_reached for result in self.results)) & {p.name for p in self.points}
