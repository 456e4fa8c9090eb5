"""A live owner is never robbed: a real process held inside its critical section, whatever the rival is and believes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.collector.helpers import REPOSITORY, Collector, Process, argv_of, needs_linux, ran

pytestmark = needs_linux
POINT = "collector.claim.HELD"


def may_unshare(*flags: str) -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", *flags, "true"], capture_output=True, check=False).returncode == 0


needs_pid_namespace = pytest.mark.skipif(
    not may_unshare("-pf", "--mount-proc"), reason="no pid namespaces are allowed here"
)
needs_mount_namespace = pytest.mark.skipif(not may_unshare("-m"), reason="no mount namespaces are allowed here")


@pytest.fixture
def collector(tmp_path: Path) -> Collector:
    return Collector(tmp_path)


def hold(collector: Collector) -> Process:
    process = Process(
        argv_of(("commit", "--evidence", collector.evidence()), ""), collector.environment(f"{POINT}#1=pause")
    )
    process.await_pause(POINT)
    return process


def finish(collector: Collector, process: Process) -> None:
    process.resume()
    process.end().require_done()
    process.close()
    assert collector.posts() == [1, 2] and collector.settled()


def test_b019_a_stopped_owner_is_alive(collector: Collector) -> None:
    process = hold(collector)
    process.send(signal.SIGSTOP)
    process.await_state(os.WSTOPPED)
    before = collector.tree()
    collector.run("recover").require_refused("E_STATE_LOCKED", 75)
    assert collector.tree().differences(before) == []
    process.send(signal.SIGCONT)
    finish(collector, process)


@pytest.mark.parametrize("days", [-400, 400])
def test_a_rival_whose_clock_was_stepped_robs_nobody(collector: Collector, days: int) -> None:
    process = hold(collector)
    before = collector.tree()
    collector.run("recover", patch=step_clock(days)).require_refused("E_STATE_LOCKED", 75)
    assert collector.tree().differences(before) == []
    finish(collector, process)


def step_clock(days: int) -> str:
    return (
        "import datetime as real, product.collector.drive as drive, product.collector.perform as perform\n"
        "class Stepped(real.datetime):\n"
        "    @classmethod\n"
        "    def now(cls, zone=None):\n"
        f"        return real.datetime.now(zone) + real.timedelta(days={days})\n"
        "drive.datetime = perform.datetime = Stepped"
    )


@needs_pid_namespace
def test_a_rival_in_another_pid_namespace_robs_nobody(collector: Collector) -> None:
    """It cannot see the owner's pid at all; the kernel lock is the same."""
    process = hold(collector)
    before = collector.tree()
    argv = ["unshare", "-pf", "--mount-proc", *argv_of(("recover",), "")]
    done = subprocess.run(
        argv, cwd=REPOSITORY, env=collector.environment(), capture_output=True, text=True, check=False
    )
    ran(done.returncode, done.stdout, done.stderr).require_refused("E_STATE_LOCKED", 75)
    assert collector.tree().differences(before) == []
    finish(collector, process)


@needs_pid_namespace
def test_an_owner_that_died_in_another_pid_namespace_is_taken_over(collector: Collector) -> None:
    """Its pid means nothing here; that the kernel lock is free proves that nobody of this kernel holds it."""
    # below a shell: the first process of a namespace is immune to signals from within it
    argv = [
        "unshare",
        "-pf",
        "--mount-proc",
        "sh",
        "-c",
        '"$@"; exit $?',
        "sh",
        *argv_of(("commit", "--evidence", collector.evidence()), ""),
    ]
    done = subprocess.run(
        argv, cwd=REPOSITORY, env=collector.environment(f"{POINT}#1=kill"), capture_output=True, check=False
    )
    assert done.returncode != 0 and collector.pending["formal_lock_claim"]["claim_state"] == "HELD"
    answer = collector.run("recover").require_done()
    assert answer["rows"][0] == "C6" and collector.posts() == [1, 2]


# ------------------------------------------------------------------------------------------------------ volumes

MOUNTED = """
import os, subprocess, sys
home, *steps = sys.argv[1:]
for name in ("state", "archive"):
    subprocess.run(["mount", "-t", "tmpfs", "none", f"{home}/{name}"], check=True)
for step in steps:
    kind, _, rest = step.partition(" ")
    if kind == "mount":
        subprocess.run(["mount", "-t", "tmpfs", "none", f"{home}/{rest}"], check=True)
    elif kind == "ls":
        print("LS", *sorted(os.listdir(f"{home}/{rest}")), flush=True)
    else:
        plan, argv = (rest.split(" ", 1)) if kind == "armed" else ("", rest)
        done = subprocess.run(argv.split("|"), env=os.environ | {"KILLPOINTS": plan}, stdout=subprocess.PIPE, text=True)
        print(done.stdout or f"died {done.returncode}", end="" if done.stdout else "\\n", flush=True)
"""


def on_two_volumes(collector: Collector, *steps: str) -> list[str]:
    """Run steps with state and archive each a tmpfs of its own, in a mount namespace of their own."""
    argv = ["unshare", "-m", sys.executable, "-c", MOUNTED, str(collector.home), *steps]
    done = subprocess.run(argv, cwd=REPOSITORY, env=collector.environment(), capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def command(*arguments: str) -> str:
    return "|".join(argv_of(arguments, ""))


@needs_mount_namespace
def test_roots_on_two_volumes_keep_the_quarantine_beside_the_lock(collector: Collector) -> None:
    commit = command("commit", "--evidence", collector.evidence())
    point = "collector.takeover.rename#1=kill"
    lines = on_two_volumes(
        collector, f"armed {POINT}#1=kill {commit}", f"armed {point} {command('recover')}",
        "ls archive/.bili-dynamic-formal-manifest.lock.quarantine", "ls state/refresh", f"run {command('recover')}",
        "ls archive",
    )  # fmt: skip
    assert lines[:2] == ["died -9", "died -9"]
    quarantined, state, last = lines[2], lines[3], lines[5]
    assert any(name.startswith("first-g0-") for name in quarantined.split())
    assert "lock-recovery" not in state
    assert '"rows": ["T2"' in lines[4] and ".bili-dynamic-formal-manifest.lock " not in last


@needs_mount_namespace
def test_a_quarantine_on_another_volume_is_refused_before_the_rename(collector: Collector) -> None:
    commit = command("commit", "--evidence", collector.evidence())
    quarantine = "archive/.bili-dynamic-formal-manifest.lock.quarantine"
    lines = on_two_volumes(collector, f"armed {POINT}#1=kill {commit}", f"mount {quarantine}", f"run {command('recover')}",
                           "ls archive")  # fmt: skip
    assert '"code": "E_FORMAL_LOCK_VOLUME_IDENTITY"' in lines[1]
    assert ".bili-dynamic-formal-manifest.lock" in lines[2].split()
