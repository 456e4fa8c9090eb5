"""The matrix of the HTML report as rows and columns: points in catalogue order x scenario and kind of fault. Pure.

One table a product (the first word of a point's name), and one column for all ``error:...`` of a scenario: a column for
each errno and each way to tamper would be empty in nearly every row. Where there are several scenarios, the first columns
are those of all of them together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from harness.model import CellResult, Run, Verdict
from harness.report.tally import Tally, fault_family, fault_of, fault_order, point_of, tally, unreached_points, worst

ALL = ""  # stands for all scenarios together; sorts first
Column = tuple[str, str]  # scenario or ALL, kind of fault


@dataclass(frozen=True, slots=True)
class Group:
    """All cells of one table cell (several hits, several depths). ``indexes`` are places in ``run.results``."""

    indexes: tuple[int, ...]
    verdict: Verdict
    counts: Tally

    @property
    def cells(self) -> str:
        return " ".join(map(str, self.indexes))


@dataclass(frozen=True, slots=True)
class Row:
    """One point. ``groups`` has one item a column; ``passed_by`` is the number of cells whose processes reached it."""

    point: str
    label: str
    says: str
    spec: str
    passed_by: int
    unreached: bool
    groups: tuple[Group | None, ...]


@dataclass(frozen=True, slots=True)
class Area:
    """Points whose names differ in the last word only."""

    name: str
    rows: tuple[Row, ...]
    counts: Tally


@dataclass(frozen=True, slots=True)
class Table:
    product: str
    columns: tuple[Column, ...]
    scenarios: tuple[tuple[str, int], ...]  # with the number of columns
    areas: tuple[Area, ...]
    counts: Tally


def area_of(point: str) -> str:
    """``collector.takeover.rename/tmp-written`` -> ``collector.takeover``."""
    base = point.partition("/")[0]
    return base.rpartition(".")[0] or base


def product_of(point: str) -> str:
    return point.partition("/")[0].partition(".")[0]


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key in which ``#2`` comes before ``#10``."""
    return tuple((1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.split(r"(\d+)", text))


def build_tables(run: Run) -> tuple[Table, ...]:
    """The rows that have a cell, or that are listed and were not reached."""
    filed: dict[str, dict[Column, list[int]]] = {}
    for index, result in enumerate(run.results):
        columns = filed.setdefault(point_of(result.cell), {})
        family = fault_family(fault_of(result.cell))
        for scenario in (ALL, result.cell.scenario):
            columns.setdefault((scenario, family), []).append(index)
    missing = frozenset(unreached_points(run))
    known = [point.name for point in run.points]
    names = [*known, *sorted((filed.keys() | missing).difference(known))]
    shown = [name for name in names if name in filed or name in missing]
    by_product: dict[str, list[str]] = {}
    for name in shown:
        by_product.setdefault(product_of(name), []).append(name)
    builder = _Builder(run, filed, missing)
    return tuple(builder.table(product, points) for product, points in by_product.items())


class _Builder:
    def __init__(self, run: Run, filed: dict[str, dict[Column, list[int]]], missing: frozenset[str]) -> None:
        self._results = run.results
        self._filed = filed
        self._missing = missing
        self._declared = {point.name: point for point in run.points}
        self._passed_by: dict[str, int] = {}
        for result in run.results:
            for name in result.points_reached:
                self._passed_by[name] = self._passed_by.get(name, 0) + 1

    def table(self, product: str, points: list[str]) -> Table:
        used = {column for name in points for column in self._filed.get(name, ())}
        several = len({scenario for scenario, _ in used} - {ALL}) > 1
        columns = tuple(
            sorted(
                (column for column in used if several or column[0] != ALL),
                key=lambda column: (column[0], fault_order(column[1])),
            )
        )
        widths: dict[str, int] = {}
        for scenario, _ in columns:
            widths[scenario] = widths.get(scenario, 0) + 1
        areas: dict[str, list[str]] = {}
        for name in points:
            areas.setdefault(area_of(name), []).append(name)
        return Table(
            product=product,
            columns=columns,
            scenarios=tuple(widths.items()),
            areas=tuple(
                Area(area, tuple(self._row(name, area, columns) for name in names), self._counts(names))
                for area, names in areas.items()
            ),
            counts=self._counts(points),
        )

    def _row(self, name: str, area: str, columns: tuple[Column, ...]) -> Row:
        point = self._declared.get(name)
        base, _, step = name.partition("/")
        says = point.says if point is not None else ""
        parent = self._declared.get(base)
        if step and parent is not None and says == f"{parent.says}: {step}":
            says = ""  # a step says what its point says, and the point is the row above
        filed = self._filed.get(name, {})
        return Row(
            point=name,
            label=name.removeprefix(f"{area}."),
            says=says,
            spec=point.spec if point is not None else "",
            passed_by=self._passed_by.get(name, 0),
            unreached=name in self._missing,
            groups=tuple(self._group(filed[column]) if column in filed else None for column in columns),
        )

    def _group(self, indexes: list[int]) -> Group:
        results = self._results
        ordered = sorted(indexes, key=lambda index: (results[index].cell.depth, natural(str(results[index].cell))))
        members = [results[index] for index in ordered]
        return Group(tuple(ordered), worst(result.verdict for result in members), tally(members))

    def _counts(self, points: Iterable[str]) -> Tally:
        filed = (column for name in points for column in self._filed.get(name, {}).items())
        return tally(self._results[index] for (scenario, _), indexes in filed if scenario == ALL for index in indexes)


def wrong_results(run: Run) -> tuple[CellResult, ...]:
    """Every cell that did not pass: violations first, then the unknowns, then the unreached; by id within."""
    order = [Verdict.FAIL, Verdict.UNKNOWN, Verdict.HUNG, Verdict.FOREIGN_DEATH, Verdict.UNREACHED]
    wrong = [result for result in run.results if result.verdict is not Verdict.PASS]
    return tuple(sorted(wrong, key=lambda result: (order.index(result.verdict), natural(str(result.cell)))))
