"""Inside a Dask worker: engines in processes of their own, kept between batches.

Requests and answers are bytes, because this module may be older than those who wrote them. An engine nobody has asked
for :data:`IDLE_S` is ended: the run that wanted it may have been killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence

IDLE_S = 60.0
GRACE_S = 10.0  # for an engine that was told to end; what is killed leaves its sandboxes to the next session's sweep
_SAID_BYTES = 2_000

Answer = tuple[bytes | None, str]  # a result, or why there is none


class Refused(RuntimeError):
    """No engine can be had here for this run, and another try would not help."""


class SeatLost(RuntimeError):
    """The engine's process ended while it was asked; the text tells how."""


class Seat:
    """One engine in a process of its own. Not for two threads at once, but for :meth:`close`. Raises Refused."""

    def __init__(self, root: str, order: bytes) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # as long as this
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "harness.cluster.seat"],
                cwd=root,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                start_new_session=True,  # a Ctrl-C at the worker's terminal is the worker's; it ends this by ending
            )
        except OSError as error:
            self._said.close()
            raise Refused(f"{root}: {error.strerror}: the project has to lie there on every worker") from error
        self.pid = self._process.pid
        try:
            refusal = self.ask(order)
        except SeatLost as error:
            raise Refused(str(error)) from error
        if refusal:
            self.close()
            raise Refused(refusal.decode())

    def ask(self, request: bytes) -> bytes:
        """Raises SeatLost."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            pickle.dump(request, self._process.stdin)
            self._process.stdin.flush()
            answer: bytes = pickle.load(self._process.stdout)
            return answer
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):
            pass
        raise SeatLost(self.close())

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def hang_up(self) -> None:
        """Tell the process to end, from any thread: it ends what it runs, and removes its sandboxes itself."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.close()

    def close(self) -> str:
        """Hang up, wait for the end, and tell how it was. May be called again, and by two threads."""
        self.hang_up()
        try:
            status = self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        size = os.fstat(self._said.fileno()).st_size
        said = os.pread(self._said.fileno(), _SAID_BYTES, max(0, size - _SAID_BYTES)).decode(errors="replace").strip()
        how = f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"
        return f"the engine's process {how}" + (f"; it said: {said}" if said else "")


class Pool:
    """The engines of one run in this process. Used by as many threads as the Dask worker has."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[Seat, threading.Timer] = {}
        self._busy: set[Seat] = set()
        self._over = False

    def take(self, root: str, order: bytes) -> Seat:
        """One that is idle, or a new one. Raises Refused."""
        with self._lock:
            while self._idle:
                seat, timer = self._idle.popitem()
                timer.cancel()
                if seat.lives:  # one that was lost while it had nothing to do is replaced without a word
                    self._busy.add(seat)
                    return seat
        seat = Seat(root, order)
        with self._lock:
            if not self._over:
                self._busy.add(seat)
                return seat
        seat.close()
        raise Refused("the run is over")

    def give_back(self, seat: Seat) -> None:
        timer = threading.Timer(IDLE_S, self._retire, (seat,))
        timer.daemon = True
        with self._lock:
            self._busy.discard(seat)
            if not self._over:
                self._idle[seat] = timer
                timer.start()

    def forget(self, seat: Seat) -> None:
        """It is lost."""
        with self._lock:
            self._busy.discard(seat)

    def end(self) -> None:
        """End every engine at once, and have no more."""
        with self._lock:
            self._over = True
            seats = [*self._idle, *self._busy]
            for timer in self._idle.values():
                timer.cancel()
            self._idle.clear()
        for seat in seats:
            seat.hang_up()
        for seat in seats:
            seat.close()

    def _retire(self, seat: Seat) -> None:
        with self._lock:
            if self._idle.pop(seat, None) is None:
                return
        seat.close()


_pools: dict[str, Pool] = {}


def run_batch(session: str, root: str, order: bytes, cells: Sequence[bytes]) -> list[Answer]:
    """The task that Dask runs: an answer for each cell, in their order. Only the cell that an engine died of has none."""
    pool = _pools.setdefault(session, Pool())
    answers: list[Answer] = []
    seat: Seat | None = None
    try:
        while len(answers) < len(cells):
            try:
                seat = seat or pool.take(root, order)
                answers.append((seat.ask(cells[len(answers)]), ""))
            except SeatLost as error:
                assert seat is not None
                pool.forget(seat)
                seat = None
                answers.append((None, str(error)))
    except Refused as error:
        answers += [(None, str(error))] * (len(cells) - len(answers))
    finally:
        if seat is not None:
            pool.give_back(seat)
    return answers


async def greet(session: str, root: str, order: bytes) -> str:
    """Open a first engine. Returns why there can be none here, or nothing."""

    def open_one() -> str:
        pool = _pools.setdefault(session, Pool())
        try:
            pool.give_back(pool.take(root, order))
        except Refused as error:
            return str(error)
        return ""

    return await asyncio.to_thread(open_one)


async def dismiss(session: str) -> None:
    """End the engines of a run, also in the middle of a cell. When it returns, they are gone with their sandboxes."""
    await asyncio.to_thread(_pools.setdefault(session, Pool()).end)
