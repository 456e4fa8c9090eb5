"""The kernel lock of :mod:`product.durable.lock` alone: no word about who holds it, so nothing for the dead to leave.

For a product whose state says by itself what a death left. There leftover metadata can only do harm: a scanner that died
in a container comes back in another pid namespace, where nothing is proven about the process it once was, and would be
refused for ever though the kernel has long freed its lock.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from killpoints import Point, attempt
from product.durable.lock import StateLock, StateLockPoints


@dataclass(frozen=True, slots=True)
class KernelLockPoints:
    """``lock_made``: PUT_NEW_STEPS, the first use of a state directory. ``locked``: held. ``released``: free again."""

    lock_made: Point
    locked: Point
    released: Point


class KernelLock(StateLock):
    """``with KernelLock(...):`` holds the lock; the kernel frees it with the process. Writes nothing but its file, once.

    Raises on entering, with nothing changed: StateLocked (at once or after ``wait_s``), StateOwnerThirdContent (the lock
    file is not ours), LockingUnsupported, or an OSError of the system.
    """

    def __init__(self, lock_path: Path, *, points: KernelLockPoints, wait_s: float = 0.0) -> None:
        unused = points.locked  # the metadata's points: nothing here reaches them
        super().__init__(
            lock_path,
            lock_path.with_name(f"{lock_path.name}.owner.json"),  # never written; an error would quote it
            lock_path.with_name(f"{lock_path.name}.owner.quarantine"),
            run_id="kernel-lock",
            points=StateLockPoints(points.locked, unused, unused, unused, points.released, points.lock_made),
            wait_s=wait_s,
        )

    def acquire(self) -> None:
        """Take the kernel lock, or raise as the class says."""
        if self.held:
            raise RuntimeError(f"this process holds {self._lock_path} already")
        self._descriptor = attempt(self._points.locked, self._lock)
        self._pid = os.getpid()

    def release(self) -> None:
        """Free it; nothing in a process that does not hold it."""
        if not self.held:
            return
        try:
            attempt(self._points.released, self._unlock)
        finally:
            self._unlock()  # where an error was armed in its place
