"""The state lock (collector.md section 2): one process at a time may write, and nobody deletes the proof of who did.

The lock is a kernel lock on a stable file of one NUL byte: the system releases it when the process dies, however it
dies. The file is made whole or not at all, and is never replaced or unlinked by us; so two processes that lock it lock
the same file. Metadata beside it says who holds it; what leftover metadata allows is the table S1 to S8 in
:mod:`product.durable.owner`.

Rejected: a lock that is a file that exists (a death leaves it for ever), POSIX record locks (any other descriptor of
the file that this process closes would release them), and taking over by age.

Only the process that acquired may release. A forked child closes its copy of the descriptor at once: it neither
releases the lock of a living parent nor keeps the lock of a dead one.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from killpoints import Point, attempt
from product.durable import files, identity
from product.durable.errors import (
    DurableError,
    LockingUnsupported,
    StateLocked,
    StateOwnerThirdContent,
    UnexpectedContent,
)
from product.durable.owner import (
    OWNER_TABLE,
    OwnerAction,
    OwnerObserved,
    format_owner,
    observe_owner,
    read_owner,
    refuse_owner,
)
from product.durable.paths import is_plain_name
from product.durable.plain import Digest, digest_file, open_plain

if sys.platform == "win32":  # never run here
    import msvcrt
else:
    import fcntl

LOCK_BYTES: Final = b"\0"
_NAP_FIRST_S, _NAP_MAX_S = 0.001, 0.05
_REOPENINGS_MAX = 100
_BUSY = {errno.EACCES, errno.EDEADLK} if sys.platform == "win32" else {errno.EWOULDBLOCK}
_UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}


@dataclass(frozen=True, slots=True)
class StateLockPoints:
    """The kill points of one product's state lock, and what each is declared with.

    ``locked``: the kernel lock is held, no metadata yet. ``owner_quarantined``: MOVE_NEW_STEPS. ``owner``: PUT_STEPS.
    ``owner_removed``: REMOVE_STEPS. ``released``: the kernel lock is free again. Only where a product wants to be
    killed in the very first use of a state directory: ``lock_made``: PUT_NEW_STEPS, ``quarantine_made``:
    MAKE_DIRECTORY_STEPS.
    """

    locked: Point
    owner_quarantined: Point
    owner: Point
    owner_removed: Point
    released: Point
    lock_made: Point | None = None
    quarantine_made: Point | None = None


class StateLock:
    """``with StateLock(...):`` holds the lock. Raises on entering, with nothing changed:

    StateLocked (held by another process, at once or after ``wait_s``), StateOwnerReused, StateOwnerUnproven,
    StateOwnerThirdContent, LockingUnsupported, or an OSError of the system. On leaving: UnexpectedContent where the
    metadata is no longer ours (the kernel lock is released all the same).
    """

    def __init__(
        self,
        lock_path: Path,
        owner_path: Path,
        quarantine_directory: Path,
        *,
        run_id: str,
        points: StateLockPoints,
        wait_s: float = 0.0,
    ) -> None:
        if not is_plain_name(run_id):
            raise ValueError(f"run_id {run_id!r} is not a plain name")
        self._lock_path = lock_path
        self._owner_path = owner_path
        self._quarantine_directory = quarantine_directory
        self._run_id = run_id
        self._points = points
        self._wait_s = wait_s
        self._descriptor: int | None = None
        self._pid = 0
        self._metadata: bytes | None = None
        self._row: str | None = None

    @property
    def held(self) -> bool:
        """Whether this process holds the lock through this object; False in a forked child of the holder."""
        return self._descriptor is not None and self._pid == os.getpid()

    @property
    def owner_classification(self) -> str | None:
        """The label of the row (S1 to S8) that the last acquire() took, for logs; None before it got that far."""
        return self._row

    def __enter__(self) -> StateLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.release()
        except (OSError, DurableError) as second:
            if error is None:
                raise
            error.add_note(f"and the state lock was not released in order: {second}")

    def acquire(self) -> None:
        """Take the lock and write our metadata, or raise as the class says."""
        if self.held:
            raise RuntimeError(f"this process holds {self._lock_path} already")
        self._row = self._metadata = None
        self._descriptor = attempt(self._points.locked, self._lock)
        self._pid = os.getpid()
        try:
            self._settle_leftover()
            self._metadata = format_owner(identity.own_identity(), self._run_id)
            files.put(self._owner_path, self._metadata, point=self._points.owner)
        except BaseException:
            self._forget_metadata()
            self._unlock()
            raise

    def release(self) -> None:
        """Remove exactly our metadata and release the kernel lock; nothing in a process that does not hold it."""
        if not self.held or self._metadata is None:
            return
        try:
            files.remove(self._owner_path, expected=Digest.of(self._metadata), point=self._points.owner_removed)
        except FileNotFoundError:
            pass  # somebody removed it: what we wanted
        finally:
            try:
                attempt(self._points.released, self._unlock)
            finally:
                self._unlock()  # where an error was armed in its place

    # -------------------------------------------------------------------------------------------- the metadata

    def _settle_leftover(self) -> None:
        """Take the row of what lies at the metadata's path: afterwards it is free or ours to replace."""
        seen = observe_owner(self._owner_path)
        row = OWNER_TABLE.decide(metadata=seen.metadata, owner=seen.owner)
        self._row = row.label
        match row.action:
            case OwnerAction.WRITE | OwnerAction.REPLACE:
                return
            case OwnerAction.QUARANTINE:
                self._quarantine(seen)
            case _:
                raise refuse_owner(self._owner_path, seen, row)

    def _quarantine(self, seen: OwnerObserved) -> None:
        assert seen.digest is not None, "only exact metadata has a dead owner"
        target = self._quarantine_directory / f"{seen.digest.sha256}.json"
        files.make_directory(self._quarantine_directory, point=self._points.quarantine_made)
        try:
            files.move_new(self._owner_path, target, expected=seen.digest, point=self._points.owner_quarantined)
        except FileExistsError as error:  # no two owners write the same bytes: somebody put a copy there
            message = f"{self._owner_path} is in quarantine already: {target}"
            raise StateOwnerThirdContent(message, path=str(target), owner=seen.record) from error

    def _forget_metadata(self) -> None:
        """Taking the lock failed after our metadata was perhaps in place: do not leave a living owner behind."""
        if self._metadata is None:
            return
        try:
            if digest_file(self._owner_path) == Digest.of(self._metadata):
                os.unlink(self._owner_path)
        except (OSError, DurableError):
            pass  # the error on its way matters more; S3 or S2 settle what stays

    # ------------------------------------------------------------------------------------------ the kernel lock

    def _lock(self) -> int:
        """The locked descriptor. Raises StateLocked, after ``wait_s``.

        The kernel offers no flock with a time limit (only a signal or a second thread could end one), so this asks
        again after short naps; with ``wait_s`` of 0 there is none.
        """
        deadline = time.monotonic() + self._wait_s
        nap_s = _NAP_FIRST_S
        while (descriptor := self._try_lock()) is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise StateLocked(f"{self._lock_path} is held by another process", **self._describe_holder())
            time.sleep(min(nap_s, left_s))
            nap_s = min(nap_s * 2, _NAP_MAX_S)
        try:
            self._require_exclusive()
            self._require_content(descriptor)
        except BaseException:
            _close(descriptor)
            raise
        return descriptor

    def _try_lock(self) -> int | None:
        """One attempt: the locked descriptor, or None where another process has the lock or is making its file."""
        for _ in range(_REOPENINGS_MAX):
            try:
                descriptor = _register(open_plain(self._lock_path, os.O_RDWR))
            except FileNotFoundError:
                if not self._make_file():
                    return None
                continue
            except UnexpectedContent as error:
                raise self._third_content(str(error.detail["reason"])) from error
            try:
                granted = _lock_descriptor(descriptor)
                if granted and self._is_at_path(descriptor):
                    return descriptor
            except BaseException:
                _close(descriptor)
                raise
            _close(descriptor)
            if not granted:
                return None
            # opened before somebody replaced the file: that lock excludes nobody who comes now, so open again
        return None

    def _make_file(self) -> bool:
        """The lock file is there afterwards, whole; False while another process is making it.

        Two first users would write one temporary file, so they exclude each other by a lock on the directory.
        """
        directory = None
        try:
            if sys.platform != "win32":
                directory = _register(os.open(self._lock_path.parent, os.O_RDONLY | os.O_DIRECTORY))
                if not _lock_descriptor(directory):
                    return False
            files.put_new(self._lock_path, LOCK_BYTES, point=self._points.lock_made)
        except FileExistsError:
            pass
        except PermissionError:
            if sys.platform != "win32":
                raise
            return False  # there the other one's open file cannot be taken from under it
        finally:
            if directory is not None:
                _close(directory)
        return True

    def _is_at_path(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.lstat(self._lock_path))
        except FileNotFoundError:
            return False

    def _require_exclusive(self) -> None:
        """Some network and FUSE file systems grant the lock twice: a second descriptor of ours must be refused."""
        second = open_plain(self._lock_path, os.O_RDWR)
        try:
            granted = _lock_descriptor(second)
        finally:
            os.close(second)
        if granted:
            raise LockingUnsupported(f"{self._lock_path}: one lock was granted twice", path=str(self._lock_path))

    def _require_content(self, descriptor: int) -> None:
        if os.read(descriptor, len(LOCK_BYTES) + 1) != LOCK_BYTES:
            raise self._third_content("not exactly one NUL byte")

    def _third_content(self, reason: str) -> StateOwnerThirdContent:
        path = str(self._lock_path)
        return StateOwnerThirdContent(
            f"{path} is not the lock file of this program: {reason}", path=path, reason=reason
        )

    def _describe_holder(self) -> dict[str, Any]:
        try:
            return {"path": str(self._lock_path), "owner": read_owner(self._owner_path).record}
        except OSError:
            return {"path": str(self._lock_path), "owner": None}

    def _unlock(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            try:
                _unlock_descriptor(descriptor)
            finally:
                _close(descriptor)


# ------------------------------------------------------------------------------------------- locked descriptors

_descriptors: set[int] = set()  # every descriptor that carries a lock of this process


def _register(descriptor: int) -> int:
    _descriptors.add(descriptor)
    return descriptor


def _close(descriptor: int) -> None:
    _descriptors.discard(descriptor)
    os.close(descriptor)


def _close_in_child() -> None:
    """A copy of the descriptor in a forked child would keep the lock when the parent dies. Close, never unlock: the
    lock belongs to the open file, and unlocking it here would take it from the parent."""
    while _descriptors:
        os.close(_descriptors.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


def _lock_descriptor(descriptor: int) -> bool:
    """Lock without waiting; False where it is locked already. Raises LockingUnsupported, OSError."""
    try:
        if sys.platform == "win32":
            os.lseek(descriptor, 0, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        if error.errno in _UNSUPPORTED:
            raise LockingUnsupported(f"no such lock on this file system: {error.strerror}") from error
        raise
    return True


def _unlock_descriptor(descriptor: int) -> None:
    """Said out loud and not left to close(): a copy in another process would keep it."""
    if sys.platform == "win32":
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
