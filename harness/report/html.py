"""The report for reviewers: one HTML file that needs no network (harness.md, "Report").

The page is rendered here; the stories are not: the result document lies in the page as it is, and the script builds the
story of a cell when it is asked for, so that thousands of cells stay light. Text of the program under test reaches the
page by Jinja's autoescape or as a DOM text node, never as markup, and a content security policy stands behind that.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from harness.model import Run, Verdict
from harness.report.changes import KINDS, changes_since
from harness.report.grid import ALL, build_tables, wrong_results
from harness.report.json_result import result_document
from harness.report.output import printable, write_text
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


def write_html(run: Run, path: str | os.PathLike[str], previous: Mapping[str, Any] | None = None) -> None:
    """Write the report. ``previous`` is the result document of the run before. Raises OSError."""
    write_text(path, render_html(run, previous))


def render_html(run: Run, previous: Mapping[str, Any] | None = None) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_show,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = _breakable
    environment.filters["address"] = _address
    changes = changes_since(previous, run) if previous is not None else ()
    script = environment.get_template("report.js.j2").render()
    style = environment.get_template("report.css.j2").render()
    return environment.get_template("report.html.j2").render(
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
        changes=changes,
        change_counts={kind: sum(change.kind == kind for change in changes) for kind in KINDS},
        changed_cells=frozenset(change.cell for change in changes if change.kind != "gone"),
        marks={verdict.value: mark for verdict, mark in MARKS.items()},
        category=category,
        by_family=by_family(run),
        scenarios=sorted({result.cell.scenario for result in run.results}),
        ALL=ALL,
        Verdict=Verdict,
        style=Markup(style),
        style_hash=_hash(style),
        script=Markup(script),
        script_hash=_hash(script),
        data=_data(run, {change.cell: change.before for change in changes if change.kind != "gone"}),
    )


def _show(value: object) -> object:
    """Every value that the template prints: control characters become visible before autoescape sees them."""
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _breakable(text: str) -> Markup:
    """A cell id that a line may break between its parts, instead of within a word."""
    parts = re.split(r"(?<=[/>.])(?=[^/>.])", printable(text, one_line=True))
    return Markup("<wbr>").join(parts)  # which escapes each of them


def _address(cell: str) -> str:
    """The fragment that opens the story of a cell. The script makes the same one."""
    return f"#cell={quote(printable(cell, one_line=True))}"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _data(run: Run, changed: Mapping[str, str | None]) -> Markup:
    document = result_document(run, output_chars=_OUTPUT_CHARS_MOST)
    document["changed"] = changed
    document["marks"] = {verdict.value: [*mark, category(verdict)] for verdict, mark in MARKS.items()}
    # "<" alone can end or comment out a script element; in JSON it only ever stands inside a string
    return Markup(json.dumps(document, separators=(",", ":")).replace("<", "\\u003c"))
