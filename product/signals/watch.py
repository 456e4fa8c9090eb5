"""When to look at the file again: whenever the system says that something changed, and once a second anyway.

The system's word comes at once, but not for every change everywhere: network file systems, a file that is replaced, what
came before the first word. A look costs one system call and misses nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from product.signals.errors import SignalsError

LOOK_MS = 1000
Look = tuple[int, ...]


def follow(file: Path) -> Iterator[None]:
    """Once at once, then whenever it is time to look. Ends with KeyboardInterrupt. Raises SignalsError E_CONFIG."""
    try:
        from watchfiles import watch  # some tens of milliseconds, and only this command needs it
    except ImportError as error:
        raise SignalsError("E_CONFIG", "watch needs the package watchfiles: pip install watchfiles") from error
    yield
    directories = {file.parent, Path(os.path.realpath(file)).parent}
    for _ in watch(*directories, recursive=False, yield_on_timeout=True, rust_timeout=LOOK_MS, watch_filter=None):
        yield


def look(file: Path) -> Look:
    """What changes when lines come, or when the file becomes another; empty where there is none."""
    try:
        status = os.stat(file)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size
