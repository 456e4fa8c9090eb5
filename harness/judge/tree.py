"""A snapshot of a sandbox: every path with its kind, mode, links and bytes. Read by the judge, restored by the engine."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """One path. ``kind`` is ``file``, ``directory``, ``symlink`` (``data`` is its target) or ``other``."""

    kind: str
    mode: int
    data: bytes = b""
    inode: tuple[int, int] = (0, 0)
    links: int = 1

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    def same_content(self, other: Entry | None) -> bool:
        return other is not None and (self.kind, self.mode, self.data) == (other.kind, other.mode, other.data)


@dataclass(frozen=True)
class Tree:
    """Relative POSIX path -> Entry, in sorted order. Compare two with :meth:`differences`."""

    entries: Mapping[str, Entry] = field(default_factory=dict)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def file(self, path: str) -> bytes | None:
        """The bytes of a regular file, or None where there is none."""
        entry = self.entries.get(path)
        return entry.data if entry is not None and entry.kind == "file" else None

    def differences(self, later: Tree) -> list[tuple[str, str]]:
        """What changed up to ``later``: (path, "added" | "removed" | "changed"), sorted by path."""
        if self.entries == later.entries:
            return []
        out = []
        for path in sorted(self.entries.keys() | later.entries.keys()):
            before, after = self.entries.get(path), later.entries.get(path)
            if before is None:
                out.append((path, "added"))
            elif after is None:
                out.append((path, "removed"))
            elif not before.same_content(after):
                out.append((path, "changed"))
        return out

    def listing(self) -> tuple[str, ...]:
        """One line a path for people: size and the first 8 of the SHA-256."""
        return self._listing

    @cached_property
    def _listing(self) -> tuple[str, ...]:  # a tree that a process left as it was is one object, told several times
        return tuple(
            f"{path}/"
            if entry.kind == "directory"
            else f"{path}  {len(entry.data)} B  {entry.sha256[:8]}"
            if entry.kind == "file"
            else f"{path}  {entry.kind} {entry.data.decode(errors='replace')}"
            for path, entry in self.entries.items()
        )


def observe_tree(root: str | Path, before: Tree | None = None) -> Tree:
    """Read everything below ``root``. Every byte is read: a time stamp is too coarse to prove that nothing changed.

    What is as it was in ``before`` is that very entry: hashed once, and compared by what it is, not byte by byte.
    """
    found: dict[str, Entry] = {}
    _walk(os.fspath(root), "", found, before.entries if before is not None else {})
    return Tree(dict(sorted(found.items())))


def _walk(directory: str, prefix: str, found: dict[str, Entry], before: Mapping[str, Entry]) -> None:
    with os.scandir(directory) as items:
        for item in items:
            status = item.stat(follow_symlinks=False)
            mode, kind, data = status.st_mode, "other", b""
            if stat.S_ISREG(mode):
                kind, data = "file", _read(item.path, status.st_size)
            elif stat.S_ISDIR(mode):
                kind = "directory"
            elif stat.S_ISLNK(mode):
                kind, data = "symlink", os.fsencode(os.readlink(item.path))
            path, known = prefix + item.name, before.get(prefix + item.name)
            entry = Entry(kind, stat.S_IMODE(mode), data, (status.st_dev, status.st_ino), status.st_nlink)
            found[path] = known if known is not None and known == entry else entry
            if kind == "directory":
                _walk(item.path, f"{path}/", found, before)


def _read(path: str, size_bytes: int) -> bytes:
    """All bytes, in one call where the file is as large as it was found to be."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    try:
        data = os.read(descriptor, size_bytes + 1)
        if len(data) == size_bytes:
            return data
        while chunk := os.read(descriptor, 1 << 20):
            data += chunk
        return data
    finally:
        os.close(descriptor)


def restore_tree(tree: Tree, root: str | Path) -> None:
    """Write the tree into the empty directory ``root``, hard links and symbolic links as they were."""
    base = os.fspath(root)
    first: dict[tuple[int, int], str] = {}
    for path, entry in tree.entries.items():
        target = f"{base}/{path}"
        if entry.kind == "directory":
            os.mkdir(target)
        elif entry.kind == "symlink":
            os.symlink(os.fsdecode(entry.data), target)
        elif entry.kind == "file":
            if entry.links > 1 and entry.inode in first:
                os.link(first[entry.inode], target)
                continue
            first[entry.inode] = target
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, entry.mode)
            try:
                view = memoryview(entry.data)
                while view:
                    view = view[os.write(descriptor, view) :]
            finally:
                os.close(descriptor)
            os.chmod(target, entry.mode)
