"""The state lock between real processes: exclusion, death, reuse of a pid, namespaces, and files of others."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from killpoints import Point
from product.durable import canonical, lock
from product.durable.errors import (
    DurableError,
    LockingUnsupported,
    StateLocked,
    UnexpectedContent,
)
from product.durable.identity import own_identity
from product.durable.lock import StateLock
from product.durable.owner import format_owner
from tests.durable import points
from tests.durable.points import LOCK_NAME, OWNER_NAME, QUARANTINE_NAME, make_lock
from tests.durable.support import (
    NEW_PID_NAMESPACE,
    Snapshot,
    Worker,
    armed,
    kill_worker_at,
    names,
    needs_linux,
    needs_namespaces,
    needs_posix,
    run_worker,
    running,
    snapshot,
)
from tests.durable.worker import NEW

pytestmark = needs_posix


def contend(directory: Path) -> dict[str, Any]:
    """Try once, in this process: the holder is another one."""
    held = make_lock(directory, run_id="contender")
    try:
        with held:
            return {"ok": True, "row": held.owner_classification}
    except DurableError as error:
        return {"ok": False, "code": error.code, "row": held.owner_classification}


REFUSED_BY_THE_KERNEL = {"ok": False, "code": "E_STATE_LOCKED", "row": None}
"""Not by metadata (row S4): the lock itself is held."""


def contend_elsewhere(directory: Path) -> dict[str, Any]:
    """Try once, in another process: the holder is this one."""
    return run_worker("contend", str(directory))[0]


def quarantined(directory: Path) -> list[str]:
    return names(directory / QUARANTINE_NAME)


def settled(directory: Path) -> bool:
    """Nobody holds it, nothing of a holder is left."""
    files = set(names(directory)) - {QUARANTINE_NAME}
    return files == {LOCK_NAME} | {f"{QUARANTINE_NAME}/{name}" for name in quarantined(directory)}


# ------------------------------------------------------------------------------------------------ one process


def test_the_lock_file_stays_and_the_metadata_goes(tmp_path: Path) -> None:
    inodes: set[int] = set()
    for _ in range(3):
        with make_lock(tmp_path) as held:
            assert held.held
            assert held.owner_classification == "S1"
            record = canonical.decode_canonical((tmp_path / OWNER_NAME).read_bytes())
            assert (record["pid"], record["run_id"]) == (os.getpid(), "run-1")
            assert names(tmp_path) == [LOCK_NAME, OWNER_NAME]
        assert not held.held
        assert names(tmp_path) == [LOCK_NAME]
        assert (tmp_path / LOCK_NAME).read_bytes() == b"\0"
        inodes.add((tmp_path / LOCK_NAME).stat().st_ino)
    assert len(inodes) == 1


def test_one_process_holds_it_once(tmp_path: Path) -> None:
    with make_lock(tmp_path) as held:
        with pytest.raises(RuntimeError, match="already"):
            held.acquire()
        with pytest.raises(StateLocked):
            make_lock(tmp_path).acquire()
        assert held.held
        assert contend_elsewhere(tmp_path)["code"] == "E_STATE_LOCKED"
    held.release()  # again: nothing


def test_a_refusal_at_once_takes_no_nap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("product.durable.lock.time.sleep", None)
    with make_lock(tmp_path), pytest.raises(StateLocked) as caught:
        make_lock(tmp_path, run_id="second").acquire()
    assert caught.value.detail["owner"]["pid"] == os.getpid()  # type: ignore[index]


def test_a_run_id_is_a_plain_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="plain name"):
        make_lock(tmp_path, run_id="../x")


def test_the_error_of_the_work_is_not_hidden_by_that_of_the_release(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught, make_lock(tmp_path):
        (tmp_path / OWNER_NAME).write_bytes(b"third")
        raise ZeroDivisionError
    assert "not released in order" in caught.value.__notes__[0]
    (tmp_path / OWNER_NAME).unlink()
    assert contend_elsewhere(tmp_path)["ok"]


def test_on_leaving_only_exactly_ours_is_removed(tmp_path: Path) -> None:
    with pytest.raises(UnexpectedContent), make_lock(tmp_path):
        (tmp_path / OWNER_NAME).write_bytes(b"third")
    assert (tmp_path / OWNER_NAME).read_bytes() == b"third"
    assert contend_elsewhere(tmp_path)["code"] == "E_STATE_OWNER_THIRD_CONTENT"  # the kernel lock itself is free


def test_metadata_that_somebody_removed_is_no_fault(tmp_path: Path) -> None:
    with make_lock(tmp_path):
        (tmp_path / OWNER_NAME).unlink()
    assert settled(tmp_path)


# ---------------------------------------------------------------------------------------------- two processes


def test_a_living_holder_excludes_and_changes_nothing(tmp_path: Path) -> None:
    with running("hold", str(tmp_path)) as holder:
        assert holder.ask()["row"] == "S1"
        before = snapshot(tmp_path)
        assert contend(tmp_path) == REFUSED_BY_THE_KERNEL
        assert snapshot(tmp_path) == before
        holder.tell()
        assert holder.ask() == {"held": False}
    assert contend(tmp_path) == {"ok": True, "row": "S1"}


def test_who_waits_gets_it_when_the_holder_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running("hold", str(tmp_path)) as holder:
        holder.ask()
        naps: list[float] = []

        def nap(duration_s: float) -> None:
            naps.append(duration_s)
            if len(naps) == 8:
                holder.tell()
                assert holder.ask() == {"held": False}

        with monkeypatch.context() as patch:
            patch.setattr("product.durable.lock.time.sleep", nap)
            with make_lock(tmp_path, wait_s=3600) as held:
                assert held.owner_classification == "S1"
    assert naps == [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.05, 0.05]


def test_who_waits_in_vain_is_refused_in_the_end(tmp_path: Path) -> None:
    with running("hold", str(tmp_path)) as holder:
        holder.ask()
        with pytest.raises(StateLocked):
            make_lock(tmp_path, wait_s=0.01).acquire()


def test_b018_a_zombie_is_dead_and_nobody_waits_for_its_parent(tmp_path: Path) -> None:
    with running("hold", str(tmp_path)) as holder:
        holder.ask()
        holder.send(signal.SIGKILL)
        holder.await_state(os.WEXITED)  # dead, and not reaped until the end of this block
        assert contend(tmp_path) == {"ok": True, "row": "S2"}
    assert len(quarantined(tmp_path)) == 1
    assert settled(tmp_path)


def test_b019_a_stopped_holder_is_alive(tmp_path: Path) -> None:
    with running("hold", str(tmp_path)) as holder:
        holder.ask()
        holder.send(signal.SIGSTOP)
        holder.await_state(os.WSTOPPED)
        before = snapshot(tmp_path)
        assert contend(tmp_path) == REFUSED_BY_THE_KERNEL
        # even without the kernel's word: another lock file in its place, and only the metadata tells
        replace_lock_file(tmp_path)
        refusal = contend(tmp_path)
        assert (refusal["code"], refusal["row"]) == ("E_STATE_LOCKED", "S4")
        assert snapshot(tmp_path) == before
        holder.send(signal.SIGCONT)
        holder.tell()
        assert holder.ask() == {"held": False}
    assert (tmp_path / "work").read_bytes() == NEW
    assert contend(tmp_path)["ok"]


def replace_lock_file(directory: Path) -> None:
    (directory / "other").write_bytes(b"\0")
    os.replace(directory / "other", directory / LOCK_NAME)


def test_b009_our_own_pid_of_an_earlier_process_is_stale(tmp_path: Path) -> None:
    own = own_identity()
    place, _, start = own.created_at.rpartition(":")
    earlier = type(own)(own.pid, f"{place}:{int(start) - 6000}")
    (tmp_path / OWNER_NAME).write_bytes(format_owner(earlier, "run-0"))
    with make_lock(tmp_path) as held:
        assert held.owner_classification == "S2"
    assert settled(tmp_path)


def test_our_own_metadata_of_a_release_that_failed_is_replaced(tmp_path: Path) -> None:
    (tmp_path / OWNER_NAME).write_bytes(format_owner(own_identity(), "run-0"))
    with make_lock(tmp_path) as held:
        assert held.owner_classification == "S3"
    assert names(tmp_path) == [LOCK_NAME]


@needs_namespaces
def test_b005_an_impostor_with_the_pid_of_the_owner_is_not_the_owner(tmp_path: Path) -> None:
    record, refusal, after = run_worker("reuse_pid", str(tmp_path), prefix=NEW_PID_NAMESPACE)
    assert record["record"] == record["impostor"]
    assert record["holder"] == "REUSED"
    assert (refusal["code"], refusal["row"]) == ("E_STATE_OWNER_PID_REUSE", "S5")
    assert after == {"ok": True, "row": "S2"}


@needs_namespaces
def test_an_owner_in_another_pid_namespace_counts_as_long_as_it_has_the_kernel_lock(tmp_path: Path) -> None:
    with running("hold", str(tmp_path), prefix=NEW_PID_NAMESPACE) as holder:
        holder.ask()
        assert contend(tmp_path) == REFUSED_BY_THE_KERNEL
        first = next(int(pid) for pid in children_of(children_of(holder.pid)[0]))
        os.kill(first, signal.SIGKILL)
        holder.await_state(os.WEXITED)
    assert contend(tmp_path) == {"ok": True, "row": "S2"}


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


# --------------------------------------------------------------------------------------------------------- fork


@pytest.mark.parametrize("way", ["release", "exit"])
def test_b028_a_forked_child_does_not_release(tmp_path: Path, way: str) -> None:
    with running("hold_and_fork", str(tmp_path), way) as parent:
        assert parent.ask() == {"held": True, "child_status": 0}  # it has come and gone
        assert names(tmp_path) == [LOCK_NAME, OWNER_NAME]
        assert contend(tmp_path) == REFUSED_BY_THE_KERNEL
        parent.tell()
        assert parent.ask() == {"held": False}
    assert settled(tmp_path)


def test_b028_a_forked_child_does_not_keep_the_lock_of_a_dead_parent(tmp_path: Path) -> None:
    with running("hold_and_fork", str(tmp_path), "live") as parent:
        child = parent.ask()["child"]
        parent.send(signal.SIGKILL)
        parent.await_state(os.WEXITED)
        os.kill(child, 0)  # it lives on
        assert contend(tmp_path) == {"ok": True, "row": "S2"}


def test_a_copy_of_the_descriptor_elsewhere_does_not_outlast_the_release(tmp_path: Path) -> None:
    held = make_lock(tmp_path)
    held.acquire()
    assert held._descriptor is not None
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(held._descriptor,)) as other:
        held.release()
        assert contend(tmp_path)["ok"]
        assert other.poll() is None


# ------------------------------------------------------------------------------------- the file, and its creation


def test_b020_no_two_are_inside_at_once_from_the_very_first_use_on(tmp_path: Path) -> None:
    """Several processes start where no lock file is, and each enters several times; the log shows one at a time."""
    state, log = tmp_path / "state", tmp_path / "log"
    state.mkdir()
    log.touch()
    workers = [Worker("take_turns", str(state), str(log), "5") for _ in range(5)]
    assert [worker.end() for worker in workers] == [0] * 5
    lines = log.read_text().splitlines()
    assert len(lines) == 5 * 5 * 2
    for entry, leave in zip(lines[::2], lines[1::2], strict=True):
        assert entry.split()[0] == "enter"
        assert leave == entry.replace("enter", "exit")
    assert names(state) == [LOCK_NAME]
    assert (state / LOCK_NAME).read_bytes() == b"\0"


def test_b020_a_lock_on_a_file_that_was_replaced_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody replaces the file between our opening and our locking: the lock must be on what is there now."""
    with make_lock(tmp_path):
        pass
    honest = lock._lock_descriptor
    replaced: list[bool] = []

    def late(descriptor: int) -> bool:
        if not replaced:
            replaced.append(True)
            replace_lock_file(tmp_path)
        return honest(descriptor)

    monkeypatch.setattr(lock, "_lock_descriptor", late)
    with make_lock(tmp_path) as held:
        assert replaced
        assert held._descriptor is not None
        assert os.path.samestat(os.fstat(held._descriptor), (tmp_path / LOCK_NAME).stat())
        assert contend_elsewhere(tmp_path)["code"] == "E_STATE_LOCKED"


def test_b020_while_the_file_is_replaced_the_metadata_still_excludes(tmp_path: Path) -> None:
    """A holds; the file is replaced; C opens it afresh and gets the kernel lock: it must see A, and leave."""
    with running("hold", str(tmp_path)) as holder:
        holder.ask()
        replace_lock_file(tmp_path)
        assert contend(tmp_path)["row"] == "S4"
        holder.tell()
        assert holder.ask() == {"held": False}
    assert contend(tmp_path) == {"ok": True, "row": "S1"}


@pytest.mark.parametrize("seed", [b"", b"\0\0", b"x", b"{}", "directory", "link", "hard link", "fifo"])
def test_a_lock_file_of_somebody_else_is_refused_and_stays(tmp_path: Path, seed: bytes | str) -> None:
    path = tmp_path / LOCK_NAME
    match seed:
        case bytes():
            path.write_bytes(seed)
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "link":
            (tmp_path / "real").write_bytes(b"\0")
            path.symlink_to(tmp_path / "real")
        case _:
            (tmp_path / "real").write_bytes(b"\0")
            os.link(tmp_path / "real", path)
    refused_twice(tmp_path, "E_STATE_OWNER_THIRD_CONTENT")


def refused_twice(directory: Path, code: str) -> DurableError:
    """Refused the same way each time, and nothing changes: no loop, no deletion, no lock left behind."""
    before, messages = snapshot(directory), []
    for _ in range(2):
        with pytest.raises(DurableError) as caught:
            make_lock(directory).acquire()
        assert caught.value.code == code
        messages.append(caught.value.message)
        assert without_lock_file(snapshot(directory)) == without_lock_file(before)
    assert messages[0] == messages[1]
    assert str(directory) in messages[0]
    assert not lock._descriptors
    return caught.value


def without_lock_file(files: Snapshot) -> Snapshot:
    """The stable lock file is made by whoever comes first, a refused one included."""
    return {name: entry for name, entry in files.items() if files[name][2] != b"\0"}


# ---------------------------------------------------------------------------------------- metadata of somebody else


def own_record(**changes: Any) -> bytes:
    record = canonical.decode_canonical(format_owner(own_identity(), "run-0"))
    return canonical.encode(record | changes)


SEEDS: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "brace": lambda: b"{",
    "partial": lambda: b'{"pid":',
    "garbage": lambda: b'{"pid":1}garbage',
    "half of ours": lambda: own_record()[:80],
    "nul bytes": lambda: b"\0" * 200,
    "nul tail": lambda: own_record() + b"\0" * 3000,
    "too large": lambda: b" " * 5000,
    "not canonical": lambda: own_record().replace(b",", b", "),
    "bool pid": lambda: own_record(pid=True),
    "pid 0": lambda: own_record(pid=0),
    "negative pid": lambda: own_record(pid=-1),
    "huge pid": lambda: own_record(pid=2**31),
    "text pid": lambda: own_record(pid="1"),
    "bool version": lambda: own_record(schema_version=True),
    "other version": lambda: own_record(schema_version=2),
    "extra key": lambda: own_record(extra=1),
}


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS.keys())
def test_b025_b064_b136_metadata_that_nobody_of_us_wrote_is_refused(tmp_path: Path, seed: Callable[[], bytes]) -> None:
    (tmp_path / OWNER_NAME).write_bytes(seed())
    error = refused_twice(tmp_path, "E_STATE_OWNER_THIRD_CONTENT")
    assert error.detail["row"] == "S7"
    assert error.detail["path"] == str(tmp_path / OWNER_NAME)


@pytest.mark.parametrize("kind", ["link", "hard link", "directory", "fifo"])
def test_b070_metadata_that_is_not_a_plain_file_is_refused(tmp_path: Path, kind: str) -> None:
    real, path = tmp_path / "real", tmp_path / OWNER_NAME
    real.write_bytes(own_record())
    match kind:
        case "link":
            path.symlink_to(real)
        case "hard link":
            os.link(real, path)
        case "directory":
            path.mkdir()
        case _:
            os.mkfifo(path)
    refused_twice(tmp_path, "E_STATE_OWNER_THIRD_CONTENT")


def test_an_owner_of_another_machine_is_unproven(tmp_path: Path) -> None:
    foreign = f"linux:{'b' * 32}:12345678-1234-1234-1234-123456789abc:4026531836:1"
    (tmp_path / OWNER_NAME).write_bytes(own_record(process_created_at=foreign))
    assert refused_twice(tmp_path, "E_STATE_OWNER_UNPROVEN").detail["row"] == "S6"


def test_metadata_that_cannot_be_read_is_the_systems_own_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(lock, "observe_owner", denied)
    with pytest.raises(PermissionError):
        make_lock(tmp_path).acquire()
    monkeypatch.undo()
    assert contend_elsewhere(tmp_path)["ok"]


def test_a_quarantine_never_overwrites(tmp_path: Path) -> None:
    kill_worker_at(points.LOCK.owner, "contend", str(tmp_path))
    metadata = (tmp_path / OWNER_NAME).read_bytes()
    assert contend(tmp_path)["ok"]
    (tmp_path / OWNER_NAME).write_bytes(metadata)  # somebody puts a copy back
    error = refused_twice(tmp_path, "E_STATE_OWNER_THIRD_CONTENT")
    assert QUARANTINE_NAME in error.message


# ---------------------------------------------------------------------------------------------------- no real lock


@needs_linux
def test_while_another_process_makes_the_lock_file_it_is_locked(tmp_path: Path) -> None:
    """Two first users would write one temporary file: who makes it has a lock on the directory."""
    import fcntl

    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        with pytest.raises(StateLocked):
            make_lock(tmp_path).acquire()
        assert names(tmp_path) == []
    finally:
        os.close(directory)
    with make_lock(tmp_path):
        pass


@needs_posix
def test_a_directory_that_may_not_be_written_is_the_systems_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not taken for a lock that somebody has."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(lock.files, "put_new", refuse)
    with pytest.raises(PermissionError):
        make_lock(tmp_path).acquire()
    assert names(tmp_path) == []


@needs_linux
def test_b035_a_lock_that_is_granted_twice_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = run_worker("contend_with_stub", str(tmp_path))[0]
    assert answer["code"] == "E_LOCKING_UNSUPPORTED"
    assert names(tmp_path) == [LOCK_NAME]
    import fcntl

    monkeypatch.setattr(fcntl, "flock", lambda descriptor, operation: None)
    with pytest.raises(LockingUnsupported):
        make_lock(tmp_path).acquire()
    assert names(tmp_path) == [LOCK_NAME]


@needs_linux
@pytest.mark.parametrize("used_before", [False, True])
def test_a_file_system_without_the_lock_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used_before: bool
) -> None:
    import fcntl

    if used_before:
        with make_lock(tmp_path):
            pass

    def unsupported(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with pytest.raises(LockingUnsupported, match="No locks available"):
        make_lock(tmp_path).acquire()
    assert not lock._descriptors


@needs_linux
def test_a_lock_that_fails_is_not_taken_for_one_that_is_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    with make_lock(tmp_path):
        pass

    def fail(descriptor: int, operation: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(OSError, match="Input/output error"):
        make_lock(tmp_path).acquire()
    assert not lock._descriptors


# --------------------------------------------------------------------------------------------- death at every point


def points_of(*roots: Point | None) -> list[str]:
    return [str(name) for root in roots if root is not None for name in (root, *root.steps)]


@pytest.mark.parametrize(
    "name", points_of(points.LOCK.lock_made, points.LOCK.locked, points.LOCK.owner, points.LOCK.owner_removed)
)
def test_b025_a_death_anywhere_never_locks_us_out(tmp_path: Path, name: str) -> None:
    kill_worker_at(name, "contend", str(tmp_path))
    assert read_whole(tmp_path / LOCK_NAME) in (None, b"\0")
    for _ in range(2):
        answer = contend(tmp_path)
        assert answer["ok"], answer
        assert settled(tmp_path)


def read_whole(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def test_b025_a_death_after_the_release_leaves_nothing(tmp_path: Path) -> None:
    kill_worker_at(points.LOCK.released, "contend", str(tmp_path))
    assert settled(tmp_path)


@pytest.mark.parametrize("name", points_of(points.LOCK.quarantine_made, points.LOCK.owner_quarantined))
def test_a_death_while_the_dead_owner_is_moved_never_locks_us_out(tmp_path: Path, name: str) -> None:
    kill_worker_at(points.LOCK.owner, "contend", str(tmp_path))
    metadata = (tmp_path / OWNER_NAME).read_bytes()
    kill_worker_at(name, "contend", str(tmp_path))
    assert contend(tmp_path)["ok"]
    assert settled(tmp_path)
    (kept,) = quarantined(tmp_path)
    assert (tmp_path / QUARANTINE_NAME / kept).read_bytes() == metadata


@pytest.mark.parametrize("name", points_of(points.LOCK.lock_made, points.LOCK.locked, points.LOCK.owner))
def test_an_error_while_taking_it_leaves_it_free(tmp_path: Path, name: str) -> None:
    """This process lives on, so the kernel frees nothing by itself."""
    with armed(f"{name}#1=error:EIO"), pytest.raises(OSError, match="injected"):
        make_lock(tmp_path).acquire()
    assert not (tmp_path / OWNER_NAME).exists()
    assert not lock._descriptors
    with make_lock(tmp_path) as held:
        assert held.owner_classification == "S1"


@pytest.mark.parametrize("name", points_of(points.LOCK.owner_removed, points.LOCK.released))
def test_an_error_while_leaving_frees_the_kernel_lock(tmp_path: Path, name: str) -> None:
    with armed(f"{name}#1=error:EIO"), pytest.raises(OSError, match="injected"), make_lock(tmp_path):
        pass
    assert not lock._descriptors
    with make_lock(tmp_path) as held:
        assert held.owner_classification == ("S3" if name.endswith(("owner_removed", "/removed")) else "S1")


def test_points_that_a_product_does_not_name_are_not_needed(tmp_path: Path) -> None:
    few = lock.StateLockPoints(
        points.LOCK.locked,
        points.LOCK.owner_quarantined,
        points.LOCK.owner,
        points.LOCK.owner_removed,
        points.LOCK.released,
    )
    paths = tmp_path / LOCK_NAME, tmp_path / OWNER_NAME, tmp_path / QUARANTINE_NAME
    with StateLock(*paths, run_id="r", points=few):
        assert names(tmp_path) == [LOCK_NAME, OWNER_NAME]
