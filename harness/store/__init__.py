"""Results across runs: one SQLite file a project. What a run finds is in it as it comes, and is read from it for reports.

    with open_store(path) as store, store.begin(head) as recording:
        recording.record(result, place)
        recording.finish(head)
        run = store.read_run(head.run_id)  # its stories are read when a report asks for them

Each result is a transaction of its own in WAL mode: that costs about 0.04 ms, a harness that is killed loses nothing that
it recorded, and two runs may use one store. A store belongs to one thread.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from types import TracebackType
from typing import Any, overload

from harness.model import CellResult, Chapter, Run, Seen, Verdict
from harness.report import codec
from harness.store.database import OWN_DIRECTORY, SCHEMA, Database, StoreError
from harness.store.liveness import Liveness
from harness.store.packing import Sample, read_sample, unpack_facts, unpack_story
from harness.store.recording import Recording, head_row

__all__ = [
    "KEPT_RUNS",
    "SCHEMA",
    "Recording",
    "Store",
    "StoreError",
    "StoredRun",
    "default_path",
    "open_store",
    "temporary_store",
]

KEPT_RUNS = 30


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A line of the list of runs. ``ended``: it said how it ended; ``live``: its harness is still at it.

    ``verdicts``: verdict -> number of cells.
    """

    run_id: str
    started_at: str
    duration_s: float
    selection: str
    ended: bool
    live: bool
    interrupted: bool
    planned: int
    left_out: int
    verdicts: dict[str, int]

    @property
    def cells(self) -> int:
        return sum(self.verdicts.values())

    @property
    def state(self) -> str:
        """``complete``, ``cut by its budget``, ``interrupted``, ``running`` or ``killed``."""
        if not self.ended:
            return "running" if self.live else "killed"
        return "interrupted" if self.interrupted else "cut by its budget" if self.left_out else "complete"


def default_path(matrix_file: Path) -> Path:
    return matrix_file.resolve().parent / OWN_DIRECTORY / "results.sqlite"


def open_store(path: Path, *, kept_runs: int = KEPT_RUNS) -> Store:
    """Open the store at ``path``, made when it is not there. Raises StoreError."""
    return Store(Database(path), kept_runs)


def temporary_store() -> Store:
    """A store that nobody else sees, in a file that is gone with the last run that was read from it."""
    return Store(Database(None), KEPT_RUNS)


class Store:
    """See the module. Every method raises StoreError."""

    def __init__(self, database: Database, kept_runs: int) -> None:
        self._database, self._kept_runs = database, kept_runs
        self._liveness = Liveness(database.path)
        self._sample = lru_cache(maxsize=64)(self._read_sample)
        self.read_story = lru_cache(maxsize=2)(
            self._read_story
        )  # a report looks at one several times, then never again

    @property
    def path(self) -> Path | None:
        return self._database.path

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- writing

    def begin(self, head: Run) -> Recording:
        """A new run; ``head`` says all that is known of it before it has results. The oldest runs go."""
        database = self._database
        with database.told():
            self._liveness.claim(head.run_id)
        with database.transaction():
            self._prune()
            database.execute(
                "INSERT INTO run (run_id, selection, ended, head, lists) VALUES (?, ?, 0, ?, ?)",
                *(head.run_id, head.selection, *head_row(head)),
            )
        return Recording(database, head.run_id, partial(self._liveness.release, head.run_id))

    def resume(self, run_id: str) -> Recording:
        """Go on with a run that did not come to its end. Raises StoreError where another process is at it."""
        with self._database.told():
            self._liveness.claim(run_id)
        with self._database.transaction():
            self._database.execute("UPDATE run SET ended = 0 WHERE run_id = ?", run_id)
        return Recording(self._database, run_id, partial(self._liveness.release, run_id), self._elapsed_s(run_id))

    def amend(self, run: Run) -> None:
        """Say again how a run ended, with what was found out about it since; ``run.results`` is not looked at."""
        with self._database.transaction():
            self._database.execute("UPDATE run SET head = ?, lists = ? WHERE run_id = ?", *head_row(run), run.run_id)

    def _prune(self) -> None:
        sql = "SELECT number, run_id FROM run ORDER BY number DESC LIMIT -1 OFFSET ?"
        for number, run_id in self._database.rows(sql, self._kept_runs - 1):
            if not self._liveness.is_live(run_id):
                for table, column in (("result", "run"), ("sample", "run"), ("run", "number")):
                    self._database.execute(f"DELETE FROM {table} WHERE {column} = ?", number)
                self._liveness.forget(run_id)

    # --- reading

    def runs(self) -> tuple[StoredRun, ...]:
        """Every stored run, the newest first."""
        with self._database.decoded():
            counts: dict[int, dict[str, int]] = {}
            sql = "SELECT run, verdict, count(*) FROM result GROUP BY run, verdict"
            for number, verdict, count in self._database.rows(sql):
                counts.setdefault(number, {})[verdict] = count
            rows = self._database.rows("SELECT number, run_id, ended, head FROM run ORDER BY number DESC")
            return tuple(self._stored_run(run_id, ended, head, counts.get(n, {})) for n, run_id, ended, head in rows)

    def _stored_run(self, run_id: str, ended: int, text: str, verdicts: dict[str, int]) -> StoredRun:
        head = json.loads(text)
        return StoredRun(
            run_id=run_id,
            started_at=head["started_at"],
            duration_s=head["duration_s"] if ended else self._elapsed_s(run_id),
            selection=head["selection"],
            ended=bool(ended),
            live=not ended and self._liveness.is_live(run_id),
            interrupted=head["interrupted"],
            planned=head["planned"],
            left_out=head["left_out"],
            verdicts=verdicts,
        )

    def read_run(self, run_id: str) -> Run:
        """The run, with stories that are read when somebody looks at them. One that did not end is interrupted."""
        with self._database.decoded():
            number, ended, head, lists = self._run_row(run_id)
            run = codec.decode_run(json.loads(head), json.loads(zlib.decompress(lists)), self._read_results(number))
            return run if ended else replace(run, interrupted=True, duration_s=self._elapsed_s(run_id))

    def read_head(self, run_id: str) -> Run:
        """The run without its results."""
        with self._database.decoded():
            _, _, head, lists = self._run_row(run_id)
            return codec.decode_run(json.loads(head), json.loads(zlib.decompress(lists)), ())

    def read_verdicts(self, run_id: str) -> dict[str, Any]:
        """``run_id`` and ``cells`` of its result document, with no more than ``id`` and ``verdict`` of each."""
        with self._database.decoded():
            number = self._run_row(run_id)[0]
            rows = self._database.rows("SELECT cell, verdict FROM result WHERE run = ? ORDER BY place", number)
            return {"run_id": run_id, "cells": [{"id": cell, "verdict": verdict} for cell, verdict in rows]}

    def seen(self) -> dict[str, Seen]:
        """Cell id -> what the last run that had it knew; also of runs that are gone."""
        with self._database.decoded():
            rows = self._database.rows("SELECT cell, verdict, duration_s, seen_at FROM seen")
            return {cell: Seen(Verdict(verdict), duration_s, at) for cell, verdict, duration_s, at in rows}

    def _run_row(self, run_id: str) -> tuple[int, int, str, bytes]:
        rows = self._database.rows("SELECT number, ended, head, lists FROM run WHERE run_id = ?", run_id)
        if not rows:
            raise StoreError(f"{self.path} has no run {run_id}")
        number, ended, head, lists = rows[0]
        return number, ended, head, lists

    def _elapsed_s(self, run_id: str) -> float:
        sql = "SELECT max(at_s) FROM result WHERE run = (SELECT number FROM run WHERE run_id = ?)"
        return float(self._database.rows(sql, run_id)[0][0] or 0.0)

    def _read_results(self, run: int) -> tuple[CellResult, ...]:
        """Light ones: what many cells have in common is there once, and a story is not there at all."""
        same: dict[frozenset[str], frozenset[str]] = {}
        results = []
        sql = "SELECT number, sample, facts, chapters FROM result WHERE run = ? ORDER BY place"
        for number, sample, facts, chapters in self._database.execute(sql, run):
            result = unpack_facts(facts, self._sample(sample), StoredStory(self, number, chapters))
            points, rows = result.points_reached, result.rows_reached
            results.append(
                replace(
                    result, points_reached=same.setdefault(points, points), rows_reached=same.setdefault(rows, rows)
                )
            )
        return tuple(results)

    def _read_story(self, number: int) -> tuple[Chapter, ...]:
        with self._database.decoded():
            rows = self._database.rows("SELECT sample, story FROM result WHERE number = ?", number)
            if not rows:
                raise StoreError(f"{self.path}: the run that is being read is gone: newer ones have taken its place")
            ((sample, story),) = rows
            return unpack_story(story, self._sample(sample))

    def _read_sample(self, number: int) -> Sample:
        ((facts, story),) = self._database.rows("SELECT facts, story FROM sample WHERE number = ?", number)
        return read_sample(number, facts, story)


class StoredStory(Sequence[Chapter]):
    """A story that is read each time somebody looks at it; only its length is held."""

    __slots__ = ("_length", "_number", "_store")

    def __init__(self, store: Store, number: int, length: int) -> None:
        self._store, self._number, self._length = store, number, length

    def _read(self) -> tuple[Chapter, ...]:
        return self._store.read_story(self._number)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Chapter: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Chapter, ...]: ...

    def __getitem__(self, index: int | slice) -> Chapter | tuple[Chapter, ...]:
        return self._read()[index]

    def __iter__(self) -> Iterator[Chapter]:
        return iter(self._read())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._read() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._read())

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (self._read(),)
