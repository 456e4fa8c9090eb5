"""The durable primitives' wrong programs, seen through the collector."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import killpoints
from product.durable import files, lock
from product.durable.errors import StateLocked
from tests.mutants.catalogue import mutant


@mutant("the state lock is released right away", cells=["collector.second-commit/collector.claim.HELD#1=rival:recover"])
def state_lock_released_early() -> None:
    acquire = lock.StateLock.acquire

    def release_early(self: Any) -> None:
        acquire(self)
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self._owner_path.unlink()

    lock.StateLock.acquire = release_early


@mutant("there is no state lock at all", cells=["collector.second-commit/*=rival:commit"])
def state_lock_missing() -> None:
    lock._lock_descriptor = lambda _descriptor: True
    lock.StateLock._require_exclusive = lambda _self: None


@mutant("a dead owner's metadata is a locked state", cells=["collector.takeover-held/*"])
def dead_owner_locks() -> None:
    def refuse(self: Any, _seen: Any) -> None:
        raise StateLocked(f"{self._owner_path} is there", path=str(self._owner_path))

    lock.StateLock._quarantine = refuse


@mutant("owner metadata stays on leaving", cells=["collector.first-commit/*"])
def owner_metadata_stays() -> None:
    def leave(self: Any) -> None:
        if self.held:
            self._unlock()

    lock.StateLock.release = leave


@mutant("a dead owner's metadata is deleted", cells=["collector.takeover-held/*"])
def owner_metadata_deleted() -> None:
    def delete(self: Any, _seen: Any) -> None:
        point = self._points.owner_quarantined
        files.make_directory(self._quarantine_directory, point=self._points.quarantine_made)
        files._step(point, "renamed", os.unlink, self._owner_path)
        files._step(point, "dir-synced", files.sync_directory, self._owner_path.parent)
        files._step(point, "read-back", lambda: None)
        killpoints.reach(point)

    lock.StateLock._quarantine = delete


@mutant("a new file is written in place", cells=["*/collector.lock.created/tmp-*=kill"])
def written_in_place() -> None:
    def write(path: Path, data: bytes, mode: int | None, point: Any, step: str, give_name: Any) -> None:
        def create() -> int:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.write(descriptor, data[: len(data) // 2])
            return descriptor

        descriptor = files._step(point, "tmp-written", create)
        files._step(point, "tmp-synced", os.fsync, descriptor)
        os.write(descriptor, data[len(data) // 2 :])
        os.close(descriptor)
        files._step(point, step, lambda: None)
        files._step(point, "dir-synced", files.sync_directory, path.parent)
        files._step(point, "read-back", files._read_back, path, data)

    files._put = write


@mutant("what is removed is not looked at", cells=["*=tamper:changed-pending"])
def removed_unseen() -> None:
    def remove(path: Path, _expected: Any, point: Any) -> None:
        files._step(point, "removed", os.unlink, path)
        files._step(point, "dir-synced", files.sync_directory, path.parent)

    files._remove = remove


@mutant("an exchange is a replace", cells=["*.cards/exchanged#1=kill"])
def exchange_is_replace() -> None:
    def put(candidate: Path, target: Path, _base: Any, _digest: Any, point: Any) -> None:
        files._step(point, "exchanged", os.replace, candidate, target)
        files._step(point, "dir-synced", files.sync_directories, target.parent, candidate.parent)
        files._step(point, "displaced-removed", lambda: None)
        files._step(point, "removal-synced", files.sync_directory, candidate.parent)

    files._put_exchanged = put
