"""``killmatrix explore``: every disk that any number of crashes can leave (harness.md, "Closure")."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli_shared import (
    HtmlFile,
    MatrixFile,
    ResultFile,
    Spawn,
    Usage,
    app,
    count_jobs,
    require_writable,
    spawn_kind,
)

if TYPE_CHECKING:
    from harness.exploration import Exploration

_TELL_EVERY_S = 5.0


@app.command(
    epilog="Examples: killmatrix explore collector.takeover-held | killmatrix explore signals.first-scan --html graph.html. "
    "Exit status: 0 a fixpoint and nothing wrong, 1 a violation, 2 something unknown or no fixpoint, 64 usage."
)
def explore(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="A scenario of the matrix.")],
    matrix: MatrixFile = Path("matrix.yaml"),
    depth: Annotated[int | None, typer.Option("--depth", min=1, help="Stop after so many crashes.")] = None,
    exact_depth: Annotated[
        int, typer.Option("--exact-depth", min=0, help="Up to so many crashes, tell disks apart without folding.")
    ] = 1,
    mutant: Annotated[
        str | None, typer.Option("--mutant", metavar="ID", help="Explore this wrong program instead.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, max=256, help="States at a time.")] = count_jobs(),
    spawn: Spawn = None,
    json_file: ResultFile = None,
    html: HtmlFile = None,
) -> None:
    """Kill, recover, kill again, until no new state of the disk appears: an answer for any number of crashes."""
    from harness import runner
    from harness.branching import BranchingError
    from harness.engine import SetUpFailed
    from harness.explore import explore as search
    from harness.judge.invariants import BlindJudge
    from harness.mutants import with_mutant
    from harness.plan import nearest
    from harness.report import exploration

    project = with_mutant(runner.open_project(matrix), mutant)
    if scenario not in project.matrix.scenarios:
        raise Usage(f"{scenario!r} is no scenario of this matrix{nearest(scenario, project.matrix.scenarios)}")
    require_writable(json_file, html)
    try:
        found = search(
            project,
            scenario,
            jobs=jobs,
            spawn=spawn_kind(spawn),
            exact_depth=exact_depth,
            depth_max=depth,
            observe=_Ticker().tell,
        )
    except (BranchingError, SetUpFailed, BlindJudge) as error:
        print(f"killmatrix: {scenario}: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
    if json_file is not None:
        exploration.write_exploration(found, json_file)
    if html is not None:
        from harness.report.exploration_html import write_exploration_html

        write_exploration_html(found, html)
    for line in exploration.exploration_lines(found):
        print(line)
    raise typer.Exit(found.exit_status)


class _Ticker:
    """Progress on stderr: one line that is written over on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self._told_at = time.monotonic()
        self._is_terminal = sys.stderr.isatty()

    def tell(self, found: Exploration, waiting: int) -> None:
        now = time.monotonic()
        if waiting and now - self._told_at < (0.2 if self._is_terminal else _TELL_EVERY_S):
            return
        self._told_at = now
        line = (
            f"depth {found.depth}: {len(found.states):,} states, {waiting:,} waiting, {len(found.transitions):,} edges"
        )
        start, end = ("\r\x1b[K", "" if waiting else "\n") if self._is_terminal else ("", "\n")
        print(f"{start}{line}", end=end, file=sys.stderr, flush=True)
