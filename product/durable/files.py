"""The file primitives: each puts one file in place, moves it or removes it, whole or not at all, and proves it.

Every primitive marks the kill points that its caller declared with the steps below. The point itself stands around the
whole: a kill there comes when the primitive is complete, an error there is raised instead of it. A kill at a step comes
right after that step, an error at a step is raised instead of it. ``point=None`` marks nothing.

One rule for what a state path may be: a plain file (:mod:`product.durable.plain`). Anything else is refused with
UnexpectedContent and stays untouched; a file that is replaced keeps its mode. One writer at a time: who calls holds the
state lock. An OSError before a new name is given leaves nothing behind; after it the new content is there, and only
whether it would survive a power cut is open.

Not guaranteed: what a third party does in the instant between a check and the system call that it guards, except where
:func:`put_exchanged` says otherwise; and whatever a disk forgets that said it had synced.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from killpoints import Point, attempt
from product.durable import rename
from product.durable.errors import PathReparse, ReadBackMismatch
from product.durable.paths import is_reparse
from product.durable.plain import (
    NO_FOLLOW,
    SIZE_MAX_BYTES,
    Digest,
    digest_file,
    open_plain,
    read_file,
    require_digest,
    require_exactly,
    require_plain,
    unexpected,
)

if sys.platform != "win32":
    import fcntl

__all__ = [
    "DURABLE_STEPS",
    "EXCHANGE_STEPS",
    "MAKE_DIRECTORY_STEPS",
    "MOVE_NEW_STEPS",
    "PUT_NEW_STEPS",
    "PUT_STEPS",
    "REMOVE_STEPS",
    "SIZE_MAX_BYTES",
    "Digest",
    "clear_temporary",
    "digest_file",
    "discard",
    "make_directory",
    "move_new",
    "put",
    "put_exchanged",
    "put_new",
    "read_file",
    "remove",
    "require_durable",
    "require_exactly",
    "sync_directories",
    "sync_directory",
    "temporary_path",
]

PUT_NEW_STEPS = ("tmp-written", "tmp-synced", "renamed", "dir-synced", "read-back")
PUT_STEPS = ("tmp-written", "tmp-synced", "replaced", "dir-synced", "read-back")
MOVE_NEW_STEPS = ("renamed", "dir-synced", "read-back")
EXCHANGE_STEPS = ("exchanged", "dir-synced", "displaced-removed", "removal-synced")
REMOVE_STEPS = ("removed", "dir-synced")
MAKE_DIRECTORY_STEPS = ("made", "dir-synced")
DURABLE_STEPS = ("synced", "dir-synced")

_MODE_NEW = 0o666  # less the umask, as everywhere

T = TypeVar("T")


def _step(point: Point | None, step: str, act: Callable[..., T], *args: object) -> T:
    return act(*args) if point is None else attempt(point.at(step), act, *args)


def _whole(point: Point | None, act: Callable[..., T], *args: object) -> T:
    return act(*args) if point is None else attempt(point, act, *args)


# -------------------------------------------------------------------------------------------------- put a file


def put_new(path: Path, data: bytes, *, point: Point | None) -> None:
    """Create ``path`` with exactly these bytes, whole or not at all; declare ``point`` with PUT_NEW_STEPS.

    Raises FileExistsError where anything has that name (it stays as it is), ReadBackMismatch, UnexpectedContent (about
    the temporary name), RenameUnsupported, OSError.
    """
    _whole(point, _put, path, data, None, point, "renamed", rename.rename_new)


def put(path: Path, data: bytes, *, point: Point | None) -> None:
    """Give our own file ``path`` exactly these bytes, atomically, new or not; declare ``point`` with PUT_STEPS.

    A reader sees the old bytes or the new ones. Raises UnexpectedContent where something else than a plain file has
    that name (it stays as it is), ReadBackMismatch, OSError.
    """
    _whole(point, _put_over, path, data, point)


def _put_over(path: Path, data: bytes, point: Point | None) -> None:
    _put(path, data, _mode_of_plain(path), point, "replaced", _replace)


def _put(
    path: Path, data: bytes, mode: int | None, point: Point | None, step: str, give_name: Callable[[Path, Path], None]
) -> None:
    temporary = temporary_path(path)
    descriptor = _step(point, "tmp-written", _write_temporary, temporary, data, mode)
    try:
        try:
            _step(point, "tmp-synced", _sync_file, descriptor)
        finally:
            os.close(descriptor)
        _step(point, step, give_name, temporary, path)
    except BaseException:
        _discard(temporary)
        raise
    _step(point, "dir-synced", sync_directory, path.parent)
    _step(point, "read-back", _read_back, path, data)


def _mode_of_plain(path: Path) -> int | None:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    require_plain(path, status)
    return stat.S_IMODE(status.st_mode)


def _replace(temporary: Path, path: Path) -> None:
    _mode_of_plain(path)
    os.replace(temporary, path)


def _read_back(path: Path, data: bytes) -> None:
    if read_file(path, size_max_bytes=max(len(data), SIZE_MAX_BYTES)) != data:
        raise ReadBackMismatch(f"{path}: what is there is not what was written", path=str(path))


# --------------------------------------------------------------------------------------------- temporary files


def temporary_path(path: Path) -> Path:
    """The one reserved name beside ``path`` that its next content is written to. One: restarts never add another."""
    return path.with_name(f".{path.name}.tmp")


def clear_temporary(path: Path, *, point: Point | None = None) -> bool:
    """Remove what a death of our own left at ``temporary_path(path)``; False where there is nothing.

    Raises UnexpectedContent, and removes nothing, where something else than a plain file has that name.
    """
    return _whole(point, _clear, temporary_path(path))


def _clear(temporary: Path) -> bool:
    try:
        require_plain(temporary, os.lstat(temporary))
        os.unlink(temporary)
    except FileNotFoundError:
        return False
    return True


def discard(path: Path) -> bool:
    """Remove a derived file of our own, whatever is in it; False where there is none. It can be made again: no sync.

    Raises UnexpectedContent, and removes nothing, where something else than a plain file has that name.
    """
    return _clear(path)


def _write_temporary(temporary: Path, data: bytes, mode: int | None) -> int:
    """A new file with these bytes, open for the sync. On any fault it is gone again: a full disk leaves no litter."""
    _clear(temporary)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW, _MODE_NEW)
    except FileExistsError as error:  # not to be taken for the FileExistsError of the target
        raise unexpected(temporary, "another writer is at work") from error
    try:
        _set_mode(descriptor, mode)
        view = memoryview(data)
        while view:  # a write may be short
            view = view[os.write(descriptor, view) :]
    except BaseException:
        os.close(descriptor)
        _discard(temporary)
        raise
    return descriptor


def _set_mode(descriptor: int, mode: int | None) -> None:
    if mode is not None and sys.platform != "win32":
        os.fchmod(descriptor, mode)


def _discard(temporary: Path) -> None:
    try:
        os.unlink(temporary)
    except OSError:
        pass  # on the way out with the error that matters; the next writer clears it


# ----------------------------------------------------------------------------------------------------- syncing


def sync_directory(path: Path) -> None:
    """Make the names in the directory durable. Windows has no such call; a rename is as durable there as NTFS says."""
    if sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _sync_file(descriptor)
    finally:
        os.close(descriptor)


def _sync_file(descriptor: int) -> None:
    if sys.platform == "darwin":  # its fsync stops at the cache of the drive; never run here
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
        except OSError:
            pass  # a file system without it: fsync is all there is
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Windows flushes only what is open for writing; what is open for reading here was flushed by who wrote it
        if sys.platform != "win32" or error.errno != errno.EBADF:
            raise


def sync_directories(target: Path, source: Path) -> None:
    """The new name first: a power cut in between may show a file twice, never not at all."""
    sync_directory(target)
    if source != target:
        sync_directory(source)


def require_durable(path: Path, *, expected: Digest, point: Point | None) -> None:
    """Raise UnexpectedContent unless ``path`` is exactly ``expected``; afterwards a power cut leaves it, whoever put it there.

    Declare ``point`` with DURABLE_STEPS. Raises FileNotFoundError or OSError, too.
    """
    _whole(point, _require_durable_name, path, expected, point)


def _require_durable_name(path: Path, expected: Digest, point: Point | None) -> None:
    _step(point, "synced", _require_durable, path, expected)
    _step(point, "dir-synced", sync_directory, path.parent)


def _require_durable(path: Path, expected: Digest, mode: int | None = None) -> None:
    """As require_exactly(), then sync that content: what is about to be relied on was perhaps written by others."""
    descriptor = open_plain(path)
    try:
        require_digest(path, descriptor, expected)
        _set_mode(descriptor, mode)
        _sync_file(descriptor)
    finally:
        os.close(descriptor)


# ------------------------------------------------------------------------------------------- move and exchange


def move_new(source: Path, target: Path, *, expected: Digest, point: Point | None) -> None:
    """Rename ``source``, which must be exactly ``expected``, to the free name ``target`` on the same volume.

    Declare ``point`` with MOVE_NEW_STEPS. Raises UnexpectedContent, FileNotFoundError, FileExistsError,
    RenameUnsupported or OSError (EXDEV: another volume) with nothing moved; ReadBackMismatch where the file changed
    between check and rename: then all of it is at ``target``.
    """
    _whole(point, _move_new, source, target, expected, point)


def _move_new(source: Path, target: Path, expected: Digest, point: Point | None) -> None:
    _require_durable(source, expected)
    _step(point, "renamed", rename.rename_new, source, target)
    _step(point, "dir-synced", sync_directories, target.parent, source.parent)
    _step(point, "read-back", _read_back_digest, target, expected)


def _read_back_digest(path: Path, expected: Digest) -> None:
    if digest_file(path) != expected:
        raise ReadBackMismatch(f"{path}: what is there is not what was moved", path=str(path))


def put_exchanged(
    candidate: Path, target: Path, *, base: Digest, candidate_digest: Digest, point: Point | None
) -> None:
    """Put ``candidate`` in the place of ``target``, which must be exactly ``base``; then delete the base.

    Nothing is ever deleted that was not looked at when it had left the target's name: on Linux the names are exchanged,
    what came out is compared, and anything but the base goes back. Elsewhere the comparison comes immediately before
    an atomic replace. Declare ``point`` with EXCHANGE_STEPS, everywhere the same.

    Raises UnexpectedContent (both files under their old names), FileNotFoundError, RenameUnsupported, OSError.
    """
    _whole(point, _put_exchanged, candidate, target, base, candidate_digest, point)


def _put_exchanged(candidate: Path, target: Path, base: Digest, candidate_digest: Digest, point: Point | None) -> None:
    _require_durable(candidate, candidate_digest, _mode_of_plain(target))
    if rename.CAN_EXCHANGE:
        _step(point, "exchanged", rename.exchange, candidate, target)
        _require_exchanged(candidate, target, base, candidate_digest)
    else:
        _step(point, "exchanged", _compare_and_replace, candidate, target, base)
    _step(point, "dir-synced", sync_directories, target.parent, candidate.parent)
    _step(point, "displaced-removed", _remove_displaced, candidate)
    _step(point, "removal-synced", sync_directory, candidate.parent)


def _require_exchanged(candidate: Path, target: Path, base: Digest, candidate_digest: Digest) -> None:
    """Look at both names after the exchange; unless they are exactly right, exchange back and raise."""
    try:
        require_exactly(candidate, base)
        require_exactly(target, candidate_digest)  # or the base would be deleted for something else
    except BaseException:  # a read that fails proves nothing either
        rename.exchange(candidate, target)
        sync_directories(target.parent, candidate.parent)
        raise


def _compare_and_replace(candidate: Path, target: Path, base: Digest) -> None:
    require_exactly(target, base)
    os.replace(candidate, target)


def _remove_displaced(candidate: Path) -> None:
    if rename.CAN_EXCHANGE:  # elsewhere the replace has done it
        os.unlink(candidate)


# ------------------------------------------------------------------------------------- remove, make a directory


def remove(path: Path, *, expected: Digest, point: Point | None) -> None:
    """Delete ``path``, which must be exactly ``expected``; declare ``point`` with REMOVE_STEPS.

    Raises UnexpectedContent (nothing deleted), FileNotFoundError, OSError.
    """
    _whole(point, _remove, path, expected, point)


def _remove(path: Path, expected: Digest, point: Point | None) -> None:
    require_exactly(path, expected)
    _step(point, "removed", os.unlink, path)
    _step(point, "dir-synced", sync_directory, path.parent)


def make_directory(path: Path, *, point: Point | None) -> bool:
    """Make the directory; False where it is there already. Declare ``point`` with MAKE_DIRECTORY_STEPS.

    Raises PathReparse for a link or junction of that name, UnexpectedContent for any other thing, OSError.
    """
    return _whole(point, _make_directory, path, point)


def _make_directory(path: Path, point: Point | None) -> bool:
    made = _step(point, "made", _make_or_require, path)
    # Also where it was there: a death between the two steps left a name that nobody has synced
    _step(point, "dir-synced", sync_directory, path.parent)
    return made


def _make_or_require(path: Path) -> bool:
    try:
        os.mkdir(path)
        return True
    except FileExistsError:
        status = os.lstat(path)
    if is_reparse(status):
        raise PathReparse(f"{path} is a symbolic link, junction or other reparse point", path=str(path))
    if not stat.S_ISDIR(status.st_mode):
        raise unexpected(path, "not a directory")
    return False
