"""Which directories and names are safe to build on (collector.md section 1). Only reads.

The check is lexical: each component is looked at with ``lstat`` and nothing is resolved. A root behind a link can be
pointed elsewhere between two commands, and then one archive has two diverging copies.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from product.durable.errors import PathReparse

_REPARSE_POINT = 0x400  # FILE_ATTRIBUTE_REPARSE_POINT: links, junctions, mount points, cloud placeholders
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9_-])?")
_WINDOWS_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[1-9]|lpt[1-9])(?:\..*)?", re.IGNORECASE)


def is_reparse(status: os.stat_result) -> bool:
    """Whether an ``lstat`` result is of a symbolic link, a junction or any other Windows reparse point."""
    return stat.S_ISLNK(status.st_mode) or bool(getattr(status, "st_file_attributes", 0) & _REPARSE_POINT)


def require_plain_directory(root: Path) -> None:
    """Raise PathReparse unless ``root`` is absolute, without ``..``, and it and every parent is an ordinary directory.

    A missing component is refused as well: ``detail`` has ``path``, ``component`` and ``reason``. An OSError of the
    query itself (permission denied) passes through.
    """
    if not root.is_absolute():
        raise _refused(root, root, "not absolute")
    if ".." in root.parts:
        raise _refused(root, root, "contains '..'")
    for component in (*reversed(root.parents), root):
        _require_plain_component(root, component)


def _require_plain_component(root: Path, component: Path) -> None:
    try:
        status = os.lstat(component)
    except (FileNotFoundError, NotADirectoryError):
        raise _refused(root, component, "missing") from None
    except ValueError:  # a NUL in the name
        raise _refused(root, component, "not a possible name") from None
    if is_reparse(status):
        raise _refused(root, component, "a symbolic link, junction or other reparse point")
    if not stat.S_ISDIR(status.st_mode):
        raise _refused(root, component, "not a directory")


def _refused(root: Path, component: Path, reason: str) -> PathReparse:
    path, place = str(root), str(component)
    return PathReparse(f"{path!a}: {place!a} is {reason}", path=path, component=place, reason=reason)


def is_plain_name(text: object) -> bool:
    """Whether ``text`` is one path component that means the same file name on every system.

    Letters, digits, ``. _ -``; 1 to 100 of them; no dot first (hidden, ``..``) or last (Windows drops it); not a
    Windows device (``nul``, ``com1.txt``). Names differing in case only are one file on some systems: not checked.
    """
    return isinstance(text, str) and _PLAIN_NAME.fullmatch(text) is not None and _WINDOWS_DEVICE.fullmatch(text) is None
