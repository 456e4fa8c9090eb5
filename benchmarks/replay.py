"""The file operations of a command, taken down while it runs and done again by a plain loop: what a cell cannot do without.

Taken down is what goes through :mod:`os` and the renames of :mod:`product.durable.rename`. What SQLite does in C is not.
"""

from __future__ import annotations

import contextlib
import marshal
import os
from collections.abc import Callable
from typing import Any

import product.durable.rename as renames

_CALLS = (
    "open", "close", "read", "write", "lstat", "stat", "fstat", "fsync", "fchmod", "listdir", "readlink", "mkdir",
    "rmdir", "unlink", "replace", "rename",
)  # fmt: skip
_BY_DESCRIPTOR = frozenset({"close", "read", "write", "fstat", "fsync", "fchmod"})
Operation = tuple[str, tuple[Any, ...], int]  # its name, its arguments, and the descriptor that it gave


def record_operations(pipe_fd: int) -> Callable[[], None]:
    """In a process of its own: take down from here on. Call what is returned at the end: it writes all to the pipe."""
    taken: list[Operation] = []
    write = os.write

    def watch(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **options: Any) -> Any:
            plain = tuple(os.fspath(arg) if isinstance(arg, os.PathLike) else arg for arg in args)
            taken.append((name, tuple(bytes(a) if isinstance(a, memoryview) else a for a in plain), -1))
            result = call(*args, **options)
            if name == "open":
                taken[-1] = (name, plain, result)
            return result

        return watched

    for name in _CALLS:
        setattr(os, name, watch(name, getattr(os, name)))
    if renames._rename is not None:
        renames._rename = watch("renameat2", renames._rename)

    def tell() -> None:
        view = memoryview(marshal.dumps(taken))
        while view:
            view = view[write(pipe_fd, view) :]

    return tell


def read_operations(pipe_fd: int) -> list[Operation]:
    """What :func:`record_operations` wrote, to the end of the pipe."""
    with open(pipe_fd, "rb") as pipe:
        data = pipe.read()
    return list(marshal.loads(data))


def replay(operations: list[Operation]) -> None:
    """Do them again, on the same paths. What does not go this time (the process asked about is another) is passed over."""
    calls = {name: getattr(os, name) for name in _CALLS} | {"renameat2": renames._rename}
    descriptors: dict[int, int] = {}
    for name, args, given in operations:
        with contextlib.suppress(OSError, KeyError):
            if name in _BY_DESCRIPTOR:
                descriptor = descriptors.pop(args[0]) if name == "close" else descriptors[args[0]]
                calls[name](descriptor, *args[1:])
            elif name == "open":
                descriptors[given] = os.open(*args)
            else:
                calls[name](*args)
    for descriptor in descriptors.values():
        os.close(descriptor)
