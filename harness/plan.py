"""matrix + catalogue -> ordered cells; filters and shards. Pure."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.matrix import Matrix, require_fault
from harness.model import Cell, Expect, Step
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

    def selects(self, cell: Cell) -> bool:
        return (
            _matches(cell.scenario, self.scenario)
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


def shard(cells: Sequence[Cell], index: int, count: int) -> tuple[Cell, ...]:
    """Part ``index`` of ``count`` (from 1): disjoint and, over all parts, complete."""
    if not 1 <= index <= count:
        raise PlanningError(f"shard {index}/{count}: write I/N with 1 <= I <= N")
    return tuple(cells[index - 1 :: count])


def parse_cell(text: str, matrix: Matrix) -> Cell:
    """A cell from its id. Raises PlanningError, naming what is nearest, for one that this matrix could not have."""
    scenario, slash, rest = text.strip().removeprefix("matrix.yaml::").partition("/")
    if not slash or scenario not in matrix.scenarios:
        hint = _nearest(scenario, matrix.scenarios)
        raise PlanningError(f"{scenario!r} is no scenario of this matrix; write SCENARIO/POINT#HIT=FAULT{hint}")
    steps = tuple(_parse_step(part, matrix, scenario) for part in rest.split(">"))
    expect = matrix.points[steps[0].point].expected(scenario, steps[0].fault) if len(steps) == 1 else Expect()
    return Cell(scenario, steps, expect)


def _parse_step(text: str, matrix: Matrix, scenario: str) -> Step:
    match = _STEP.fullmatch(text)
    if match is None:
        raise PlanningError(f"cannot read {text!r}; write POINT#HIT=FAULT")
    point, fault, rivals = match["point"], match["fault"], matrix.scenarios[scenario].rivals
    if point not in matrix.points:
        raise PlanningError(f"the matrix lists no point {point!r}{_nearest(point, matrix.points)}")
    try:
        require_fault(fault)
    except ValueError as error:
        raise PlanningError(str(error)) from error
    kind, _, name = fault.partition(":")
    if kind == "rival" and name not in rivals:
        raise PlanningError(f"scenario {scenario!r} has no rival {name!r}{_nearest(name, rivals)}")
    return Step(point, int(match["hit"]), fault)


def _nearest(name: str, known: Iterable[str]) -> str:
    close = nearest_names(name, known)
    return f"; the nearest known: {', '.join(close)}" if close else ""
