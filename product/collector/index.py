"""A derived lookup of the cards manifest: which post has which key, without reading the archive. SQLite in the state root.

It is never believed over the segments. At open it must belong to this archive and end where a segment says it ends: then only
the lines after its end are read and chained on. In any doubt it is thrown away and made again from the segments. An
answer "known" is looked up in the segment's own line; SQLite's transactions see to it that death leaves the old
index or the new one.

Not seen here, but by ``check``: a byte changed in a sealed segment that keeps its size.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TypeVar

from killpoints import attempt
from product.collector import observe, points
from product.collector.errors import CollectorError, ambiguous
from product.collector.keys import Identifiers
from product.collector.layout import Layout
from product.collector.manifests import GENESIS, ChainBroken, Line, Tip, last_line, names_of, read_lines
from product.collector.transaction import Archive
from product.durable.errors import DurableError
from product.durable.files import discard

T = TypeVar("T")
SCHEMA = 1
_TABLES = """
CREATE TABLE tip (one INTEGER PRIMARY KEY CHECK (one = 1), schema INTEGER NOT NULL, genesis TEXT NOT NULL,
                  segment INTEGER NOT NULL, seq INTEGER NOT NULL, sha256 TEXT NOT NULL, size INTEGER NOT NULL);
CREATE TABLE posts (seq INTEGER PRIMARY KEY, segment INTEGER NOT NULL, offset INTEGER NOT NULL, size INTEGER NOT NULL);
CREATE TABLE keys (key TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;
"""


class _Doubtful(Exception):
    """The index does not fit the segments; it is made again."""


def open_archive(layout: Layout) -> Archive:
    """The archive as a transaction needs it. Raises E_RECOVERY_AMBIGUOUS for a manifest that is not what was appended."""
    lookup = _Lookup(layout)
    return Archive(lookup.tip, observe.observe_runs_tip(layout), lookup.post_of, lookup.identifiers_of)


class _Lookup:
    """An index that was caught up; one that turns out wrong is made again, once, behind the caller's back."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._index, self.tip = self._trusting(lambda: _open(layout))

    def post_of(self, key: str) -> str | None:
        if self.tip.seq == 0:
            return None
        return self._trusting(lambda: self._opened.post_of(key))

    def identifiers_of(self, post: str) -> Identifiers:
        return self._trusting(lambda: self._opened.identifiers_of(post))

    @property
    def _opened(self) -> _Index:
        assert self._index is not None, "an archive with posts has an index"
        return self._index

    def _trusting(self, ask: Callable[[], T]) -> T:
        try:
            try:
                return ask()
            except (_Doubtful, sqlite3.DatabaseError):
                discard(self._layout.index)  # SQLite drops a journal that is left beside a file of no bytes
                self._index, self.tip = _open(self._layout)
                return ask()
        except ChainBroken as error:
            raise observe.broken(error) from error
        except DurableError as error:
            raise ambiguous(error.message, **error.detail) from error
        except sqlite3.Error as error:
            raise CollectorError(
                "E_IO", f"the index cannot be written: {error}", file=self._layout.index.name
            ) from error


def _open(layout: Layout) -> tuple[_Index | None, Tip]:
    if not observe.segment_numbers(layout, "cards"):
        return None, Tip()
    index = _Index(layout)
    return index, index.catch_up()


class _Index:
    """One open index. Reads the segments, writes only its own file."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._database = sqlite3.connect(layout.index, isolation_level=None, timeout=0)
        self._database.execute("PRAGMA synchronous = NORMAL")

    def catch_up(self) -> Tip:
        """Read what was appended since the index was written; the tip of the cards manifest."""
        numbers = observe.segment_numbers(self._layout, "cards")
        tip, offset = self._tip(numbers)
        lines = read_lines("cards", self._segments_from(tip, offset), tip, offset)
        first = next(lines, None)
        if first is None:
            return tip
        return attempt(points.INDEXED, self._write, chain([first], lines), tip)

    def _segments_from(self, tip: Tip, offset: int) -> Iterator[tuple[int, bytes]]:
        return observe.read_segments(self._layout, "cards", max(1, tip.segment))

    def _tip(self, numbers: list[int]) -> tuple[Tip, int]:
        """Where the index ends, if the segments agree that a line ends there; else at the beginning, emptied."""
        if not self._database.execute("SELECT 1 FROM sqlite_master WHERE name = 'tip'").fetchone():
            if self._database.execute("SELECT 1 FROM sqlite_master").fetchone():
                raise _Doubtful("tables of somebody else")
            return Tip(), 0
        row = self._database.execute("SELECT schema, genesis, segment, seq, sha256, size FROM tip").fetchone()
        if row is None or row[0] != SCHEMA:
            raise _Doubtful("another schema")
        _, genesis, segment, seq, sha256, size = row
        if segment not in numbers or genesis != _genesis(self._layout):
            raise _Doubtful("of another archive")
        number, data = next(observe.read_segments(self._layout, "cards", segment))
        if len(data) < size or last_line("cards", number, data[:size])[1] != sha256:
            raise _Doubtful("newer than the archive, or of another one")
        (highest,) = self._database.execute("SELECT max(seq) FROM posts").fetchone()
        if highest != seq:
            raise _Doubtful("its own tables disagree")
        return Tip(segment, seq, sha256, len(data)), size

    def _write(self, lines: Iterable[tuple[Line, Tip]], tip: Tip) -> Tip:
        """In one transaction, from a stream: an archive may be larger than memory."""
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            if tip.seq == 0:
                for statement in _TABLES.strip().split(";")[:-1]:
                    database.execute(statement)
            for line, tip in lines:
                self._add(line, tip)
            values = (SCHEMA, _genesis(self._layout), tip.segment, tip.seq, tip.sha256, tip.size)
            database.execute("INSERT OR REPLACE INTO tip VALUES (1, ?, ?, ?, ?, ?, ?)", values)
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
        return tip

    def _add(self, line: Line, tip: Tip) -> None:
        try:
            keys, _ = names_of(line.fields)
        except ValueError as error:
            raise ChainBroken("cards", tip.segment, line.seq, f"not a card line: {error}") from error
        self._database.execute(
            "INSERT INTO posts VALUES (?, ?, ?, ?)", (line.seq, line.segment, line.offset, line.size)
        )
        for key in keys:
            try:
                self._database.execute("INSERT INTO keys VALUES (?, ?)", (key, line.seq))
            except sqlite3.IntegrityError as error:
                raise ChainBroken("cards", tip.segment, line.seq, f"{key} is archived twice") from error

    def post_of(self, key: str) -> str | None:
        """The seq of the post that has the key, as text."""
        row = self._database.execute("SELECT seq FROM keys WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        keys, _ = self._read(int(row[0]))
        if key not in keys:
            raise _Doubtful(f"post {row[0]} does not have {key}")
        return str(row[0])

    def identifiers_of(self, post: str) -> Identifiers:
        return self._read(int(post))[1]

    def _read(self, seq: int) -> tuple[tuple[str, ...], Identifiers]:
        """The line itself, from its segment."""
        row = self._database.execute("SELECT segment, offset, size FROM posts WHERE seq = ?", (seq,)).fetchone()
        if row is None:
            raise _Doubtful(f"no post {seq}")
        segment, offset, size = row
        raw = _read_at(self._layout.segment("cards", segment), offset, size)
        try:
            fields = json.loads(raw)
            if fields.get("seq", seq) != seq:
                raise ValueError("another line")
            return names_of(fields)
        except (ValueError, AttributeError) as error:
            raise _Doubtful(f"post {seq} is not there: {error}") from error


def _genesis(layout: Layout) -> str:
    """The first line's bytes say which archive this is."""
    with open(layout.segment("cards", 1), "rb") as file:
        head = file.readline(1 << 20)
    return last_line("cards", 1, head)[1] if head else GENESIS


def _read_at(path: Path, offset: int, size: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, size)
    finally:
        os.close(descriptor)
