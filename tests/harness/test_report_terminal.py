"""The report on a terminal, on a real pseudo-terminal where it matters."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from harness.model import Chapter, Run, Verdict
from harness.report.changes import Change
from harness.report.tally import KILL_PROVES_NO_FSYNC
from harness.report.terminal import Progress, format_duration, make_console, print_changes, print_run
from tests.harness.test_report_files import make_hostile_run
from tests.harness.test_report_sample import make_big_run, make_result, make_run


def render(run: Run, *, verbose: bool = False, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    print_run(run, make_console(stream), verbose=verbose)
    stream.flush()
    return raw.getvalue().decode(encoding)


def test_a_run_on_the_terminal_closes_with_the_counts() -> None:
    text = render(make_big_run())
    closing = text.splitlines()[-5:]
    assert closing[0] == "cells 300  passed 290  failed 5  unreached 2  unknown 3"
    assert closing[1] == "points reached 37 of 38"
    assert closing[2] == "148.0 cells/s (2 s, 2 at a time)"
    assert closing[3] == KILL_PROVES_NO_FSYNC
    assert closing[4] == "FAIL: 5 of 300 cells broke an invariant."
    assert "not a pass: collector.release.pending_removed is listed and no cell reached it" in text
    assert "note: no loop device" in text


def test_a_cell_that_failed_shows_its_violations_its_differences_and_one_repro_line() -> None:
    tree = ("a.txt  3 B  00000000", "gone  1 B  00000000")
    story = (
        Chapter("set-up", (), None, "done", (), tree, "", "", 1.0),
        Chapter("recovery", (), 4711, "exit 0", (), ("a.txt  0 B  11111111", "new/"), "", "", 1.0),
    )
    lines = render(make_run([make_result(verdict=Verdict.FAIL, story=story, kept_at="/kept/1")])).splitlines()
    start = lines.index("FAIL  shop.checkout/shop.pay.charged#1=kill")
    assert lines[start + 1 : start + 8] == [
        "  nothing_overwritten: a.txt: 3 B became 0 B",
        "  from set-up to recovery:",
        "    ~ a.txt  3 B  00000000 -> 0 B  11111111",
        "    - gone  1 B  00000000",
        "    + new/",
        "  kept at /kept/1",
        "  killmatrix repro 'shop.checkout/shop.pay.charged#1=kill'",
    ]


def test_every_cell_that_did_not_pass_is_named_once_and_no_other() -> None:
    run = make_run([make_result(hit=hit, verdict=Verdict.HUNG if hit % 2 else Verdict.PASS) for hit in range(1, 101)])
    for verbose in (False, True):
        lines = render(run, verbose=verbose).splitlines()
        for result in run.results:
            named = lines.count(f"HUNG  {result.cell}")
            assert named == (result.verdict is Verdict.HUNG)


def test_a_long_difference_is_cut_and_says_so() -> None:
    tree = tuple(f"{n:03}  1 B  00000000" for n in range(100))
    story = tuple(Chapter("moment", (), None, "", (), lines, "", "", 1.0) for lines in ((), tree))
    assert "    60 more paths" in render(make_run([make_result(verdict=Verdict.FAIL, story=story)])).splitlines()


def test_verbose_has_points_by_fault() -> None:
    results = [make_result(hit=1), make_result(hit=2, verdict=Verdict.FAIL), make_result(fault="rival")]
    assert "FAIL 1/2" in render(make_run(results), verbose=True)
    assert "FAIL 1/2" not in render(make_run(results))


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("verbose", [False, True])
def test_hostile_text_is_shown_and_not_obeyed(encoding: str, verbose: bool) -> None:
    text = render(make_hostile_run(), verbose=verbose, encoding=encoding)
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", text)
    assert "[red]markup[/red] [/]" in text
    assert "\\x1b[2J" in text


def test_table_rows_are_told_where_the_matrix_lists_some() -> None:
    run = make_run([make_result(rows_reached=frozenset({"T1"}))], listed_rows=frozenset({"T1", "T2"}))
    text = render(run)
    assert "points reached 1 of 1  rows taken 1 of 2" in text.splitlines()
    assert "not a pass: row T2 is listed and no process took it" in text.splitlines()


def test_a_run_of_nothing_is_no_pass() -> None:
    text = render(make_run([]))
    assert "not a pass: no cell ran" in text
    assert text.splitlines()[-1].startswith("UNKNOWN: ")


def test_a_part_of_the_matrix_counts_its_unreached_points_without_blame() -> None:
    text = render(replace(make_big_run(20), whole=False))
    assert "listed points were not reached (not counted" in text
    assert "is listed and no cell reached it" not in text


def test_progress_off_a_terminal_is_about_twenty_plain_lines() -> None:
    stream = io.StringIO()
    run = make_big_run(300)
    with Progress(300, stream=stream) as progress:
        for result in run.results:
            progress.advance(result)
    lines = stream.getvalue().splitlines()
    counted = [line for line in lines if re.match(r"\d+/300 cells  \d+(\.\d)? cells/s", line)]
    assert len(counted) == 20
    assert counted[-1].startswith("300/300 cells") and counted[-1].endswith(
        "290 passed  5 failed  2 unreached  3 unknown"
    )
    assert sorted(set(lines) - set(counted)) == sorted(
        f"{result.verdict.value}  {result.cell}" for result in run.results if result.verdict is not Verdict.PASS
    )
    assert "\x1b" not in stream.getvalue()


def test_progress_of_nothing() -> None:
    stream = io.StringIO()
    with Progress(0, stream=stream):
        pass
    assert stream.getvalue() == ""


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[io.TextIOWrapper, int]]:
    pty = pytest.importorskip("pty", reason="no pseudo-terminals here")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    master, slave = pty.openpty()
    with os.fdopen(slave, "w", encoding="utf-8") as stream:
        yield stream, master
    os.close(master)


def show_progress(stream: io.TextIOWrapper, master: int) -> str:
    before = (sys.stdout, sys.stderr)
    with Progress(3, stream=stream) as progress:
        assert (sys.stdout, sys.stderr) == before  # what a child inherits stays as it was
        for verdict in (Verdict.PASS, Verdict.PASS, Verdict.FAIL):
            progress.advance(make_result(verdict=verdict))
    stream.write("the end")
    stream.flush()
    seen = b""
    while b"the end" not in seen:
        seen += os.read(master, 1 << 16)
    return seen.decode()


def test_progress_on_a_terminal_is_a_bar(terminal: tuple[io.TextIOWrapper, int]) -> None:
    seen = show_progress(*terminal)
    assert "3/3 cells" in seen and "cells/s" in seen
    assert "━" in seen
    assert re.search("\x1b\\[[0-9;]*3[0-9]", seen)
    assert "shop.checkout/shop.pay.charged#1=kill" in seen


def test_progress_respects_no_color(terminal: tuple[io.TextIOWrapper, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    seen = show_progress(*terminal)
    assert "━" in seen
    assert not re.search("\x1b\\[[0-9;]*(3[0-9]|4[0-9]|38;)[0-9;]*m", seen)


def test_progress_on_a_dumb_terminal_is_lines(
    terminal: tuple[io.TextIOWrapper, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    seen = show_progress(*terminal)
    assert "━" not in seen and "3/3 cells" in seen


def test_progress_starts_no_thread(terminal: tuple[io.TextIOWrapper, int]) -> None:
    import threading

    before = threading.active_count()
    with Progress(3, stream=terminal[0]):
        assert threading.active_count() == before


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [(0.0, "0 s"), (0.42, "0.42 s"), (9.87, "9.9 s"), (12.4, "12 s"), (185, "3 min 05 s"), (7620, "2 h 07 min")],
)
def test_durations(duration_s: float, text: str) -> None:
    assert format_duration(duration_s) == text


def test_changes_are_printed_with_their_counts(tmp_path: Path) -> None:
    stream = io.StringIO()
    changes = (Change("a/b#1=kill", "PASS", "FAIL"), Change("a/c#1=kill", None, "PASS"))
    print_changes(changes, Console(file=stream, width=20))
    assert stream.getvalue().splitlines() == [
        "broken   PASS -> FAIL  a/b#1=kill",
        "added    - -> PASS  a/c#1=kill",
        "broken 1  added 1",
    ]
