"""One process under test as the harness sees it: its records, its clock, its output, its end."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from harness.model import Command, ProcessResult, Record
from harness.spawn import SpawnError
from harness.spawn.records import GRACE_S, OUTPUT_MAX_BYTES, READ_BYTES, Records

if TYPE_CHECKING:
    from harness.spawn.board import Switchboard
    from harness.spawn.client import ProcessServer

OUTPUT_END_BYTES = 64 << 20  # a process that writes more is ended: nothing else bounds a memory file
_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031


def create_output(name: str) -> int:
    """A file in memory for what processes write, who may be several at once.

    Only appending: Linux has no lock on where a memory file is written next, and two who write at once would write over
    each other.
    """
    import fcntl  # this module is imported where there is none

    descriptor = os.memfd_create(name)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_APPEND)
    return descriptor


class ServedProcess:
    """A process of a process server; see :class:`harness.spawn.RunningProcess`."""

    def __init__(self, server: ProcessServer, board: Switchboard, run: int, command: Command) -> None:
        self._server, self._board, self._run, self._command = server, board, run, command
        self._output_fds = (create_output("stdout"), create_output("stderr"))
        self._control_fd, control_fd = os.pipe()
        resume_fd, self._resume_fd = os.pipe()
        self.their_fds = (*self._output_fds, control_fd, resume_fd)
        _widen(self._control_fd)
        os.set_blocking(self._control_fd, False)
        self._records = Records()
        self._output = (b"", b"")
        self._pid: int | None = None
        self._status: int | None = None
        self._lost: str | None = None
        self._ended_by_us: str | None = None
        self._started_at = self._ended_at = time.monotonic()
        self._deadline = self._started_at + command.timeout_s
        self._paused_at: float | None = None
        board.attend(self)

    # --- what the harness calls

    @property
    def pid(self) -> int:
        if self._pid is None:
            self._server.name(self._run)
        while self._pid is None:
            self._wait_a_little()
        return self._pid

    def wait_for_pause(self) -> Record | None:
        self._let_clock_run()
        self._require_held()
        may_pause = "=pause" in self._command.plan and self._status is None
        if may_pause:
            self._board.watch(self._control_fd, self._read_control)
        try:
            while self._status is None and (record := self._records.next_pause()) is None:
                self._wait_a_little()
        finally:
            self._board.forget(self._control_fd)
        if self._status is not None:
            return None
        self._paused_at = time.monotonic()
        return record

    def resume(self) -> None:
        self._let_clock_run()
        self._require_held()
        if self._status is None:
            try:
                os.write(self._resume_fd, b"\n")
            except BrokenPipeError:
                pass  # it has ended, and we were not told yet

    def kill(self) -> None:
        if self._status is None and self._lost is None:
            self._server.kill(self._run)

    def wait(self) -> ProcessResult:
        self._let_clock_run()
        self._require_held()
        while self._status is None:
            self._wait_a_little()
        exited = os.WIFEXITED(self._status)
        return ProcessResult(
            argv=self._command.argv,
            pid=self.pid,
            exit_code=os.WEXITSTATUS(self._status) if exited else None,
            signal_number=None if exited else os.WTERMSIG(self._status),
            stdout=self._output[0],
            stderr=self._output[1],
            records=tuple(self._records.all),
            timed_out=self._ended_by_us is not None and not exited,
            duration_s=self._ended_at - self._started_at,
        )

    # --- what the server's end of it is told

    def started(self, pid: int) -> None:
        """It runs, as ``pid``."""
        self._pid = pid

    def ended(self, pid: int, status: int) -> None:
        """It ended with ``status`` (as of waitpid), and nothing of it is left."""
        self._pid, self._status, self._ended_at = pid, status, time.monotonic()
        self._records.read(self._control_fd)
        self._output = (_read_output(self._output_fds[0]), _read_output(self._output_fds[1]))
        if self._ended_by_us and os.WIFSIGNALED(status):
            self._output = (self._output[0], self._output[1] + f"\nkillmatrix: {self._ended_by_us}\n".encode())
        self._close()

    def lose(self, why: str) -> None:
        """Nothing more will be known about it."""
        self._lost = why
        self._close()

    def look_after(self) -> None:
        """Empty its control pipe before that is full, and end it when it writes without end."""
        self._read_control()
        if self._ended_by_us is None and any(os.fstat(fd).st_size > OUTPUT_END_BYTES for fd in self._output_fds):
            self._end(f"ended after it wrote more than {OUTPUT_END_BYTES >> 20} MiB")

    def close_theirs(self) -> None:
        """The server has its own copies now: let the pipes end when its copies do."""
        os.close(self.their_fds[2])
        os.close(self.their_fds[3])

    # --- inside

    def _require_held(self) -> None:
        if self._lost is not None:
            raise SpawnError(self._lost)

    def _let_clock_run(self) -> None:
        if self._paused_at is not None:
            self._deadline += time.monotonic() - self._paused_at
            self._paused_at = None

    def _wait_a_little(self) -> None:
        """Wait for something to happen, to this process or another; end this one when its time is up."""
        self._require_held()
        if self._board.abandoned:
            self._server.give_up("the run was stopped")
            self._require_held()
        if time.monotonic() >= self._deadline:
            self._end(f"ended after {self._command.timeout_s:g} s")
        self._board.wait(self._deadline)

    def _end(self, why: str) -> None:
        if self._ended_by_us is not None:
            self._server.give_up(f"it did not end a process within {GRACE_S:g} s")
            return
        self._ended_by_us = why
        self._deadline = time.monotonic() + GRACE_S
        self.kill()

    def _read_control(self) -> None:
        if not self._records.read(self._control_fd):
            self._board.forget(self._control_fd)  # it is readable for ever now

    def _close(self) -> None:
        self._board.dismiss(self)
        self._board.forget(self._control_fd)
        for fd in (*self._output_fds, self._control_fd, self._resume_fd):
            os.close(fd)


def _widen(pipe_fd: int) -> None:
    import fcntl  # not on Windows

    try:
        fcntl.fcntl(pipe_fd, _F_SETPIPE_SZ, _PIPE_BYTES)
    except OSError:
        pass  # this user has many pipes: it stays at 64 KiB, and fills sooner between two looks


def _read_output(fd: int) -> bytes:
    data = os.pread(fd, READ_BYTES, 0)
    return data if len(data) < READ_BYTES else os.pread(fd, min(os.fstat(fd).st_size, OUTPUT_MAX_BYTES), 0)
