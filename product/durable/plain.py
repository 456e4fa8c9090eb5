"""Reading plain files: what is exactly at this path, now? Only reads; :mod:`product.durable.files` hands these on.

A plain file is a regular file with exactly one name. Everything else that can have a name (a symbolic link, a second
hard link, a directory, a FIFO, a device) is refused with UnexpectedContent and never followed, opened or waited for.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from product.durable.errors import UnexpectedContent
from product.durable.paths import is_reparse

SIZE_MAX_BYTES = 64 * 2**20
_CHUNK_BYTES = 2**20
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # a FIFO that takes the name in the last instant must not hold us


@dataclass(frozen=True, slots=True)
class Digest:
    """What a file must be: its size in bytes and its SHA-256 in lower-case hexadecimal."""

    size: int
    sha256: str

    @classmethod
    def of(cls, data: bytes) -> Digest:
        return cls(len(data), hashlib.sha256(data).hexdigest())


def read_file(path: Path, *, size_max_bytes: int = SIZE_MAX_BYTES) -> bytes | None:
    """The bytes of the plain file, or None where nothing has that name. Raises UnexpectedContent, also when too large.

    Other OSErrors (permission denied, a parent that is no directory) pass through.
    """
    try:
        descriptor = open_plain(path)
    except FileNotFoundError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        data = bytearray()
        while chunk := os.read(descriptor, max(size - len(data), 0) + 1):  # one more than there is: the end shows
            data += chunk
            if len(data) > size_max_bytes:
                raise unexpected(path, f"larger than {size_max_bytes} bytes")
        return bytes(data)
    finally:
        os.close(descriptor)


def digest_file(path: Path) -> Digest | None:
    """The digest of the plain file, read in pieces, or None where nothing has that name. Raises as read_file()."""
    try:
        descriptor = open_plain(path)
    except FileNotFoundError:
        return None
    try:
        return digest_of(descriptor)
    finally:
        os.close(descriptor)


def require_exactly(path: Path, expected: Digest) -> None:
    """Raise UnexpectedContent unless ``path`` is a plain file of that content, FileNotFoundError where it is absent."""
    descriptor = open_plain(path)
    try:
        require_digest(path, descriptor, expected)
    finally:
        os.close(descriptor)


def open_plain(path: Path, access: int = os.O_RDONLY) -> int:
    """A descriptor of the plain file, never inherited. Raises FileNotFoundError, UnexpectedContent, OSError."""
    require_plain(path, os.lstat(path))  # before opening: to open a device is an act of its own
    try:
        descriptor = os.open(path, access | NO_FOLLOW | _NO_WAIT)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):  # it became something else since
            raise unexpected(path, "not a regular file") from error
        raise
    try:
        require_plain(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def require_plain(path: Path, status: os.stat_result) -> None:
    """Raise UnexpectedContent unless ``status`` is that of a regular file with one name."""
    if is_reparse(status) or not stat.S_ISREG(status.st_mode):
        raise unexpected(path, "not a regular file")
    if status.st_nlink > 1:  # 0 is allowed: replaced since it was opened, and still whole
        raise unexpected(path, f"has {status.st_nlink} hard links")


def digest_of(descriptor: int) -> Digest:
    """The digest of what is left to read."""
    digest, size = hashlib.sha256(), 0
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        digest.update(chunk)
        size += len(chunk)
    return Digest(size, digest.hexdigest())


def require_digest(path: Path, descriptor: int, expected: Digest) -> None:
    """Raise UnexpectedContent, with both digests, unless what is left to read is exactly ``expected``."""
    found = digest_of(descriptor)
    if found != expected:
        digests = {
            name: {"size": digest.size, "sha256": digest.sha256}
            for name, digest in (("expected", expected), ("found", found))
        }
        raise unexpected(path, "other content", **digests)


def unexpected(path: Path, reason: str, **detail: object) -> UnexpectedContent:
    """The error about ``path``, for the caller to raise."""
    return UnexpectedContent(f"{path}: {reason}", path=str(path), reason=reason, **detail)
