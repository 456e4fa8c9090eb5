"""The harness's end of a process server: starts it, asks it for processes, and knows when it is lost."""

from __future__ import annotations

import errno
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from harness.model import Command
from harness.spawn import SpawnError, forking, wire
from harness.spawn.board import Switchboard
from harness.spawn.environment import NOT_STARTED, clean_environment
from harness.spawn.process import ServedProcess, create_output
from harness.spawn.program import Program
from harness.spawn.records import GRACE_S

_PACKAGE_ROOT = Path(__file__).resolve().parents[2]
_STDERR_TAIL_BYTES = 2_000


class ProcessServer:
    """One running server. ``program`` None: it starts everything afresh. ``lost`` says how it was lost, if it was."""

    def __init__(self, board: Switchboard, environ: Mapping[str, str]) -> None:
        self.lost: str | None = None
        self._board = board
        self._runs: dict[int, ServedProcess] = {}
        self._last_run = 0
        self._ready: tuple[str | None] | None = None
        self._stderr_fd = create_output("killmatrix-server")
        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._receiver = wire.Receiver(self._sock)
        try:
            with theirs:
                self._popen = _start_server(theirs.fileno(), self._stderr_fd, environ)
        except OSError as error:
            self._sock.close()
            os.close(self._stderr_fd)
            raise SpawnError(f"the process server cannot be started: {error}") from error
        board.watch(self._sock.fileno(), self._receive)

    def warm(
        self, program: Program, modules: Sequence[str], project: str, timeout_s: float, measuring: str = ""
    ) -> str | None:
        """Have it import what ``program`` needs. Returns why the program is cold, and then the server is closed."""
        deadline = time.monotonic() + timeout_s
        self._ask(wire.WARM, program.kind, program.name, tuple(modules), project, measuring)
        while self._ready is None and self.lost is None and not self._board.abandoned and time.monotonic() < deadline:
            self._board.wait(deadline)
        if self._ready is not None:
            reason = self._ready[0]
        elif self.lost is not None:
            reason = f"its imports end the process: {self.lost}"
        else:
            self._popen.kill()
            reason = f"its imports take longer than {timeout_s:g} s"
        if reason is not None:
            self.close()
        return reason

    def start(self, command: Command) -> ServedProcess:
        """Start ``command``. Raises BrokenPipeError when the server is gone."""
        self._last_run += 1
        run = self._last_run
        process = ServedProcess(self, self._board, run, command)
        request = (wire.START, run, command.argv, command.cwd, dict(command.env), command.plan)
        try:
            wire.send_message(self._sock, request, process.their_fds)
        except OSError as error:
            if error.errno != errno.EMSGSIZE:
                self._lose()
                process.lose(str(self.lost))
                raise BrokenPipeError(errno.EPIPE, str(self.lost)) from None
            os.write(process.their_fds[1], b"killmatrix: argument list too long\n")
            process.ended(0, NOT_STARTED << 8)
            return process
        finally:
            process.close_theirs()
        self._runs[run] = process
        return process

    def kill(self, run: int) -> None:
        """Ask for SIGKILL to a process; nothing happens if it is reaped already, or the server is lost."""
        self._ask(wire.KILL, run)

    def name(self, run: int) -> None:
        """Ask for a process's pid; its end tells it too."""
        self._ask(wire.NAME, run)

    def _ask(self, *message: object) -> None:
        try:
            wire.send_message(self._sock, message)
        except OSError:
            self._lose()

    def give_up(self, why: str) -> None:
        """It does not answer any more: end it, and so lose its processes."""
        self._popen.kill()
        self._lose(why)

    def close(self) -> None:
        """End the server and all its processes."""
        self._hang_up()
        self._forget_runs(self.lost or "the spawner is closed")

    def _receive(self) -> None:
        try:
            message = self._receiver.receive()
        except OSError:
            message = None
        match message:
            case (wire.ENDED, run, pid, status):
                self._runs.pop(run).ended(pid, status)
            case (wire.STARTED, run, pid):
                self._runs[run].started(pid)
            case (wire.REFUSED, run, text):
                self._runs.pop(run).lose(f"no process can be started: {text}")
            case (wire.READY, reason):
                self._ready = (reason,)
            case _:
                self._lose()

    def _lose(self, why: str | None = None) -> None:
        if self.lost is not None:
            return
        said = self._hang_up()
        code = self._popen.returncode
        how = why or (f"killed by signal {-code}" if code < 0 else f"exit status {code}")
        self._forget_runs(f"the process server (pid {self._popen.pid}) was lost: {how}{said}")

    def _hang_up(self) -> str:
        """Make the server end its processes and itself; return the last that it said."""
        if self._sock.fileno() < 0:
            return ""
        self._board.forget(self._sock.fileno())
        try:
            self._sock.shutdown(socket.SHUT_RDWR)  # closing is not enough: a forked child may have our end too
        except OSError:
            pass
        self._sock.close()
        _await_end(self._popen)
        size = os.fstat(self._stderr_fd).st_size
        tail = os.pread(self._stderr_fd, _STDERR_TAIL_BYTES, max(0, size - _STDERR_TAIL_BYTES))
        os.close(self._stderr_fd)
        return f"; it said: {tail.decode(errors='replace').strip()}" if tail else ""

    def _forget_runs(self, why: str) -> None:
        self.lost = why
        for process in self._runs.values():
            process.lose(why)
        self._runs.clear()


def _start_server(sock_fd: int, stderr_fd: int, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "harness.spawn.server", str(sock_fd), str(os.getpid())]
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=stderr_fd,
        stderr=stderr_fd,
        pass_fds=(sock_fd,),
        cwd=_PACKAGE_ROOT,
        env={forking.BIND_NOW: forking.BOUND, **environ},
        start_new_session=True,  # a terminal's Ctrl-C is the harness's to decide about
    )


def _await_end(popen: subprocess.Popen[bytes]) -> None:
    """Wait for a server that was told to end; one that does not is killed."""
    if popen.returncode is None:
        pidfd = os.pidfd_open(popen.pid)
        try:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            if not poll.poll(GRACE_S * 1_000):
                popen.kill()
        finally:
            os.close(pidfd)
    popen.wait()


class ServerSpawner:
    """What both kinds share on Linux: an environment, a switchboard, and a server that starts anything afresh."""

    def __init__(self, project: Path, measuring: str = "") -> None:
        self._project = str(project)
        self._measuring = measuring
        self._environ = clean_environment(project, measurable=bool(measuring))
        self._board = Switchboard()
        self._plain: ProcessServer | None = None
        self._closed = False

    def start(self, command: Command) -> ServedProcess:
        """See :meth:`harness.spawn.Spawner.start`."""
        if self._closed:
            raise SpawnError("the spawner is closed")
        for _ in range(2):  # a server that was lost while it had nothing to do is replaced without a word
            try:
                return self._server_for(command).start(command)
            except BrokenPipeError as error:
                problem = error
        raise SpawnError(f"no process server can be kept: {problem}")

    def abandon(self) -> None:
        """See :meth:`harness.spawn.Spawner.abandon`."""
        self._closed = self._board.abandoned = True

    def close(self) -> None:
        """See :meth:`harness.spawn.Spawner.close`."""
        self._closed = True
        for server in self._servers():
            server.close()

    def _server_for(self, command: Command) -> ProcessServer:
        if self._plain is None or self._plain.lost is not None:
            self._plain = self._open_server()
        return self._plain

    def _open_server(self) -> ProcessServer:
        return ProcessServer(self._board, self._environ)

    def _servers(self) -> list[ProcessServer]:
        return [self._plain] if self._plain is not None else []

    def __enter__(self) -> ServerSpawner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
