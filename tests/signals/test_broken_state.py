"""A state that is not what a scan writes is refused with what to do about it; never is anything counted from 0 in silence."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.signals.helpers import Bench, needs_posix, padded

FILES = ["counts.json", "cursor.json"]
CONTENT = padded("K") * 2 + padded("L")


@pytest.fixture
def counted(bench: Bench) -> Bench:
    bench.append(CONTENT)
    bench.scan().require_done()
    return bench


def spoilt_versions(data: bytes) -> Iterator[bytes]:
    """B098 and B064: empty, NULs, cut at every byte, something behind, twice, a NUL tail."""
    yield b"\0" * 200
    yield b"\0" * len(data)
    for length in range(len(data)):
        yield data[:length]
    for tail in (b"\n", b" ", b"x", b"\0", data):
        yield data + tail
    yield data[:-8] + b"\0" * 8
    yield b"\xef\xbb\xbf" + data
    yield data.replace(b":", b": ", 1)


def spoilt_numbers(data: bytes) -> Iterator[bytes]:
    """B136 and B129: a bool, a fraction, text, a negative and a huge number for every number; a name twice."""
    document = json.loads(data)
    for name, value in document.items():
        if type(value) is int:
            wrongs: tuple[object, ...] = (True, 1.5, str(value), -1, 2**60, None, [])
            for wrong in wrongs:
                yield json.dumps(document | {name: wrong}, sort_keys=True, separators=(",", ":")).encode()
    yield data[:-1] + b',"schema":1}'
    yield data[:-1] + b',"\\u0073chema":1}'


def require_refused(bench: Bench, name: str) -> None:
    before = bench.snapshot()
    for command in ("scan", "check", "adopt"):
        refused = bench.run(command)
        assert (refused.status, refused.code) == (70, "E_SIGNAL_STATE"), (command, refused.answer)
        assert str(bench.state / name) in refused.answer["detail"]["repair"]
    assert bench.snapshot() == before


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("versions", [spoilt_versions, spoilt_numbers])
def test_whatever_a_document_is_instead_it_is_refused(counted: Bench, name: str, versions: object) -> None:
    path = counted.state / name
    data = path.read_bytes()
    for spoilt in versions(data):  # type: ignore[operator]
        path.write_bytes(spoilt)
        require_refused(counted, name)
        if name == "counts.json":
            assert counted.run("show").code == "E_SIGNAL_STATE"
    path.write_bytes(data)
    assert counted.scan().require_done()["rows"] == ["R5"]


def test_a_cursor_ahead_of_the_counts_is_refused(counted: Bench) -> None:
    for position in ({"epoch": 1, "offset": 121}, {"epoch": 2, "offset": 0}):
        (counted.state / "cursor.json").write_text(
            json.dumps(position | {"schema": 1}, sort_keys=True, separators=(",", ":"))
        )
        require_refused(counted, "cursor.json")


def test_a_cursor_without_counts_is_refused(counted: Bench) -> None:
    (counted.state / "counts.json").unlink()
    require_refused(counted, "counts.json")


def test_the_repair_of_the_cursor_counts_nothing_twice(counted: Bench) -> None:
    (counted.state / "cursor.json").write_bytes(b"{")
    counted.append(padded("L"))
    require_refused(counted, "cursor.json")
    (counted.state / "cursor.json").unlink()
    done = counted.scan().require_done()
    assert (done["rows"], done["counted"], done["replayed"]) == (["R2"], 1, 3)
    counted.require_exact()


def test_the_repair_of_the_counts_counts_everything_once(counted: Bench) -> None:
    (counted.state / "counts.json").write_bytes(b"")
    require_refused(counted, "counts.json")
    for name in FILES:
        (counted.state / name).unlink()
    assert counted.scan().require_done()["rows"] == ["R1"]
    counted.require_exact()


def test_an_old_copy_of_the_counts_is_refused_while_the_cursor_is_new(counted: Bench) -> None:
    """And so is it without its cursor not: everything after it is read again."""
    old = (counted.state / "counts.json").read_bytes()
    counted.append(padded("L"))
    counted.scan().require_done()
    (counted.state / "counts.json").write_bytes(old)
    require_refused(counted, "cursor.json")
    (counted.state / "cursor.json").unlink()
    counted.scan().require_done()
    counted.require_exact()


@needs_posix
@pytest.mark.parametrize("name", FILES)
def test_a_document_that_is_a_link_is_refused_and_stays(counted: Bench, name: str, tmp_path: Path) -> None:
    """B070: one rule, refuse; the target of the link is not written."""
    path, target = counted.state / name, tmp_path / "elsewhere.json"
    os.replace(path, target)
    for make in (path.symlink_to, path.hardlink_to):
        make(target)
        counted.append(padded("L"))
        before = counted.snapshot()
        refused = counted.scan()
        assert (refused.status, refused.code) == (70, "E_UNEXPECTED_CONTENT")
        assert counted.snapshot() == before
        path.unlink()


@needs_posix
def test_a_document_keeps_its_mode(counted: Bench) -> None:
    for durability in ("process", "power"):
        for name in FILES:
            (counted.state / name).chmod(0o640)
        counted.append(padded("L"))
        counted.scan("--durability", durability).require_done()
        assert [oct((counted.state / name).stat().st_mode & 0o777) for name in FILES] == ["0o640"] * 2


def test_a_lock_file_of_others_is_refused(counted: Bench) -> None:
    (counted.state / ".signals.lock").write_bytes(b"pid 7")
    refused = counted.scan()
    assert (refused.status, refused.code) == (70, "E_STATE_OWNER_THIRD_CONTENT")


def test_what_a_dead_writer_left_is_cleared_by_the_next_save(counted: Bench) -> None:
    for name in FILES:
        (counted.state / f".{name}.tmp").write_bytes(b"half")
    counted.append(padded("L"))
    counted.scan().require_done()
    assert sorted(path.name for path in counted.state.iterdir()) == [".signals.lock", *FILES]
