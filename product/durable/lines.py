"""Reading an append-only file of lines: whole lines only, in bounded memory, whatever the file holds. Only reads.

A line ends with ``\\n`` and with nothing else: not with a NUL, not with the separators that text knows. What comes after
the last ``\\n`` is not there yet. A line of more than LINE_MAX_BYTES is passed over without being held.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from product.durable.plain import unexpected

LINE_MAX_BYTES = 2**20
CHUNK_BYTES = 2**18
_OPEN = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)  # a FIFO must not hold us


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines: ``data`` is what lies between the offsets ``start`` and ``end``, every line with its ``\\n``.

    ``data`` is None for one line, a block of its own, that is too long.
    """

    start: int
    end: int
    data: bytes | None

    @property
    def count(self) -> int:
        """How many lines these are."""
        return 1 if self.data is None else self.data.count(b"\n")

    def lines(self) -> list[bytes]:
        """The lines without their ``\\n``; none where the line is too long."""
        return [] if self.data is None else self.data.split(b"\n")[:-1]

    def after(self, offset: int) -> Block | None:
        """The lines that end after ``offset``, itself the end of a line; None where there are none."""
        if self.end <= offset:
            return None
        if self.start >= offset:
            return self
        assert self.data is not None, "no line ends within a line"
        return Block(offset, self.end, self.data[offset - self.start :])


def open_source(path: Path) -> int:
    """A descriptor of the file; a link is followed. Raises UnexpectedContent for what is no regular file, OSError."""
    descriptor = os.open(path, _OPEN)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise unexpected(path, "not a regular file")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_blocks(descriptor: int, start: int, limit: int, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Block]:
    """The whole lines between the offsets ``start``, where a line begins, and ``limit``, in order.

    Holds a chunk and one line. Others may move the descriptor's own offset meanwhile. Raises OSError.
    """
    chunk_bytes = min(chunk_bytes, LINE_MAX_BYTES)  # then only a line that began before a chunk can be too long
    block_start, skipped, rest, offset = start, 0, b"", start
    while offset < limit and (chunk := read_at(descriptor, offset, min(chunk_bytes, limit - offset))):
        offset += len(chunk)
        data = rest + chunk
        first = data.find(b"\n")
        if first < 0:
            if skipped or len(data) > LINE_MAX_BYTES:  # only its length is kept
                skipped, data = skipped + len(data), b""
            rest = data
            continue
        if skipped + first > LINE_MAX_BYTES:
            end = block_start + skipped + first + 1
            yield Block(block_start, end, None)
            block_start, skipped, data = end, 0, data[first + 1 :]
        cut = data.rfind(b"\n") + 1
        if cut:
            yield Block(block_start, block_start + cut, data[:cut])
        block_start, rest = block_start + cut, data[cut:]


def read_at(descriptor: int, offset: int, size: int) -> bytes:
    """At most ``size`` bytes from ``offset``; empty at the end. (Windows has no pread.)"""
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.read(descriptor, size)
