"""The summary for a CI page, in GitHub's Markdown (harness.md, "Report").

All text of the program under test is put into code spans and code blocks, where Markdown and HTML mean nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.model import CellResult, Coverage, Run
from harness.report import coverage as covered
from harness.report.changes import KINDS, changes_since
from harness.report.grid import wrong_results
from harness.report.mutants import MutantTable
from harness.report.output import difference_lines, printable, shorten, write_text
from harness.report.tally import Summary, Tally, by_family, headline, not_covered, summarize, tally_by

_CELLS_MOST = 50  # a CI page holds 1 MiB, and nobody reads the fifty-first
_LINES_MOST = 60
_GAPS_MOST = 200
_TEXT_CHARS_MOST = 2000


def write_markdown(
    run: Run,
    path: str | os.PathLike[str],
    previous: Mapping[str, Any] | None = None,
    mutants: MutantTable | None = None,
) -> None:
    """Write the summary. ``previous`` is the result document of the run before, ``mutants`` a section. Raises OSError."""
    write_text(path, render_markdown(run, previous, mutants))


def render_markdown(run: Run, previous: Mapping[str, Any] | None = None, mutants: MutantTable | None = None) -> str:
    summary = summarize(run)
    parts = [
        f"## {summary.verdict.value}: {headline(summary)}",
        _bullets(summary.reasons),
        _facts(run, summary),
        _bullets(run.notes),
        _table("scenario", sorted(tally_by(run.results, lambda result: result.cell.scenario).items())),
        _table("fault", by_family(run).items()),
        *_changes(run, previous),
        *_wrong(run),
        *(_mutants(mutants) if mutants is not None else ()),
        *(_coverage(run.coverage) if run.coverage is not None else ()),
        "### What these numbers do not cover\n\n" + "\n".join(f"- {sentence}" for sentence in not_covered(run)),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _facts(run: Run, summary: Summary) -> str:
    return (
        f"Run {code(run.run_id)} of {code(run.started_at)}, {run.duration_s:.1f} s, {run.jobs} at a time, "
        f"{summary.cells_per_s:.1f} cells/s. "
        f"Points reached: {summary.points_reached} of {summary.points_declared}."
        + (f" Rows taken: {summary.rows_reached} of {summary.rows_listed}." if summary.rows_listed else "")
    )


def _bullets(texts: Sequence[str]) -> str:
    lines = [f"- {code(text)}" for text in texts[:_LINES_MOST]]
    if len(texts) > _LINES_MOST:
        lines.append(f"- {len(texts) - _LINES_MOST} more")
    return "\n".join(lines)


def code(text: str) -> str:
    """``text`` as a code span on one line; also inside a table."""
    shown = printable(text, one_line=True).strip() or "-"
    fence = "`" * (max(map(len, re.findall("`+", shown)), default=0) + 1)
    pad = " " if "`" in shown else ""
    # a table cell ends at a pipe even inside a code span
    return f"{fence}{pad}{shown}{pad}{fence}".replace("|", "\\|")


def code_block(lines: Iterable[str]) -> str:
    text = printable(shorten("\n".join(lines), 8_000))
    fence = "`" * max(3, max(map(len, re.findall("`+", text)), default=0) + 1)
    return f"{fence}\n{text}\n{fence}"


def _table(heading: str, tallies: Iterable[tuple[str, Tally]]) -> str:
    rows = [
        f"| {code(name)} | {t.cells} | {t.passed} | {t.failed} | {t.unreached} | {t.unknown} |" for name, t in tallies
    ]
    if not rows:
        return ""
    head = f"| {heading} | cells | passed | failed | unreached | unknown |\n|---|--:|--:|--:|--:|--:|"
    return "\n".join((head, *rows))


def _changes(run: Run, previous: Mapping[str, Any] | None) -> list[str]:
    if previous is None:
        return []
    changes = changes_since(previous, run)
    counts = {kind: sum(change.kind == kind for change in changes) for kind in KINDS}
    told = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count) or "nothing changed"
    lines = [
        f"- {change.kind}: {change.before or '-'} → {change.after or '-'} {code(change.cell)}"
        for change in changes
        if change.kind in ("broken", "changed")
    ]
    return [f"### Against the run before: {told}", "\n".join(lines[:_CELLS_MOST])]


def _coverage(coverage: Coverage) -> list[str]:
    rows = [
        f"| {code(f.path)} | {f.lines_run}/{f.lines} | {f.branches_run}/{f.branches} | {covered.percent(f):.1f} | "
        f"{len(f.only_killed) or '-'} | {len(f.gaps) or '-'} | {len(f.unexplained) or '-'} |"
        for f in covered.by_unexplained(coverage)[:_LINES_MOST]
    ]
    head = "| file | lines | branches | % | only killed | gaps | not explained |\n|---|--:|--:|--:|--:|--:|--:|"
    gaps = [
        f"{file.path}:{covered.place(gap)}  {gap.name}"
        for file in covered.by_unexplained(coverage)
        for gap in file.unexplained
    ]
    told = code_block(gaps[:_GAPS_MOST] + [f"{len(gaps) - _GAPS_MOST} more"] * (len(gaps) > _GAPS_MOST))
    listed = f"<details><summary>Not reached and not explained: {len(gaps)}</summary>\n\n{told}\n\n</details>"
    return [
        f"### Code coverage\n\n{_html(covered.summary_line(coverage))}",
        "\n".join((head, *rows)) if rows else "",
        listed if gaps else "",
    ]


def _mutants(mutants: MutantTable) -> list[str]:
    rows = [
        f"| {row.state} | {code(row.id)} | {code(row.says)} | {code(row.invariant or '-')} | "
        f"{code(row.killed_by or row.unproven or row.excuse or 'no cell saw it')} | {row.duration_ms / 1000:.1f} |"
        for row in mutants.rows
    ]
    head = "| became | wrong program | mistake | broke | seen by, or why not | s |\n|---|---|---|---|---|--:|"
    table = "\n".join((head, *rows))
    return [f"### Wrong programs: {_html(mutants.says)}", f"<details><summary>All</summary>\n\n{table}\n\n</details>"]


def _wrong(run: Run) -> list[str]:
    wrong = wrong_results(run)
    if not wrong:
        return []
    parts = ["### Cells that did not pass", *map(_story, wrong[:_CELLS_MOST])]
    if len(wrong) > _CELLS_MOST:
        parts.append(f"{len(wrong) - _CELLS_MOST} more; the HTML report and the result file have all of them.")
    return parts


def _story(result: CellResult) -> str:
    lines = [f"{result.verdict.value}  {result.cell}", ""]
    lines += [shorten(text, _TEXT_CHARS_MOST) for text in (result.why, *map(str, result.violations)) if text]
    if result.story:
        lines += ["", f"from {result.story[0].title} to {result.story[-1].title}:"]
        changed = difference_lines(result.story[0].tree, result.story[-1].tree) or ["nothing changed"]
        lines += changed[:_LINES_MOST]
        if len(changed) > _LINES_MOST:
            lines.append(f"{len(changed) - _LINES_MOST} more paths")
    lines += ["", result.repro]
    names = ", ".join(sorted({violation.invariant for violation in result.violations}))
    summary = f"<b>{result.verdict.value}</b> {_html(str(result.cell))}{f' ({_html(names)})' if names else ''}"
    return f"<details><summary>{summary}</summary>\n\n{code_block(lines)}\n\n</details>"


def _html(text: str) -> str:
    """``text`` inside an HTML tag of Markdown: every character that either of them reads is a reference."""
    return re.sub(r"[^A-Za-z0-9 .,/#=-]", lambda match: f"&#{ord(match[0])};", printable(text, one_line=True))
