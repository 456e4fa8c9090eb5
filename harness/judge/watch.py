"""Whether anything below a directory changed since it was last asked: the kernel tells, no file is read.

inotify where there is one (Linux); elsewhere every answer is yes, and whoever asks reads the tree. What a program
writes through a shared memory mapping is not told.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

_IN_NONBLOCK, _IN_CLOEXEC = os.O_NONBLOCK if hasattr(os, "O_NONBLOCK") else 0, getattr(os, "O_CLOEXEC", 0)
_MODIFY, _ATTRIB, _MOVED, _CREATE, _DELETE = 0x2, 0x4, 0xC0, 0x100, 0x200
_OVERFLOW, _IS_DIRECTORY = 0x4000, 0x40000000
_EVENT = struct.Struct("iIII")
_READ_BYTES = 1 << 16


class Watch(Protocol):
    """Asked again and again while the program is held."""

    def changed(self) -> bool:
        """Whether anything changed since the last time, or since the watch began. May say yes where nothing did."""


class _Blind:
    def changed(self) -> bool:
        return True


class _Inotify:
    def __init__(self, fd: int, add_watch: ctypes._NamedFuncPointer, root: str) -> None:
        self._fd, self._add_watch = fd, add_watch
        self._paths: dict[int, str] = {}
        self._watch(root)

    def changed(self) -> bool:
        changed = False
        while True:
            try:
                data = os.read(self._fd, _READ_BYTES)
            except BlockingIOError:
                return changed
            changed = True
            self._follow(data)

    def _follow(self, data: bytes) -> None:
        """Directories that are new are watched too; whoever made them is held, so nothing happens in them meanwhile."""
        at = 0
        while at < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, at)
            name = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
            at += _EVENT.size + length
            if mask & _IS_DIRECTORY and mask & (_CREATE | _MOVED) and watch in self._paths:
                self._watch(os.path.join(self._paths[watch], os.fsdecode(name)))

    def _watch(self, directory: str) -> None:
        mask = _MODIFY | _ATTRIB | _MOVED | _CREATE | _DELETE
        number = self._add_watch(self._fd, os.fsencode(directory), mask)
        if number < 0:
            return  # gone again
        self._paths[number] = directory
        with os.scandir(directory) as items:
            for item in items:
                if item.is_dir(follow_symlinks=False):
                    self._watch(item.path)


@contextlib.contextmanager
def watch_tree(root: Path) -> Iterator[Watch]:
    """Watch everything below ``root``. Never raises: where it cannot be watched, every answer is yes."""
    opened = _open_inotify()
    if opened is None:
        yield _Blind()
        return
    fd, add_watch = opened
    try:
        yield _Inotify(fd, add_watch, os.fspath(root))
    finally:
        os.close(fd)


def _open_inotify() -> tuple[int, ctypes._NamedFuncPointer] | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC)
    return None if fd < 0 else (fd, libc.inotify_add_watch)
