"""Judges a kept run again, with the judges and the matrix of today. Nothing runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from harness.conduct import Story
from harness.engine import Engine
from harness.kept import RESULT_FILE, KeptError, read_history
from harness.model import CellResult, Run, Verdict
from harness.plan import PlanningError, parse_cell
from harness.report.json_result import read_run
from harness.runner import Project


def judge_again(
    project: Project, directory: Path, observe: Callable[[CellResult], None] = lambda _result: None
) -> tuple[Run, Run]:
    """The run as it was judged, and as it is judged now, from what ``--keep`` left in ``directory``.

    What is missing or damaged there is UNKNOWN for its cell; so is a cell that the matrix does not have any more.
    Raises OSError or ResultFileError when the result file of the run is not there or cannot be read.
    """
    before = read_run(directory / RESULT_FILE)
    engine = Engine(project.root, project.matrix, None, directory)
    results = []
    for result in before.results:
        results.append(_judge(engine, project, directory, result))
        observe(results[-1])
    note = f"judged again from {directory}, nothing was run"
    return before, replace(
        before,
        results=tuple(results),
        notes=(*before.notes, note),
        listed_points=frozenset(project.matrix.points),
        listed_rows=frozenset(project.matrix.rows),
        points=project.points,
    )


def _judge(engine: Engine, project: Project, directory: Path, result: CellResult) -> CellResult:
    unknown = replace(result, verdict=Verdict.UNKNOWN, violations=())
    try:
        cell = parse_cell(str(result.cell), project.matrix)
        kept = read_history(directory, str(cell))
        story = Story(list(kept.moments), str(cell), worst=kept.worst, why=kept.why)
        violations = engine.judge(cell.scenario, story, cell.expect)
    except (KeptError, PlanningError) as error:
        return replace(unknown, why=str(error))
    except (Exception, SystemExit) as error:  # a judge, which may do anything
        return replace(unknown, cell=cell, why=f"{type(error).__name__}: {error}")
    verdict = Verdict.FAIL if violations else story.worst or Verdict.PASS
    return replace(result, cell=cell, verdict=verdict, violations=violations, why=story.why)
