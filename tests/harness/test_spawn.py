"""Every way in which a process under test can fail to do what its cell meant, told apart (harness.md, "A cell", 2-3)."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.model import Command, ProcessResult, Record
from harness.spawn import RunningProcess, Spawner, SpawnError, open_spawner
from harness.spawn import process as served
from harness.spawn.portable import PortableSpawner

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process servers and the checks here need Linux")

POINTS = """
from killpoints import declare
SAVED = declare("shop.saved", "the cart is durable")
PAID = declare("shop.paid", "the money is taken")
"""

SHOP = """
import os, sys
from points import PAID, SAVED
from killpoints import attempt, reach

reach(SAVED)
print("saved", flush=True)
for _ in range(2):
    attempt(PAID, os.getpid)
print("paid")
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp("project")
    (project / "points.py").write_text(POINTS)
    (project / "shop.py").write_text(SHOP)
    (project / "stubborn.py").write_text("import signal\nprint('here', flush=True)\nwhile True: signal.pause()\n")
    return project


@pytest.fixture(scope="module", params=["fork", "exec", "portable"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def spawner(kind: str, project: Path) -> Iterator[Spawner]:
    with open_kind(kind, project) as spawner:
        yield spawner


def open_kind(kind: str, project: Path) -> Spawner:
    if kind == "portable":
        return PortableSpawner(project)
    return open_spawner("fork" if kind == "fork" else "exec", project=project)


def start(spawner: Spawner, project: Path, *argv: str, plan: str = "", timeout_s: float = 60.0) -> RunningProcess:
    return spawner.start(Command(argv, cwd=str(project), plan=plan, timeout_s=timeout_s))


def run(spawner: Spawner, project: Path, *argv: str, plan: str = "", timeout_s: float = 60.0) -> ProcessResult:
    return start(spawner, project, *argv, plan=plan, timeout_s=timeout_s).wait()


def run_shop(spawner: Spawner, project: Path, plan: str) -> ProcessResult:
    return run(spawner, project, "python", "-m", "shop", plan=plan)


def fired(result: ProcessResult) -> list[Record]:
    return [record for record in result.records if record.kind != "pass"]


def test_a_kill_is_a_signal_with_its_record(spawner: Spawner, project: Path) -> None:
    result = run_shop(spawner, project, "shop.paid#2=kill")
    assert result.died_by == "SIGKILL" and result.exit_code is None and not result.timed_out
    assert [(r.kind, r.point, r.hit) for r in result.records] == [
        ("pass", "shop.saved", 1),
        ("pass", "shop.paid", 1),
        ("kill", "shop.paid", 2),
    ]
    assert {record.pid for record in result.records} == {result.pid}
    assert result.stdout == b"saved\n", "what was flushed before the kill is kept"


def test_a_point_that_is_not_reached_leaves_no_record(spawner: Spawner, project: Path) -> None:
    """B174, B175: the process ends well, and nothing says that the fault happened."""
    result = run_shop(spawner, project, "shop.paid#3=kill")
    assert (result.exit_code, result.signal_number) == (0, None)
    assert fired(result) == [] and len(result.records) == 3


def test_an_unknown_point_is_refused_by_name(spawner: Spawner, project: Path) -> None:
    result = run_shop(spawner, project, "shop.payed=kill")
    assert result.exit_code in (1, 64)
    assert b"shop.payed" in result.stderr and b"shop.paid" in result.stderr
    assert fired(result) == [] and result.stdout == b""


def test_a_plan_that_cannot_be_read_is_refused(spawner: Spawner, project: Path) -> None:
    result = run_shop(spawner, project, "shop.paid=explode")
    assert result.exit_code == 64 and b"explode" in result.stderr


def test_an_armed_error_is_raised(spawner: Spawner, project: Path) -> None:
    result = run_shop(spawner, project, "shop.paid=error:ENOSPC")
    assert result.exit_code == 1 and b"injected at shop.paid#1" in result.stderr
    assert [record.kind for record in fired(result)] == ["error"]


def test_a_death_from_elsewhere_has_a_signal_but_no_record(spawner: Spawner, project: Path) -> None:
    process = start(spawner, project, "python", "-m", "shop", plan="shop.paid#1=pause")
    record = process.wait_for_pause()
    assert record is not None and record.pid == process.pid
    os.kill(process.pid, signal.SIGKILL)
    result = process.wait()
    assert result.died_by == "SIGKILL" and not result.timed_out
    assert [record.kind for record in fired(result)] == ["pause"]


@pytest.mark.parametrize(
    ("source", "exit_code", "says"),
    [
        ("raise ValueError('no luck')", 1, b"ValueError: no luck"),
        ("import no_such_module", 1, b"No module named 'no_such_module'"),
        ("import sys; sys.exit(75)", 75, b""),
        ("def f(:\n", 1, b"SyntaxError"),
        ("import os; os._exit(9)", 9, b""),
    ],
)
def test_ends_before_the_point_are_told_apart_from_a_kill(
    spawner: Spawner, tmp_path: Path, source: str, exit_code: int, says: bytes
) -> None:
    """B176. An exit status of 9 is not SIGKILL either."""
    script = tmp_path / "early.py"
    script.write_text(source)
    result = run(spawner, tmp_path, "python", str(script), plan="shop.saved=kill")
    assert (result.exit_code, result.signal_number, result.died_by) == (exit_code, None, None)
    assert says in result.stderr and result.records == ()


def test_a_process_that_hangs_is_ended_with_its_output_kept(spawner: Spawner, project: Path) -> None:
    process = start(spawner, project, "python", "-m", "shop", plan="shop.paid=pause")
    assert process.wait_for_pause() is not None
    vars(process)["_deadline"] = 0.0
    result = process.wait()
    assert result.timed_out and result.died_by == "SIGKILL"
    assert result.stdout == b"saved\n"


def test_time_up_ends_the_whole_group(spawner: Spawner, project: Path) -> None:
    """B180. The grandchild holds stdout, stderr and the control pipe open."""
    result = run(spawner, project, "sh", "-c", "sleep 300 & echo $!; wait", timeout_s=2)
    assert result.timed_out and result.died_by == "SIGKILL"
    assert is_gone(spawner, int(result.stdout))


def test_what_a_process_leaves_behind_ends_with_it(spawner: Spawner, project: Path) -> None:
    result = run(spawner, project, "sh", "-c", "sleep 300 & echo $!; exit 5")
    assert result.exit_code == 5 and not result.timed_out
    assert is_gone(spawner, int(result.stdout))


def is_gone(spawner: Spawner, pid: int) -> bool:
    """Whether it has ended. Only a process server can say so at once; elsewhere it dies a moment later."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], 60 if isinstance(spawner, PortableSpawner) else 0)[0])
    finally:
        os.close(pidfd)


def test_a_rival_runs_while_the_first_is_paused(spawner: Spawner, project: Path) -> None:
    first = start(spawner, project, "python", "-m", "shop", plan="shop.paid#1=pause")
    record = first.wait_for_pause()
    assert record == Record("pause", "shop.paid", 1, first.pid)
    rival = run_shop(spawner, project, "shop.paid#1=kill")
    assert rival.died_by == "SIGKILL" and rival.pid != first.pid
    first.resume()
    assert first.wait_for_pause() is None
    result = first.wait()
    assert (result.exit_code, result.stdout) == (0, b"saved\npaid\n")
    assert [record.kind for record in fired(result)] == ["pause"]


def test_two_pauses_are_two(spawner: Spawner, project: Path) -> None:
    process = start(spawner, project, "python", "-m", "shop", plan="shop.saved=pause,shop.paid#2=pause")
    points = []
    while (record := process.wait_for_pause()) is not None:
        points.append((record.point, record.hit))
        process.resume()
    assert points == [("shop.saved", 1), ("shop.paid", 2)]
    assert process.wait().exit_code == 0


def test_a_paused_process_can_be_killed(spawner: Spawner, project: Path) -> None:
    process = start(spawner, project, "python", "-m", "shop", plan="shop.saved=pause")
    assert process.wait_for_pause() is not None
    process.kill()
    assert process.wait_for_pause() is None
    result = process.wait()
    assert result.died_by == "SIGKILL" and not result.timed_out
    process.kill()
    process.resume()
    assert process.wait() == result


def test_the_clock_stands_still_in_a_pause(kind: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed_s, monotonic = 0, time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + passed_s)
    with open_kind(kind, project) as spawner:
        process = start(spawner, project, "python", "-m", "shop", plan="shop.saved=pause,shop.paid=pause")
        assert process.wait_for_pause() is not None
        passed_s += 1_000
        process.resume()
        assert process.wait_for_pause() is not None, "the time of the first pause was counted"
        process.resume()
        assert process.wait().exit_code == 0
        process = start(spawner, project, "python", "-m", "stubborn")
        passed_s += 1_000
        assert process.wait().timed_out, "time is not counted at all"


def test_a_pause_that_nobody_ends_is_ended_by_the_clock(spawner: Spawner, project: Path) -> None:
    process = start(spawner, project, "python", "-m", "shop", plan="shop.saved=pause", timeout_s=0.5)
    assert process.wait().timed_out


@pytest.mark.parametrize(
    ("argv", "exit_code"),
    [
        (("no-such-program",), 127),
        (("/etc/passwd",), 126),
        (("python", "-m", "no_such_module"), 1),
        (("python", "no_such_script.py"), 2),
        (("sh", "-c", "no-such-program"), 127),
        (("sh", "bad\0argument"), 126),
        ((), 126),
        (("sh", "-c", "exit 3", "x" * 400_000), 126),
    ],
)
def test_what_cannot_be_started_is_a_result(
    spawner: Spawner, project: Path, argv: tuple[str, ...], exit_code: int
) -> None:
    result = run(spawner, project, *argv)
    assert (result.exit_code, result.signal_number) == (exit_code, None)
    assert result.stderr != b""


def test_a_missing_working_directory_is_a_result(spawner: Spawner, project: Path) -> None:
    result = spawner.start(Command(("python", "-m", "shop"), cwd=str(project / "none"))).wait()
    assert result.exit_code == 127 and b"none" in result.stderr


def test_a_program_starts_with_no_signal_ignored_or_blocked(spawner: Spawner, project: Path) -> None:
    """Python itself ignores SIGPIPE and SIGXFSZ: a program that is no Python program must not notice.

    Signals 32 and 33 are the C library's own: whoever is started by make inherits them ignored, and cannot change it.
    """
    of_the_c_library = 0b11 << 31
    result = run(spawner, project, "grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status")
    masks = [int(line.split()[1], 16) for line in result.stdout.splitlines()]
    assert len(masks) == 2 and not any(mask & ~of_the_c_library for mask in masks)


def test_what_is_armed_in_the_harness_is_not_armed_in_its_processes(
    kind: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "early.py").write_text("from points import SAVED\nfrom killpoints import reach\nreach(SAVED)\n")
    (project / "eager.py").write_text("import early\n")
    monkeypatch.setenv("KILLPOINTS", "shop.saved=kill")
    with open_kind(kind, project) as spawner:
        assert run(spawner, project, "python", "-m", "eager").exit_code == 0
        assert getattr(spawner, "cold", {}) == {}, "the process server was killed"


def test_output_larger_than_a_pipe(spawner: Spawner, project: Path) -> None:
    result = run(spawner, project, "sh", "-c", "head -c 300000 /dev/zero; head -c 200000 /dev/zero >&2")
    assert (len(result.stdout), len(result.stderr)) == (300_000, 200_000)


def test_nothing_is_lost_of_what_several_processes_write_at_once(spawner: Spawner, project: Path) -> None:
    """A line that is written over could be an acknowledgement."""
    (project / "crowd.py").write_text(
        "import os\n"
        "children = []\n"
        "for who in range(2):\n"
        "    children.append(os.fork())\n"
        "    if not children[-1]:\n"
        "        for number in range(20_000): os.write(1 + number % 2, b'%d %d\\n' % (who, number))\n"
        "        os._exit(0)\n"
        "for child in children: os.waitpid(child, 0)\n"
    )
    result = run(spawner, project, "python", "-m", "crowd")
    lines = [*result.stdout.splitlines(), *result.stderr.splitlines()]
    assert sorted(lines) == sorted(b"%d %d" % (who, number) for who in range(2) for number in range(20_000))


def test_output_is_kept_up_to_a_bound(spawner: Spawner, project: Path) -> None:
    result = run(spawner, project, "sh", "-c", "head -c 9000000 /dev/zero")
    assert result.exit_code == 0 and len(result.stdout) == 8 << 20


def test_a_process_that_writes_without_end_is_ended(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "OUTPUT_END_BYTES", 1 << 20)
    with open_spawner("exec", project=project) as spawner:
        result = run(spawner, project, "sh", "-c", "head -c 2000000 /dev/zero; sleep 300")
    assert result.timed_out and b"more than 1 MiB" in result.stderr


def test_more_records_than_a_pipe_holds(spawner: Spawner, tmp_path: Path, project: Path) -> None:
    script = tmp_path / "many.py"
    script.write_text("from points import SAVED\nfrom killpoints import reach\nfor _ in range(40_000): reach(SAVED)\n")
    result = run(spawner, project, "python", str(script), plan="shop.saved#40000=kill")
    assert result.died_by == "SIGKILL"
    assert [record.hit for record in result.records] == list(range(1, 40_001))
    assert [record.kind for record in fired(result)] == ["kill"]


def test_lines_that_are_no_records_are_dropped(spawner: Spawner, project: Path) -> None:
    line = r"printf 'junk\nkill\tshop.paid\tx\t1\n\377\n\n' >&$KILLPOINTS_CONTROL"
    script = f'eval "exec 9>&$KILLPOINTS_CONTROL"; {line.replace("$KILLPOINTS_CONTROL", "9")}'
    result = run(spawner, project, "bash", "-c", script)
    assert result.exit_code == 0 and result.records == (), result.stderr


def test_two_spawners_at_once(project: Path) -> None:
    with open_spawner("fork", project=project) as one, open_spawner("fork", project=project) as two:
        first = start(one, project, "python", "-m", "shop", plan="shop.saved=pause")
        second = start(two, project, "python", "-m", "shop", plan="shop.saved=pause")
        assert first.wait_for_pause() is not None and second.wait_for_pause() is not None
        one.close()
        second.resume()
        assert second.wait().exit_code == 0
        with pytest.raises(SpawnError):
            first.wait()


def test_a_spawner_that_is_closed_starts_nothing(project: Path) -> None:
    for spawner in (PortableSpawner(project), open_spawner("exec", project=project)):
        spawner.close()
        spawner.close()
        with pytest.raises(SpawnError, match="closed"):
            run(spawner, project, "true")
