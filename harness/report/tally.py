"""Counts that every report shares, and what they mean (harness.md, "What is judged", "Report"). Pure.

Counting lives here alone: two reports of one run must never disagree about whether it passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from harness.model import Cell, CellResult, Run, Verdict

KILL_PROVES_NO_FSYNC = (
    "A kill never proves an fsync: SIGKILL loses nothing that the kernel already has. "
    "Only a cut of the power shows what is lost when it was not synced, and no fault here cuts it."
)

_UNKNOWN = frozenset({Verdict.HUNG, Verdict.FOREIGN_DEATH, Verdict.UNKNOWN})
_SEVERITY = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.HUNG, Verdict.FOREIGN_DEATH, Verdict.UNREACHED, Verdict.PASS)
_FAULT_ORDER = ("kill", "error", "rival", "tamper", "term")


@dataclass(frozen=True, slots=True)
class Tally:
    """Number of cells by what is known about them; the last four sum up to ``cells``."""

    cells: int = 0
    passed: int = 0
    failed: int = 0
    unreached: int = 0
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class Summary:
    """What one run says. ``unknown`` counts HUNG, FOREIGN_DEATH and UNKNOWN.

    by_fault:     fault of the first step (``kill``, ``error:EXDEV``, ...; ``none`` without a step) -> Tally
    by_depth:     number of steps as text -> Tally
    verdict:      FAIL, UNKNOWN, UNREACHED or PASS, for the run as a whole
    exit_status:  0 all passed, 1 a violation, 2 something unknown or unreached
    points_missing, rows_missing: listed, and no cell reached them, where the run is whole; 0 where it is not
    left_out:     planned cells that the budget left no time for; they are counted nowhere else
    reasons:      why the run as a whole is no pass although no single cell says so; empty for most runs
    """

    cells: int
    passed: int
    failed: int
    unreached: int
    unknown: int
    by_fault: Mapping[str, Tally]
    by_depth: Mapping[str, Tally]
    points_declared: int
    points_reached: int
    points_missing: int
    rows_listed: int
    rows_reached: int
    rows_missing: int
    left_out: int
    cells_per_s: float
    verdict: Verdict
    exit_status: int
    reasons: tuple[str, ...]


def category(verdict: Verdict) -> str:
    """``passed``, ``failed``, ``unreached`` or ``unknown``: the field of a Tally that counts this verdict."""
    if verdict in _UNKNOWN:
        return "unknown"
    return {Verdict.PASS: "passed", Verdict.FAIL: "failed", Verdict.UNREACHED: "unreached"}[verdict]


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that beats the others: FAIL, then the unknowns, then PASS. Raises ValueError for none at all."""
    return min(verdicts, key=_SEVERITY.index)


def tally(results: Iterable[CellResult]) -> Tally:
    counts = dict.fromkeys(("cells", "passed", "failed", "unreached", "unknown"), 0)
    for result in results:
        counts["cells"] += 1
        counts[category(result.verdict)] += 1
    return Tally(**counts)


def tally_by(results: Iterable[CellResult], key: Callable[[CellResult], str]) -> dict[str, Tally]:
    """One Tally for each value of ``key``, in order of first appearance."""
    groups: dict[str, list[CellResult]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return {name: tally(group) for name, group in groups.items()}


def fault_of(cell: Cell) -> str:
    """The fault that a cell is filed under: that of its first step."""
    return cell.steps[0].fault if cell.steps else "none"


def fault_family(fault: str) -> str:
    """``error:EXDEV`` -> ``error``."""
    return fault.partition(":")[0]


def point_of(cell: Cell) -> str:
    """The point that a cell is filed under: that of its first step."""
    return cell.steps[0].point if cell.steps else "(no fault)"


def fault_order(fault: str) -> tuple[int, str]:
    """Sort key: kill, error, rival, tamper, ... as the spec lists them, then anything else; by name within."""
    family = fault_family(fault)
    return (_FAULT_ORDER.index(family) if family in _FAULT_ORDER else len(_FAULT_ORDER), fault)


def unreached_points(run: Run) -> tuple[str, ...]:
    """Listed points that no process of the run reached: catalogue order, then what no code declares, by name.

    A run that is not whole has them too; :func:`summarize` then does not count them against it.
    """
    missing = run.listed_points - run.points_reached
    known = [point.name for point in run.points if point.name in missing]
    return (*known, *sorted(missing.difference(known)))


def unlisted_points(run: Run) -> tuple[str, ...]:
    """Declared points that the matrix has no row for, in catalogue order. The gate lets none through."""
    return tuple(point.name for point in run.points if point.name not in run.listed_points)


def unreached_rows(run: Run) -> tuple[str, ...]:
    """Listed table rows that no process of the run took, by name."""
    return tuple(sorted(run.listed_rows - run.rows_reached))


def unused_faults(run: Run) -> tuple[str, ...]:
    """The kinds of fault of the spec that no cell of this run has."""
    used = {fault_family(step.fault) for result in run.results for step in result.cell.steps}
    return tuple(family for family in _FAULT_ORDER if family not in used)


def points_without_cell(run: Run) -> tuple[str, ...]:
    """Declared points that no cell of this run puts a fault at, in catalogue order."""
    faulted = {step.point for result in run.results for step in result.cell.steps}
    return tuple(point.name for point in run.points if point.name not in faulted)


def summarize(run: Run) -> Summary:
    total = tally(run.results)
    unproven = _unproven(run)
    missing = unreached_points(run) if run.whole else ()
    unlisted = unlisted_points(run) if run.whole else ()
    idle = unreached_rows(run) if run.whole else ()
    reasons = (
        *unproven,
        *(f"{name} is listed and no cell reached it" for name in missing),
        *(f"{name} is declared and no row lists it" for name in unlisted),
        *(f"row {row} is listed and no process took it" for row in idle),
    )
    if total.failed:
        verdict = Verdict.FAIL
    elif total.unknown or unproven:
        verdict = Verdict.UNKNOWN
    elif total.unreached or missing or unlisted or idle:
        verdict = Verdict.UNREACHED
    else:
        verdict = Verdict.PASS
    by_fault = tally_by(run.results, lambda result: fault_of(result.cell))
    by_depth = tally_by(run.results, lambda result: str(result.cell.depth))
    return Summary(
        cells=total.cells,
        passed=total.passed,
        failed=total.failed,
        unreached=total.unreached,
        unknown=total.unknown,
        by_fault={fault: by_fault[fault] for fault in sorted(by_fault, key=fault_order)},
        by_depth={depth: by_depth[depth] for depth in sorted(by_depth, key=int)},
        points_declared=len(run.points),
        points_reached=len(run.points_reached),
        points_missing=len(missing),
        rows_listed=len(run.listed_rows),
        rows_reached=len(run.rows_reached),
        rows_missing=len(idle),
        left_out=run.left_out,
        cells_per_s=total.cells / run.duration_s if run.duration_s > 0 else 0.0,
        verdict=verdict,
        exit_status={Verdict.PASS: 0, Verdict.FAIL: 1}.get(verdict, 2),
        reasons=reasons,
    )


def _unproven(run: Run) -> tuple[str, ...]:
    """What keeps a run of passing cells from being a pass: a result that is missing looks like one that was fine."""
    reasons = list(run.problems)
    # distinct cells: a result that came twice must not hide one that was dropped
    judged = len({str(result.cell) for result in run.results})
    if run.interrupted:
        reasons.append("the run was interrupted")
    if judged < run.planned - run.left_out:
        reasons.append(f"{run.planned - run.left_out - judged} of {run.planned} planned cells have no result")
    if not run.results:
        reasons.append("no cell ran")
    return tuple(reasons)


def by_family(run: Run) -> dict[str, Tally]:
    """Kind of the first fault (``kill``, ``error``, ...) -> Tally, in the order of the spec."""
    tallies = tally_by(run.results, lambda result: fault_family(fault_of(result.cell)))
    return {family: tallies[family] for family in sorted(tallies, key=fault_order)}


def headline(summary: Summary) -> str:
    """One sentence for the top of a report."""
    if summary.verdict is Verdict.PASS and summary.left_out:
        return f"The {summary.cells:,} cells that ran passed; the budget left out {summary.left_out:,}."
    if summary.verdict is Verdict.PASS:
        return f"All {summary.cells:,} cells passed."
    if summary.verdict is Verdict.FAIL:
        return f"{summary.failed:,} of {summary.cells:,} cells broke an invariant."
    silent = [f"{n:,} {word}" for n, word in ((summary.unknown, "unknown"), (summary.unreached, "unreached")) if n]
    parts = [f"{' and '.join(silent)} of {summary.cells:,} cells"] if silent else []
    if len(summary.reasons) > summary.points_missing + summary.rows_missing:
        parts.append("the run is not complete")
    if summary.points_missing:
        parts.append(f"listed points not reached: {summary.points_missing:,}")
    if summary.rows_missing:
        parts.append(f"listed rows not taken: {summary.rows_missing:,}")
    return f"No violation found, but no pass: {'; '.join(parts)}."


def not_covered(run: Run) -> tuple[str, ...]:
    """What the counts of this run say nothing about, one sentence each; the first is in every report."""
    sentences = [KILL_PROVES_NO_FSYNC]
    depth = max((result.cell.depth for result in run.results), default=0)
    sentences.append(
        f"No cell has more than {depth} {'fault' if depth == 1 else 'faults'} in a row; "
        "longer chains of crashes were not tried."
    )
    if all(step.hit == 1 for result in run.results for step in result.cell.steps):
        sentences.append("Every fault is at the first time that a process reaches its point, none at a later time.")
    if run.left_out:
        sentences.append(f"The budget left out {run.left_out:,} of {run.planned:,} planned cells.")
    if not run.whole:
        sentences.append("A filter, a budget or a shard left cells out; what was not reached then is not counted.")
    if idle := len(points_without_cell(run)):
        sentences.append(f"At {idle:,} of {len(run.points):,} declared points no fault happens in this run.")
    return tuple(sentences)
