"""Offsets mean something in one history of one file only: everything else is refused until it is adopted on purpose."""

from __future__ import annotations

import os
import shutil
from collections import Counter

import pytest

from tests.signals.helpers import Bench, needs_posix, padded, recount, signal_of

OLD = padded("old") * 2 + padded("K")
NEW = b"".join(signal_of(f"new {number}") for number in range(12))


def counted(bench: Bench) -> Bench:
    bench.append(OLD)
    bench.scan().require_done()
    return bench


def require_refused(bench: Bench, source: str) -> None:
    """Every command that would go on says so, changes nothing, and says what to do."""
    before = bench.snapshot()
    for command in ("scan", "check"):
        refused = bench.run(command)
        assert (refused.status, refused.code, refused.answer["row"]) == (70, "E_SIGNAL_FILE_CHANGED", "R-CHANGED")
        assert refused.answer["detail"]["source"] == source
        assert refused.answer["detail"]["repair"] in refused.words
    assert bench.snapshot() == before
    assert bench.counts() == dict(recount(OLD)[0])


def require_adopted(bench: Bench, data: bytes) -> None:
    """All lines of the file are counted once, beside what was counted before."""
    assert bench.run("adopt").require_done() == {"ok": True, "command": "adopt", "rows": ["A1"], "already": False}
    assert bench.counts() == dict(recount(OLD)[0])
    assert bench.run("check").require_done()["total"] == 0
    done = bench.scan().require_done()
    assert (done["epoch"], done["offset"]) == (2, len(data))
    assert Counter(bench.counts()) == recount(OLD)[0] + recount(data)[0]
    assert bench.run("check").require_done()["total"] == sum(recount(data)[0].values())
    assert bench.scan().require_done()["read"] == 0


@needs_posix
def test_another_file_with_the_same_inode(bench: Bench) -> None:
    """B073: what a rotation by delete and create does on many file systems."""
    inode = counted(bench).file.stat().st_ino
    for _ in range(50):
        bench.file.unlink()
        bench.file.write_bytes(NEW)
        if bench.file.stat().st_ino == inode:
            break
    else:
        pytest.skip("this file system does not give the number again")
    require_refused(bench, "OTHER")
    require_adopted(bench, NEW)


def test_another_history_in_the_same_file(bench: Bench) -> None:
    """B076, and B073 where inodes never repeat: truncated and written again, longer than before."""
    counted(bench).file.write_bytes(b"x" * 150)
    require_refused(bench, "OTHER")
    bench.file.write_bytes(NEW)
    require_refused(bench, "OTHER")
    require_adopted(bench, NEW)


def test_a_shorter_file(bench: Bench) -> None:
    os.truncate(counted(bench).file, 40)
    require_refused(bench, "SHORTER")
    require_adopted(bench, OLD[:40])


def test_an_empty_file(bench: Bench) -> None:
    os.truncate(counted(bench).file, 0)
    require_refused(bench, "SHORTER")
    bench.run("adopt").require_done()
    bench.append(NEW)
    bench.scan().require_done()
    assert Counter(bench.counts()) == recount(OLD)[0] + recount(NEW)[0]


def test_a_file_that_only_begins_the_same(bench: Bench) -> None:
    """A head of 4 KiB that every file has proves nothing: the last bytes before A are looked at as well."""
    head = signal_of("head", pad="x" * 8000)
    bench.append(head, OLD)
    bench.scan().require_done()
    bench.file.write_bytes(head + NEW)
    assert bench.scan().code == "E_SIGNAL_FILE_CHANGED"


def test_the_same_lines_in_another_place_are_adopted_without_counting_them_again(bench: Bench) -> None:
    shutil.copy(counted(bench).file, bench.root / "copy")
    os.replace(bench.root / "copy", bench.file)
    require_refused(bench, "MOVED")
    assert "adopt --moved" in bench.scan().answer["detail"]["repair"]
    assert bench.run("adopt", "--moved").require_done()["rows"] == ["A2"]
    bench.append(NEW)
    done = bench.scan().require_done()
    assert (done["epoch"], done["counted"], done["replayed"]) == (1, 12, 0)
    bench.require_exact()


def test_moved_is_believed_only_after_a_recount(bench: Bench) -> None:
    """The first and the last bytes are the same, and a line between them is not."""
    pad = signal_of("pad", pad="x" * 5000)
    bench.append(pad, signal_of("K"), pad)
    bench.scan().require_done()
    (bench.root / "copy").write_bytes(pad + signal_of("L") + pad)
    os.replace(bench.root / "copy", bench.file)
    before = bench.snapshot()
    refused = bench.run("adopt", "--moved")
    assert (refused.status, refused.code) == (70, "E_SIGNAL_RECOUNT")
    assert refused.answer["detail"]["first"] == {
        "K": {"counted": 1, "recounted": 0},
        "L": {"counted": 0, "recounted": 1},
    }
    assert bench.snapshot() == before


def test_moved_is_not_believed_of_other_lines(bench: Bench) -> None:
    counted(bench).file.write_bytes(NEW)
    refused = bench.run("adopt", "--moved")
    assert (refused.status, refused.code, refused.answer["row"]) == (70, "E_SIGNAL_FILE_CHANGED", "A-CHANGED")


def test_adopting_what_is_adopted_does_nothing(bench: Bench) -> None:
    counted(bench)
    for options in ((), ("--moved",)):
        before = bench.snapshot()
        assert bench.run("adopt", *options).require_done()["already"] is True
        assert bench.snapshot() == before


def test_adopting_where_nothing_was_counted_does_nothing(bench: Bench) -> None:
    bench.append(OLD[:10])
    bench.scan().require_done()
    assert bench.run("adopt").require_done()["rows"] == ["A5"]
    bench.append(OLD[10:])
    assert bench.scan().require_done()["epoch"] == 1
    bench.require_exact()


@needs_posix
@pytest.mark.parametrize("command", ["adopt", "scan"])
@pytest.mark.parametrize("point", ["signals.counts", "signals.counted", "signals.cursor/tmp-written"])
def test_an_adoption_that_dies_before_its_cursor_is_finished(bench: Bench, point: str, command: str) -> None:
    counted(bench).file.write_bytes(NEW)
    bench.kill_at(point, "adopt")
    assert bench.run(command).require_done()["rows"] == [{"adopt": "A3", "scan": "R3"}[command]]
    assert bench.document("cursor.json")["epoch"] == 2
    bench.scan().require_done()
    assert Counter(bench.counts()) == recount(OLD)[0] + recount(NEW)[0]
    bench.run("check").require_done()


def test_three_histories_are_added_up(bench: Bench) -> None:
    counted(bench)
    for epoch in (2, 3):
        bench.file.write_bytes(NEW * epoch + signal_of("K"))
        bench.run("adopt").require_done()
        assert bench.scan().require_done()["epoch"] == epoch
        bench.run("check").require_done()
    assert Counter(bench.counts()) == recount(OLD)[0] + recount(NEW * 5 + signal_of("K") * 2)[0]


def test_a_line_that_is_changed_later_is_found_by_check(bench: Bench) -> None:
    bench.append(signal_of("a", pad="x" * 9000), signal_of("K"), signal_of("b", pad="x" * 9000))
    bench.scan().require_done()
    bench.file.write_bytes(bench.file.read_bytes().replace(b'"K"', b'"k"'))
    refused = bench.run("check")
    assert (refused.status, refused.code) == (70, "E_SIGNAL_RECOUNT")
    assert set(refused.answer["detail"]["first"]) == {"K", "k"}


@needs_posix
def test_a_link_to_the_file_is_followed_and_held_to_its_target(bench: Bench) -> None:
    target = bench.root / "2026-11-30.jsonl"
    os.replace(bench.file, target)
    bench.file.symlink_to(target)
    counted(bench)
    (bench.root / "2026-12-01.jsonl").write_bytes(NEW)
    bench.file.unlink()
    bench.file.symlink_to(bench.root / "2026-12-01.jsonl")
    require_refused(bench, "OTHER")
    require_adopted(bench, NEW)
