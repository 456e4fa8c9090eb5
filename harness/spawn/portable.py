"""Spawn kind ``exec`` without a process server: for macOS, and for Windows, where it was never run.

Weaker than on Linux, because the system is. When the harness is killed, a process that is paused ends (its resume pipe
does), but one that runs goes on; what left the process group is not found; on Windows nothing of a tree but its first
process is ended, and a kill is TerminateProcess, which shows as an exit code.

Two threads for each process turn its records and its end into one queue, because no call waits for both everywhere.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO

from harness.model import Command, ProcessResult, Record
from harness.spawn import SpawnError
from harness.spawn.environment import arming_environment, clean_environment, refusal
from harness.spawn.records import GRACE_S, OUTPUT_MAX_BYTES, parse_record

_LAST_LINE = b"\x00\n"  # written by ourselves when all writers that matter have ended; others may hold the pipe open


class PortableProcess:
    """See :class:`harness.spawn.RunningProcess`."""

    def __init__(self, command: Command, environ: Mapping[str, str]) -> None:
        self._command = command
        self._stdout, self._stderr = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        self._news: queue.SimpleQueue[Record | None] = queue.SimpleQueue()  # None: it has ended
        self._records: list[Record] = []
        self._started_at = time.monotonic()
        self._deadline = self._started_at + command.timeout_s
        self._paused_at: float | None = None
        self._timed_out = False
        self._result: ProcessResult | None = None
        control_fd, self._control_fd = os.pipe()
        resume_fd, self._resume_fd = os.pipe()
        try:
            self._popen = _start(command, environ, self._stdout, self._stderr, self._control_fd, resume_fd)
        except (OSError, ValueError, IndexError) as error:
            status, message = refusal(" ".join(command.argv[:1]), error)
            self._stderr.write(message)
            self._result = self._make_result(0, status)
            os.close(control_fd)
            self._close()
        else:
            self._reader = threading.Thread(target=_read_records, args=(control_fd, self._news), daemon=True)
            self._reader.start()
            threading.Thread(target=_announce_end, args=(self._popen, self._news), daemon=True).start()
        finally:
            os.close(resume_fd)

    @property
    def pid(self) -> int:
        return self._result.pid if self._result is not None else self._popen.pid

    def wait_for_pause(self) -> Record | None:
        self._let_clock_run()
        while self._result is None:
            record = self._next()
            if record is not None and record.kind == "pause":
                self._paused_at = time.monotonic()
                return record
        return None

    def resume(self) -> None:
        self._let_clock_run()
        if self._result is None:
            try:
                os.write(self._resume_fd, b"\n")
            except OSError:
                pass  # it has ended, and we were not told yet

    def kill(self) -> None:
        if self._result is not None:
            return
        if sys.platform == "win32":
            self._popen.kill()
        else:
            os.kill(self._popen.pid, signal.SIGKILL)  # reaped nowhere but in _end: the number is its own

    def wait(self) -> ProcessResult:
        self._let_clock_run()
        while self._result is None:
            self._next()
        return self._result

    def abandon(self) -> None:
        """From any thread: whoever waits for it ends it."""
        if self._result is not None:
            return
        if sys.platform == "win32":
            self._popen.kill()
        self._news.put(None)

    @property
    def is_running(self) -> bool:
        return self._result is None

    def _let_clock_run(self) -> None:
        if self._paused_at is not None:
            self._deadline += time.monotonic() - self._paused_at
            self._paused_at = None

    def _next(self) -> Record | None:
        """The next record; None once it has ended or its time was up."""
        try:
            record = self._news.get(timeout=max(0.0, self._deadline - time.monotonic()))
        except queue.Empty:
            if self._timed_out:
                raise SpawnError(f"process {self._popen.pid} does not end within {GRACE_S:g} s of its kill") from None
            self._timed_out = True
            self._deadline = time.monotonic() + GRACE_S
            self.kill()
            return None
        if record is None:
            self._end()
        else:
            self._records.append(record)
        return record

    def _end(self) -> None:
        if sys.platform != "win32":
            try:
                os.killpg(self._popen.pid, signal.SIGKILL)  # before it is reaped: until then the number is its own
            except (ProcessLookupError, PermissionError):  # macOS: PermissionError for a group of zombies
                pass
        status = self._popen.wait()
        os.write(self._control_fd, _LAST_LINE)
        self._reader.join()
        while not self._news.empty():
            record = self._news.get()
            if record is not None:
                self._records.append(record)
        self._result = self._make_result(self._popen.pid, status)
        self._close()

    def _make_result(self, pid: int, status: int) -> ProcessResult:
        timed_out = self._timed_out and (status < 0 or sys.platform == "win32")
        why = f"\nkillmatrix: ended after {self._command.timeout_s:g} s\n".encode() if timed_out else b""
        return ProcessResult(
            argv=self._command.argv,
            pid=pid,
            exit_code=status if status >= 0 else None,
            signal_number=-status if status < 0 else None,
            stdout=_read_output(self._stdout),
            stderr=_read_output(self._stderr) + why,
            records=tuple(self._records),
            timed_out=timed_out,
            duration_s=time.monotonic() - self._started_at,
        )

    def _close(self) -> None:
        self._stdout.close()
        self._stderr.close()
        os.close(self._control_fd)
        os.close(self._resume_fd)


def _start(
    command: Command, environ: Mapping[str, str], stdout: IO[bytes], stderr: IO[bytes], control: int, resume: int
) -> subprocess.Popen[bytes]:
    argv = [sys.executable if command.argv[0] == "python" else command.argv[0], *command.argv[1:]]
    if sys.platform == "win32":
        import msvcrt

        handles = [msvcrt.get_osfhandle(control), msvcrt.get_osfhandle(resume)]
        for handle in handles:
            os.set_handle_inheritable(handle, True)
        startup = subprocess.STARTUPINFO(lpAttributeList={"handle_list": handles})
        env = {**environ, **command.env, **arming_environment(command.plan, *handles)}
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, cwd=command.cwd, env=env, startupinfo=startup
        )
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        cwd=command.cwd,
        env={**environ, **command.env, **arming_environment(command.plan, control, resume)},
        pass_fds=(control, resume),
        start_new_session=True,
    )


def _read_records(fd: int, news: queue.SimpleQueue[Record | None]) -> None:
    with open(fd, "rb") as pipe:
        for line in pipe:
            if line == _LAST_LINE:
                return
            record = parse_record(line.rstrip(b"\n"))
            if record is not None:
                news.put(record)


def _announce_end(popen: subprocess.Popen[bytes], news: queue.SimpleQueue[Record | None]) -> None:
    """Wait until it has ended without reaping it, so that its number stays its own until the group is ended too."""
    if sys.platform == "win32":
        popen.wait()
    elif sys.platform == "darwin":
        import select

        event = select.kevent(popen.pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD, select.KQ_NOTE_EXIT)
        try:
            select.kqueue().control([event], 1)
        except ProcessLookupError:
            pass  # it has ended already
    else:
        os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT)
    news.put(None)


def _read_output(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read(OUTPUT_MAX_BYTES)


class PortableSpawner:
    """See :class:`harness.spawn.Spawner`."""

    def __init__(self, project: Path, measuring: str = "") -> None:
        self._environ = clean_environment(project, measurable=bool(measuring))
        self._processes: list[PortableProcess] = []
        self._closed = False

    def start(self, command: Command) -> PortableProcess:
        if self._closed:
            raise SpawnError("the spawner is closed")
        process = PortableProcess(command, self._environ)
        self._processes = [known for known in self._processes if known.is_running]
        self._processes.append(process)
        if self._closed:  # by another thread, just now
            process.abandon()
        return process

    def abandon(self) -> None:
        self._closed = True
        for process in tuple(self._processes):
            process.abandon()

    def close(self) -> None:
        self._closed = True
        for process in self._processes:
            process.kill()
            process.wait()

    def __enter__(self) -> PortableSpawner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
