"""``killmatrix``: the command line (harness.md, "Command line"). Exit status 0 passed, 1 violation, 2 unknown, 64 usage."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness import (
    cli_cluster,
    cli_explore,  # noqa: F401  # for its command
    cli_results,
)
from harness.cli_results import StoreFile
from harness.cli_shared import (
    EXIT_INTERRUPTED,
    EXIT_UNKNOWN,
    EXIT_USAGE,
    Depth,
    FaultGlob,
    HtmlFile,
    JunitFile,
    MarkdownFile,
    MatrixFile,
    Mutant,
    PointGlob,
    ResultFile,
    ScenarioGlob,
    Spawn,
    Usage,
    app,
    count_jobs,
    fresh_directory,
    plan_cells,
    require_writable,
    spawn_kind,
    write_reports,
)
from harness.kept import RESULT_FILE
from harness.matrix import MatrixError
from harness.plan import Filter, PlanningError

if TYPE_CHECKING:
    from harness.coverage.measurement import Measurement
    from harness.runner import Project

_UsageError: Any = typer.BadParameter.__mro__[1]  # click's, or that of the copy of click that later typers carry


@app.command(
    epilog="Examples: killmatrix run | killmatrix run --scenario '*takeover*' --html report.html | killmatrix run --shard 2/4"
)
def run(
    matrix: MatrixFile = Path("matrix.yaml"),
    scenario: ScenarioGlob = None,
    point: PointGlob = None,
    fault: FaultGlob = None,
    depth: Depth = None,
    mutant: Mutant = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, max=256, help="Cells at a time.")] = count_jobs(),
    spawn: Spawn = None,
    shard: Annotated[
        str | None,
        typer.Option("--shard", metavar="I/N", help="Only part I of N; killmatrix report joins their result files."),
    ] = None,
    durations: Annotated[
        Path | None,
        typer.Option(
            "--durations",
            metavar="FILE",
            help="A result file, the same for all shards: parts alike in time. Without: in number of cells.",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="TIME",
            help="Take no new cell after 90s, 30m, 2h: first what never ran, then what did not pass, then longest unseen.",
        ),
    ] = None,
    dask: cli_cluster.Dask = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the last run of these cells, if it was interrupted or killed.")
    ] = False,
    json_file: ResultFile = None,
    html: HtmlFile = None,
    junit: JunitFile = None,
    markdown: MarkdownFile = None,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Keep sandboxes and histories below DIR (killmatrix judge)."),
    ] = None,
    previous: Annotated[
        str | None,
        typer.Option("--previous", metavar="RUN", help="Show what changed since then; the last run of the same cells."),
    ] = None,
    store: StoreFile = None,
    no_store: Annotated[bool, typer.Option("--no-store", help="Keep nothing of this run (else the last 30).")] = False,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop at the first cell that does not pass.")] = False,
    coverage: Annotated[bool, typer.Option("--coverage", help="Measure lines and branches, killed or not.")] = False,
    coverage_file: Annotated[
        Path | None,
        typer.Option(
            "--coverage-file", metavar="FILE", help="For coverage.py; .killmatrix/coverage beside the matrix."
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also the table of points.")] = False,
) -> None:
    """Run the matrix and print what held and what did not."""
    from harness import plan, runner
    from harness.mutants import with_mutant
    from harness.report import terminal
    from harness.report.changes import changes_since
    from harness.report.tally import summarize

    cli_cluster.require_distributable(dask, keep=keep, coverage=coverage or coverage_file is not None)
    project = with_mutant(runner.open_project(matrix), mutant)
    chosen, kind = Filter(scenario, point, fault), spawn_kind(spawn)
    planned = plan_cells(project, chosen, depth, jobs, kind)
    cells, part = cli_results.take_shard(planned, shard, durations, chosen)
    options = (f"--depth {depth}" if depth else "", f"--mutant {mutant}" if mutant else "")
    selection = " ".join(filter(None, (str(chosen), *options, f"--shard {shard}" if shard else "")))
    budget_s = plan.parse_budget(budget) if budget is not None else None
    if resume and keep is not None:
        raise Usage("--resume: what --keep is to hold of the cells that are done is gone; run without one of them")
    require_writable(json_file, html, junit, markdown, coverage_file)
    earlier = cli_results.read_previous(previous, matrix, store) if previous is not None else None
    measurement = _measurement(project, coverage_file) if coverage or coverage_file is not None else None
    kept = fresh_directory(keep)
    with (
        cli_cluster.hire_cluster(dask, project, kind, jobs) as (at_a_time, hire),
        cli_results.open_results(matrix, store, no_store or mutant is not None) as results,
    ):
        earlier = earlier or cli_results.last_complete(results, selection)
        stopped = cli_results.find_interrupted(results, project, selection, kind, part) if resume else None
        with terminal.Progress(len(cells) - (stopped.cells if stopped else 0)) as progress:
            done = runner.run_cells(
                project,
                cells,
                jobs=at_a_time,
                spawn=kind,
                whole=chosen.selects_everything and shard is None,
                keep=kept,
                fail_fast=fail_fast,
                measurement=measurement,
                observe=progress.advance,
                store=results,
                selection=selection,
                shard=part,
                budget_s=budget_s,
                resume=stopped.run_id if stopped else None,
                hire=hire,
            )
        if measurement is not None:
            done = measurement.finish(done, partly=stopped is not None)
            results.amend(done)
        # first: nobody may be reading what is printed
        write_reports(done, json_file, html, junit, markdown, earlier)
        if kept is not None:
            write_reports(done, kept / RESULT_FILE, None, None, None)
        console = terminal.make_console()
        terminal.print_run(done, console, verbose=verbose)
        if earlier is not None:
            print(f"against run {earlier['run_id']}:")
            terminal.print_changes(changes_since(earlier, done), console)
    raise typer.Exit(summarize(done).exit_status)


@app.command("list", epilog="Example: killmatrix list --point '*takeover*'")
def list_cells(
    matrix: MatrixFile = Path("matrix.yaml"),
    scenario: ScenarioGlob = None,
    point: PointGlob = None,
    fault: FaultGlob = None,
    depth: Depth = None,
) -> None:
    """Print the id of every cell, one a line; nothing is run, but for the dry runs that plan a depth of 2 and more."""
    from harness import runner

    project = runner.open_project(matrix)
    for cell in plan_cells(project, Filter(scenario, point, fault), depth, count_jobs(), spawn_kind(None)):
        print(cell)


@app.command(epilog="Example: killmatrix points --json")
def points(
    matrix: MatrixFile = Path("matrix.yaml"),
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON array.")] = False,
) -> None:
    """Print every declared kill point, its meaning and its place in the spec; nothing is run."""
    from harness import runner

    project = runner.open_project(matrix)
    if as_json:
        print(
            json.dumps([{"name": p.name, "says": p.says, "spec": p.spec} for p in project.points], ensure_ascii=False)
        )
        return
    width = max(len(p.name) for p in project.points)
    for declared in project.points:
        print(f"{declared.name:<{width}}  {declared.says}  [{declared.spec}]")


@app.command(epilog="Example: killmatrix repro 'collector.first-commit/collector.claim.HELD#1=kill' --keep /tmp/cell")
def repro(
    cell: Annotated[str, typer.Argument(metavar="CELL", help="The id of a cell, as list and run print it.")],
    matrix: MatrixFile = Path("matrix.yaml"),
    mutant: Mutant = None,
    spawn: Spawn = None,
    keep: Annotated[Path | None, typer.Option("--keep", metavar="DIR", help="Keep the sandbox below DIR.")] = None,
    shell: Annotated[bool, typer.Option("--shell", help="Open a shell in the kept sandbox.")] = False,
    json_file: ResultFile = None,
) -> None:
    """Run one cell again and tell its whole story."""
    import tempfile

    from harness import plan, runner
    from harness.mutants import with_mutant
    from harness.report import json_result, story
    from harness.report.tally import summarize

    project = with_mutant(runner.open_project(matrix), mutant)
    chosen = plan.parse_cell(cell, project.matrix)
    require_writable(json_file)
    with contextlib.ExitStack() as stack:
        if shell and keep is None:
            keep = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="killmatrix-repro-")))
        done = runner.run_cells(
            project, [chosen], jobs=1, spawn=spawn_kind(spawn), whole=False, keep=fresh_directory(keep)
        )  # fmt: skip
        for line in story.story_lines(done.results[0]):
            print(line)
        for file in filter(None, (json_file, keep / RESULT_FILE if keep is not None else None)):
            json_result.write_json(done, file)
        if shell and done.results[0].kept_at:
            import subprocess

            subprocess.run([os.environ.get("SHELL", "sh")], cwd=done.results[0].kept_at, check=False)
    raise typer.Exit(summarize(done).exit_status)


@app.command()
def schema() -> None:
    """Print the JSON Schema of matrix.yaml, for editors."""
    from harness.matrix import json_schema

    print(json.dumps(json_schema(), indent=2))


@app.command(epilog="Examples: killmatrix mutants | killmatrix mutants --only read-back-skipped --json mutants.json")
def mutants(
    matrix: MatrixFile = Path("matrix.yaml"),
    only: Annotated[str | None, typer.Option("--only", metavar="GLOB", help="Only these wrong programs.")] = None,
    spawn: Spawn = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, max=256, help="Wrong programs at a time.")] = count_jobs(),
    json_file: ResultFile = None,
) -> None:
    """Run the matrix against each wrong program until the first cell that is not green; a survivor fails."""
    from harness import mutants as wrong
    from harness import plan, runner
    from harness.report import mutants as report

    project = runner.open_project(matrix)
    chosen = wrong.select_mutants(wrong.read_mutants(project), only)
    require_writable(json_file)
    results = wrong.run_mutants(
        project,
        chosen,
        plan.plan_cells(project.matrix),
        jobs=jobs,
        spawn=spawn_kind(spawn),
        observe=report.print_mutant,
    )
    report.print_score(results)
    if json_file is not None:
        report.write_json(results, json_file)
    raise typer.Exit(report.exit_status(results))


@app.command()
def doctor() -> None:
    """Say what this machine can do, and what that means for a run."""
    from harness.doctor import examine

    for name, able, meaning in examine():
        print(f"{'yes' if able else 'no ':<4} {name:<32} {meaning}")


def _measurement(project: Project, data_file: Path | None) -> Measurement:
    from harness.coverage.measurement import Measurement

    return Measurement(project.matrix, project.root, data_file)


@contextlib.contextmanager
def _told_plainly() -> Iterator[None]:
    """Every refusal is words and a stable exit status, never a traceback."""
    try:
        yield
    except (MatrixError, PlanningError, Usage) as error:
        print(f"killmatrix: {error}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
    except _UsageError as error:
        error.show(sys.stderr)
        sys.exit(EXIT_USAGE)
    except (KeyboardInterrupt, typer.Abort):
        print("killmatrix: interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_UNKNOWN)
    except OSError as error:
        print(f"killmatrix: {error}", file=sys.stderr)
        sys.exit(EXIT_UNKNOWN)


def main() -> None:
    """The command ``killmatrix``, and ``python -m harness``."""
    with _told_plainly():
        try:
            status = app(standalone_mode=False)
            sys.stdout.flush()
        except SystemExit:  # how typer and rich end on a closed pipe: with 1, which here means a violation
            raise BrokenPipeError from None
        if status == EXIT_INTERRUPTED:  # what typer makes of Ctrl-C, without a word
            raise KeyboardInterrupt
        sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
