"""The report on a terminal, and the progress of a run (harness.md, "Command line").

Text of the program under test goes through ``printable`` and into ``Text`` objects: it is never markup, and never an
escape sequence.
"""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType
from typing import TextIO

from rich import box
from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from harness.model import CellResult, Coverage, Run, Verdict
from harness.report import coverage as covered
from harness.report.changes import KINDS, Change
from harness.report.grid import wrong_results
from harness.report.output import difference_lines, printable, shorten
from harness.report.tally import (
    KILL_PROVES_NO_FSYNC,
    category,
    fault_of,
    fault_order,
    headline,
    point_of,
    summarize,
    tally_by,
    unreached_points,
    worst,
)

_STYLES = {"passed": "green", "failed": "bold red", "unreached": "yellow", "unknown": "magenta"}
_LINES_OFF_TERMINAL = 20
_REFRESH_S = 0.1
_STORIES_MOST = 20
_FILES_MOST = 12
_DIFFERENCES_MOST = 40
_TEXT_CHARS_MOST = 2000


class Progress:
    """Progress of a run on stderr: a bar with cells/s and time left on a terminal, about twenty plain lines elsewhere.

    Failing cells are named as they come. ``NO_COLOR`` is respected, and a terminal that says ``TERM=dumb`` gets lines.
    """

    def __init__(self, planned: int, *, stream: TextIO | None = None) -> None:
        self._planned = planned
        self._console = Console(file=stream if stream is not None else sys.stderr, highlight=False, soft_wrap=True)
        self._counts = {"passed": 0, "failed": 0, "unreached": 0, "unknown": 0}
        self._line_every = max(1, -(-planned // _LINES_OFF_TERMINAL))
        self._bar: Bar | None = None
        if self._console.is_terminal and not self._console.is_dumb_terminal and planned:
            # no refresh thread: a process that starts others by fork must stay single-threaded
            self._bar = Bar(
                BarColumn(bar_width=30),
                TextColumn("{task.description}", markup=False),
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
        self._started = self._refreshed = time.monotonic()

    def __enter__(self) -> Progress:
        self._started = self._refreshed = time.monotonic()
        if self._bar is not None:
            self._bar.start()
            self._bar.add_task(f"0/{self._planned}", total=self._planned)
            self._bar.refresh()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, result: CellResult) -> None:
        """One more cell has its result."""
        self._counts[category(result.verdict)] += 1
        done = sum(self._counts.values())
        if result.verdict is not Verdict.PASS:
            self._console.print(_verdict_text(self._console, result))
        now = time.monotonic()
        if self._bar is not None:
            if now - self._refreshed >= _REFRESH_S or done == self._planned:
                self._refreshed = now
                self._bar.update(self._bar.task_ids[0], completed=done, description=self._line(done, now))
                self._bar.refresh()
        elif done % self._line_every == 0 or done == self._planned:
            self._console.print(Text(self._line(done, now)))

    def _line(self, done: int, now: float) -> str:
        elapsed_s = max(now - self._started, 1e-9)
        rate = done / elapsed_s
        parts = [f"{done}/{self._planned} cells", f"{rate:.0f} cells/s" if rate >= 10 else f"{rate:.1f} cells/s"]
        if done < self._planned:
            parts.append(f"{format_duration(elapsed_s / done * (self._planned - done))} left")
        parts += [f"{count} {word}" for word, count in self._counts.items() if count]
        return "  ".join(parts)


def format_duration(duration_s: float) -> str:
    """``0.42 s``, ``12 s``, ``3 min 05 s``, ``2 h 07 min``."""
    if duration_s < 10:
        return f"{duration_s:.2g} s" if duration_s >= 0.01 else "0 s"
    minutes, seconds = divmod(round(duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"


def print_run(run: Run, console: Console, *, verbose: bool = False) -> None:
    """A table by scenario, every cell that did not pass, and the closing counts.

    ``verbose`` adds points x faults and prints every story; else only the first twenty are printed with their trees.
    """
    _print_scenarios(run, console)
    if verbose:
        _print_points(run, console)
    wrong = wrong_results(run)
    for result in wrong if verbose else wrong[:_STORIES_MOST]:
        _print_wrong(result, console)
    if rest := () if verbose else wrong[_STORIES_MOST:]:
        _print(console, f"{len(rest)} more that did not pass (all of them with --verbose, --html, --markdown):", "bold")
        for result in rest:
            console.print(_verdict_text(console, result), soft_wrap=True)
        console.print()
    if run.coverage is not None:
        _print_coverage(run.coverage, console, verbose)
    _print_closing(run, console, verbose)


def print_changes(changes: tuple[Change, ...], console: Console) -> None:
    """What changed against the run before, one line a cell."""
    styles = {"broken": "bold red", "fixed": "green", "changed": "magenta"}
    for change in changes:
        line = f"{change.kind:<8} {change.before or '-'} -> {change.after or '-'}  {change.cell}"
        _print(console, line, styles.get(change.kind, ""))
    counts = {kind: sum(change.kind == kind for change in changes) for kind in KINDS}
    _print(
        console, "  ".join(f"{kind} {count}" for kind, count in counts.items() if count) or "nothing changed", "bold"
    )


def _plain(console: Console, text: str) -> str:
    """``text`` on one line as this console can show it: an ASCII terminal must not end a report in an encoding error.

    On one line, because a text with a newline in it could otherwise look like a line of ours.
    """
    shown = printable(text, one_line=True)
    return shown.encode(console.encoding, "backslashreplace").decode(console.encoding)


def _print(console: Console, text: str, style: str = "") -> None:
    console.print(Text(_plain(console, text), style=style), soft_wrap=True)


def _verdict_text(console: Console, result: CellResult) -> Text:
    text = Text(result.verdict.value, style=_STYLES[category(result.verdict)])
    text.append(f"  {_plain(console, str(result.cell))}", style="not bold default")
    return text


def _print_scenarios(run: Run, console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("scenario", overflow="fold")
    for heading in ("cells", "passed", "failed", "unreached", "unknown"):
        table.add_column(heading, justify="right")
    tallies = tally_by(run.results, lambda result: result.cell.scenario)
    for scenario in sorted(tallies):
        tally = tallies[scenario]
        counts = (tally.passed, tally.failed, tally.unreached, tally.unknown)
        cells = (
            Text(str(n) if n else "-", style=style if n else "dim")
            for n, style in zip(counts, _STYLES.values(), strict=True)
        )
        table.add_row(Text(_plain(console, scenario)), str(tally.cells), *cells)
    if tallies:
        console.print(table)
        console.print()


def _print_points(run: Run, console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("point", overflow="fold")
    faults = sorted({fault_of(result.cell) for result in run.results}, key=fault_order)
    for fault in faults:
        table.add_column(Text(_plain(console, fault)), overflow="fold")
    filed: dict[str, dict[str, list[Verdict]]] = {}
    for result in run.results:
        filed.setdefault(point_of(result.cell), {}).setdefault(fault_of(result.cell), []).append(result.verdict)
    known = [point.name for point in run.points if point.name in filed]
    for name in (*known, *sorted(filed.keys() - set(known))):
        table.add_row(Text(_plain(console, name)), *(_points_cell(filed[name].get(fault, [])) for fault in faults))
    if faults:
        console.print(table)
        console.print()


def _points_cell(verdicts: list[Verdict]) -> Text:
    if not verdicts:
        return Text("")
    verdict = worst(verdicts)
    count = sum(category(other) == category(verdict) for other in verdicts)
    share = f" {count}" if count == len(verdicts) else f" {count}/{len(verdicts)}"
    return Text(verdict.value + (share if len(verdicts) > 1 else ""), style=_STYLES[category(verdict)])


def _print_wrong(result: CellResult, console: Console) -> None:
    console.print(_verdict_text(console, result), soft_wrap=True)
    for text in filter(None, (result.why, *map(str, result.violations))):
        for number, line in enumerate(shorten(text, _TEXT_CHARS_MOST).splitlines()):
            _print(console, f"  {'  | ' if number else ''}{line}")
    if result.story:
        _print(console, f"  from {result.story[0].title} to {result.story[-1].title}:", "dim")
        lines = difference_lines(result.story[0].tree, result.story[-1].tree) or ["nothing changed"]
        for line in lines[:_DIFFERENCES_MOST]:
            _print(console, f"    {line}", {"+": "green", "-": "red", "~": "yellow"}.get(line[0], "dim"))
        if len(lines) > _DIFFERENCES_MOST:
            _print(console, f"    {len(lines) - _DIFFERENCES_MOST} more paths", "dim")
    if result.kept_at:
        _print(console, f"  kept at {result.kept_at}")
    _print(console, f"  {result.repro}", "bold")
    console.print()


def _print_coverage(coverage: Coverage, console: Console, verbose: bool) -> None:
    """A row for each file: those with gaps that nobody explains, or all; with ``verbose`` the gaps, too."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("file", overflow="fold")
    for heading in ("lines", "branches", "%", "only killed", "gaps", "explained"):
        table.add_column(heading, justify="right")
    files = list(coverage.files) if verbose else covered.by_unexplained(coverage)[:_FILES_MOST]
    for file in files:
        shares = (f"{file.lines_run}/{file.lines}", f"{file.branches_run}/{file.branches}")
        counts = (len(file.only_killed), len(file.gaps), len(file.gaps) - len(file.unexplained))
        table.add_row(
            Text(_plain(console, file.path)), *shares, f"{covered.percent(file):.1f}", *(str(n or "-") for n in counts)
        )
    if files:
        console.print(table)
    for file in files if verbose else ():
        for gap in file.gaps:
            _print(console, f"  {file.path}:{covered.place(gap)}  {gap.name}", "dim" if gap.why else "yellow")
            if gap.why:
                _print(console, f"    {gap.why}", "dim")
    _print(console, covered.summary_line(coverage))
    _print(console, f"for coverage report and html --show-contexts: --data-file {coverage.data_file}", "dim")
    console.print()


def _print_closing(run: Run, console: Console, verbose: bool) -> None:
    summary = summarize(run)
    for reason in summary.reasons if verbose else summary.reasons[:_STORIES_MOST]:
        _print(console, f"not a pass: {reason}", _STYLES["unknown"])
    if not verbose and len(summary.reasons) > _STORIES_MOST:
        _print(console, f"not a pass: {len(summary.reasons) - _STORIES_MOST} more of these (--verbose)")
    if not run.whole and (missing := unreached_points(run)):
        _print(console, f"{len(missing)} listed points were not reached (not counted: cells were left out)", "dim")
    if run.left_out:
        _print(console, f"left out by the budget: {run.left_out} of {run.planned} planned cells", _STYLES["unreached"])
    for note in run.notes:
        _print(console, f"note: {note}")
    line = Text(f"cells {summary.cells}")
    for word, style in _STYLES.items():
        count: int = getattr(summary, word)
        line.append(f"  {word} {count}", style=style if count else "")
    console.print(line, soft_wrap=True)
    rows = f"  rows taken {summary.rows_reached} of {summary.rows_listed}" if summary.rows_listed else ""
    _print(console, f"points reached {summary.points_reached} of {summary.points_declared}{rows}")
    _print(console, f"{summary.cells_per_s:.1f} cells/s ({format_duration(run.duration_s)}, {run.jobs} at a time)")
    _print(console, KILL_PROVES_NO_FSYNC, "dim")
    _print(console, f"{summary.verdict.value}: {headline(summary)}", _STYLES[category(summary.verdict)])


def make_console(stream: TextIO | None = None) -> Console:
    """A console for :func:`print_run` on ``stream`` (stdout). Wide where it is no terminal: lines stay whole."""
    console = Console(file=stream if stream is not None else sys.stdout, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 160
    return console
