"""Where cells may write: one directory a session, on tmpfs where there is one, removed on every way out.

A session that was killed leaves its directory; the kernel has released its lock, so the next session removes it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "killmatrix-"
_LOCK = ".session"

try:
    import fcntl
except ImportError:  # Windows: no sweeping of dead sessions there
    fcntl = None  # type: ignore[assignment]


def sandbox_base() -> Path:
    """The fastest place for small files: KILLMATRIX_TMP, tmpfs on Linux, else the system's temp directory."""
    chosen = os.environ.get("KILLMATRIX_TMP")
    if chosen:
        return Path(chosen)
    shared_memory = Path("/dev/shm")
    if shared_memory.is_dir() and os.access(shared_memory, os.W_OK):
        return shared_memory
    return Path(tempfile.gettempdir())


@contextlib.contextmanager
def session_directory() -> Iterator[Path]:
    """A fresh directory for this session, gone at the end. Leftovers of dead sessions are swept first."""
    base = sandbox_base()
    sweep_dead_sessions(base)
    root = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
    lock = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield root
    finally:
        remove_tree(root)
        os.close(lock)


def sweep_dead_sessions(base: Path) -> int:
    """Remove the directories of sessions whose process is gone; how many. A live session holds its lock."""
    if fcntl is None:
        return 0
    swept = 0
    for root in base.glob(f"{PREFIX}*"):
        try:
            lock = os.open(root / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue  # being made right now, or not ours
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(root)
            swept += 1
        except OSError:
            pass  # its session lives
        finally:
            os.close(lock)
    return swept


def remove_tree(root: Path) -> None:
    """Remove everything below and including ``root``, also what a program made unreadable."""

    def force(function: object, path: str, _error: object) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)
            os.chmod(path, 0o700)
            os.unlink(path) if not os.path.isdir(path) or os.path.islink(path) else os.rmdir(path)

    shutil.rmtree(root, onerror=force)
