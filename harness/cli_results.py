"""The commands about results across runs, and what ``killmatrix run`` needs of the store."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli_shared import (
    EXIT_UNKNOWN,
    HtmlFile,
    JunitFile,
    MarkdownFile,
    MatrixFile,
    ResultFile,
    Usage,
    app,
    require_writable,
    write_reports,
)
from harness.model import Cell, Run, Shard

if TYPE_CHECKING:
    from harness.plan import Filter
    from harness.report.mutants import MutantTable
    from harness.runner import Project
    from harness.store import Store, StoredRun

_RUN = "A run: its id or the beginning of it, last, last~1, or a result file (run --json)."
StoreFile = Annotated[
    Path | None,
    typer.Option(
        "--store", metavar="FILE", help="Where results of runs are; .killmatrix/results.sqlite beside the matrix."
    ),
]


# --- commands


@app.command(epilog="Example: killmatrix runs")
def runs(matrix: MatrixFile = Path("matrix.yaml"), store: StoreFile = None) -> None:
    """List the stored runs, the newest first. The last 30 are kept; older ones go when a new one begins."""
    from harness.report.output import printable
    from harness.report.terminal import format_duration

    with _Shelf(matrix, store) as shelf:
        found = shelf.list_runs()
    rows = [
        (
            run.run_id,
            run.started_at,
            run.state,
            _counts(run),
            format_duration(run.duration_s),
            run.selection or "everything",
        )
        for run in found
    ]
    rows.insert(0, ("run", "started", "state", "cells", "time", "selection"))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for row in rows:
        print(printable("  ".join([*(f"{text:<{width}}" for text, width in zip(row, widths, strict=False)), row[5]])))
    if not found:
        print(f"no run is stored in {shelf.path}; killmatrix run stores each")


def _counts(run: StoredRun) -> str:
    passed = run.verdicts.get("PASS", 0)
    wrong = " ".join(f"{count} {verdict}" for verdict, count in sorted(run.verdicts.items()) if verdict != "PASS")
    return f"{passed} of {run.planned} passed" + (f", {wrong}" if wrong else "")


@app.command(
    epilog="Examples: killmatrix report last --html report.html | killmatrix report shard-*.json --junit junit.xml"
)
def report(
    results: Annotated[list[str], typer.Argument(metavar="RUN...", help=f"{_RUN} Several: all shards of one plan.")],
    html: HtmlFile = None,
    junit: JunitFile = None,
    markdown: MarkdownFile = None,
    json_file: ResultFile = None,
    mutants: Annotated[
        Path | None, typer.Option("--mutants", metavar="FILE", help="Show what killmatrix mutants --json wrote, too.")
    ] = None,
    matrix: MatrixFile = Path("matrix.yaml"),
    store: StoreFile = None,
) -> None:
    """Print a run again, or the shards of one plan as one run, and write reports of it.

    A shard that is missing, a cell that is in two shards or in none, and shards of two plans are never a pass.
    """
    from harness.merge import MergeError, merge_shards
    from harness.report import terminal
    from harness.report.tally import summarize

    with _Shelf(matrix, store) as shelf:
        named = [(ref, shelf.read(ref)) for ref in results]
        require_writable(html, junit, markdown, json_file)
        saved = named[0][1]
        if len(named) > 1 or saved.shard is not None:
            try:
                saved = merge_shards(named)
            except MergeError as error:
                raise Usage(str(error)) from error
        write_reports(saved, json_file, html, junit, markdown, mutants=_read_mutants(mutants))
        terminal.print_run(saved, terminal.make_console())
    raise typer.Exit(summarize(saved).exit_status)


def _read_mutants(path: Path | None) -> MutantTable | None:
    from harness.report.mutants import MutantsFileError, read_table

    try:
        return read_table(path) if path is not None else None
    except (OSError, MutantsFileError) as error:
        raise Usage(f"--mutants: {error}") from error


@app.command(
    epilog="Exit status: 0 nothing got worse, 1 something did, 2 not known: NEW did not come to its end, 64 usage. "
    "Examples: killmatrix diff last~1 last | killmatrix diff main.json branch.json"
)
def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help=_RUN)],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The run to hold against it.")],
    matrix: MatrixFile = Path("matrix.yaml"),
    store: StoreFile = None,
) -> None:
    """Say which cells changed between two runs: broken, changed, fixed, added, gone."""
    from harness.report import terminal
    from harness.report.changes import as_previous, changes_since, not_tried

    with _Shelf(matrix, store) as shelf:
        before, after = as_previous(shelf.read(old)), shelf.read(new)
        changes = changes_since(before, after)
    console = terminal.make_console()
    print(f"{before['run_id']} -> {after.run_id}")
    terminal.print_changes(changes, console)
    if not after.whole and (left := not_tried(before, after)):
        print(f"{len(left)} cells of {before['run_id']} were not tried in {after.run_id}")
    if any(change.is_worse for change in changes):
        raise typer.Exit(1)
    missing = after.planned - after.left_out - len(after.results)
    if after.interrupted or after.problems or missing > 0:
        why = "; ".join((*after.problems, *(["it was interrupted"] if after.interrupted else [])))
        print(f"not known: {after.run_id} is not complete: {why or f'{missing} cells have no result'}")
        raise typer.Exit(EXIT_UNKNOWN)


@app.command(epilog="Example: killmatrix run --keep kept && killmatrix judge kept")
def judge(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="What run --keep DIR, or repro --keep DIR, has left.")
    ],
    matrix: MatrixFile = Path("matrix.yaml"),
    json_file: ResultFile = None,
    html: HtmlFile = None,
    junit: JunitFile = None,
    markdown: MarkdownFile = None,
) -> None:
    """Judge a kept run again, with the judges and the matrix as they are now. Nothing is run.

    What is missing or damaged in DIR is UNKNOWN, never a pass.
    """
    from harness import runner
    from harness.rejudge import judge_again
    from harness.report import json_result, terminal
    from harness.report.changes import as_previous, changes_since
    from harness.report.tally import summarize

    project = runner.open_project(matrix)
    require_writable(json_file, html, junit, markdown)
    try:
        before, after = judge_again(project, directory)
    except FileNotFoundError as error:
        raise Usage(f"{error.filename}: not there: no run with --keep {directory} has come to its end") from error
    except (OSError, json_result.ResultFileError) as error:
        raise Usage(str(error)) from error
    earlier = as_previous(before)
    write_reports(after, json_file, html, junit, markdown, earlier)
    console = terminal.make_console()
    terminal.print_run(after, console)
    print("against what was judged then:")
    terminal.print_changes(changes_since(earlier, after), console)
    raise typer.Exit(summarize(after).exit_status)


# --- which run is meant


class _Shelf:
    """Runs by the names that a person gives them. The store is opened when one of them is in it, and never made."""

    def __init__(self, matrix: Path, store: Path | None) -> None:
        from harness.store import default_path

        self.path = store if store is not None else default_path(matrix)
        self._store: Store | None = None

    def list_runs(self) -> tuple[StoredRun, ...]:
        return self._open().runs() if self.path.exists() else ()

    def read(self, ref: str) -> Run:
        """Raises Usage."""
        from harness.report import json_result

        if Path(ref).is_file():
            try:
                return json_result.read_run(ref)
            except (OSError, json_result.ResultFileError) as error:
                raise Usage(f"{ref}: {error}") from error
        if not self.path.exists():
            raise Usage(f"{ref}: no such file, and no run is stored in {self.path}")
        return self._open().read_run(self._find(ref))

    def _find(self, ref: str) -> str:
        stored = self.list_runs()
        if match := re.fullmatch(r"last(?:~(\d+))?", ref):
            ended = [run for run in stored if not run.live]
            back = int(match[1] or 0)
            if back >= len(ended):
                raise Usage(f"{ref}: {len(ended)} runs are stored in {self.path}; killmatrix runs lists them")
            return ended[back].run_id
        found = [run.run_id for run in stored if run.run_id.startswith(ref)]
        if ref in found:
            return ref
        if len(found) != 1:
            told = (
                f"several runs begin so: {', '.join(found)}" if found else "no such file, and no stored run begins so"
            )
            raise Usage(f"{ref}: {told}; killmatrix runs lists them")
        return found[0]

    def _open(self) -> Store:
        from harness.store import StoreError, open_store

        if self._store is None:
            try:
                self._store = open_store(self.path)
            except StoreError as error:
                raise Usage(str(error)) from error
        return self._store

    def __enter__(self) -> _Shelf:
        return self

    def __exit__(self, *_: object) -> None:
        if self._store is not None:
            self._store.close()


def read_previous(ref: str, matrix: Path, store: Path | None) -> dict[str, Any]:
    """What ``run --previous`` names, as a result document. Raises Usage."""
    from harness.report.changes import as_previous

    with _Shelf(matrix, store) as shelf:
        return as_previous(shelf.read(ref))


# --- what a run needs of the store


@contextlib.contextmanager
def open_results(matrix: Path, store: Path | None, no_store: bool) -> Iterator[Store]:
    """The store of a run. Raises Usage where the one that was asked for cannot be used."""
    from harness.store import StoreError, default_path, open_store, temporary_store

    if no_store and store is not None:
        raise Usage("--store and --no-store exclude each other")
    path = store if store is not None else default_path(matrix)
    if store is None and not no_store and not _may_be_made(path):
        print(f"this run is not stored: {path.parent} cannot be written to; name a place with --store", file=sys.stderr)
        no_store = True
    try:
        opened = temporary_store() if no_store else open_store(path)
    except StoreError as error:
        raise Usage(str(error)) from error
    with opened:
        yield opened


def _may_be_made(path: Path) -> bool:
    """Whether there can be a store in a directory of its own, which is made with it."""
    return os.access(path.parent if path.parent.exists() else path.parent.parent, os.W_OK)


def last_complete(store: Store, selection: str) -> dict[str, Any] | None:
    """What the last stored run of the same selection that came to its end said, as a result document."""
    for run in store.runs():
        if run.selection == selection and run.ended and not run.interrupted:
            return store.read_verdicts(run.run_id)
    return None


def find_interrupted(
    store: Store, project: Project, selection: str, spawn: str, shard: Shard | None
) -> StoredRun | None:
    """The run that ``--resume`` goes on with: the last of this selection, if it did not come to its end.

    Raises Usage where what it was made of has changed since, or where it is still running.
    """
    from harness.fingerprint import differing, fingerprint_project
    from harness.runner import describe_host

    last = next((run for run in store.runs() if run.selection == selection), None)
    if last is None or last.state in ("complete", "cut by its budget"):
        what = "no run of these cells is stored" if last is None else f"run {last.run_id} came to its end"
        print(f"nothing to resume: {what}; starting afresh", file=sys.stderr)
        return None
    if last.live:
        raise Usage(f"--resume: run {last.run_id} is still running in another process")
    then = store.read_head(last.run_id)
    now = fingerprint_project(project.root, project.matrix, project.points)
    changed = [
        *differing(then.fingerprints, now),
        *(["--shard or --durations"] if then.shard != shard else []),
        *(["--spawn"] if then.spawn != spawn else []),
        *(["this machine"] if then.host != describe_host() else []),
    ]
    if changed:
        raise Usage(
            f"--resume: since run {last.run_id} was interrupted there was a change of {', '.join(changed)}: "
            "its results and new ones would not belong together; run without --resume to start afresh"
        )
    print(f"resuming run {last.run_id}: {last.cells} of {last.planned} cells have a result", file=sys.stderr)
    return last


def take_shard(
    cells: Sequence[Cell], text: str | None, durations: Path | None, chosen: Filter
) -> tuple[Sequence[Cell], Shard | None]:
    """The cells of shard ``text`` (``I/N``), and what it is part of. Raises Usage, PlanningError."""
    from harness import plan
    from harness.report import json_result

    if text is None:
        if durations is not None:
            raise Usage("--durations is for --shard")
        return cells, None
    index, slash, count = text.partition("/")
    if not (slash and index.isdecimal() and count.isdecimal()):
        raise Usage(f"--shard {text!r}: write I/N, for example 2/4")
    if 1 <= int(index) <= int(count) and int(count) > len(cells):
        raise Usage(f"--shard {text}: there are {len(cells)} cells only; write a smaller N")
    try:
        told = {} if durations is None else json_result.read_durations(durations)
    except (OSError, json_result.ResultFileError) as error:
        raise Usage(f"--durations {durations}: {error}") from error
    mine = plan.shard(cells, int(index), int(count), told)
    parts = plan.plan_shards(cells, int(count), told)
    fingerprint = plan.fingerprint_shards(map(str, part) for part in parts)
    return mine, Shard(int(index), int(count), fingerprint, len(cells), chosen.selects_everything)
