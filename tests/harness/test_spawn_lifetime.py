"""Nothing outlives what started it, nothing is signalled after its end is known, and a lost server is survived."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import psutil
import pytest

from harness.model import Command
from harness.spawn import RunningProcess, Spawner, SpawnError, client, open_spawner, process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process servers need Linux")

Kind = Literal["fork", "exec"]
LONG_S = 120  # only ever waited for when a test fails

POINTS = """
from killpoints import declare, reach
HERE = declare("p.here", "somewhere")
"""

# Leaves a member of its group, a stray (its own session, and a dead parent), and a member whose parent is the stray.
# All of them are there when the leader pauses.
FAMILY = """
import os, signal
from points import HERE, reach

ready, tell = os.pipe()

def stay(name):
    os.write(1, b"%s %d\\n" % (name, os.getpid()))
    os.write(tell, b".")
    while True: signal.pause()

if os.fork() == 0:
    if os.fork() == 0:
        if os.fork() == 0: stay(b"child")
        os.setsid()
        stay(b"stray")
    os._exit(0)
os.wait()
if os.fork() == 0: stay(b"member")
for _ in range(3): os.read(ready, 1)
os.write(1, b"leader %d\\n" % os.getpid())
reach(HERE)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "points.py").write_text(POINTS)
    (tmp_path / "family.py").write_text(FAMILY)
    (tmp_path / "short.py").write_text(
        "import signal, sys\nfrom points import HERE, reach\nreach(HERE)\nif sys.argv[1:]: signal.pause()\n"
    )
    return tmp_path


@pytest.fixture(params=["fork", "exec"])
def kind(request: pytest.FixtureRequest) -> Kind:
    return "fork" if request.param == "fork" else "exec"


def start(spawner: Spawner, project: Path, name: str, plan: str = "", *argv: str) -> RunningProcess:
    return spawner.start(Command(("python", "-m", name, *argv), cwd=str(project), plan=plan, timeout_s=LONG_S))


@contextmanager
def watching(pids: list[int]) -> Iterator[list[int]]:
    """Pidfds of processes that run."""
    fds = [os.pidfd_open(pid) for pid in pids]
    try:
        yield fds
    finally:
        for fd in fds:
            os.close(fd)


def have_ended(pidfds: list[int], within_s: float = 0) -> list[bool]:
    poll = select.poll()
    for fd in pidfds:
        poll.register(fd, select.POLLIN)
    running = set(pidfds)
    while running and (events := poll.poll(within_s * 1_000)):
        for fd, _ in events:
            poll.unregister(fd)
            running.discard(fd)
    return [fd not in running for fd in pidfds]


def family_of(leader: RunningProcess) -> list[int]:
    """Pids of a family that is paused, which is all that its server has."""
    record = leader.wait_for_pause()
    assert record is not None, leader.wait()
    server = psutil.Process(leader.pid).parent()
    assert server is not None
    return [process.pid for process in server.children(recursive=True)]


@pytest.mark.parametrize("how", ["resume", "kill", "time"])
def test_when_wait_returns_nothing_of_the_process_is_left(kind: Kind, project: Path, how: str) -> None:
    """Members of its group, and one that left the group and whose parent died: all gone at once, not soon."""
    with open_spawner(kind, project=project) as spawner:
        leader = start(spawner, project, "family", "p.here=pause")
        pids = family_of(leader)
        assert len(pids) == 4
        with watching(pids) as pidfds:
            assert have_ended(pidfds) == [False] * 4
            if how == "time":
                vars(leader)["_deadline"] = 0.0
            else:
                getattr(leader, how)()
            result = leader.wait()
            assert have_ended(pidfds) == [True] * 4
            assert (result.exit_code, result.timed_out) == ((0, False) if how == "resume" else (None, how == "time"))


def test_the_end_of_a_rival_ends_nothing_of_the_first(kind: Kind, project: Path) -> None:
    with open_spawner(kind, project=project) as spawner:
        leader = start(spawner, project, "family", "p.here=pause")
        with watching(family_of(leader)) as pidfds:
            rival = start(spawner, project, "family", "p.here=kill").wait()
            assert rival.died_by == "SIGKILL"
            assert have_ended(pidfds) == [False] * 4
            pids = {name: int(pid) for name, pid in map(bytes.split, rival.stdout.splitlines())}
            with watching([pids[b"child"], pids[b"stray"]]) as (child, stray):
                assert have_ended([child], within_s=LONG_S) == [True], "its group does not wait for the first"
                assert have_ended([stray]) == [False], "whose it is could not be known"
            leader.resume()
            leader.wait()
            assert have_ended(pidfds) == [True] * 4
        assert len(pids) == 4 and not any(map(psutil.pid_exists, pids.values())), "the rival's stray outlived both"


def test_close_ends_what_still_runs_and_the_servers(kind: Kind, project: Path) -> None:
    with open_spawner(kind, project=project) as spawner:
        leader = start(spawner, project, "family", "p.here=pause")
        pids = family_of(leader)
        server = psutil.Process(leader.pid).ppid()
        with watching([*pids, server]) as pidfds:
            spawner.close()
            assert have_ended(pidfds) == [True] * 5


def test_close_ends_a_server_whose_socket_a_forked_child_holds_too(kind: Kind, project: Path) -> None:
    with open_spawner(kind, project=project) as spawner:
        start(spawner, project, "short").wait()
        assert isinstance(spawner, client.ServerSpawner)
        (server,) = spawner._servers()
        holder = os.fork()
        if holder == 0:
            signal.pause()
        try:
            spawner.close()
            assert server._popen.returncode == 0, "it was not told, and had to be killed"
        finally:
            os.kill(holder, signal.SIGKILL)
            os.waitpid(holder, 0)


def test_no_descriptor_is_left(kind: Kind, project: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        with open_spawner(kind, project=project) as spawner:
            start(spawner, project, "short").wait()
            start(spawner, project, "no_such_module").wait()
            start(spawner, project, "short", "p.here=pause")
            lost = start(spawner, project, "short", "p.here=pause")
            os.kill(psutil.Process(lost.pid).ppid(), signal.SIGKILL)
            with pytest.raises(SpawnError):
                lost.wait()
            start(spawner, project, "short", "p.here=pause")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_server_holds_nothing_of_a_process_that_ended(kind: Kind, project: Path) -> None:
    with open_spawner(kind, project=project) as spawner:
        counts = []
        for _ in range(3):
            paused = start(spawner, project, "short", "p.here=pause")
            start(spawner, project, "short").wait()
            server = psutil.Process(paused.pid).ppid()
            paused.kill()
            paused.wait()
            counts.append(len(os.listdir(f"/proc/{server}/fd")))
            assert psutil.Process(server).children() == []
        assert len(set(counts)) == 1


# --- the harness dies

HARNESS = """
import os, signal, sys
from pathlib import Path
from harness.model import Command
from harness.spawn import open_spawner

project = Path(sys.argv[2])
spawner = open_spawner(sys.argv[1], project=project)
processes = [spawner.start(Command(("python", "-m", "family"), cwd=str(project), plan="p.here=pause"))]
processes.append(spawner.start(Command(("sh", "-c", "sleep 1000 & echo $!; wait"), cwd=str(project))))
assert processes[0].wait_for_pause() is not None
print(*(process.pid for process in processes), flush=True)
if sys.argv[3] == "forked":  # somebody else holds the harness's end of every socket and pipe
    if os.fork() == 0:
        while True: signal.pause()
while True: signal.pause()
"""


@pytest.mark.parametrize("alone", ["alone", "forked"])
def test_nothing_outlives_a_harness_that_is_killed(kind: Kind, project: Path, alone: str) -> None:
    """B184."""
    argv = [sys.executable, "-c", HARNESS, kind, str(project), alone]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as harness:
        assert harness.stdout is not None
        leaders = [int(word) for word in harness.stdout.readline().split()]
        assert len(leaders) == 2
        everybody = {
            child.pid
            for leader in leaders
            for server in psutil.Process(leader).parents()[:1]
            for child in [server, *server.children(recursive=True)]
        }
        with watching(sorted(everybody)) as pidfds:
            assert len(pidfds) >= 7
            group = os.getpgid(harness.pid)
            try:
                harness.kill()
                assert have_ended(pidfds, within_s=LONG_S) == [True] * len(pidfds)
            finally:
                os.killpg(group, signal.SIGKILL)  # the harness is not reaped yet
                for pidfd, ended in zip(pidfds, have_ended(pidfds), strict=True):
                    if not ended:
                        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def test_a_harness_that_ignores_and_blocks_signals_does_not_pass_that_on(kind: Kind, project: Path) -> None:
    (project / "told.py").write_text(
        "import signal\nprint(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, signal.pthread_sigmask(0, ()),"
        "signal.getsignal(signal.SIGINT) == signal.default_int_handler)"
    )
    harness = """
import signal, sys
from pathlib import Path
from harness.model import Command
from harness.spawn import open_spawner
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
with open_spawner(sys.argv[1], project=Path(sys.argv[2])) as spawner:
    print(spawner.start(Command(("python", "-m", "told"), cwd=sys.argv[2])).wait().stdout.decode(), end="")
"""
    output = subprocess.check_output([sys.executable, "-c", harness, kind, str(project)])
    assert output == b"True set() True\n"


# --- the server dies


def test_a_lost_server_is_said_and_survived(kind: Kind, project: Path) -> None:
    with open_spawner(kind, project=project) as spawner:
        victim = start(spawner, project, "short", "p.here=pause")
        other = start(spawner, project, "short", "", "stay")
        assert victim.wait_for_pause() is not None
        with watching([victim.pid, other.pid]) as pidfds:
            os.kill(psutil.Process(victim.pid).ppid(), signal.SIGKILL)
            with pytest.raises(SpawnError, match="was lost: killed by signal 9"):
                victim.wait()
            assert have_ended(pidfds, within_s=LONG_S) == [True, True], "its processes went on without it"
        for call in (other.wait, other.wait_for_pause, other.resume):
            with pytest.raises(SpawnError, match="was lost"):
                call()
        other.kill()
        assert start(spawner, project, "short", "p.here=kill").wait().died_by == "SIGKILL"
    with open_spawner(kind, project=project) as spawner:
        assert start(spawner, project, "short").wait().exit_code == 0


def test_a_server_that_was_lost_while_idle_is_replaced(kind: Kind, project: Path) -> None:
    with open_spawner(kind, project=project) as spawner:
        first = start(spawner, project, "short", "p.here=pause")
        server = psutil.Process(first.pid).ppid()
        first.kill()
        first.wait()
        with watching([server]) as pidfds:
            os.kill(server, signal.SIGKILL)
            assert have_ended(pidfds, within_s=LONG_S) == [True]
        assert start(spawner, project, "short").wait().exit_code == 0


def test_a_server_that_does_not_answer_is_given_up(kind: Kind, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE_S", 0.2)
    with open_spawner(kind, project=project) as spawner:
        stuck = start(spawner, project, "short", "p.here=pause")
        with watching([stuck.pid]) as pidfds:
            os.kill(psutil.Process(stuck.pid).ppid(), signal.SIGSTOP)
            vars(stuck)["_deadline"] = 0.0
            with pytest.raises(SpawnError, match="did not end a process"):
                stuck.wait()
            assert have_ended(pidfds, within_s=LONG_S) == [True]
        assert start(spawner, project, "short").wait().exit_code == 0


def test_no_server_can_be_started(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with open_spawner("exec", project=project) as spawner, pytest.raises(SpawnError, match="cannot be started"):
        start(spawner, project, "short")


# --- a number that is somebody else's by now

REUSE = """
import os, signal, sys
from pathlib import Path
from harness.model import Command
from harness.spawn import open_spawner


def fork_as(pid):
    while True:  # the number may not be free yet
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        victim = os.fork()
        if victim == 0:
            while True: signal.pause()
        if victim == pid:
            return victim
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)


project = Path(sys.argv[2])
with open_spawner(sys.argv[1], project=project) as spawner:
    command = Command(("python", "-m", "short"), cwd=str(project), plan="p.here=pause")
    process = spawner.start(command)
    number = process.pid
    assert process.wait_for_pause() is not None
    process.resume()
    if sys.argv[3] == "known":
        assert process.wait().exit_code == 0
        victim = fork_as(number)
    else:  # the server has reaped it, and its message lies unread
        victim = fork_as(number)
    process.kill()
    assert process.wait().exit_code == 0
    process.kill()
    spawner.start(Command(("true",), cwd=str(project))).wait()
    spawner.start(Command(("python", "-m", "short"), cwd=str(project))).wait()
    assert os.waitpid(victim, os.WNOHANG) == (0, 0), "the victim was killed"
    process.kill()
assert os.waitpid(victim, os.WNOHANG) == (0, 0), "the victim was killed by close()"
print("survived", flush=True)
os.kill(victim, signal.SIGKILL)
"""


@pytest.mark.parametrize("end", ["known", "unread"])
def test_a_reused_number_is_not_signalled(kind: Kind, project: Path, end: str) -> None:
    """B188: in a process id namespace of its own, where the next number can be chosen."""
    unshare = [*namespace_command(), "--pid", "--fork", "--mount-proc"]
    argv = [*unshare, sys.executable, "-c", REUSE, kind, str(project), end]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.stdout == "survived\n", done.stderr


def namespace_command() -> list[str]:
    if shutil.which("unshare") is None:
        pytest.skip("unshare(1) is not installed")
    command = ["unshare"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user"]
    probe = [*command, "--pid", "--fork", "--mount-proc", "sh", "-c", "echo 77 > /proc/sys/kernel/ns_last_pid"]
    tried = subprocess.run(probe, capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"no process id namespace with a choice of numbers here: {tried.stderr.strip()}")
    return command
