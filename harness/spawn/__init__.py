"""Starts, ends and reaps real processes; nothing else in the harness does (harness.md, "A cell, step by step", "Speed").

    with open_spawner("fork", project=Path.cwd()) as spawner:
        process = spawner.start(Command(("python", "-m", "shop", "pay"), cwd=sandbox, plan="shop.paid#1=kill"))
        result = process.wait()

What both kinds promise, on Linux:

- The process has a session and a process group of its own, an empty stdin and default signal handlers. It hears no
  Ctrl-C from the harness's terminal. What it writes to stdout and stderr goes to memory files, not pipes.
- When it has ended, its group and whatever left the group have ended too: a command is over when its first process is.
- When the harness or a process server dies, however it dies, no first process outlives it.
- No signal is sent to a process whose end is known here: a number may belong to somebody else by then.

What ``fork`` does not promise: every process of one program shares what importing it computed (hash seed, a time or a
pid kept in a global, numpy's global random state; :mod:`random` is seeded anew), and a point reached while importing
is reached in the server, unarmed, so that its cell comes out as UNREACHED. ``exec`` has neither limit.
The source of a program is read once per spawner. A program that opens /dev/stdout by name truncates what it wrote.

Elsewhere than on Linux there is ``exec`` only, with weaker promises: see :mod:`harness.spawn.portable`.
One spawner belongs to one thread.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:  # the process server imports this package and is to stay small
    from harness.model import Command, ProcessResult, Record

__all__ = ["RunningProcess", "SpawnError", "Spawner", "fork_is_supported", "open_spawner"]


class SpawnError(RuntimeError):
    """The harness lost hold of its processes, or could not start any: nothing is known about how they ended."""


class RunningProcess(Protocol):
    """One started process. Every method raises SpawnError when the process server was lost, except :meth:`kill`."""

    @property
    def pid(self) -> int:
        """Its process id; 0 where the command could not be started at all."""

    def wait_for_pause(self) -> Record | None:
        """Wait for the next ``pause`` record and return it, or None once the process has ended or its time is up.

        The clock of ``timeout_s`` stands still from here until :meth:`resume` or :meth:`wait`.
        """

    def resume(self) -> None:
        """Let a paused process go on. Nothing happens if it has ended."""

    def kill(self) -> None:
        """SIGKILL, unless its end is known. What it leaves behind is ended with it; :meth:`wait` still tells how."""

    def wait(self) -> ProcessResult:
        """Wait until it has ended, and tell how it did. When ``timeout_s`` is over it is ended by us.

        Then ``timed_out`` is set, and a last line of stderr says so. The same happens to one that writes without end.
        """


class Spawner(Protocol):
    """Starts processes. A context manager; leaving it ends everything it started."""

    def start(self, command: Command) -> RunningProcess:
        """Start ``command``. One that cannot be started ends with 126 or 127 and a line on stderr, as in a shell.

        Its environment is the harness's own at the time of :func:`open_spawner`, with ``project`` first in PYTHONPATH,
        and ``command.env`` on top. Raises SpawnError when no process server can be had.
        """

    def abandon(self) -> None:
        """From any thread: end what runs at once. Whoever waits for it gets SpawnError, and nothing starts any more."""

    def close(self) -> None:
        """End every process that was started, and the process servers. May be called again."""

    def __enter__(self) -> Spawner: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def fork_is_supported() -> bool:
    """Whether ``open_spawner("fork")`` works here: Linux 5.4 or later, for pidfds and subreapers."""
    if sys.platform != "linux":
        return False
    from os import close, getpid, pidfd_open

    try:
        close(pidfd_open(getpid()))
    except OSError:
        return False
    return True


def open_spawner(
    kind: Literal["fork", "exec"], *, warm: Sequence[str] = (), project: Path, measuring: str = ""
) -> Spawner:
    """Open a spawner whose programs may import what lies in ``project``.

    ``fork``: ``python -m MODULE`` and ``python SCRIPT`` are forked from a warm server that has imported what they
    import at their top level, and ``warm``; anything else is started afresh. ``exec``: everything is.
    ``measuring``: processes are measured that have :data:`harness.spawn.measure.VARIABLE` in their environment, and, with
    the order in this text, what warm servers import.
    Raises SpawnError for ``fork`` where :func:`fork_is_supported` says no.
    """
    root = project.resolve()
    if kind == "fork":
        if not fork_is_supported():
            raise SpawnError("spawn: fork needs Linux 5.4 or later; use spawn: exec")
        from harness.spawn.fork import ForkSpawner

        return ForkSpawner(root, warm, measuring)
    from harness.spawn.exec import open_exec_spawner

    return open_exec_spawner(root, measuring)
