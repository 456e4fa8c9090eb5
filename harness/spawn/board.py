"""Everything that one spawner waits for, in one poll().

Control pipes are watched only for a process that may pause. To wake up for every record of every point that is passed
would cost more than the process; those pipes are looked at now and then, while we wait anyway, and at the end.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Protocol

_LOOK_EVERY_S = 0.2


class Attended(Protocol):
    """A running process that needs a look now and then."""

    def look_after(self) -> None: ...


class Switchboard:
    """Descriptors with what to do when they are readable, and processes to look after."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._attended: set[Attended] = set()
        self._look_at = 0.0
        self.abandoned = False  # set by another thread; whoever waits sees it at its next look

    def watch(self, fd: int, handler: Callable[[], None]) -> None:
        self._handlers[fd] = handler
        self._poll.register(fd, select.POLLIN)

    def forget(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def attend(self, process: Attended) -> None:
        self._attended.add(process)

    def dismiss(self, process: Attended) -> None:
        self._attended.discard(process)

    def wait(self, deadline: float) -> None:
        """Wait until something is readable and handle it; come back after a while, or at ``deadline``, in any case."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + _LOOK_EVERY_S
            for process in tuple(self._attended):
                if process in self._attended:  # the look before it may have lost the server of both
                    process.look_after()
        for fd, _ in self._poll.poll(max(min(deadline, self._look_at) - now, 0) * 1_000):
            handler = self._handlers.get(fd)  # the handler before it may have made it pointless
            if handler is not None:
                handler()
