"""fork() for a process server: cheaper than os.fork(), because the server has one thread.

Each page that a child writes to is copied first, and that is most of what a process costs. os.fork() lets the child make
the interpreter's locks anew and forget threads that it does not have, all over the heap: two thirds of the pages that a
bare child writes to. With one thread no lock is held and nothing is to be forgotten, so the C library's fork is called,
and what the program itself registered for its forks is done here.

:func:`settle_memory` makes the rest cheaper: large pages are shared, and given back, by one entry each.
"""

from __future__ import annotations

import ctypes
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

BIND_NOW = "LD_BIND_NOW"  # or each child would look up, and write down, the same addresses of functions
BOUND = "killmatrix"
_MADV_COLLAPSE, _HUGE_BYTES = 25, 1 << 21

_Hook = Callable[[], object]
_libc = ctypes.PyDLL(None, use_errno=True) if sys.platform == "linux" else None  # PyDLL: keeps the GIL
_before: list[_Hook] = []
_in_parent: list[_Hook] = []
_in_child: list[_Hook] = []


@contextmanager
def remember_hooks() -> Iterator[None]:
    """What is registered for forks in here is done by :func:`fork`. (The random module seeds itself again.)"""
    register = os.register_at_fork

    def remember(**hooks: _Hook) -> None:
        register(**hooks)
        for kind, known in (("before", _before), ("after_in_parent", _in_parent), ("after_in_child", _in_child)):
            known.extend([hooks[kind]] if kind in hooks else [])

    os.register_at_fork = remember  # type: ignore[assignment]
    try:
        yield
    finally:
        os.register_at_fork = register


def fork() -> int:
    """As os.fork(). Only for a process with one thread. Raises OSError."""
    assert _libc is not None
    _call(reversed(_before))
    pid = int(_libc.fork())
    number = ctypes.get_errno()  # a hook may call the C library as well
    _call(_in_parent if pid else _in_child)
    if pid < 0:
        raise OSError(number, os.strerror(number))
    return pid


def _call(hooks: Iterable[_Hook]) -> None:
    for hook in hooks:
        try:
            hook()
        except BaseException:
            traceback.print_exc()  # as os.fork() does: nobody is there to catch it


def settle_memory() -> None:
    """Put the heap on large pages, as far as the kernel can (Linux 6.1); where it cannot, nothing is lost."""
    assert _libc is not None
    with open("/proc/self/maps") as maps:
        areas = [line.split() for line in maps]
    for span, access, _, _, inode, *name in areas:
        if access != "rw-p" or inode != "0" or name not in ([], ["[heap]"]):
            continue
        first, end = (int(bound, 16) for bound in span.split("-"))
        for start in range(-(-first // _HUGE_BYTES) * _HUGE_BYTES, end - _HUGE_BYTES + 1, _HUGE_BYTES):
            _libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(_HUGE_BYTES), _MADV_COLLAPSE)
