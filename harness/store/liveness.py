"""Which runs of a store are still at it: each holds a lock file while it lives, and the kernel releases that of a dead one."""

from __future__ import annotations

import os
from pathlib import Path

from harness.store.database import StoreError

try:
    import fcntl
except ImportError:  # Windows: a run that lives cannot be told from one that was killed, and counts as dead
    fcntl = None  # type: ignore[assignment]


class Liveness:
    """``path``: of the store; None for one that nobody else sees."""

    def __init__(self, path: Path | None) -> None:
        self._path = path if fcntl is not None else None
        self._locks: dict[str, int] = {}

    def claim(self, run_id: str) -> None:
        """This process is at it now. Raises StoreError when another is, and OSError."""
        if self._path is None:
            return
        lock = os.open(self._file(run_id), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise StoreError(f"run {run_id} is still running in another process") from None
        self._locks[run_id] = lock

    def release(self, run_id: str) -> None:
        lock = self._locks.pop(run_id, None)
        if lock is not None:
            self.forget(run_id)
            os.close(lock)

    def forget(self, run_id: str) -> None:
        """Remove what a dead run left."""
        if self._path is not None:
            self._file(run_id).unlink(missing_ok=True)

    def is_live(self, run_id: str) -> bool:
        if self._path is None:
            return False
        try:
            lock = os.open(self._file(run_id), os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(lock)
        return False

    def _file(self, run_id: str) -> Path:
        assert self._path is not None
        return self._path.with_name(f"{self._path.name}-{run_id}.live")
