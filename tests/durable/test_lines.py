"""Whole lines in bounded memory: the same lines whatever the chunks, and nothing held of one that is too long."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from product.durable import lines
from product.durable.errors import UnexpectedContent
from product.durable.lines import Block, open_source, read_blocks
from tests.durable.support import needs_posix


@contextmanager
def opened(path: Path, data: bytes) -> Iterator[int]:
    path.write_bytes(data)
    source = open_source(path)
    try:
        yield source
    finally:
        os.close(source)


def ends_and_lines(blocks: list[Block]) -> list[tuple[int, bytes | None]]:
    """Each line with its end; None for one that is too long."""
    found: list[tuple[int, bytes | None]] = []
    for block in blocks:
        end = block.start
        for line in block.lines():
            end += len(line) + 1
            found.append((end, line))
        if block.data is None:
            found.append((block.end, None))
            end = block.end
        assert end == block.end
    return found


def due(data: bytes, longest: int) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    end = 0
    for line in data.split(b"\n")[:-1]:
        end += len(line) + 1
        found.append((end, line if len(line) <= longest else None))
    return found


texts = st.lists(
    st.sampled_from([b"\n", b"a", b"bc\n", b"0123456789", b"0123456789abcdef\n", b"\0", b"\r\n", b"\xe2\x80\xa8"])
)


@settings(max_examples=200, deadline=None)
@given(texts, st.integers(1, 40), st.integers(1, 30))
def test_chunks_make_no_difference(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], chunk_bytes: int, longest: int
) -> None:
    data = b"".join(pieces)
    with pytest.MonkeyPatch.context() as patch, opened(tmp_path_factory.mktemp("lines") / "file", data) as source:
        patch.setattr(lines, "LINE_MAX_BYTES", longest)
        blocks = list(read_blocks(source, 0, len(data), chunk_bytes=chunk_bytes))
        assert ends_and_lines(blocks) == due(data, longest)
        assert sum(block.count for block in blocks) == data.count(b"\n")
        for end, _ in due(data, longest):  # and from every line on
            rest = ends_and_lines(list(read_blocks(source, end, len(data), chunk_bytes=chunk_bytes)))
            assert rest == [(e, line) for e, line in due(data, longest) if e > end]


def test_what_comes_after_the_limit_is_not_read(tmp_path: Path) -> None:
    with opened(tmp_path / "file", b"one\ntwo\nthree\n") as source:
        assert ends_and_lines(list(read_blocks(source, 0, 9))) == [(4, b"one"), (8, b"two")]


def test_a_file_that_ends_before_the_limit_is_no_trouble(tmp_path: Path) -> None:
    with opened(tmp_path / "file", b"one\n") as source:
        assert ends_and_lines(list(read_blocks(source, 0, 10**9))) == [(4, b"one")]


def test_others_may_move_the_offset_of_the_descriptor(tmp_path: Path) -> None:
    data = b"line\n" * 100
    with opened(tmp_path / "file", data) as source:
        found = []
        for block in read_blocks(source, 0, len(data), chunk_bytes=10):
            os.lseek(source, 3, os.SEEK_SET)
            found.append(block)
        assert ends_and_lines(found) == due(data, 100)


@pytest.mark.parametrize(
    ("offset", "left"), [(0, b"ab\nc\n"), (9, b"ab\nc\n"), (10, b"ab\nc\n"), (13, b"c\n"), (15, None), (99, None)]
)
def test_the_lines_after_an_offset(offset: int, left: bytes | None) -> None:
    rest = Block(10, 15, b"ab\nc\n").after(offset)
    assert (rest and rest.data) == left
    assert rest is None or rest.end == 15


@needs_posix
def test_only_a_regular_file_is_opened(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/null")):
        with pytest.raises(UnexpectedContent):
            open_source(path)
