"""Appending whole lines to a file of our own: all of them or a whole beginning of them, whatever dies.

A death in the middle of a write leaves a last line without its end. Readers of :mod:`product.durable.lines` do not see
it, and the next append cuts it off before it writes: else it would become the beginning of somebody else's line.
"""

from __future__ import annotations

import os

from killpoints import Point, attempt
from product.durable import files
from product.durable.errors import ReadBackMismatch
from product.durable.lines import LINE_MAX_BYTES, read_at

APPEND_STEPS = ("tail-cut", "written", "synced", "read-back")


def append_lines(descriptor: int, data: bytes, *, point: Point) -> None:
    """Add ``data``, whole lines, to the file that is open for reading and writing; declare with APPEND_STEPS.

    One writer at a time: who calls holds the state lock. An OSError at the write takes back what was written; after it
    the lines are there, and only whether they would survive a power cut is open. Raises ReadBackMismatch.
    """
    attempt(point, _append, descriptor, data, point)


def _append(descriptor: int, data: bytes, point: Point) -> None:
    end = attempt(point.at("tail-cut"), _cut_tail, descriptor)
    attempt(point.at("written"), _write_at, descriptor, end, data)
    attempt(point.at("synced"), files._sync_file, descriptor)
    attempt(point.at("read-back"), _read_back, descriptor, end, data)


def _cut_tail(descriptor: int) -> int:
    """Cut what comes after the last end of a line; the offset where the file ends then."""
    size = end = os.fstat(descriptor).st_size
    while end > 0:
        start = max(0, end - LINE_MAX_BYTES)
        found = read_at(descriptor, start, end - start).rfind(b"\n")
        if found >= 0:
            end = start + found + 1
            break
        end = start
    if end < size:
        os.ftruncate(descriptor, end)
    return end


def _write_at(descriptor: int, offset: int, data: bytes) -> None:
    os.lseek(descriptor, offset, os.SEEK_SET)
    view = memoryview(data)
    try:
        while view:  # a write may be short
            view = view[os.write(descriptor, view) :]
    except BaseException:
        os.ftruncate(descriptor, offset)  # a full disk leaves no half of them
        raise


def _read_back(descriptor: int, offset: int, data: bytes) -> None:
    found = b""
    while len(found) < len(data) and (chunk := read_at(descriptor, offset + len(found), len(data) - len(found))):
        found += chunk
    if found != data:
        raise ReadBackMismatch("what was appended is not what is there", offset=offset)
