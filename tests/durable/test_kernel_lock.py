"""The kernel lock alone: it excludes, it is free when the process is gone, and it leaves nothing but its own file."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from killpoints import declare
from product.durable import files
from product.durable.errors import StateLocked, StateOwnerThirdContent
from product.durable.kernel_lock import KernelLock, KernelLockPoints
from tests.durable.support import armed, names, needs_posix

pytestmark = needs_posix

POINTS = KernelLockPoints(
    lock_made=declare("kernel-lock-test.made", "the lock file is made", steps=files.PUT_NEW_STEPS),
    locked=declare("kernel-lock-test.locked", "it is held"),
    released=declare("kernel-lock-test.released", "it is free"),
)


def make(directory: Path, wait_s: float = 0.0) -> KernelLock:
    return KernelLock(directory / "lock", points=POINTS, wait_s=wait_s)


def fork_holder(directory: Path) -> tuple[int, int]:
    """A child that holds the lock until it is killed; its pid, and a pipe that ends with it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            make(directory).acquire()
            os.write(writer, b"held")
            signal.pause()
        finally:
            os._exit(1)
    os.close(writer)
    assert os.read(reader, 4) == b"held"
    return child, reader


def test_it_writes_its_file_and_nothing_else(tmp_path: Path) -> None:
    with make(tmp_path) as lock:
        assert lock.held
        assert names(tmp_path) == ["lock"]
    assert not lock.held
    assert (tmp_path / "lock").read_bytes() == b"\0"
    status = (tmp_path / "lock").stat()
    with make(tmp_path):
        assert (tmp_path / "lock").stat() == status


def test_a_second_is_refused_and_the_dead_hold_nothing(tmp_path: Path) -> None:
    child, reader = fork_holder(tmp_path)
    with pytest.raises(StateLocked) as raised:
        make(tmp_path).acquire()
    assert raised.value.detail["path"] == str(tmp_path / "lock")
    os.kill(child, signal.SIGKILL)
    assert os.read(reader, 1) == b""  # its descriptors are closed; nobody has reaped it yet
    with make(tmp_path, wait_s=60) as lock:
        assert lock.held
    os.waitpid(child, 0)
    os.close(reader)


def test_a_child_of_the_holder_neither_has_nor_frees_it(tmp_path: Path) -> None:
    with make(tmp_path) as lock:
        child = os.fork()
        if child == 0:
            held = lock.held
            lock.release()
            os._exit(1 if held else 0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with pytest.raises(StateLocked):
            make(tmp_path).acquire()


def test_taking_it_twice_is_a_mistake_of_the_program(tmp_path: Path) -> None:
    with make(tmp_path) as lock, pytest.raises(RuntimeError):
        lock.acquire()


def test_another_file_of_that_name_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"7\n")
    with pytest.raises(StateOwnerThirdContent):
        make(tmp_path).acquire()
    assert (tmp_path / "lock").read_bytes() == b"7\n"


@pytest.mark.parametrize("point", [POINTS.lock_made, POINTS.locked, POINTS.released])
def test_an_error_at_its_points_leaves_it_free(tmp_path: Path, point: str) -> None:
    with armed(f"{point}#1=error:EIO"), pytest.raises(OSError, match="Input/output"), make(tmp_path):
        pass
    with make(tmp_path) as lock:
        assert lock.held
