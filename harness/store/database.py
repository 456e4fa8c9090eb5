"""The SQLite file of a store: its tables, its transactions, and its errors as what a person can do about them."""

from __future__ import annotations

import contextlib
import sqlite3
import weakref
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCHEMA = 1
OWN_DIRECTORY = ".killmatrix"  # made where it is missing, and kept out of git
APPLICATION_ID = 0x4B4D5258
_BUSY_S = 60.0
_NOT_DAMAGE = ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_FULL", "SQLITE_BUSY", "SQLITE_IOERR")

# a number is never given twice: a story that somebody still reads must not become that of another run
_TABLES = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA};
CREATE TABLE run (
    number INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL UNIQUE, selection TEXT NOT NULL,
    ended INTEGER NOT NULL, head TEXT NOT NULL, lists BLOB NOT NULL
);
CREATE TABLE sample (
    number INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, facts BLOB NOT NULL, story BLOB NOT NULL
);
CREATE TABLE result (
    number INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, place INTEGER NOT NULL, cell TEXT NOT NULL,
    verdict TEXT NOT NULL, at_s REAL NOT NULL, sample INTEGER NOT NULL, facts BLOB NOT NULL,
    chapters INTEGER NOT NULL, story BLOB NOT NULL,
    UNIQUE (run, place)
);
CREATE INDEX sample_of_run ON sample (run);
CREATE TABLE seen (
    cell TEXT PRIMARY KEY, verdict TEXT NOT NULL, duration_s REAL NOT NULL, seen_at REAL NOT NULL
) WITHOUT ROWID;
"""


class StoreError(OSError):
    """The store cannot be used; the message names its file and what to do. It is never removed or repaired here."""


class Database:
    """One connection. Wrap what uses it in :meth:`told`, and in :meth:`decoded` what takes apart what was read."""

    def __init__(self, path: Path | None) -> None:
        """Open ``path``, made when it is not there; None: a file that goes when it is closed. Raises StoreError."""
        self.path = path
        with told(path):
            if path is not None and path.parent.name == OWN_DIRECTORY:
                path.parent.mkdir(exist_ok=True)
                (path.parent / ".gitignore").write_text("*\n")
            where = "" if path is None else path
            self._connection = sqlite3.connect(where, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            self.close = weakref.finalize(self, self._connection.close)
            try:
                _prepare(self._connection, path)
            except BaseException:
                self.close()
                raise

    def told(self) -> contextlib.AbstractContextManager[None]:
        return told(self.path)

    def decoded(self) -> contextlib.AbstractContextManager[None]:
        return decoded(self.path)

    def execute(self, sql: str, *values: object) -> sqlite3.Cursor:
        return self._connection.execute(sql, values)

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, values).fetchall()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        with self.told():
            self.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                if self._connection.in_transaction:
                    self.execute("ROLLBACK")
                raise
            self.execute("COMMIT")


def _prepare(connection: sqlite3.Connection, path: Path | None) -> None:
    connection.execute(
        "PRAGMA synchronous = NORMAL"
    )  # nothing is lost to a kill; a power cut may cost the last results
    if _number(connection, "user_version") == _number(connection, "application_id") == 0:
        _make_tables(connection)
    found, schema = _number(connection, "application_id"), _number(connection, "user_version")
    if found != APPLICATION_ID:
        raise StoreError(f"{path} is a database of another program; name another file with --store")
    if schema != SCHEMA:
        raise StoreError(
            f"{path} is of schema {schema}, and this killmatrix writes schema {SCHEMA}: "
            "use the killmatrix that wrote it, or move it away to start a new one, or name another file with --store"
        )
    if (problem := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
        raise StoreError(_damaged(path, problem))
    connection.execute("PRAGMA journal_mode = WAL")


def _make_tables(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if tables == 0:  # or another run has made them just now
        for statement in filter(str.strip, _TABLES.split(";")):
            connection.execute(statement)
    connection.execute("COMMIT")


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


@contextlib.contextmanager
def told(path: Path | None) -> Iterator[None]:
    """A context: the errors of SQLite, and of the system, as what a person can do about them."""
    where = path if path is not None else "the temporary store"
    try:
        yield
    except sqlite3.ProgrammingError:
        raise  # a mistake of ours
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorname.startswith(_NOT_DAMAGE):
            raise StoreError(f"{where}: {error}; name another file with --store, or run with --no-store") from error
        raise StoreError(_damaged(where, error)) from error
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(
            f"{where}: {error.strerror}; name another file with --store, or run with --no-store"
        ) from error


@contextlib.contextmanager
def decoded(path: Path | None) -> Iterator[None]:
    """A context: as :func:`told`, where what was read is taken apart, too."""
    with told(path):
        try:
            yield
        except (zlib.error, ValueError, KeyError, IndexError, TypeError) as error:
            raise StoreError(_damaged(path, error)) from error


def _damaged(where: object, error: object) -> str:
    what = " ".join(str(error).split())
    return f"{where} is damaged ({what}): move it away, and the next run starts a new one; nothing was changed in it"
