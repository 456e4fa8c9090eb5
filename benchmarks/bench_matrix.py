"""Cells a second: the collector's kill cells of depth 1, a sample of them, by fork and by exec, one and two at a time.

The sample is every n-th cell, so that each scenario and each stretch of a commit is in it; the ways are run in turn. Wall
time is what a user waits; processor time, the harness and all processes together, is what a busy machine cannot hide.
"""

from __future__ import annotations

import os
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import tell
from harness.model import Cell
from harness.plan import plan_cells
from harness.runner import Project, SpawnKind, open_project, run_cells

ROOT = Path(__file__).resolve().parent.parent
EVERY: dict[SpawnKind, int] = {"fork": 7, "exec": 80}
JOBS = (1, 2)
ROUNDS = 3
GOAL = 250


def main() -> None:
    sys.path.insert(0, str(ROOT))
    project = open_project(ROOT / "matrix.yaml")
    cells = [
        cell
        for cell in plan_cells(project.matrix)
        if cell.scenario.startswith("collector.") and [step.fault for step in cell.steps] == ["kill"]
    ]
    ways: list[tuple[SpawnKind, int]] = [(spawn, jobs) for spawn in EVERY for jobs in JOBS]
    times: dict[tuple[SpawnKind, int], list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for spawn, jobs in ways:
            times[spawn, jobs].append(_measure(project, cells[:: EVERY[spawn]], spawn, jobs))
    wall = {way: statistics.median(wall for wall, _ in found) for way, found in times.items()}
    processor = {way: statistics.median(processor for _, processor in found) for way, found in times.items()}
    lines = {
        f"{spawn}, {jobs} at a time": f"{1 / wall[spawn, jobs]:6.1f} cells/s   {processor[spawn, jobs] * 1e3:6.1f} ms of "
        "processor time a cell"
        for spawn, jobs in ways
    }
    tell(
        f"the collector's {len(cells)} kill cells, on {os.cpu_count()} processors",
        lines
        | {
            f"fork, 2 at a time, of {GOAL} cells/s": f"{1 / wall['fork', 2] / GOAL:.2f}  (goal 1)",
            "two at a time / one at a time": f"{wall['fork', 1] / wall['fork', 2]:.2f}  (at most 2)",
            "exec / fork, 2 at a time": f"{wall['exec', 2] / wall['fork', 2]:.1f}  (goal at least 15)",
        },
    )


def _measure(project: Project, cells: Sequence[Cell], spawn: SpawnKind, jobs: int) -> tuple[float, float]:
    """Seconds of wall and of processor time a cell, with all that a run costs: servers, set-ups, judges."""
    started, before = time.perf_counter(), _processor_s()
    run = run_cells(project, cells, jobs=jobs, spawn=spawn, whole=False)
    assert all(result.verdict.value == "PASS" for result in run.results), "the matrix is red: nothing is measured"
    return (time.perf_counter() - started) / len(cells), (_processor_s() - before) / len(cells)


def _processor_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
