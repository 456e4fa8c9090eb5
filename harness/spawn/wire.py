"""What the harness and a process server say to each other: one marshalled tuple per packet of a Unix socket.

To the server:   ``(WARM, kind, name, modules, project, measuring)``
                 ``(START, run, argv, cwd, env, plan)`` with descriptors: stdout, stderr, control, resume
                 ``(KILL, run)``
                 ``(NAME, run)``                 which pid is it? No answer where ENDED was sent already
From the server: ``(READY, reason)``             reason: why it will not fork this program, or None
                 ``(STARTED, run, pid)``
                 ``(ENDED, run, pid, status)``   status as of waitpid; everything the process left is gone
                 ``(REFUSED, run, text)``        the system would not fork

A ``run`` is a number that the harness gives out once. Processes are named by it and never by their pid, so a message
about a process that has ended in the meantime cannot hit another one.
"""

from __future__ import annotations

import array
import marshal
import socket
from collections.abc import Sequence
from typing import Any

WARM, START, KILL, NAME = range(4)
READY, STARTED, ENDED, REFUSED = range(4)
PACKET_MAX_BYTES = 1 << 18  # more than a Unix socket takes by default
FDS = 4
_MARSHAL_VERSION = 2  # later ones look for objects that occur twice, and a forked server pays for memory it touches
_ANCILLARY_BYTES = socket.CMSG_SPACE(FDS * 4) if hasattr(socket, "CMSG_SPACE") else 0
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


def send_message(sock: socket.socket, message: tuple[Any, ...], fds: Sequence[int] = ()) -> None:
    """Send one message, and copies of ``fds``. Raises OSError: EMSGSIZE for one too long, EPIPE with nobody left."""
    data = marshal.dumps(message, _MARSHAL_VERSION)
    if fds:
        sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
    else:
        sock.send(data)


class Receiver:
    """Reads messages into one buffer, again and again."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = bytearray(PACKET_MAX_BYTES)

    def receive(self) -> tuple[Any, ...] | None:
        """The next message; None when the other side is gone."""
        size = self._sock.recv_into(self._buffer)
        return self._decode(size)

    def receive_fds(self) -> tuple[tuple[Any, ...] | None, Sequence[int]]:
        """The next message with the descriptors that came along, which no program started later inherits."""
        size, ancillary, _, _ = self._sock.recvmsg_into([self._buffer], _ANCILLARY_BYTES, _CLOSE_ON_EXEC)
        fds = array.array("i", ancillary[0][2]) if ancillary else ()
        return self._decode(size), fds

    def _decode(self, size: int) -> tuple[Any, ...] | None:
        message: tuple[Any, ...] | None = marshal.loads(self._buffer) if size else None  # reads no further than it must
        return message
