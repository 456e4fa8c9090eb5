"""The report for reviewers: one HTML file that needs no network (harness.md, "Report").

The page is rendered here; the stories are not: the result document lies in the page as it is, and the script builds the
story of a cell when it is asked for, so that thousands of cells stay light. All of it is written piece by piece.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from harness.model import Run, Verdict
from harness.report import coverage as covered
from harness.report.changes import KINDS, changes_since
from harness.report.grid import ALL, build_tables, wrong_results
from harness.report.json_result import document_chunks
from harness.report.mutants import MutantTable
from harness.report.output import printable, write_chunks
from harness.report.page import in_script, open_templates, policy_hash
from harness.report.tally import (
    by_family,
    category,
    headline,
    not_covered,
    points_without_cell,
    summarize,
    unreached_points,
    unused_faults,
)

_OUTPUT_CHARS_MOST = 4000

# a mark and a word for each verdict: colour alone tells nothing to many readers
MARKS: Mapping[Verdict, tuple[str, str, str]] = {
    Verdict.PASS: ("✓", "pass", "every invariant held"),
    Verdict.FAIL: ("✗", "fail", "an invariant is broken"),
    Verdict.UNREACHED: ("○", "unreached", "the fault did not happen"),
    Verdict.HUNG: ("…", "hung", "a process did not end in its time"),
    Verdict.FOREIGN_DEATH: ("†", "foreign", "a process died, but not of this fault"),
    Verdict.UNKNOWN: ("?", "unknown", "the set-up or the judge crashed"),
}


def write_html(
    run: Run,
    path: str | os.PathLike[str],
    previous: Mapping[str, Any] | None = None,
    mutants: MutantTable | None = None,
) -> None:
    """Write the report. ``previous`` is the result document of the run before, ``mutants`` a section. Raises OSError."""
    write_chunks(path, _html_chunks(run, previous, mutants))


def render_html(run: Run, previous: Mapping[str, Any] | None = None, mutants: MutantTable | None = None) -> str:
    """The whole page in memory."""
    return "".join(_html_chunks(run, previous, mutants))


def _html_chunks(run: Run, previous: Mapping[str, Any] | None, mutants: MutantTable | None) -> Iterator[str]:
    environment = open_templates()
    environment.filters["address"] = _address
    changes = changes_since(previous, run) if previous is not None else ()
    script = environment.get_template("report.js.j2").render()
    style = environment.get_template("report.css.j2").render()
    yield from environment.get_template("report.html.j2").generate(
        run=run,
        summary=(summary := summarize(run)),
        headline=headline(summary),
        not_covered=not_covered(run),
        tables=build_tables(run),
        wrong=wrong_results(run),
        missing=unreached_points(run),
        unused_faults=unused_faults(run),
        idle=points_without_cell(run),
        previous=previous,
        mutants=mutants,
        changes=changes,
        change_counts={kind: sum(change.kind == kind for change in changes) for kind in KINDS},
        changed_cells=frozenset(change.cell for change in changes if change.kind != "gone"),
        marks={verdict.value: mark for verdict, mark in MARKS.items()},
        category=category,
        by_family=by_family(run),
        scenarios=sorted({result.cell.scenario for result in run.results}),
        covered=covered,
        ALL=ALL,
        Verdict=Verdict,
        style=Markup(style),
        style_hash=policy_hash(style),
        script=Markup(script),
        script_hash=policy_hash(script),
        data=_data(run, {change.cell: change.before for change in changes if change.kind != "gone"}),
    )


def _address(cell: str) -> str:
    """The fragment that opens the story of a cell. The script makes the same one."""
    return f"#cell={quote(printable(cell, one_line=True))}"


def _data(run: Run, changed: Mapping[str, str | None]) -> Iterator[Markup]:
    """The result document with ``changed`` and ``marks`` in it, as text that may stand in a script element."""
    marks = {verdict.value: [*mark, category(verdict)] for verdict, mark in MARKS.items()}
    more = json.dumps({"changed": changed, "marks": marks}, separators=(",", ":"))
    document = document_chunks(run, output_chars=_OUTPUT_CHARS_MOST)
    yield in_script(f"{more[:-1]},{next(document)[1:]}")
    yield from map(in_script, document)
