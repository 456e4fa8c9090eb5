"""JUnit XML: one test case a cell, so that a CI server can show and count them (harness.md, "Report")."""

from __future__ import annotations

import os
from xml.etree import ElementTree

from harness.model import CellResult, Run, Verdict
from harness.report.output import difference_lines, printable, shorten, write_text
from harness.report.tally import category, not_covered, summarize, tally_by

_TEXT_CHARS_MOST = 8000
_RUN_SUITE = "killmatrix.run"


def write_junit(run: Run, path: str | os.PathLike[str]) -> None:
    """Write the XML. FAIL is a ``failure``; unknown and unreached are an ``error``. Raises OSError.

    What is wrong with the run as a whole (a dropped result, a listed point that was not reached) is an error in a suite
    of its own: a CI server that looks only here must not see green where the exit status is 2.
    """
    summary = summarize(run)
    root = ElementTree.Element("testsuites", name="killmatrix", time=_seconds(run.duration_s))
    for scenario in sorted(tally_by(run.results, lambda result: result.cell.scenario)):
        results = [result for result in run.results if result.cell.scenario == scenario]
        suite = _suite(root, scenario, run)
        for result in results:
            _case(suite, result)
    if summary.reasons:
        suite = _suite(root, _RUN_SUITE, run)
        for reason in summary.reasons:
            case = ElementTree.SubElement(suite, "testcase", classname=_RUN_SUITE, name=_clean(reason), time="0.000")
            ElementTree.SubElement(case, "error", type="UNREACHED", message=_clean(reason))
    for suite in root:
        _count(suite)
    _count(root)
    ElementTree.indent(root)
    write_text(path, f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n')


def _suite(root: ElementTree.Element, name: str, run: Run) -> ElementTree.Element:
    suite = ElementTree.SubElement(root, "testsuite", name=_clean(name), timestamp=_clean(run.started_at))
    properties = ElementTree.SubElement(suite, "properties")
    ElementTree.SubElement(properties, "property", name="run_id", value=_clean(run.run_id))
    for sentence in not_covered(run):
        ElementTree.SubElement(properties, "property", name="not_covered", value=_clean(sentence))
    return suite


def _case(suite: ElementTree.Element, result: CellResult) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=_clean(result.cell.scenario),
        name=_clean(str(result.cell)),
        time=_seconds(result.duration_s),
    )
    if result.verdict is Verdict.PASS:
        return
    first = result.violations[0] if result.violations else None
    outcome = ElementTree.SubElement(
        case,
        "failure" if category(result.verdict) == "failed" else "error",
        type=_clean(first.invariant if first is not None else result.verdict.value),
        message=_clean(shorten(str(first) if first is not None else result.why or result.verdict.value, 500)),
    )
    outcome.text = _clean(_explain(result), one_line=False)


def _explain(result: CellResult) -> str:
    lines = [result.verdict.value, *filter(None, [result.why]), *map(str, result.violations)]
    if result.story:
        lines += [f"from {result.story[0].title} to {result.story[-1].title}:"]
        lines += difference_lines(result.story[0].tree, result.story[-1].tree) or ["nothing changed"]
    return f"\n{shorten(chr(10).join(lines), _TEXT_CHARS_MOST)}\n{result.repro}\n"


def _count(element: ElementTree.Element) -> None:
    element.set("tests", str(len(element.findall(".//testcase"))))
    element.set("failures", str(len(element.findall(".//failure"))))
    element.set("errors", str(len(element.findall(".//error"))))
    element.set("skipped", "0")
    if element.tag == "testsuite":
        element.set("time", _seconds(sum(float(case.get("time", "0")) for case in element.findall("testcase"))))


def _clean(text: str, *, one_line: bool = True) -> str:
    """Characters that XML 1.0 forbids even as references become visible escapes."""
    return printable(text, one_line=one_line)


def _seconds(duration_s: float) -> str:
    return f"{duration_s:.3f}"
