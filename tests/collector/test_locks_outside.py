"""Two commands at once, holders that live, and locks that somebody else has put there: real processes, real files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from product.durable import processes
from product.durable.processes import Presence, Sighting
from tests.collector.helpers import (
    Collector,
    canonical,
    die_at,
    needs_linux,
    needs_posix,
    nothing_changes,
    own_stamp,
    set_holder,
    stamp_of,
)

pytestmark = [needs_posix, needs_linux]

HELD = "collector.claim.HELD"
OWNER = ".collector.lock.owner.json"


def commit(collector: Collector, run_id: str = "first", **changes: object) -> tuple[str, ...]:
    return ("commit", "--evidence", collector.evidence(run_id, **changes))  # type: ignore[arg-type]


def die_holding(collector: Collector) -> None:
    die_at(collector, HELD)


def require_finished(collector: Collector) -> None:
    assert collector.settled() and collector.posts() == [1, 2] and collector.run_ids() == ["first"]


@contextmanager
def somebody() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives and has nothing to do with the collector."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.send_signal(signal.SIGCONT)
        process.communicate()


# ------------------------------------------------------------------------------------------------ the state lock


ALL_ALONG = [
    "collector.state.locked",
    "collector.evidence.stored",
    "collector.claim.PLANNED",
    "collector.lock.created",
    "collector.transaction.cards-new",
    "collector.transaction.TERMINAL",
    "collector.release.lock",
    "collector.state.owner-removed",
]


@pytest.mark.parametrize("point", ALL_ALONG)
def test_whoever_comes_second_is_refused_and_changes_nothing(collector: Collector, point: str) -> None:
    """The second is this process."""
    other = commit(collector, "second", hour="2026-11-30T13")
    begin = ("begin", "--task", "task-1", "--run-id", "third", "--at", "2099-01-01T00:00:00Z")
    with collector.started(*commit(collector), plan=f"{point}#1=pause") as holder:
        holder.await_pause(point)
        before = collector.tree()
        for command in (other, ("recover",), begin):
            refused = collector.call(*command).require_refused("E_STATE_LOCKED", 75)
            owner = refused["detail"]["owner"]
            assert owner is None or (owner["pid"], owner["run_id"]) == (holder.pid, "first")
        collector.call("status").require_done()
        assert before.differences(collector.tree()) == []
        holder.resume()
        holder.end().require_done()
    require_finished(collector)


def test_two_commands_of_a_user_at_once(collector: Collector) -> None:
    second = commit(collector, "second", hour="2026-11-30T13")
    with collector.started(*commit(collector), plan=f"{HELD}#1=pause") as holder:
        holder.await_pause(HELD)
        before = collector.tree()
        collector.run(*second).require_refused("E_STATE_LOCKED", 75)
        assert before.differences(collector.tree()) == []
        holder.resume()
        holder.end().require_done()
    require_finished(collector)


def test_a_takeover_is_one_process_s_as_well(collector: Collector) -> None:
    """V004 3: of two recoveries only the one that has the state lock moves anything."""
    die_holding(collector)
    point = "collector.takeover.rename"
    with collector.started("recover", plan=f"{point}#1=pause") as winner:
        winner.await_pause(point)
        before = collector.tree()
        collector.call("recover").require_refused("E_STATE_LOCKED", 75)
        assert before.differences(collector.tree()) == []
        winner.resume()
        assert "T2" in winner.end().require_done()["rows"]
    require_finished(collector)


def test_b019_a_stopped_holder_is_alive(collector: Collector) -> None:
    with collector.started(*commit(collector), plan=f"{HELD}#1=pause") as holder:
        holder.await_pause(HELD)
        holder.send(signal.SIGSTOP)
        holder.await_state(os.WSTOPPED)
        before = collector.tree()
        collector.call("recover").require_refused("E_STATE_LOCKED", 75)
        assert before.differences(collector.tree()) == []
        holder.send(signal.SIGCONT)
        holder.resume()
        holder.end().require_done()
    require_finished(collector)


def test_wait_comes_after_the_holder(collector: Collector) -> None:
    """It says that it waits by the first nap it takes; nothing here rests on how long."""
    announce = "import time; nap = time.sleep; time.sleep = lambda s: (sys.stderr.write('waiting\\n'), nap(s))"
    second = (*commit(collector, "second", posts=[2, 3], hour="2026-11-30T13"), "--wait", "600")
    with collector.started(*commit(collector), plan=f"{HELD}#1=pause") as holder:
        holder.await_pause(HELD)
        with collector.started(*second, patch=announce) as waiting:
            assert waiting.read_word() == "waiting\n"
            holder.resume()
            holder.end().require_done()
            assert waiting.end().require_done()["cards_appended"] == 1
    assert collector.run_ids() == ["first", "second"] and collector.posts() == [1, 2, 3]


def test_wait_ends_with_the_holder_s_death(collector: Collector) -> None:
    announce = "import time; nap = time.sleep; time.sleep = lambda s: (sys.stderr.write('waiting\\n'), nap(s))"
    with collector.started(*commit(collector), plan=f"{HELD}#1=pause") as holder:
        holder.await_pause(HELD)
        with collector.started("recover", "--wait", "600", patch=announce) as waiting:
            assert waiting.read_word() == "waiting\n"
            holder.send(signal.SIGKILL)
            assert "C6" in waiting.end().require_done()["rows"]
    require_finished(collector)


def test_b018_a_dead_holder_that_nobody_has_reaped_is_dead(collector: Collector) -> None:
    with collector.started(*commit(collector), plan=f"{HELD}#1=pause") as holder:
        holder.await_pause(HELD)
        holder.send(signal.SIGKILL)
        holder.await_state(os.WEXITED)
        assert Path(f"/proc/{holder.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        assert collector.call("recover").require_done()["rows"][:2] == ["C6", "T1"]
    require_finished(collector)


@pytest.mark.parametrize("content", [b"", b"{}", b"\0", b'{"pid":', b"not JSON"])
def test_metadata_of_nobody_is_a_safety_stop(collector: Collector, content: bytes) -> None:
    die_holding(collector)
    (collector.state / OWNER).write_bytes(content)
    before = collector.tree()
    for _ in range(2):
        collector.call("recover").require_refused("E_STATE_OWNER_THIRD_CONTENT", 70)
    assert before.differences(collector.tree()) == []


@pytest.mark.parametrize(("offset", "code", "status"), [(0, "E_STATE_LOCKED", 75), (-1, "E_STATE_OWNER_PID_REUSE", 70)])
def test_metadata_of_a_living_process_is_a_safety_stop(
    collector: Collector, offset: int, code: str, status: int
) -> None:
    die_holding(collector)
    owner = json.loads((collector.state / OWNER).read_bytes())
    owner |= {"pid": os.getppid(), "process_created_at": stamp_of(os.getppid(), offset)}
    (collector.state / OWNER).write_bytes(canonical(owner))
    before = collector.tree()
    collector.call("recover").require_refused(code, status)
    assert before.differences(collector.tree()) == []


def replace_by_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def replace_by_text(path: Path) -> None:
    path.write_bytes(b"locked by somebody")


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("change", [replace_by_link, replace_by_text, replace_by_directory])
def test_b070_a_state_lock_of_another_form_is_a_safety_stop(
    collector: Collector, change: Callable[[Path], None]
) -> None:
    collector.commit()
    change(collector.state / ".collector.lock")
    before = collector.tree()
    for command in (("recover",), commit(collector)):
        collector.call(*command).require_refused("E_STATE_OWNER_THIRD_CONTENT", 70)
    assert before.differences(collector.tree()) == []


# ------------------------------------------------------------------------------ the formal lock and who holds it


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_a_living_holder_is_never_robbed_whoever_has_the_state_lock(collector: Collector, stopped: bool) -> None:
    die_holding(collector)
    with somebody() as holder:
        if stopped:
            holder.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, holder.pid, os.WSTOPPED | os.WNOWAIT)
        set_holder(collector.home, holder.pid, stamp_of(holder.pid))
        for command in (("recover",), commit(collector, "second", hour="2026-11-30T13")):
            with nothing_changes(collector):
                answer = collector.call(*command).require_refused("E_FORMAL_LOCK_BUSY", 75)
            assert answer["row"] == "C-HELD-ALIVE" and answer["detail"]["found"]["holder"] == "ALIVE"
    collector.call("recover").require_done()
    require_finished(collector)


def test_b005_another_process_with_the_holder_s_number_is_not_the_holder(collector: Collector) -> None:
    die_holding(collector)
    with somebody() as impostor:
        set_holder(collector.home, impostor.pid, stamp_of(impostor.pid, -50))
        with nothing_changes(collector):
            answer = collector.call("recover").require_refused("E_FORMAL_LOCK_PID_REUSE", 70)
        assert answer["row"] == "C-HELD-REUSED"
    collector.call("recover").require_done()
    require_finished(collector)


def test_b005_a_reused_number_frees_a_claim_that_never_became_a_lock(collector: Collector) -> None:
    """T6: in CREATE_PLANNED nothing carries the planned holder's name yet."""
    die_holding(collector)
    collector.kill("collector.takeover.CREATE_PLANNED", "recover")
    set_holder(collector.home, os.getppid(), stamp_of(os.getppid(), -50))
    assert collector.pending["takeover"]["claim_attempt"] == 0
    assert collector.call("recover").require_done()["rows"][:3] == ["T6", "T5", "T7"]
    require_finished(collector)


def test_t9_a_new_lock_of_a_reused_number_is_ambiguous(collector: Collector) -> None:
    die_holding(collector)
    collector.kill("collector.takeover.new-lock", "recover")
    set_holder(collector.home, os.getppid(), stamp_of(os.getppid(), -50))
    with nothing_changes(collector):
        answer = collector.call("recover").require_refused("E_RECOVERY_AMBIGUOUS", 70)
    assert answer["row"] == "T9"


def test_b009_our_own_number_with_another_stamp_is_a_process_that_is_gone(collector: Collector) -> None:
    """The lock and the metadata both carry the number that this process has now: pid 1 of a restarted container."""
    die_holding(collector)
    earlier = own_stamp(-6000)
    set_holder(collector.home, os.getpid(), earlier)
    owner = json.loads((collector.state / OWNER).read_bytes()) | {"pid": os.getpid(), "process_created_at": earlier}
    (collector.state / OWNER).write_bytes(canonical(owner))
    assert collector.call("recover").require_done()["rows"][:2] == ["C6", "T1"]
    require_finished(collector)


@pytest.fixture
def deny(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """From then on the system refuses to say anything about that process."""
    ask = processes.observe_process

    def deny(pid: int) -> None:
        denied = Sighting(Presence.FAILED, reason="access denied")
        monkeypatch.setattr(processes, "observe_process", lambda other: denied if other == pid else ask(other))

    return deny


def test_b016_a_query_that_is_denied_proves_nothing(
    collector: Collector, deny: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder is dead, in fact. Only "no such process" says so."""
    die_holding(collector)
    deny(collector.pending["formal_lock_claim"]["lock_record"]["holder_pid"])
    (collector.state / OWNER).unlink()  # or the question would already fail about the state lock's owner
    with nothing_changes(collector):
        answer = collector.call("recover").require_refused("E_FORMAL_LOCK_OWNER_UNPROVEN", 70)
    assert answer["row"] == "C-HELD-UNPROVEN"
    monkeypatch.undo()
    collector.call("recover").require_done()
    require_finished(collector)


def test_b016_so_does_one_about_the_state_lock_s_owner(collector: Collector, deny: Callable[[int], None]) -> None:
    die_holding(collector)
    deny(json.loads((collector.state / OWNER).read_bytes())["pid"])
    before = collector.tree()
    collector.call("recover").require_refused("E_STATE_OWNER_UNPROVEN", 70)
    assert before.differences(collector.tree()) == []


def test_another_machine_s_holder_is_not_provably_dead(collector: Collector) -> None:
    die_holding(collector)
    system, _, _, space, ticks = own_stamp().split(":")
    set_holder(collector.home, 4000, f"{system}:{'0' * 31}1:01234567-89ab-cdef-0123-456789abcdef:{space}:{ticks}")
    with nothing_changes(collector):
        collector.call("recover").require_refused("E_FORMAL_LOCK_OWNER_UNPROVEN", 70)
