"""A commit on an archive of a million posts beside one on a thousand: time and memory. Goal: at most 1.3 times.

Both archives' last segments hold the same number of posts, since only the last segment is ever replaced; ``full`` is a
thousand-post archive whose last segment is nearly at its limit, the dearest commit there is. Each commit is a fresh
process on a real disk (the system's temp directory). ARCHIVE_POSTS makes the large one smaller.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.measure import tell
from product.collector.feed import evidence_from_feed

ROOT = Path(__file__).resolve().parent.parent
# the kernel's own mark, which begins with the program; what wait4 tells begins with the memory of who started it
TELL_PEAK = """
import runpy, sys
peak, sys.argv = sys.argv[1], ["collector", *sys.argv[2:]]
try:
    runpy.run_module("product.collector", run_name="__main__", alter_sys=True)
finally:
    with open("/proc/self/status") as status, open(peak, "w") as told:
        told.write(next(line.split()[1] for line in status if line.startswith("VmHWM:")))
"""
POSTS = int(os.environ.get("ARCHIVE_POSTS", "1000000"))
LAST = 1000
SEGMENT_BYTES = 4 * 1024 * 1024
ROUNDS = 12
START = datetime(2026, 1, 1, tzinfo=UTC)


class Writer:
    """Writes a cards manifest fast: the collector's own encoder would take minutes for a million lines."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._segment, self._seq, self._previous = directory, 0, 0, "0" * 64

    def write_segment(self, posts: int | None) -> None:
        """A segment with so many posts, or (None) as many as fit below the limit."""
        self._segment += 1
        out, size, count = [], 0, 0
        while count < posts if posts is not None else size < SEGMENT_BYTES:
            line = self._line()
            out.append(line)
            size, count = size + len(line), count + 1
        (self._directory / f"{self._segment:06d}.jsonl").write_bytes(b"".join(out))

    @property
    def posts(self) -> int:
        return self._seq

    def _line(self) -> bytes:
        self._seq += 1
        number = str(10**15 + self._seq)
        fields = {
            "content_type": "DRAW",
            "identifiers": {"bvid": None, "dynamic_id": number, "opus_id": None},
            "prev": self._previous,
            "published_at": "2025-01-01T00:00:00Z",
            "run_id": "made",
            "schema_version": 2,
            "seq": self._seq,
            "source_url": f"https://t.bilibili.com/{number}",
            "stable_keys": [f"dynamic:{number}"],
        }
        raw = json.dumps(fields, separators=(",", ":")).encode()
        self._previous = hashlib.sha256(raw).hexdigest()
        return raw + b"\n"


class Archive:
    """One archive and the commits on it, an hour each."""

    def __init__(self, root: Path, posts: int, last: int) -> None:
        self._root = root
        for name in ("state", "archive/cards"):
            (root / name).mkdir(parents=True)
        writer = Writer(root / "archive/cards")
        while writer.posts < posts - LAST:
            writer.write_segment(None)
        writer.write_segment(last)
        self.posts = writer.posts
        self._run = 0

    def commit(self) -> tuple[float, int]:
        """Seconds and peak memory (KiB) of one commit of 20 new posts and 5 known ones."""
        self._run += 1
        at = START + timedelta(hours=self._run)
        evidence = self._root / f"{self._run}.json"
        evidence.write_bytes(
            evidence_from_feed(
                json.dumps(self._feed()).encode(),
                task_id="bench",
                run_id=f"run-{self._run}",
                observed_at=at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            )
        )
        peak = self._root / "peak"
        argv = [sys.executable, "-c", TELL_PEAK, str(peak), "commit", "--evidence", str(evidence)]
        environment = os.environ | {
            "COLLECTOR_STATE_DIR": str(self._root / "state"),
            "COLLECTOR_ARCHIVE_DIR": str(self._root / "archive"),
            "PYTHONPATH": str(ROOT),
        }
        started = time.perf_counter()
        pid = os.posix_spawn(
            argv[0], argv, environment, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
        )
        _, status = os.waitpid(pid, 0)
        assert status == 0, f"commit ended with {status}"
        return time.perf_counter() - started, int(peak.read_text())

    def _feed(self) -> object:
        new = [str(2 * 10**15 + self._run * 100 + n) for n in range(20)]
        known = [str(10**15 + n) for n in range(1, 6)]
        items = [
            {
                "id_str": number,
                "type": "DYNAMIC_TYPE_WORD",
                "modules": {"module_author": {"pub_ts": 1735689600}, "module_dynamic": {"major": None}},
            }
            for number in (*new, *known)
        ]
        return {"code": 0, "data": {"items": items, "has_more": False, "offset": ""}}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="killmatrix-bench-") as directory:
        root = Path(directory)
        archives = {
            "small": Archive(root / "small", LAST, LAST),
            "large": Archive(root / "large", POSTS, LAST),
            "full": Archive(root / "full", LAST, 10_000),
        }
        first = {name: archive.commit()[0] for name, archive in archives.items()}  # makes the index
        took: dict[str, list[tuple[float, int]]] = {name: [] for name in archives}
        for _ in range(ROUNDS):
            for name, archive in archives.items():
                took[name].append(archive.commit())
        seconds = {name: statistics.median(item[0] for item in values) for name, values in took.items()}
        memory = {name: statistics.median(item[1] for item in values) for name, values in took.items()}
        tell(
            f"one commit: {archives['large'].posts:,} posts beside {archives['small'].posts:,}",
            {
                "time, large / small": f"{seconds['large'] / seconds['small']:.2f}  (goal at most 1.3)",
                "memory, large / small": f"{memory['large'] / memory['small']:.2f}  (goal at most 1.3)",
                "small": f"{seconds['small'] * 1e3:.0f} ms, {memory['small'] / 1024:.0f} MiB",
                "last segment nearly full / small, time": f"{seconds['full'] / seconds['small']:.2f}",
                "last segment nearly full / small, memory": f"{memory['full'] / memory['small']:.2f}",
                "making the index anew, large": f"{first['large']:.1f} s",
            },
        )
