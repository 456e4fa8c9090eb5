"""What is kept of a process while it runs, however it was started: records of its points, and how much of its output."""

from __future__ import annotations

import os

from harness.model import Record

OUTPUT_MAX_BYTES = 8 << 20  # kept of each stream
GRACE_S = 30.0  # for a process to be gone after SIGKILL
READ_BYTES = 1 << 16


class Records:
    """The control pipe's lines as they come. A line that is no record is dropped."""

    def __init__(self) -> None:
        self.all: list[Record] = []
        self._rest = b""
        self._looked_at = 0

    def read(self, fd: int) -> bool:
        """Read all that is there. False: every writer is gone."""
        while True:
            try:
                data = os.read(fd, READ_BYTES)
            except BlockingIOError:
                return True
            if not data:
                return False
            *lines, self._rest = (self._rest + data).split(b"\n")
            self.all.extend(record for line in lines if (record := parse_record(line)) is not None)
            if len(data) < READ_BYTES:
                return True

    def next_pause(self) -> Record | None:
        """The first ``pause`` that was not returned before."""
        while self._looked_at < len(self.all):
            record = self.all[self._looked_at]
            self._looked_at += 1
            if record.kind == "pause":
                return record
        return None


def parse_record(line: bytes) -> Record | None:
    """A line of the control pipe, or None for one that is no record (a program may write anything to any pipe)."""
    match line.decode(errors="replace").split("\t"):
        case [kind, point, hit, pid] if hit.isdecimal() and pid.isdecimal():
            return Record(kind, point, int(hit), int(pid))
    return None
