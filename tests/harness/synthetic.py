"""Many made-up results through the whole harness, to see what they cost: ``python -m tests.harness.synthetic ...``.

Real cells are too slow for that. One real cell is run, and its result is handed in again and again, each time under
another id, with other pids and with trees of its own, as real results have them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from harness.model import Cell, CellResult, Chapter
from harness.plan import parse_cell
from harness.report.html import write_html
from harness.report.json_result import write_json
from harness.runner import Supply, default_spawn, open_project, run_cells
from harness.store import open_store


class SyntheticCrew:
    """A crew that runs nothing: for each cell the template again."""

    def __init__(self, supply: Supply, template: CellResult) -> None:
        self._supply, self._template = supply, template

    def results(self) -> Iterator[CellResult]:
        for cell in self._supply:
            yield vary(self._template, cell)

    def stop(self) -> None:
        pass


def vary(template: CellResult, cell: Cell) -> CellResult:
    """The template as the result of ``cell``: nothing that a real one would have for itself is shared."""
    number = cell.steps[0].hit

    def own(chapter: Chapter, place: int) -> Chapter:
        lines = [f"own/{number}-{place}-{n}.json  {number} B  {number * 7 + n:08x}" for n in range(5)]
        pid = None if chapter.pid is None else chapter.pid + number
        return replace(chapter, pid=pid, tree=(*chapter.tree, *lines), stdout=f"{chapter.stdout}{number}\n")

    return replace(
        template, cell=cell, story=tuple(own(chapter, place) for place, chapter in enumerate(template.story))
    )


def number_cells(template: Cell, count: int) -> list[Cell]:
    (step, *rest) = template.steps
    return [replace(template, steps=(replace(step, hit=hit), *rest)) for hit in range(1, count + 1)]


def peak_mib() -> float:
    """The most memory that this process has had since its program began. (ru_maxrss would tell of who started it, too.)"""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def main(matrix: str, cell: str, count: int, directory: str) -> None:
    """Print the peak after each stage as one JSON object: one real cell, then all results, then each report."""
    project, out = open_project(Path(matrix)), Path(directory)
    options = {"jobs": 1, "spawn": default_spawn(), "whole": False}
    template = run_cells(project, [parse_cell(cell, project.matrix)], **options).results[0]  # type: ignore[arg-type]
    template = replace(template, story=tuple(template.story))
    peaks = {"start": peak_mib()}
    with open_store(out / "results.sqlite") as store:
        run = run_cells(
            project,
            number_cells(template.cell, count),
            **options,  # type: ignore[arg-type]
            store=store,
            hire=lambda supply, _root: SyntheticCrew(supply, template),
        )
        peaks["run"] = peak_mib()
        write_json(run, out / "result.json")
        peaks["json"] = peak_mib()
        write_html(run, out / "report.html")
        peaks["html"] = peak_mib()
    print(json.dumps({"results": len(run.results), "store_bytes": (out / "results.sqlite").stat().st_size, **peaks}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
