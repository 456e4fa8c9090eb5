"""What became of the wrong programs, in the result file and in the reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.model import Cell, Step
from harness.mutants import MutantResult, MutantSpec
from harness.report.html import render_html
from harness.report.markdown import render_markdown
from harness.report.mutants import (
    MutantsFileError,
    exit_status,
    print_mutant,
    print_score,
    read_table,
    score,
    write_json,
)
from tests.harness.test_report_html import Page
from tests.harness.test_report_sample import HOSTILE, make_result, make_run

CELL = Cell("shop.first", (Step("shop.saved", 1, "kill"),))


def became(
    name: str,
    *,
    excuse: str | None = None,
    killed: bool = False,
    unproven: str | None = None,
    unharmed: bool | None = None,
) -> MutantResult:
    spec = MutantSpec(name, f"it forgets {HOSTILE[0]}", (), excuse)
    return MutantResult(
        spec, CELL if killed else None, "converges" if killed else None, 7, 1.25, unproven, seen_unharmed=unharmed
    )


KILLED = became("lock-forgotten", killed=True, unharmed=False)
EXCUSED = became("no-fsync", excuse="a kill loses nothing that the kernel has")
UNTRUE = became("slow", excuse="nobody can see it", killed=True, unharmed=True)
SURVIVED = became("retry-lost")
UNPROVEN = became("kill-removed", unproven="shop.first: the right program does not pass it either")
UNPROVEN_EXCUSED = became(
    "no-sync", excuse="none can", unproven="shop.first: the right program does not pass it either"
)
ALL = (KILLED, EXCUSED, UNTRUE, SURVIVED, UNPROVEN, UNPROVEN_EXCUSED)


@pytest.mark.parametrize(
    ("result", "status", "state"),
    [
        (KILLED, 0, "killed"),
        (EXCUSED, 0, "excused"),
        (UNTRUE, 1, "untrue"),
        (SURVIVED, 1, "survived"),
        (UNPROVEN, 1, "survived"),
        (UNPROVEN_EXCUSED, 1, "survived"),
    ],
)
def test_what_fails_and_what_it_is_called(tmp_path: Path, result: MutantResult, status: int, state: str) -> None:
    """A red cell that the right program does not pass either is no sight, and makes no excuse true."""
    assert exit_status([KILLED, result, EXCUSED]) == status
    write_json([result], tmp_path / "mutants.json")
    (row,) = read_table(tmp_path / "mutants.json").rows
    assert row.state == state


def test_what_is_written_is_read_with_what_went_wrong_first(tmp_path: Path) -> None:
    write_json(ALL, tmp_path / "mutants.json")
    table = read_table(tmp_path / "mutants.json")
    assert [row.state for row in table.rows] == ["survived", "survived", "survived", "untrue", "killed", "excused"]
    assert table.score == score(ALL) == pytest.approx(1 / 3)
    assert table.says == (
        "6 wrong programs, 1 killed, 1 excused, 3 survived, 1 untrue; score 33%; "
        "1 are right until something happens to them, 1 are not"
    )
    killed = table.rows[4]
    assert (killed.id, killed.killed_by, killed.invariant, killed.duration_ms) == (
        "lock-forgotten", "shop.first/shop.saved#1=kill", "converges", 1250.0,
    )  # fmt: skip


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 2, "mutants": [], "score": 1}', '{"schema": 1, "score": 1}',
                                  '{"schema": 1, "mutants": [{"id": 1}], "score": 1}'])  # fmt: skip
def test_another_file_is_refused_in_words(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(MutantsFileError, match=r"other.json is no file of killmatrix mutants --json"):
        read_table(tmp_path / "other.json")


def test_the_reports_have_a_row_for_each(tmp_path: Path) -> None:
    write_json(ALL, tmp_path / "mutants.json")
    table = read_table(tmp_path / "mutants.json")
    run = make_run([make_result()])
    html, markdown = render_html(run, None, table), render_markdown(run, None, table)
    assert [text for text in Page(html).texts["h2"] if "Wrong" in text] == ["Wrong programs"]
    for text in (html, markdown):
        assert all(result.mutant.id in text for result in ALL) and "score 33" in text
        assert "does not pass it either" in text and "a kill loses nothing that the kernel has" in text
    assert "shop.first/shop.saved#1=kill" in html.replace("<wbr>", "") and "shop.first/shop.saved#1=kill" in markdown
    assert HOSTILE[0] not in html, "what a mistake says may be anything"
    without = render_html(run) + render_markdown(run)
    assert "Wrong programs" not in without


def test_a_line_says_why_nothing_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    print_mutant(UNPROVEN)
    print_mutant(SURVIVED)
    print_score(ALL)
    out = capsys.readouterr().out
    assert "SURVIVED  kill-removed" in out and "does not pass it either" in out and "none of 7 cells saw it" in out
    assert "survived: retry-lost, kill-removed, no-sync" in out


def test_the_file_is_schema_1(tmp_path: Path) -> None:
    write_json([KILLED], tmp_path / "mutants.json")
    document = json.loads((tmp_path / "mutants.json").read_text())
    assert {*document} == {"schema", "mutants", "score"} and (document["schema"], document["score"]) == (1, 1.0)
    assert {*document["mutants"][0]} >= {"id", "says", "killed_by", "invariant", "excuse", "duration_ms"}
