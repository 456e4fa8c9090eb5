"""Renames that never overwrite: one that refuses an existing target, and one that exchanges two names.

Linux has both in one system call (``renameat2``, since 3.15), macOS ``renamex_np``; plain Windows renames refuse an
existing target by themselves. Rejected: link() and unlink(), which shows the file under two names in between, and
looking first and renaming then, which overwrites whatever came in between.

macOS and Windows: written from the documentation, never run here.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

from product.durable.errors import RenameUnsupported

_AT_FDCWD = -100
_RENAME_NOREPLACE, _RENAME_EXCHANGE = 1, 2  # linux/fs.h
_RENAME_EXCL = 4  # sys/stdio.h of macOS
_SYSTEM_CALL = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "armv7l": 382, "i686": 353, "ppc64le": 357, "s390x": 347}
_UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}

_Rename = Callable[[bytes, bytes, int], int]


def _load() -> _Rename | None:
    """The system's rename with flags: 0 or -1 with errno set. None where there is none."""
    if sys.platform == "win32":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin":
        renamex_np = libc.renamex_np
        renamex_np.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint)
        return lambda source, target, flags: int(renamex_np(source, target, flags))
    if not sys.platform.startswith("linux"):
        return None
    paths = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    if hasattr(libc, "renameat2"):
        renameat2 = libc.renameat2
        renameat2.argtypes = paths
        return lambda source, target, flags: int(renameat2(_AT_FDCWD, source, _AT_FDCWD, target, flags))
    number = _SYSTEM_CALL.get(os.uname().machine)  # musl, and glibc before 2.28, have no wrapper
    if number is None:
        return None
    libc.syscall.restype = ctypes.c_long
    libc.syscall.argtypes = (ctypes.c_long, *paths)
    return lambda source, target, flags: int(libc.syscall(number, _AT_FDCWD, source, _AT_FDCWD, target, flags))


_rename = _load()
CAN_EXCHANGE = sys.platform.startswith("linux") and _rename is not None
"""Whether this system can exchange two names; whether a file system can, only :func:`probe_renames` knows."""


def rename_new(source: Path, target: Path) -> None:
    """Rename ``source`` to ``target``, which must not exist, atomically.

    Raises FileExistsError (both files untouched), RenameUnsupported, or another OSError of the system.
    """
    if sys.platform == "win32":
        os.rename(source, target)
        return
    _call(source, target, _RENAME_EXCL if sys.platform == "darwin" else _RENAME_NOREPLACE)


def exchange(first: Path, second: Path) -> None:
    """Exchange the two names atomically; both must exist. Raises RenameUnsupported, or an OSError of the system."""
    if not CAN_EXCHANGE:
        raise RenameUnsupported("this system cannot exchange two names", paths=[str(first), str(second)])
    _call(first, second, _RENAME_EXCHANGE)


def _call(source: Path, target: Path, flags: int) -> None:
    if _rename is None:
        raise RenameUnsupported("this system has no rename that refuses to overwrite", path=str(source))
    names = os.fsencode(source), os.fsencode(target)
    if b"\0" in names[0] + names[1]:
        raise ValueError("embedded null byte")  # C would take the part before it for the name
    while _rename(*names, flags) != 0:
        number = ctypes.get_errno()
        if number == errno.EINTR:
            continue
        if number in _UNSUPPORTED:
            message = f"no such rename on this file system: {os.strerror(number)}"
            raise RenameUnsupported(message, path=str(target), errno=number)
        raise OSError(number, os.strerror(number), str(source), None, str(target))


def probe_renames(directory: Path) -> None:
    """Raise RenameUnsupported unless the file system of ``directory`` really has the renames that are used here.

    Tried on three empty files of reserved names, which are gone afterwards. A kill in between leaves some of them; the
    next probe removes them.
    """
    first, second, third = (directory / f".rename-probe-{number}.tmp" for number in (1, 2, 3))
    _clear_probes(first, second, third)
    try:
        for probe in (first, second):
            os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        _require_refusal(first, second)
        if CAN_EXCHANGE:
            _require_exchange(first, second)
        rename_new(second, third)
    finally:
        _clear_probes(first, second, third)


def _require_refusal(source: Path, existing: Path) -> None:
    try:
        rename_new(source, existing)
    except FileExistsError:
        return
    raise RenameUnsupported("a rename that must not overwrite did overwrite", path=str(existing))


def _require_exchange(first: Path, second: Path) -> None:
    before = os.lstat(first).st_ino, os.lstat(second).st_ino
    exchange(first, second)
    if (os.lstat(second).st_ino, os.lstat(first).st_ino) != before:
        raise RenameUnsupported("an exchange of two names did not exchange them", path=str(first))


def _clear_probes(*probes: Path) -> None:
    for probe in probes:
        try:
            if os.lstat(probe).st_size == 0:  # ours are empty; anything else makes the probe fail, and stays
                os.unlink(probe)
        except FileNotFoundError:
            pass
