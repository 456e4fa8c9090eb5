"""What every report says about coverage, and that it says nothing where nothing was measured."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.model import Coverage, FileCoverage, Gap, Run
from harness.report import coverage as covered
from harness.report.html import render_html
from harness.report.json_result import read_run, result_document, write_json
from harness.report.markdown import render_markdown
from harness.report.tally import summarize
from harness.report.terminal import make_console, print_run
from tests.harness.test_report_html import Page
from tests.harness.test_report_sample import HOSTILE, make_run

WHOLE = FileCoverage("shop/all.py", 10, 10, 4, 4, (), ())
PART = FileCoverage(
    "shop/part.py", 1000, 999, 10, 8, (3, 4, 5, 9),
    (
        Gap(7, 9, None, "pay: refund()"),
        Gap(12, 12, 0, "pay: if paid: -> end", "nobody pays twice"),
        Gap(20, 20, 22, f"pay: {HOSTILE}"),
    ),
)  # fmt: skip
MEASURED = Coverage((WHOLE, PART), 40, 2, "/shop/.killmatrix/coverage", ("coverage: one gap",))


@pytest.fixture
def run() -> Run:
    return replace(make_run(), coverage=MEASURED)


def printed(run: Run, *, verbose: bool = False) -> str:
    stream = io.StringIO()
    print_run(run, make_console(stream), verbose=verbose)
    return stream.getvalue()


def test_the_result_file_has_it_and_gives_it_back(run: Run, tmp_path: Path) -> None:
    document = result_document(run)["coverage"]
    assert {"lines": 1010, "lines_run": 1009, "branches": 14, "branches_run": 12}.items() <= document.items()
    assert document["files"][1]["gaps"][0] == {"line": 7, "last": 9, "to": None, "name": "pay: refund()", "why": None}
    write_json(run, tmp_path / "result.json")
    assert read_run(tmp_path / "result.json").coverage == MEASURED


def test_the_terminal_is_short(run: Run) -> None:
    text = printed(run)
    assert "shop/part.py" in text and "999/1000" in text and "8/10" in text and "shop/all.py" not in text
    assert "99.7%: 1,009 of 1,010 lines, 12 of 14 branches; 4 lines ran only in processes that were killed" in text
    assert "3 gaps, 1 of them explained; 2 of 40 processes left nothing" in text
    assert "refund" not in text and "--data-file /shop/.killmatrix/coverage" in text


def test_the_long_one_has_every_gap(run: Run) -> None:
    text = printed(run, verbose=True)
    assert "shop/all.py" in text and "shop/part.py:7-9  pay: refund()" in text
    assert "shop/part.py:12 to the end  pay: if paid: -> end\n    nobody pays twice" in text
    assert "\x1b" not in text


def test_markdown_has_what_is_not_explained(run: Run) -> None:
    text = render_markdown(run)
    assert "### Code coverage" in text and "| `shop/part.py` | 999/1000 | 8/10 | 99.7 | 4 | 3 | 2 |" in text
    assert "shop/part.py:7-9  pay: refund()" in text and "nobody pays twice" not in text
    assert "shop/all.py" not in text


def test_html_has_every_file_and_every_gap(run: Run) -> None:
    page = Page(render_html(run))
    text = " ".join(" ".join(" ".join(texts) for texts in page.texts.values()).split())
    assert "Code that was run" in text and "shop/all.py" in text and "nobody pays twice" in text
    assert "only in processes that were killed: 3-5, 9" in text
    assert page.all("section", **{"aria-labelledby": "coverage-title"})


def test_without_a_measurement_nobody_speaks_of_it() -> None:
    run = make_run()
    assert run.coverage is None and "coverage" not in result_document(run)
    assert "overage" not in printed(run, verbose=True) + render_markdown(run)
    assert not Page(render_html(run)).all("section", **{"aria-labelledby": "coverage-title"})


def test_where_nothing_was_measured(run: Run) -> None:
    nothing = replace(run, coverage=Coverage((), 5, 5, "data"))
    for text in (
        printed(nothing),
        render_markdown(nothing),
        render_html(nothing),
        json.dumps(result_document(nothing)),
    ):
        assert "5 of 5 processes left nothing" in text or '"silent": 5' in text


def test_a_problem_keeps_the_run_from_being_a_pass(run: Run) -> None:
    assert "coverage: one gap" in summarize(replace(run, problems=MEASURED.problems)).reasons


@pytest.mark.parametrize(("lines", "text"), [((), ""), ((3,), "3"), ((3, 4, 5, 9, 11, 12), "3-5, 9, 11-12")])
def test_ranges(lines: tuple[int, ...], text: str) -> None:
    assert covered.ranges(lines) == text


def test_only_all_is_a_hundred_percent() -> None:
    assert covered.percent(WHOLE) == 100.0
    assert covered.percent(replace(WHOLE, lines=100_000, lines_run=99_999)) == 99.9
    assert covered.percent(FileCoverage("empty.py", 0, 0, 0, 0, (), ())) == 100.0
