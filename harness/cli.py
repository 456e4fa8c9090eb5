"""``killmatrix``: the command line (harness.md, "Command line"). Exit status 0 passed, 1 violation, 2 unknown, 64 usage."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from harness.matrix import MatrixError
from harness.model import Run
from harness.plan import Filter, PlanningError

EXIT_UNKNOWN, EXIT_USAGE, EXIT_INTERRUPTED = 2, 64, 130
_UsageError: Any = typer.BadParameter.__mro__[1]  # click's, or that of the copy of click that later typers carry

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
ResultFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result file (schema 1).")]


def _jobs() -> int:
    return os.cpu_count() or 1


@app.command(
    epilog="Examples: killmatrix run | killmatrix run --scenario '*takeover*' --html report.html | killmatrix run --shard 2/4"
)
def run(
    matrix: MatrixFile = Path("matrix.yaml"),
    scenario: ScenarioGlob = None,
    point: PointGlob = None,
    fault: FaultGlob = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, max=256, help="Cells at a time.")] = _jobs(),
    spawn: Spawn = None,
    shard: Annotated[str | None, typer.Option("--shard", metavar="I/N", help="Only part I of N.")] = None,
    json_file: ResultFile = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the report.")] = None,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML.")] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", metavar="FILE", help="Write a CI summary.")] = None,
    keep: Annotated[Path | None, typer.Option("--keep", metavar="DIR", help="Keep every sandbox below DIR.")] = None,
    previous: Annotated[
        Path | None,
        typer.Option("--previous", metavar="FILE", help="A result file of an earlier run: show what changed."),
    ] = None,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop at the first cell that does not pass.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also the table of points.")] = False,
) -> None:
    """Run the matrix and print what held and what did not."""
    from harness import plan, runner
    from harness.report import terminal
    from harness.report.changes import changes_since
    from harness.report.tally import summarize

    project = runner.open_project(matrix)
    chosen = Filter(scenario, point, fault)
    cells = plan.select(plan.plan_cells(project.matrix), chosen)
    if shard is not None:
        cells = plan.shard(cells, *_shard(shard))
    _require_writable(json_file, html, junit, markdown)
    earlier = _read_document(previous)
    with terminal.Progress(len(cells)) as progress:
        done = runner.run_cells(
            project,
            cells,
            jobs=jobs,
            spawn=_spawn(spawn),
            whole=chosen.selects_everything and shard is None,
            keep=_fresh_directory(keep),
            fail_fast=fail_fast,
            observe=progress.advance,
        )
    _write_reports(done, json_file, html, junit, markdown, earlier)  # first: nobody may be reading what is printed
    console = terminal.make_console()
    terminal.print_run(done, console, verbose=verbose)
    if earlier is not None:
        terminal.print_changes(changes_since(earlier, done), console)
    raise typer.Exit(summarize(done).exit_status)


def _write_reports(
    done: Run,
    json_file: Path | None,
    html: Path | None,
    junit: Path | None,
    markdown: Path | None,
    earlier: dict[str, Any] | None = None,
) -> None:
    from harness.report import html as html_report
    from harness.report import json_result
    from harness.report import junit as junit_report
    from harness.report import markdown as markdown_report

    if json_file is not None:
        json_result.write_json(done, json_file)
    if html is not None:
        html_report.write_html(done, html, earlier)
    if junit is not None:
        junit_report.write_junit(done, junit)
    if markdown is not None:
        markdown_report.write_markdown(done, markdown, earlier)


@app.command("list", epilog="Example: killmatrix list --point '*takeover*'")
def list_cells(
    matrix: MatrixFile = Path("matrix.yaml"),
    scenario: ScenarioGlob = None,
    point: PointGlob = None,
    fault: FaultGlob = None,
) -> None:
    """Print the id of every cell, one a line; nothing is run."""
    from harness import plan, runner

    project = runner.open_project(matrix)
    for cell in plan.select(plan.plan_cells(project.matrix), Filter(scenario, point, fault)):
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
    spawn: Spawn = None,
    keep: Annotated[Path | None, typer.Option("--keep", metavar="DIR", help="Keep the sandbox below DIR.")] = None,
    shell: Annotated[bool, typer.Option("--shell", help="Open a shell in the kept sandbox.")] = False,
    json_file: ResultFile = None,
) -> None:
    """Run one cell again and tell its whole story."""
    import tempfile

    from harness import plan, runner
    from harness.report import json_result, story
    from harness.report.tally import summarize

    project = runner.open_project(matrix)
    chosen = plan.parse_cell(cell, project.matrix)
    _require_writable(json_file)
    with contextlib.ExitStack() as stack:
        if shell and keep is None:
            keep = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="killmatrix-repro-")))
        done = runner.run_cells(
            project, [chosen], jobs=1, spawn=_spawn(spawn), whole=False, keep=_fresh_directory(keep)
        )  # fmt: skip
        for line in story.story_lines(done.results[0]):
            print(line)
        if json_file is not None:
            json_result.write_json(done, json_file)
        if shell and done.results[0].kept_at:
            import subprocess

            subprocess.run([os.environ.get("SHELL", "sh")], cwd=done.results[0].kept_at, check=False)
    raise typer.Exit(summarize(done).exit_status)


@app.command()
def schema() -> None:
    """Print the JSON Schema of matrix.yaml, for editors."""
    from harness.matrix import json_schema

    print(json.dumps(json_schema(), indent=2))


@app.command(epilog="Example: killmatrix report result.json --html report.html")
def report(
    result: Annotated[Path, typer.Argument(metavar="RESULT", help="A result file that run --json wrote.")],
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the report.")] = None,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML.")] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", metavar="FILE", help="Write a CI summary.")] = None,
) -> None:
    """Print a saved run again, and write reports of it."""
    from harness.report import json_result, terminal
    from harness.report.tally import summarize

    try:
        saved = json_result.read_run(result)
    except (OSError, json_result.ResultFileError) as error:
        raise _Usage(f"{result}: {error}") from error
    _require_writable(html, junit, markdown)
    _write_reports(saved, None, html, junit, markdown)
    terminal.print_run(saved, terminal.make_console())
    raise typer.Exit(summarize(saved).exit_status)


@app.command(epilog="Examples: killmatrix mutants | killmatrix mutants --only read-back-skipped --json mutants.json")
def mutants(
    matrix: MatrixFile = Path("matrix.yaml"),
    only: Annotated[str | None, typer.Option("--only", metavar="GLOB", help="Only these wrong programs.")] = None,
    spawn: Spawn = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, max=256, help="Wrong programs at a time.")] = _jobs(),
    json_file: ResultFile = None,
) -> None:
    """Run the matrix against each wrong program until the first cell that is not green; a survivor fails."""
    from harness import mutants as wrong
    from harness import plan, runner
    from harness.report import mutants as report

    project = runner.open_project(matrix)
    chosen = wrong.select_mutants(wrong.read_mutants(project), only)
    _require_writable(json_file)
    results = wrong.run_mutants(
        project, chosen, plan.plan_cells(project.matrix), jobs=jobs, spawn=_spawn(spawn), observe=report.print_mutant
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


def _read_document(path: Path | None) -> dict[str, Any] | None:
    from harness.report import json_result

    try:
        return None if path is None else json_result.read_document(path)
    except (OSError, json_result.ResultFileError) as error:
        raise _Usage(f"{path}: {error}") from error


class _Usage(Exception):
    """The call cannot be done as asked; nothing was run."""


def _spawn(name: str | None) -> Literal["fork", "exec"]:
    from harness.runner import default_spawn

    if name is None:
        return default_spawn()
    if name == "fork":
        return "fork"
    if name == "exec":
        return "exec"
    raise _Usage(f"--spawn {name!r}: write fork or exec")


def _shard(text: str) -> tuple[int, int]:
    index, slash, count = text.partition("/")
    if not (slash and index.isdecimal() and count.isdecimal()):
        raise _Usage(f"--shard {text!r}: write I/N, for example 2/4")
    return int(index), int(count)


def _fresh_directory(keep: Path | None) -> Path | None:
    if keep is not None:
        try:
            keep.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _Usage(f"--keep {keep}: {error.strerror}") from error
        if any(keep.iterdir()):
            raise _Usage(f"--keep {keep}: the directory is not empty; nothing there is overwritten")
    return keep


def _require_writable(*files: Path | None) -> None:
    """Before a long run, not after it."""
    for file in files:
        if file is None:
            continue
        parent = file.resolve().parent
        if file.is_dir():
            raise _Usage(f"{file}: cannot be written: it is a directory")
        if not (parent.is_dir() and os.access(parent, os.W_OK)):
            raise _Usage(f"{file}: cannot be written: {parent} is no directory that may be written to")


@contextlib.contextmanager
def _told_plainly() -> Iterator[None]:
    """Every refusal is words and a stable exit status, never a traceback."""
    try:
        yield
    except (MatrixError, PlanningError, _Usage) as error:
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
        sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
