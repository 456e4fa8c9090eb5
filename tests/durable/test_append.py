"""append_lines: whole lines or none, after a torn tail, on a full disk."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import killpoints
from product.durable import append
from product.durable.append import APPEND_STEPS, append_lines
from product.durable.errors import ReadBackMismatch
from product.durable.lines import LINE_MAX_BYTES

POINT = killpoints.declare("test.append", "lines are appended", "tests", steps=APPEND_STEPS)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    path = tmp_path / "lines"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0))
    yield path, descriptor
    os.close(descriptor)


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        (b"", b""),
        (b"a\n", b"a\n"),
        (b"a\nto", b"a\n"),
        (b"torn", b""),
        (b"a\n" + b"x" * (3 * LINE_MAX_BYTES), b"a\n"),
    ],
)
def test_a_last_line_without_its_end_is_cut_off(opened: tuple[Path, int], before: bytes, kept: bytes) -> None:
    path, descriptor = opened
    path.write_bytes(before)
    append_lines(descriptor, b"b\nc\n", point=POINT)
    assert path.read_bytes() == kept + b"b\nc\n"


@pytest.mark.parametrize("step", ["tail-cut", "written"])
def test_an_error_before_the_write_writes_nothing(opened: tuple[Path, int], step: str) -> None:
    path, descriptor = opened
    path.write_bytes(b"a\n")
    killpoints.arm(f"test.append/{step}=error:ENOSPC")
    try:
        with pytest.raises(OSError):
            append_lines(descriptor, b"b\n", point=POINT)
    finally:
        killpoints.disarm()
    assert path.read_bytes() == b"a\n"


@pytest.mark.parametrize("found", [b"b\nC\n", b"b\n", b""])
def test_what_comes_back_from_the_disk_is_compared(
    opened: tuple[Path, int], monkeypatch: pytest.MonkeyPatch, found: bytes
) -> None:
    path, descriptor = opened
    path.write_bytes(b"a\n")

    def read_at(descriptor: int, offset: int, size: int) -> bytes:
        whole = path.read_bytes()
        return (whole[:2] + found if len(whole) > 2 else whole)[offset : offset + size]

    monkeypatch.setattr(append, "read_at", read_at)
    with pytest.raises(ReadBackMismatch):
        append_lines(descriptor, b"b\nc\n", point=POINT)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit of the file size")
def test_a_write_that_is_cut_short_is_taken_back(opened: tuple[Path, int]) -> None:
    import resource

    path, descriptor = opened
    path.write_bytes(b"a\n")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # the system itself writes only so much
    try:
        with pytest.raises(OSError):
            append_lines(descriptor, b"b" * 5000 + b"\n", point=POINT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"a\n"
