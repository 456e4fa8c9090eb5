"""Starting real processes for these tests, and looking at what they leave."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import killpoints

REPOSITORY = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60

Snapshot = dict[str, tuple[int, int, bytes]]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.durable.worker", *arguments]


def run_worker(*arguments: str, prefix: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Run a worker to its end; it must succeed. Its answers."""
    done = subprocess.run(
        [*prefix, *command(*arguments)], cwd=REPOSITORY, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def kill_worker_at(point: str, *arguments: str) -> None:
    """Run a worker that must die by its own SIGKILL at the first hit of ``point``: proof of fire included."""
    reader, writer = os.pipe()
    environment = os.environ | {"KILLPOINTS": f"{point}#1=kill", "KILLPOINTS_CONTROL": str(writer)}
    process = subprocess.Popen(
        command(*arguments), cwd=REPOSITORY, env=environment, pass_fds=(writer,), stderr=subprocess.PIPE, text=True
    )
    os.close(writer)
    try:
        _, words = process.communicate(timeout=TIMEOUT_S)
        with open(reader, closefd=False) as control:
            records = control.read().splitlines()
    finally:
        os.close(reader)
    assert process.returncode == -signal.SIGKILL, words
    assert records == [f"kill\t{point}\t1\t{process.pid}"]


@contextmanager
def armed(plan: str) -> Iterator[None]:
    """That plan in force in this process. For errors: what comes after them matters, and no process dies of them."""
    killpoints.arm(plan)
    try:
        yield
    finally:
        killpoints.disarm()


class Worker:
    """A worker that talks: ``ask()`` reads one answer, ``tell()`` lets it go on."""

    def __init__(self, *arguments: str, prefix: tuple[str, ...] = ()) -> None:
        self.process = subprocess.Popen(
            [*prefix, *command(*arguments)],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid

    def ask(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the worker ended without an answer, status {self.process.wait(TIMEOUT_S)}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def tell(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def await_state(self, options: int) -> None:
        """Until the process is in that state (os.WEXITED, os.WSTOPPED), without reaping it."""
        os.waitid(os.P_PID, self.pid, options | os.WNOWAIT)

    def end(self) -> int:
        """Close its stdin and wait for its end. Its status."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        status = self.process.wait(TIMEOUT_S)
        self.process.stdout.close()
        return status


@contextmanager
def running(*arguments: str, prefix: tuple[str, ...] = ()) -> Iterator[Worker]:
    """A talking worker that does not outlive the test."""
    worker = Worker(*arguments, prefix=prefix)
    try:
        yield worker
    finally:
        if worker.process.poll() is None:
            worker.process.kill()
            worker.send(signal.SIGCONT)
        worker.end()


def snapshot(directory: Path) -> Snapshot:
    """Every path below with its mode, its number of links, and its bytes (or where a link points)."""
    result: Snapshot = {}
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        content = b""
        if stat.S_ISLNK(status.st_mode):
            content = os.fsencode(path.readlink())
        elif stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
        result[str(path.relative_to(directory))] = (status.st_mode, status.st_nlink, content)
    return result


def names(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def _has_namespaces() -> bool:
    if shutil.which("unshare") is None:
        return False
    probe = ["unshare", "--pid", "--fork", "--mount-proc", "test", "-w", "/proc/sys/kernel/ns_last_pid"]
    return subprocess.run(probe, capture_output=True).returncode == 0


needs_namespaces = pytest.mark.skipif(
    not _has_namespaces(), reason="needs root and unshare(1): a pid namespace of its own"
)
needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root: becomes another user"
)
needs_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
needs_posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals and fork")

NEW_PID_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", '"$@"; exit $?', "sh")
"""A shell stays as the namespace's first process: the first process of a namespace cannot kill itself."""
