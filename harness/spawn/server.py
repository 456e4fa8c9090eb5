"""A process server: forks the harness's processes, watches them, and ends and reaps all that they leave behind.

``python -m harness.spawn.server SOCKET_FD HARNESS_PID``. It has one thread, never sleeps, and keeps no state on disk.
After :data:`~harness.spawn.wire.WARM` it never runs code of a program again: that is for its children.

Why a server, and not fork in the harness: pytest has imported everything and may have threads; a child would start
with both. And it is the subreaper: what a child leaves behind becomes a child of the server, so that it can be found.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from typing import Any, Literal, NoReturn

from harness.spawn import child, forking, measure, program, strays, wire

_EXIT_SOFTWARE = 70
_SIGKILL = int(getattr(signal, "SIGKILL", 9))


class Server:
    """The loop. It touches as little memory as it can: after a fork, each page that is written to is first copied."""

    def __init__(self, sock: socket.socket, harness_pidfd: int) -> None:
        self._sock = sock
        self._sock_fd = sock.fileno()
        self._receiver = wire.Receiver(sock)
        self._harness_pidfd = harness_pidfd
        self._pid = os.getpid()
        self._loaded: program.Loaded | None = None
        self._leaders: dict[int, tuple[int, int]] = {}  # pidfd: run, pid; not reaped, so the number is their own
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._poll.register(harness_pidfd, select.POLLIN)

    def serve(self) -> NoReturn:
        """Do as the harness says until it is gone."""
        while True:
            for fd, _ in self._poll.poll():
                if fd == self._sock_fd:
                    self._obey()
                elif fd == self._harness_pidfd:  # a process that it forked may hold its end of the socket open
                    self._end_all()
                else:
                    self._report_end(fd)

    def _obey(self) -> None:
        message, fds = self._receiver.receive_fds()
        if message is None:
            self._end_all()
        elif message[0] == wire.START:
            self._start(message, fds)
        elif message[0] == wire.KILL:
            self._kill(message[1])
        elif message[0] == wire.NAME:
            self._name(message[1])
        elif message[0] == wire.WARM:
            self._warm(*message[1:])

    def _warm(
        self, kind: Literal["module", "script"], name: str, modules: tuple[str, ...], project: str, measuring: str
    ) -> None:
        for ours in [module for module in sys.modules if module.partition(".")[0] == "harness"]:
            del sys.modules[ours]  # a program of that name is the project's own
        gc.disable()
        try:
            with forking.remember_hooks():
                if measuring:
                    measure.begin(measuring)
                self._loaded = program.warm_up(program.Program(kind, name), modules, project)
        except program.ColdError as error:
            self._tell(wire.READY, str(error))
            self._end_all()
        if measuring:
            measure.end()
        gc.collect()
        gc.freeze()  # a collection in a child would write to, and so copy, every page that holds an object
        forking.settle_memory()
        gc.enable()
        self._tell(wire.READY, None)

    def _start(self, message: tuple[Any, ...], fds: Sequence[int]) -> None:
        run = message[1]
        try:
            pid = forking.fork()
        except OSError as error:
            self._tell(wire.REFUSED, run, str(error))
            pid = -1
        if pid == 0:
            for fd in (self._sock_fd, self._harness_pidfd, *self._leaders):
                os.close(fd)
            child.become(message[2:], fds, self._pid, self._loaded)
        for fd in fds:
            os.close(fd)
        if pid > 0:
            pidfd = os.pidfd_open(pid)
            self._leaders[pidfd] = (run, pid)
            self._poll.register(pidfd, select.POLLIN)

    def _kill(self, wanted: int) -> None:
        for pidfd, (run, _) in self._leaders.items():
            if run == wanted:
                _end(pidfd)

    def _name(self, wanted: int) -> None:
        for run, pid in self._leaders.values():
            if run == wanted:
                self._tell(wire.STARTED, run, pid)

    def _report_end(self, pidfd: int) -> None:
        run, pid = self._leaders[pidfd]
        self._tell(wire.ENDED, run, pid, self._reap(pidfd))

    def _reap(self, pidfd: int) -> int:
        """Reap a leader that has ended, with all that it left; return its status."""
        _, pid = self._leaders.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        try:
            os.killpg(pid, _SIGKILL)  # before it is reaped: until then the number is its own
        except (ProcessLookupError, PermissionError):
            pass  # it died before it had a group of its own; or took another user's rights
        _, status = os.waitpid(pid, 0)
        strays.end_strays(pid, self._leaders)
        return status

    def _tell(self, *message: object) -> None:
        try:
            wire.send_message(self._sock, message)
        except OSError:  # the harness is gone
            self._end_all()

    def _end_all(self) -> NoReturn:
        for pidfd in self._leaders:
            _end(pidfd)
        for pidfd in tuple(self._leaders):
            self._reap(pidfd)
        os._exit(0)


def _end(pidfd: int) -> None:
    try:
        signal.pidfd_send_signal(pidfd, _SIGKILL)
    except PermissionError:
        pass  # it took another user's rights: the harness gives up waiting, and says so


def _take_default_signals() -> None:
    """What the harness ignores or blocks (nohup, a shell's background job) is no concern of a program under test."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals():
        if signal.getsignal(number) is signal.SIG_IGN and number not in (signal.SIGPIPE, signal.SIGXFSZ):
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)


def _open_server(sock_fd: int, harness_pid: int) -> Server:
    if os.environ.get(forking.BIND_NOW) == forking.BOUND:
        del os.environ[forking.BIND_NOW]
    _take_default_signals()
    child.become_subreaper()
    harness_pidfd = os.pidfd_open(harness_pid)
    if os.getppid() != harness_pid:  # it died, and the number may be another's
        os._exit(0)
    sock = socket.socket(fileno=sock_fd)
    sock.set_inheritable(False)
    return Server(sock, harness_pidfd)


def _main() -> NoReturn:
    try:
        _open_server(int(sys.argv[1]), int(sys.argv[2])).serve()
    except BaseException:
        traceback.print_exc()
        os._exit(_EXIT_SOFTWARE)  # not sys.exit: exit functions that the program registered are its children's


if __name__ == "__main__":
    _main()
