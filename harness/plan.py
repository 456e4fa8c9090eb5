"""matrix + catalogue -> ordered cells; filters, shards and what to run first. Pure."""

from __future__ import annotations

import fnmatch
import hashlib
import heapq
import re
import shlex
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.matrix import Matrix, require_fault
from harness.model import Cell, Expect, Seen, Step, Verdict
from killpoints.registry import nearest_names

_STEP = re.compile(r"(?P<point>[^#=>]+)#(?P<hit>[1-9][0-9]*)=(?P<fault>[^=>]+)")


class PlanningError(ValueError):
    """A cell id or a filter that cannot be read, or that selects nothing."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Globs (or plain parts of a name); None selects everything."""

    scenario: str | None = None
    point: str | None = None
    fault: str | None = None

    @property
    def selects_everything(self) -> bool:
        return self.scenario is None and self.point is None and self.fault is None

    def __str__(self) -> str:
        """The options of the command line that say the same."""
        said = (("--scenario", self.scenario), ("--point", self.point), ("--fault", self.fault))
        return " ".join(f"{option} {shlex.quote(glob)}" for option, glob in said if glob is not None)

    def selects_scenario(self, name: str) -> bool:
        return _matches(name, self.scenario)

    def selects(self, cell: Cell) -> bool:
        return (
            self.selects_scenario(cell.scenario)
            and any(_matches(step.point, self.point) for step in cell.steps)
            and any(_matches(step.fault, self.fault) for step in cell.steps)
        )


def _matches(name: str, pattern: str | None) -> bool:
    if pattern is None:
        return True
    return fnmatch.fnmatchcase(name, pattern) or pattern in name


def plan_cells(matrix: Matrix) -> tuple[Cell, ...]:
    """Every cell of depth 1, in the matrix's order: scenario by scenario, so that a set-up is shared by neighbours."""
    return tuple(
        Cell(scenario, (Step(point, hit, fault),), row.expected(scenario, fault))
        for scenario in matrix.scenarios
        for point, row in matrix.points.items()
        if scenario in row.scenarios
        for hit in range(1, row.hits_in(scenario) + 1)
        for fault in row.faults
        if scenario in row.scenarios_of(fault)
    )


def select(cells: Iterable[Cell], chosen: Filter) -> tuple[Cell, ...]:
    """The cells that the filter selects. Raises PlanningError when it selects none: a typo must not pass as green."""
    selected = tuple(cell for cell in cells if chosen.selects(cell))
    if not selected:
        raise PlanningError("no cell matches the filter; killmatrix list shows them all")
    return selected


def plan_shards(
    cells: Sequence[Cell], count: int, durations_s: Mapping[str, float] | None = None
) -> tuple[tuple[Cell, ...], ...]:
    """The cells of each of ``count`` shards, in their order: disjoint, complete, and alike in time.

    The longest cell goes first, each to the shard that has the least to do. A cell whose duration is not told counts as
    the median; with none told all count alike. The same arguments give the same shards on every machine.
    """
    told = durations_s or {}
    # whole tenths of a millisecond, as a result file has them: sums of floats would depend on their order
    known = {str(cell): round(told[str(cell)] * 10_000) for cell in cells if str(cell) in told}
    median = round(statistics.median(known.values())) if known else 1
    weights = [known.get(str(cell), median) for cell in cells]
    parts: list[list[int]] = [[] for _ in range(count)]
    loads = [(0, 0, part) for part in range(count)]  # by weight, then by number of cells
    for index in sorted(range(len(cells)), key=lambda index: (-weights[index], index)):
        weight, size, part = loads[0]
        parts[part].append(index)
        heapq.heapreplace(loads, (weight + weights[index], size + 1, part))
    return tuple(tuple(cells[index] for index in sorted(part)) for part in parts)


def shard(
    cells: Sequence[Cell], index: int, count: int, durations_s: Mapping[str, float] | None = None
) -> tuple[Cell, ...]:
    """Part ``index`` of ``count`` (from 1) of :func:`plan_shards`. Raises PlanningError for one that is none."""
    if not 1 <= index <= count:
        raise PlanningError(f"shard {index}/{count}: write I/N with 1 <= I <= N")
    return plan_shards(cells, count, durations_s)[index - 1]


def fingerprint_shards(parts: Iterable[Iterable[str]]) -> str:
    """A hash over which cell ids are in which shard: equal where, and only where, all shards are."""
    lines = (f"{number} {cell}" for number, part in enumerate(parts, 1) for cell in sorted(part))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def order_by_need(cells: Sequence[Cell], seen: Mapping[str, Seen]) -> tuple[Cell, ...]:
    """What a budget is to be spent on first: never run, then not passed the last time, then longest unseen."""

    def need(cell: Cell) -> tuple[int, float]:
        last = seen.get(str(cell))
        if last is None:
            return 0, 0.0
        return 1 if last.verdict is not Verdict.PASS else 2, last.seen_at

    return tuple(sorted(cells, key=need))


def parse_budget(text: str) -> float:
    """``90s``, ``30m`` or ``2h`` in seconds. Raises PlanningError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    if match is None or float(match[1]) <= 0:
        raise PlanningError(f"--budget {text!r}: write a number and s, m or h, for example 90s, 30m, 2h")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def parse_cell(text: str, matrix: Matrix) -> Cell:
    """A cell from its id. Raises PlanningError, naming what is nearest, for one that this matrix could not have."""
    scenario, slash, rest = text.strip().removeprefix("matrix.yaml::").partition("/")
    if not slash or scenario not in matrix.scenarios:
        hint = nearest(scenario, matrix.scenarios)
        raise PlanningError(f"{scenario!r} is no scenario of this matrix; write SCENARIO/POINT#HIT=FAULT{hint}")
    steps = tuple(_parse_step(part, matrix, scenario) for part in rest.split(">"))
    return Cell(scenario, steps, expect_of(scenario, steps, matrix))


def expect_of(scenario: str, steps: Sequence[Step], matrix: Matrix) -> Expect:
    """All that the matrix says of a cell that it plans; of any other story only what is due whatever came before.

    That is the code of a rival that meets a living owner, and the refusal that the last fault leads to, where every
    scenario of the point that speaks of it agrees.
    """
    first, last = _row_of(scenario, steps[0], matrix), _row_of(scenario, steps[-1], matrix)
    if len(steps) == 1 and first is not None:
        return first
    said = [(step, expect) for step in steps for expect in matrix.points[step.point].all_expected(step.fault)]
    codes = {expect.code for step, expect in said if step.fault.startswith("rival")}
    refusals = {expect.refuses for step, expect in said if step is steps[-1]}
    # what every recovery refuses after the first fault, it refuses after a crash of it that no row speaks of, too
    begun = first.refuses if first is not None and last is None else None
    refuses = (refusals.pop() if len(refusals) == 1 else None) or begun or refusal_of(scenario, matrix).refuses
    return Expect(code=codes.pop() if len(codes) == 1 else None, refuses=refuses)


def _row_of(scenario: str, step: Step, matrix: Matrix) -> Expect | None:
    """What the matrix says of this step in this scenario; None where it plans no such cell."""
    point = matrix.points[step.point]
    return point.expected(scenario, step.fault) if scenario in point.scenarios_of(step.fault) else None


def refusal_of(scenario: str, matrix: Matrix) -> Expect:
    """The refusal that the scenario is about: the one that each of its kills leads to, if all lead to one."""
    rows = [row for row in matrix.points.values() if "kill" in row.faults and scenario in row.scenarios_of("kill")]
    due = {row.expected(scenario, "kill").refuses for row in rows}
    return Expect(refuses=due.pop() if len(due) == 1 else None)


def _parse_step(text: str, matrix: Matrix, scenario: str) -> Step:
    match = _STEP.fullmatch(text)
    if match is None:
        raise PlanningError(f"cannot read {text!r}; write POINT#HIT=FAULT")
    point, fault, rivals = match["point"], match["fault"], matrix.scenarios[scenario].rivals
    if point not in matrix.points:
        raise PlanningError(f"the matrix lists no point {point!r}{nearest(point, matrix.points)}")
    try:
        require_fault(fault)
    except ValueError as error:
        raise PlanningError(str(error)) from error
    kind, _, name = fault.partition(":")
    if kind == "rival" and name not in rivals:
        raise PlanningError(f"scenario {scenario!r} has no rival {name!r}{nearest(name, rivals)}")
    return Step(point, int(match["hit"]), fault)


def nearest(name: str, known: Iterable[str]) -> str:
    """Words to put behind an error: the names nearest to a wrong one, or nothing."""
    close = nearest_names(name, known)
    return f"; the nearest known: {', '.join(close)}" if close else ""
