"""What the commands of the command line share: the application, its options, and how a call is refused."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from harness.model import Cell, Run

if TYPE_CHECKING:
    from harness.plan import Filter
    from harness.report.mutants import MutantTable
    from harness.runner import Project

EXIT_UNKNOWN, EXIT_USAGE, EXIT_INTERRUPTED = 2, 64, 130

app = typer.Typer(
    name="killmatrix",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="End real processes at every point of matrix.yaml, restart recovery, judge what is on the disk.",
    epilog="Exit status: 0 all passed, 1 a violation, 2 something unknown or unreached, 64 usage.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

MatrixFile = Annotated[Path, typer.Option("--matrix", metavar="FILE", help="The matrix.")]
ScenarioGlob = Annotated[str | None, typer.Option("--scenario", metavar="GLOB", help="Only these scenarios.")]
PointGlob = Annotated[str | None, typer.Option("--point", metavar="GLOB", help="Only cells with such a point.")]
FaultGlob = Annotated[str | None, typer.Option("--fault", metavar="GLOB", help="Only cells with such a fault.")]
Spawn = Annotated[
    str | None,
    typer.Option("--spawn", metavar="fork|exec", help="Warm forks (on Linux), or fresh ones."),
]
Depth = Annotated[
    int | None,
    typer.Option(
        "--depth", min=1, max=9, help="Crashes in a row: also those within a recovery, where one is reachable."
    ),
]
Mutant = Annotated[
    str | None,
    typer.Option("--mutant", metavar="ID", help="Run this wrong program of the catalogue instead; nothing is stored."),
]
ResultFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result file (schema 1).")]
HtmlFile = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the report.")]
JunitFile = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML.")]
MarkdownFile = Annotated[Path | None, typer.Option("--markdown", metavar="FILE", help="Write a CI summary.")]


class Usage(Exception):
    """The call cannot be done as asked; nothing was run."""


def count_jobs() -> int:
    return os.cpu_count() or 1


def spawn_kind(name: str | None) -> Literal["fork", "exec"]:
    from harness.runner import default_spawn

    if name is None:
        return default_spawn()
    if name == "fork":
        return "fork"
    if name == "exec":
        return "exec"
    raise Usage(f"--spawn {name!r}: write fork or exec")


def plan_cells(
    project: Project, chosen: Filter, depth: int | None, jobs: int, spawn: Literal["fork", "exec"]
) -> tuple[Cell, ...]:
    """The chosen cells, those of depth 2 and more after dry runs of the recoveries. Raises PlanningError."""
    from harness import plan

    cells = plan.select(plan.plan_cells(project.matrix), chosen)
    depth = depth if depth is not None else project.matrix.defaults.depth
    if depth == 1:
        return cells
    from harness.deepen import DeepeningFailed, plan_deeper

    scenarios = [name for name in project.matrix.scenarios if chosen.selects_scenario(name)]
    try:
        deeper = plan_deeper(project, scenarios, depth, jobs=jobs, spawn=spawn)
    except DeepeningFailed as error:
        raise plan.PlanningError(f"--depth {depth}: {error}") from error
    print(f"depth {depth}: {len(deeper):,} cells more, from dry runs of the recoveries", file=sys.stderr)
    return (*cells, *(cell for cell in deeper if chosen.selects(cell)))


def fresh_directory(keep: Path | None) -> Path | None:
    if keep is not None:
        try:
            keep.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Usage(f"--keep {keep}: {error.strerror}") from error
        if any(keep.iterdir()):
            raise Usage(f"--keep {keep}: the directory is not empty; nothing there is overwritten")
    return keep


def require_writable(*files: Path | None) -> None:
    """Before a long run, not after it."""
    for file in files:
        if file is None:
            continue
        parent = file.resolve().parent
        if file.is_dir():
            raise Usage(f"{file}: cannot be written: it is a directory")
        if not (parent.is_dir() and os.access(parent, os.W_OK)):
            raise Usage(f"{file}: cannot be written: {parent} is no directory that may be written to")


def write_reports(
    done: Run,
    json_file: Path | None,
    html: Path | None,
    junit: Path | None,
    markdown: Path | None,
    earlier: dict[str, Any] | None = None,
    mutants: MutantTable | None = None,
) -> None:
    from harness.report import html as html_report
    from harness.report import json_result
    from harness.report import junit as junit_report
    from harness.report import markdown as markdown_report

    if json_file is not None:
        json_result.write_json(done, json_file)
    if html is not None:
        html_report.write_html(done, html, earlier, mutants)
    if junit is not None:
        junit_report.write_junit(done, junit)
    if markdown is not None:
        markdown_report.write_markdown(done, markdown, earlier, mutants)
