"""The result file, Markdown and JUnit XML, and how they are written."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.model import Chapter, Run, Verdict, Violation
from harness.report.json_result import ResultFileError, read_document, read_run, result_document, write_json
from harness.report.junit import write_junit
from harness.report.markdown import code, code_block, render_markdown, write_markdown
from harness.report.output import difference_lines, printable, shorten, split_entry, write_text
from harness.report.tally import KILL_PROVES_NO_FSYNC, summarize
from tests.harness.test_report_sample import HOSTILE, make_big_run, make_point, make_result, make_run


def make_hostile_run() -> Run:
    """Every text that a product or its user chooses is hostile."""
    results = []
    for number, text in enumerate(HOSTILE):
        chapter = Chapter(text, (text,), 1, text, (text,), (f"{text}  1 B  00000000",), text, text, 1.0)
        results.append(
            make_result(
                f"p.{text}",
                Verdict.FAIL if number % 2 else Verdict.UNKNOWN,
                scenario=f"s.{text}",
                fault=f"tamper:{text}",
                row=text,
                rows=(text,),
                code=text,
                why=text,
                violations=(Violation(text, text, text),) if number % 2 else (),
                points_reached=frozenset({text}),
                story=(replace(chapter, tree=()), chapter),
                kept_at=text,
            )
        )
    run = make_run(results, notes=HOSTILE, run_id=HOSTILE[0], started_at=HOSTILE[1], host={HOSTILE[0]: HOSTILE[1]})
    points = tuple(make_point(f"p.{text}", text, text) for text in HOSTILE)
    return replace(run, points=points, listed_points=frozenset({*HOSTILE, *(point.name for point in points)}))


# ---- the result file


def test_the_result_file_has_the_keys_of_schema_1() -> None:
    document = result_document(make_big_run())
    assert document["schema"] == 1
    assert document.keys() >= {"run_id", "started_at", "duration_s", "jobs", "spawn", "host", "summary", "cells"}
    assert document["summary"].keys() >= {
        *("cells", "passed", "failed", "unreached", "unknown"),
        *("by_fault", "by_depth", "points_declared", "points_reached"),
    }
    assert document["summary"]["by_fault"]["kill"].keys() == {"cells", "passed"}
    assert document["summary"]["by_depth"]["1"].keys() == {"cells", "passed"}
    for cell in document["cells"]:
        assert cell.keys() == {
            *("id", "scenario", "depth", "steps", "verdict", "row", "code", "recoveries"),
            *("violations", "duration_ms", "repro"),
            *("rows", "why"),  # beyond the specification
        }
        for step in cell["steps"]:
            assert step.keys() == {"point", "hit", "fault", "fired", "pid", "died_by"}


def test_a_cell_in_the_result_file() -> None:
    (cell,) = result_document(make_run([make_result(verdict=Verdict.FAIL, row="T2", code="E_BUSY")]))["cells"]
    assert cell == {
        "id": "shop.checkout/shop.pay.charged#1=kill",
        "scenario": "shop.checkout",
        "depth": 1,
        "steps": [
            {"point": "shop.pay.charged", "hit": 1, "fault": "kill", "fired": True, "pid": 4711, "died_by": "SIGKILL"}
        ],
        "verdict": "FAIL",
        "row": "T2",
        "rows": [],
        "code": "E_BUSY",
        "recoveries": 1,
        "violations": [{"invariant": "nothing_overwritten", "path": "a.txt", "detail": "3 B became 0 B"}],
        "why": "",
        "duration_ms": 250.0,
        "repro": "killmatrix repro 'shop.checkout/shop.pay.charged#1=kill'",
    }


@pytest.mark.parametrize("make", [make_big_run, make_hostile_run], ids=["big", "hostile"])
def test_a_result_file_comes_back_as_the_run_it_was(make: object, tmp_path: Path) -> None:
    assert callable(make)
    run: Run = replace(make(), interrupted=True, whole=False, planned=999, listed_rows=frozenset({"T1"}))
    write_json(run, tmp_path / "run.json")
    again = read_run(tmp_path / "run.json")
    assert result_document(again) == result_document(run)
    assert summarize(again) == replace(summarize(run), cells_per_s=summarize(again).cells_per_s)
    for ours, theirs in zip(run.results, again.results, strict=True):
        rounded = replace(ours, duration_s=theirs.duration_s, story=theirs.story)
        assert theirs == rounded
        for chapter, told in zip(ours.story, theirs.story, strict=True):
            assert told == replace(chapter, duration_ms=told.duration_ms)


def test_a_step_that_was_never_come_to_did_not_fire() -> None:
    result = replace(make_result(verdict=Verdict.UNREACHED), steps=())
    (cell,) = result_document(make_run([result]))["cells"]
    assert cell["steps"][0]["fired"] is False


def test_a_result_file_without_detail_can_be_read(tmp_path: Path) -> None:
    document = result_document(make_big_run(20))
    for key in ("detail", "planned", "interrupted", "notes", "not_covered"):
        del document[key]
    (tmp_path / "run.json").write_text(json.dumps(document))
    run = read_run(tmp_path / "run.json")
    assert [str(result.cell) for result in run.results] == [cell["id"] for cell in document["cells"]]
    assert summarize(run).cells == 20
    assert run.results[0].story == ()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is not JSON"),
        ("[]", "no result file of schema 1"),
        ('{"schema": 2, "cells": []}', "no result file of schema 1"),
        ('{"schema": 1, "cells": []}', "damaged: KeyError"),
        ('{"schema": 1, "cells": [3]}', "damaged"),
    ],
)
def test_what_is_no_result_file_is_refused_by_name(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(ResultFileError, match=told) as raised:
        read_run(path)
    assert str(path) in str(raised.value)


def test_a_text_is_stored_once_and_output_can_be_shortened() -> None:
    chapter = Chapter("run", ("a", "a"), 1, "exit 0", (), ("a",) * 3, "x" * 9000, "", 1.0)
    run = make_run([make_result(hit=hit, story=(chapter, chapter)) for hit in (1, 2, 3)])
    detail = result_document(run)["detail"]
    assert len(detail["texts"]) == len(set(detail["texts"]))
    assert max(map(len, detail["texts"])) == 9000
    shorter = result_document(run, output_chars=100)["detail"]["texts"]
    assert max(map(len, shorter)) < 200
    assert any("8,900 characters left out" in text for text in shorter)


# ---- JUnit XML


def test_junit_has_a_test_case_for_each_cell(tmp_path: Path) -> None:
    run = replace(make_big_run(), whole=False)
    write_junit(run, tmp_path / "junit.xml")
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    summary = summarize(run)
    assert root.tag == "testsuites"
    assert (root.get("tests"), root.get("failures")) == (str(summary.cells), str(summary.failed))
    assert root.get("errors") == str(summary.unknown + summary.unreached)
    cases = {case.get("name"): case for case in root.iter("testcase")}
    assert cases.keys() == {str(result.cell) for result in run.results}
    for result in run.results:
        case = cases[str(result.cell)]
        assert case.get("classname") == result.cell.scenario
        outcome = {Verdict.PASS: [], Verdict.FAIL: ["failure"]}.get(result.verdict, ["error"])
        assert [child.tag for child in case] == outcome
        if outcome:
            assert result.repro in (case[0].text or "")
    assert sum(int(suite.get("tests", "")) for suite in root) == summary.cells
    assert KILL_PROVES_NO_FSYNC in (tmp_path / "junit.xml").read_text()


def test_junit_shows_an_error_wherever_the_exit_status_is_not_0(tmp_path: Path) -> None:
    run = make_run([make_result()])
    for changes in ({"interrupted": True}, {"planned": 2}, {"listed_points": frozenset({"x.y"})}, {"results": ()}, {}):
        changed: Run = replace(run, **changes)
        write_junit(changed, tmp_path / "junit.xml")
        root = ElementTree.parse(tmp_path / "junit.xml").getroot()
        assert (root.get("errors") != "0") == (summarize(changed).exit_status != 0), changes


def test_junit_of_hostile_text_parses_and_shows_the_characters_that_xml_forbids(tmp_path: Path) -> None:
    write_junit(make_hostile_run(), tmp_path / "junit.xml")
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    names = [case.get("name", "") for case in root.iter("testcase")]
    assert any("\\x1b[2J\\x1b]0;owned\\x07 \\x00" in name for name in names)
    assert any("</script>" in name for name in names)


# ---- Markdown


def test_markdown_says_what_the_run_says(tmp_path: Path) -> None:
    run = make_big_run()
    write_markdown(run, tmp_path / "summary.md")
    text = (tmp_path / "summary.md").read_text()
    assert text.startswith(f"## FAIL: {summarize(run).failed} of 300 cells broke an invariant.")
    assert "`collector.release.pending_removed is listed and no cell reached it`" in text
    assert KILL_PROVES_NO_FSYNC in text
    for result in run.results:
        assert (result.repro in text) == (result.verdict is not Verdict.PASS)
    assert "`kill` | 119 |" in text


def test_markdown_of_a_bad_run_stays_short() -> None:
    results = [make_result(hit=hit, verdict=Verdict.FAIL, why="x" * 9000) for hit in range(1, 2001)]
    text = render_markdown(make_run(results))
    assert len(text) < 1_000_000
    assert "1950 more" in text


def test_markdown_tells_what_broke_since_the_run_before() -> None:
    before = result_document(make_run([make_result(hit=1), make_result(hit=2, verdict=Verdict.FAIL)]))
    text = render_markdown(make_run([make_result(hit=1, verdict=Verdict.FAIL), make_result(hit=2)]), before)
    assert "### Against the run before: 1 broken, 1 fixed" in text
    assert "- broken: PASS → FAIL `shop.checkout/shop.pay.charged#1=kill`" in text


def test_markdown_of_hostile_text_keeps_it_in_code() -> None:
    text = render_markdown(make_hostile_run())
    outside = re.sub(r"(?ms)^(`{3,})\n.*?^\1$", "", text)  # code blocks
    outside = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", outside)  # code spans
    outside = re.sub(r"</?(details|summary|b)>", "", outside)  # ours
    assert "<" not in outside
    assert "\x1b" not in text
    for line in text.splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) == 7, line


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("a", "`a`"),
        ("a`b", "`` a`b ``"),
        ("a|b", "`a\\|b`"),
        ("", "`-`"),
        ("a\nb", "`a\\nb`"),
        ("```", "```` ``` ````"),
    ],
)
def test_code_spans(text: str, span: str) -> None:
    assert code(text) == span


def test_a_code_block_is_not_ended_by_what_is_in_it() -> None:
    assert code_block(["a", "```", "<b>"]) == "````\na\n```\n<b>\n````"


# ---- text and files


def test_printable_shows_what_a_terminal_would_obey() -> None:
    assert printable("\x1b[2J\x07\r\x9b\ud800\u202e") == "\\x1b[2J\\x07\\x0d\\x9b\\ud800\\u202e"
    assert printable("a\tb\nc") == "a\tb\nc"
    assert printable("a\tb\nc", one_line=True) == "a\\tb\\nc"
    assert printable("héllo 日本 🎈") == "héllo 日本 🎈"


def test_shorten_keeps_both_ends_and_says_how_much_is_gone() -> None:
    assert shorten("x" * 30, 30) == "x" * 30
    assert shorten("a" * 20 + "b" * 10 + "c" * 10, 30) == "a" * 20 + "\n[10 characters left out]\n" + "c" * 10


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("a/b.txt  12 B  0123abcd", ("a/b.txt", "12 B  0123abcd")),
        ("a  3 B  deadbeef  12 B  0123abcd", ("a  3 B  deadbeef", "12 B  0123abcd")),
        ("link  symlink ../x", ("link", "symlink ../x")),
        ("dir/", ("dir/", "")),
        ("new\nline  1 B  00000000", ("new\nline", "1 B  00000000")),
    ],
)
def test_a_line_of_a_listing_is_taken_apart(line: str, parts: tuple[str, str]) -> None:
    assert split_entry(line) == parts


def test_difference_lines() -> None:
    before = ("a  1 B  00000000", "b  1 B  00000000", "c/", "l  symlink x")
    after = ("a  1 B  00000000", "b  2 B  11111111", "d  0 B  22222222", "l  symlink y")
    assert difference_lines(before, after) == [
        "~ b  1 B  00000000 -> 2 B  11111111",
        "- c/",
        "+ d  0 B  22222222",
        "~ l  symlink x -> symlink y",
    ]
    assert difference_lines(before, before) == []


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "report.txt"
    write_text(path, "first")

    def refuse(self: Path, target: object) -> None:
        raise OSError("no rename today")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", refuse)
        with pytest.raises(OSError, match="no rename today"):
            write_text(path, "second")
    assert path.read_text() == "first"
    assert os.listdir(path.parent) == ["report.txt"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_report_to_a_pipe_goes_into_the_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    descriptor = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)  # both ends: neither side waits for the other
    try:
        write_text(pipe, "told")
        assert pipe.is_fifo()
        assert os.read(descriptor, 100) == b"told"
    finally:
        os.close(descriptor)


def test_a_report_behind_a_link_keeps_the_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_the_document_of_the_run_before_is_read_as_it_is(tmp_path: Path) -> None:
    run = make_big_run(10)
    write_json(run, tmp_path / "run.json")
    assert read_document(tmp_path / "run.json") == json.loads(json.dumps(result_document(run)))
