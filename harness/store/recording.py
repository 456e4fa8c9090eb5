"""One run being written."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable
from types import TracebackType

from harness.model import CellResult, Run
from harness.report import codec
from harness.store.database import Database
from harness.store.packing import Sample, Unpacked, as_text, dump_json, read_sample


class Recording:
    """A context manager. Left without :meth:`finish`, the run counts as killed, and can be resumed.

    ``done``: the cells that have a result; ``elapsed_s``: how long the run took before it was resumed.
    """

    def __init__(self, database: Database, run_id: str, release: Callable[[], None], elapsed_s: float = 0.0) -> None:
        self.run_id, self.elapsed_s = run_id, elapsed_s
        self._database, self._release = database, release
        self._samples: dict[str, Sample] = {}
        self._began = time.perf_counter()
        with database.told():
            ((self._number,),) = database.rows("SELECT number FROM run WHERE run_id = ?", run_id)
            rows = database.rows("SELECT cell FROM result WHERE run = ?", self._number)
        self.done = {cell for (cell,) in rows}

    def record(self, result: CellResult, place: int) -> bool:
        """Keep a result; ``place`` is its place in the order of the run. False: that place has one already, which stays.

        Raises StoreError.
        """
        text = as_text(result)
        cell, verdict = str(result.cell), result.verdict.value
        database = self._database
        with database.transaction():
            sample = self._sample_for(result.cell.scenario, text)
            facts, story = text.pack(sample)
            written = database.execute(
                "INSERT OR IGNORE INTO result (run, place, cell, verdict, at_s, sample, facts, chapters, story)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                *(self._number, place, cell, verdict, self.duration_s, sample.number, facts, len(result.story), story),
            ).rowcount
            if written:
                database.execute(
                    "INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?)", cell, verdict, result.duration_s, time.time()
                )
        self.done.add(cell)
        return bool(written)

    @property
    def duration_s(self) -> float:
        """For how long this run was at it, up to now."""
        return self.elapsed_s + time.perf_counter() - self._began

    def _sample_for(self, scenario: str, text: Unpacked) -> Sample:
        """The first result of a scenario, or this one."""
        if scenario not in self._samples:
            facts, story = text.as_sample()
            inserted = self._database.execute(
                "INSERT INTO sample (run, facts, story) VALUES (?, ?, ?)", self._number, facts, story
            )
            assert inserted.lastrowid is not None
            self._samples[scenario] = read_sample(inserted.lastrowid, facts, story)
        return self._samples[scenario]

    def finish(self, head: Run) -> None:
        """Say how the run ended; ``head.results`` is not looked at. May be said again. Raises StoreError."""
        with self._database.transaction():
            self._database.execute(
                "UPDATE run SET ended = 1, head = ?, lists = ? WHERE number = ?", *head_row(head), self._number
            )

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()


def head_row(head: Run) -> tuple[str, bytes]:
    """What the columns ``head`` and ``lists`` hold."""
    return json.dumps(codec.encode_head(head)), zlib.compress(dump_json(codec.encode_lists(head)))
