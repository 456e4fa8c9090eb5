"""The cheap fork of a process server: nothing that a program can see tells it from os.fork()."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import pytest

from harness.model import Command, ProcessResult
from harness.spawn import open_spawner

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process servers need Linux")

HOOKED = """
import os
told = []
os.register_at_fork(before=lambda: told.append("before 1"), after_in_child=lambda: told.append("child 1"))
os.register_at_fork(before=lambda: told.append("before 2"), after_in_child=lambda: told.append("child 2"))
os.register_at_fork(after_in_parent=lambda: told.append("parent"), after_in_child=lambda: 1 / 0)
"""
THREADS = """
import os, threading
assert threading.current_thread() is threading.main_thread() and threading.active_count() == 1
lock, seen = threading.Lock(), []
with lock:
    thread = threading.Thread(target=lambda: (lock.acquire(), seen.append("thread"), lock.release()))
    thread.start()
thread.join()
held = threading.Event()
threading.Thread(target=held.wait, daemon=True).start()
pid = os.fork()
if pid == 0:
    os._exit(threading.active_count())  # the thread that waits is not in this one: only os.fork()'s own hooks know
held.set()
print(*seen, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "hooks.py").write_text(HOOKED)
    return tmp_path


def run_twice(project: Path, source: str, kind: str = "fork") -> tuple[ProcessResult, ProcessResult]:
    (project / "main.py").write_text(source)
    with open_spawner(kind, project=project) as spawner:  # type: ignore[arg-type]
        first, second = (spawner.start(Command(("python", "-m", "main"), cwd=str(project))).wait() for _ in range(2))
    return first, second


def test_what_the_program_registered_for_a_fork_is_done(project: Path) -> None:
    first, second = run_twice(project, "from hooks import told\nprint(*told, sep=',')")
    begin = "before 2,before 1,"
    assert first.stdout.decode() == f"{begin}child 1,child 2\n", "a hook that fails keeps none of the others"
    assert second.stdout.decode() == f"{begin}parent,{begin}child 1,child 2\n"
    assert first.stderr == b""


def test_what_it_registered_is_done_for_its_own_forks_too(project: Path) -> None:
    source = "import os, sys\nfrom hooks import told\nsys.unraisablehook = print\ntold.clear()\n"
    source += "pid = os.fork()\npid and os.waitpid(pid, 0)\nprint(*told, sep=',', flush=True)\nos._exit(0)"
    for result in run_twice(project, source):
        of_child, of_parent = result.stdout.splitlines()[-2:]
        assert of_child == b"before 2,before 1,child 1,child 2" and of_parent == b"before 2,before 1,parent"


def test_random_numbers_differ(project: Path) -> None:
    first, second = run_twice(project, "import random\nprint(random.random())")
    assert first.stdout != second.stdout and first.exit_code == second.exit_code == 0


@pytest.mark.parametrize("kind", ["fork", "exec"])
def test_threads_and_forks_of_the_program_itself_are_as_ever(project: Path, kind: str) -> None:
    for result in run_twice(project, THREADS, kind):
        assert (result.stdout, result.stderr, result.exit_code) == (b"thread 1\n", b"", 0)


@pytest.mark.parametrize("kind", ["fork", "exec"])
@pytest.mark.parametrize("chosen", [None, "1"])
def test_how_the_server_is_linked_is_no_business_of_the_program(
    project: Path, kind: str, chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if chosen is not None:
        monkeypatch.setenv("LD_BIND_NOW", chosen)
    source = "import os\nprint(os.environ.get('LD_BIND_NOW'), flush=True)\nos.system('echo ${LD_BIND_NOW-None}')"
    for result in run_twice(project, source, kind):
        assert result.stdout.decode() == f"{chosen}\n{chosen}\n"


def test_a_fork_that_the_system_refuses_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.spawn import forking

    class Refusing:
        @staticmethod
        def fork() -> int:
            ctypes.set_errno(11)
            return -1

    monkeypatch.setattr(forking, "_libc", Refusing)
    with pytest.raises(BlockingIOError, match=os.strerror(11)):
        forking.fork()
