"""Several crashes in a row: depth 2 and closures, and how their time grows with points, depth and jobs.

Each time is told beside the same number of bare warm forks, killed and reaped: ``x bare`` is what a process costs here as a
multiple of that. With ``KILLMATRIX_BENCH=full`` depth 2 covers every scenario of the collector.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import tell
from harness.deepen import plan_deeper
from harness.explore import explore
from harness.model import Cell
from harness.plan import plan_cells
from harness.runner import Project, open_project, run_cells

ROOT = Path(__file__).resolve().parent.parent
CLOSURES = ("signals.first-scan", "sites.first-apply", "collector.first-commit", "collector.takeover-held")
SAMPLE = ("collector.begun-abort", "collector.move-completed", "collector.takeover-terminal")
BARE = 200


def bare_fork_s() -> float:
    """Seconds of one warm fork, killed and reaped."""
    started = time.perf_counter()
    for _ in range(BARE):
        pid = os.fork()
        if pid == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
    return (time.perf_counter() - started) / BARE


def main() -> None:
    sys.path.insert(0, str(ROOT))
    project = open_project(ROOT / "matrix.yaml")
    whole = os.environ.get("KILLMATRIX_BENCH") == "full"
    named = tuple(name for name in project.matrix.scenarios if name.startswith("collector."))
    _tell_closures(project)
    _tell_depth(project, named if whole else SAMPLE)


def _tell_closures(project: Project) -> None:
    lines = {}
    for name in CLOSURES:
        for jobs in (1, 2):
            bare_s = bare_fork_s()
            found = explore(project, name, jobs=jobs, spawn="fork")
            assert found.fixpoint, f"{name}: {found.findings[:1] or found.stopped}"
            each = found.duration_s * jobs / found.processes
            lines[f"{name}, {jobs} at a time"] = (
                f"{found.duration_s:6.1f} s   {len(found.states):,} states, {len(found.transitions):,} edges, depth "
                f"{found.depth}, {found.processes:,} processes: {each * 1e3:.1f} ms each, {each / bare_s:.1f} x bare"
            )
    tell("closures, to the fixpoint", lines)


def _tell_depth(project: Project, scenarios: Sequence[str]) -> None:
    first = [
        cell
        for cell in plan_cells(project.matrix)
        if cell.scenario in scenarios and [step.fault for step in cell.steps] == ["kill"]
    ]
    lines = {}
    for jobs in (1, 2):
        lines[f"depth 1, {jobs} at a time"] = _run(project, first, jobs, 0.0)
        started = time.perf_counter()
        deeper = plan_deeper(project, scenarios, 2, jobs=jobs, spawn="fork")
        lines[f"depth 2, {jobs} at a time"] = _run(project, deeper, jobs, time.perf_counter() - started)
    tell(
        f"kill cells of {len(scenarios)} scenario(s) of the collector, {len({c.steps[0].point for c in first})} points",
        lines,
    )


def _run(project: Project, cells: Sequence[Cell], jobs: int, planned_s: float) -> str:
    done = run_cells(project, cells, jobs=jobs, spawn="fork", whole=False)
    rate = len(cells) / done.duration_s
    return (
        f"{planned_s + done.duration_s:6.1f} s   {len(cells):,} cells, {rate:.0f} cells/s, dry runs {planned_s:.1f} s"
    )


if __name__ == "__main__":
    main()
