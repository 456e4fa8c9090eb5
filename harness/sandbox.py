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
        return Path(chosen).absolute()
    shared_memory = Path("/dev/shm")
    if shared_memory.is_dir() and os.access(shared_memory, os.W_OK):
        return shared_memory
    return Path(tempfile.gettempdir())


@contextlib.contextmanager
def session_directory() -> Iterator[Path]:
    """A fresh directory for this session, gone at the end. Leftovers of dead sessions are swept first."""
    base = sandbox_base()
    sweep_dead_sessions(base)
    root, lock = _claim(base)
    try:
        yield root
    finally:
        try:
            _remove_session(root)
        finally:
            os.close(lock)


def _claim(base: Path) -> tuple[Path, int]:
    while True:
        root = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        lock = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        if (root / _LOCK).exists():
            return root, lock
        os.close(lock)  # another session swept it between its creation and its lock


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
            _remove_session(root)
            swept += 1
        except OSError:
            pass  # its session lives
        finally:
            os.close(lock)
    return swept


def _remove_session(root: Path) -> None:
    """The lock goes last: a removal that is killed is still found, and finished, by the next sweep."""
    for path in root.iterdir():
        if path.name != _LOCK:
            remove_tree(path)
    remove_tree(root)


def remove_tree(root: Path) -> None:
    """Remove everything below and including ``root``, also what a program made unreadable."""
    try:
        shutil.rmtree(root)
    except OSError:
        _open_up(root)
        shutil.rmtree(root, ignore_errors=True)


def _open_up(root: Path) -> None:
    """Make every directory below one that may be listed and emptied; links are not followed."""
    with contextlib.suppress(OSError):
        os.chmod(root, 0o700)
    for directory, names, _ in os.walk(root):  # each is opened up before it is walked into
        for path in (os.path.join(directory, name) for name in names):
            if not os.path.islink(path):
                with contextlib.suppress(OSError):
                    os.chmod(path, 0o700)
