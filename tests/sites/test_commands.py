"""What the commands say and refuse beside the stories: totals, names, places, and a journal that says a thing twice."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from pathlib import Path

import pytest

from product.sites import commands, drive, observe
from product.sites.knowledge import Knowledge
from tests.sites.helpers import NOW, Bench

SITE = "https://clinic.example/"


def test_many_signals_are_taken_in_parts_and_told_as_one(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[int] = []
    record = commands._record

    def count(layout: object, choose: drive.Chooser, saving: object) -> drive.Done:
        parts.append(len(choose(Knowledge())))
        return record(layout, choose, saving)  # type: ignore[arg-type]

    monkeypatch.setattr(commands, "_record", count)
    monkeypatch.setattr(commands, "SIGNALS_AT_ONCE", 2)
    monkeypatch.setattr(commands, "read_blocks", functools.partial(commands.read_blocks, chunk_bytes=100))
    path = bench.write(*({"id": f"s{n}", "outcome": "empty", "url": f"{SITE}{n}" + "x" * 80} for n in range(5)))
    done = bench.run("apply", "--signals", str(path)).require_done()
    assert (done["recorded"], done["already"], done["applied"]) == (5, 0, 5) and parts == [2, 2, 1]
    again = bench.run("apply", "--signals", str(path)).require_done()
    assert (again["recorded"], again["already"], again["applied"]) == (0, 5, 0)


def test_an_id_that_is_in_the_journal_twice_is_found_by_check(bench: Bench) -> None:
    """Somebody copied a line: state and replay agree that it counts twice."""
    bench.give("empty", SITE)
    journal = bench.state / "journal.jsonl"
    journal.write_bytes(journal.read_bytes() * 2)
    assert bench.run("consume").require_done()["applied"] == 1
    ran = bench.run("check")
    assert (ran.status, ran.code) == (70, "E_SITE_REPLAY")
    assert ran.answer["detail"]["first"] == ["s1"] and ran.answer["row"] == "R5"
    assert bench.run("replay", str(journal)).require_done()["repeated_ids"] == ["s1"]


@pytest.mark.parametrize("argv", [("consume",), ("explain", "clinic.example"), ("status",), ("check",)])
@pytest.mark.parametrize("link", ["state", "parent"])
def test_a_state_behind_a_link_is_78(bench: Bench, tmp_path: Path, argv: tuple[str, ...], link: str) -> None:
    bench.give("empty", SITE)
    bench.state.rename(tmp_path / "real")
    if link == "parent":
        (tmp_path / "elsewhere").symlink_to(tmp_path)
        bench.state = tmp_path / "elsewhere" / "real"
    else:
        bench.state.symlink_to(tmp_path / "real")
    ran = bench.run(*argv)
    assert (ran.status, ran.code) == (78, "E_PATH_REPARSE"), ran.answer


@pytest.mark.parametrize("argv", [("explain", "clinic.example"), ("status",)])
def test_what_only_reads_refuses_a_broken_state_by_its_name(bench: Bench, argv: tuple[str, ...]) -> None:
    bench.give("empty", SITE)
    (bench.state / "state.json").write_bytes(b"{}")
    ran = bench.run(*argv)
    assert (ran.status, ran.code) == (70, "E_SITE_STATE") and ran.answer["detail"]["file"].endswith("state.json")
    assert "state.json: " in ran.answer["message"]


@pytest.mark.parametrize("argv", [("explain", "no site"), ("revive", "a..b"), ("probe", "ftp://a.example/")])
def test_what_is_no_site_and_no_page_is_65(bench: Bench, argv: tuple[str, ...]) -> None:
    bench.give("empty", SITE)
    ran = bench.run(*argv)
    assert (ran.status, ran.code) == (65, "E_INPUT") and "is no " in ran.words, ran


@pytest.mark.parametrize("make", [None, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
@pytest.mark.parametrize("command", ["apply", "replay"])
def test_lines_that_cannot_be_read_are_65(bench: Bench, command: str, make: Callable[[Path], None] | None) -> None:
    path = bench.root / "lines.jsonl"
    if make is not None:
        make(path)
    ran = bench.run(command, *(["--signals"] if command == "apply" else []), str(path))
    assert (ran.status, ran.code) == (65, "E_INPUT") and str(path) in ran.words
    assert not bench.state.exists()


def test_a_replay_is_not_looked_through_for_garbage(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.give("empty", SITE)
    on: list[bool] = []
    replay = observe.replay

    def look(journal: int, end: int) -> Knowledge:
        on.append(gc.isenabled())
        return replay(journal, end)

    monkeypatch.setattr(observe, "replay", look)
    assert gc.isenabled()
    bench.run("replay", str(bench.state / "journal.jsonl")).require_done()
    assert on == [False] and gc.isenabled()
    gc.disable()
    try:
        bench.run("replay", str(bench.state / "journal.jsonl")).require_done()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_nothing_is_asked_twice_at_the_same_time(bench: Bench) -> None:
    """A tick is due once: the second one at the same second is the same entry."""
    bench.give("refused", SITE)
    later = NOW + 400_000
    assert bench.run("expire", now=later).require_done()["recorded"] == 1
    assert bench.run("expire", now=later).require_done()["recorded"] == 0
