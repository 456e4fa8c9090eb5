"""Judging a kept run again: the judges of today see what those of then did not, and what is not there is never a pass."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness import kept as kept_module
from harness.judge.scenario import Moment
from harness.kept import KeptError, keep_history, read_history
from harness.model import Record, Verdict
from tests.harness import toy
from tests.harness.histories import FILES, healthy, moment, result, tree
from tests.harness.support import TIMEOUT_S, start_harness

CELL = "toy.healthy/toy.appended#1=kill"
linux = pytest.mark.skipif(sys.platform != "linux", reason="the little program and the warm servers need Linux")


# --- what is kept


def test_a_history_comes_back_as_it_was(tmp_path: Path) -> None:
    moments = healthy().moments
    keep_history(tmp_path, "a cell", moments, Verdict.HUNG, "it hung")
    kept = read_history(tmp_path, "a cell")
    assert kept.moments == moments and (kept.worst, kept.why) == (Verdict.HUNG, "it hung")
    keep_history(tmp_path, "a\udcff/../cell", moments[:1], None, "")
    assert read_history(tmp_path, "a\udcff/../cell").moments == moments[:1]


def test_every_field_of_a_process_is_kept(tmp_path: Path) -> None:
    ended = replace(result({"ok": True}, None), records=(Record("kill", "p", 2, 7),), timed_out=True, stderr=b"\xff")
    told = Moment("run", tree(FILES), ended)
    keep_history(tmp_path, "cell", [told], None, "")
    assert read_history(tmp_path, "cell").moments == (told,)


def test_what_cells_share_is_there_once(tmp_path: Path) -> None:
    for number in range(20):
        keep_history(tmp_path, f"cell-{number}", healthy().moments, None, "")
    once = len(list((tmp_path / "history" / "blobs").rglob("*")))
    keep_history(tmp_path, "another", [*healthy().moments, moment("retry", {**FILES, "third": "new"}, {})], None, "")
    assert len(list((tmp_path / "history" / "blobs").glob("*/*"))) < once + 4
    assert len(list((tmp_path / "history" / "cells").iterdir())) == 21


def spoil_each_file(directory: Path, spoil: Callable[[Path], None]) -> int:
    """Spoil one file after another, and put each back; how many were noticed."""
    files = [path for path in (directory / "history").rglob("*") if path.is_file()]
    for path in files:
        data = path.read_bytes()
        spoil(path)
        kept_module._read_blob.cache_clear()  # another process would not have it
        kept_module._read_tree.cache_clear()
        with pytest.raises(KeptError, match="kept history"):
            read_history(directory, "cell")
        path.write_bytes(data)
    return len(files)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes()) or bytearray(b"\0")
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] or b"more")


@pytest.mark.parametrize("spoil", [flip, cut, Path.unlink])
def test_whatever_file_is_spoilt_is_noticed(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    keep_history(tmp_path, "cell", healthy().moments, None, "")
    assert spoil_each_file(tmp_path, spoil) > 5


def test_the_history_of_another_cell_is_not_taken(tmp_path: Path) -> None:
    keep_history(tmp_path, "cell", healthy().moments, None, "")
    (file,) = (tmp_path / "history" / "cells").iterdir()
    keep_history(tmp_path, "other", healthy().moments, None, "")
    other = next(path for path in (tmp_path / "history" / "cells").iterdir() if path != file)
    shutil.copyfile(other, file)
    with pytest.raises(KeptError, match="that of another cell"):
        read_history(tmp_path, "cell")


# --- judged again


class Kept:
    """A project, and what ``run --keep kept`` left of it."""

    def __init__(self, directory: Path) -> None:
        self.root, self._temp = directory / "project", directory / "temp"
        toy.write_toy(self.root, toy.small_matrix())
        self.kept = self.root / "kept"

    def call(self, *arguments: str) -> tuple[int, str]:
        process = start_harness(self.root, self._temp, *arguments)
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert "Traceback" not in err
        return int(process.returncode), out + err

    def change(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text()
        assert old in text
        (self.root / name).write_text(text.replace(old, new, 1))


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    kept = Kept(tmp_path)
    status, told = kept.call("run", "--keep", "kept")
    assert status == 0, told
    return kept


LENIENT = "        return Judgement((), len(history.moments))\n"
STRICTER = """
        from harness.model import Violation

        roles = [moment.role for moment in history.moments if moment.tree.file("next") is not None]
        found = [Violation("no_pending", "next", f"it is there after {role}") for role in roles]
        return Judgement(tuple(found), len(history.moments))
"""


@linux
def test_the_same_judges_say_the_same(kept: Kept) -> None:
    (kept.root / "toy.py").write_text("raise SystemExit('nothing of this may run')")
    status, told = kept.call("judge", "kept", "--json", "again.json", "--html", "again.html")
    assert status == 0 and "PASS: All 7 cells passed." in told and "nothing changed" in told
    before, after = (json.loads((kept.root / name).read_text()) for name in ("kept/result.json", "again.json"))
    assert before["cells"] == after["cells"] and any("judged again" in note for note in after["notes"])


@linux
def test_a_judge_that_got_stricter_finds_what_was_there_before(kept: Kept) -> None:
    kept.change("toy_judge.py", LENIENT, STRICTER)
    status, told = kept.call("judge", "kept")
    assert status == 1 and f"broken   PASS -> FAIL  {CELL}" in told
    assert "no_pending: next: it is there after run" in told
    assert "toy.cleared#1=kill" not in told.replace("killmatrix repro", ""), "what it does not object to is as it was"


@linux
def test_the_expectations_are_those_of_the_matrix_of_today(kept: Kept) -> None:
    matrix = toy.small_matrix()
    matrix["points"]["toy.appended"]["expect"] = {"kill": {"row": "R9"}}
    toy.write_toy(kept.root, matrix)
    status, told = kept.call("judge", "kept")
    assert status == 1 and told.count("broken   PASS -> FAIL") == 2 and "due is R9" in told


@linux
def test_a_judge_that_sees_nothing_any_more_is_no_pass(kept: Kept) -> None:
    """The canary is shown to it again."""
    kept.change("toy_judge.py", 'append_only = ("log",)\n    foreign = ("notes",)', "append_only = foreign = ()")
    kept.change("toy_judge.py", 'allowed = ("log", "lock", "pid", "stranger", "journal")', 'allowed = ("*",)')
    status, told = kept.call("judge", "kept")
    assert status == 2 and "declares nothing protected" in told


@linux
def test_what_is_missing_is_unknown(kept: Kept) -> None:
    cells = sorted((kept.kept / "history" / "cells").iterdir())
    cells[0].unlink()
    cells[1].write_bytes(cells[1].read_bytes()[:-3])
    shutil.rmtree(kept.kept / "worker-0-cell-1")  # the sandbox itself is for people
    status, told = kept.call("judge", "kept")
    assert status == 2 and told.count("broken   PASS -> UNKNOWN") == 2
    assert "kept history: there is no" in told and "the kept history is damaged" in told
    shutil.rmtree(kept.kept / "history")
    status, told = kept.call("judge", "kept")
    assert status == 2 and told.count("broken   PASS -> UNKNOWN") == 7


@linux
def test_a_cell_that_the_matrix_does_not_have_any_more_is_unknown(kept: Kept) -> None:
    matrix = toy.small_matrix()
    matrix["scenarios"]["toy.renamed"] = matrix["scenarios"].pop(toy.RECOVERING)
    matrix["points"]["toy.redone"]["scenarios"] = ["toy.renamed"]
    toy.write_toy(kept.root, matrix)
    status, told = kept.call("judge", "kept")
    assert status == 2 and told.count("broken   PASS -> UNKNOWN") == 1 and "is no scenario of this matrix" in told


@linux
@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_text("{")])
def test_without_the_result_file_nothing_is_judged(kept: Kept, spoil: Callable[[Path], None]) -> None:
    spoil(kept.kept / "result.json")
    status, told = kept.call("judge", "kept")
    assert status == 64 and "result.json" in told and "PASS" not in told


@linux
def test_half_a_story_is_not_kept_as_a_whole_one(tmp_path: Path) -> None:
    """A cell whose processes were lost is UNKNOWN, and stays it: what there is of its history could look like a pass."""
    kept = Kept(tmp_path)
    toy.write_toy(kept.root, toy.toy_matrix({"toy.shot": toy.scenario("server-shot")}))
    assert (
        kept.call("run", "--scenario", "toy.shot", "--point", "toy.pending", "--fault", "kill", "--keep", "kept")[0]
        == 2
    )
    status, told = kept.call("judge", "kept")
    assert status == 2 and "PASS" not in told.replace("no pass", "") and "there is no" in told


@linux
def test_one_cell_that_repro_kept(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    assert kept.call("repro", CELL, "--keep", "kept")[0] == 0
    assert kept.call("judge", "kept")[0] == 0
