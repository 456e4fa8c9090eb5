"""Who is alive: the table against a second reading of its words, and real processes in every state."""

from __future__ import annotations

import errno
import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from product.durable import canonical, identity, processes
from product.durable.identity import (
    HOLDER_TABLE,
    Boot,
    Holder,
    Pid,
    PidSpace,
    Query,
    classify_holder,
    compare_boots,
    is_wellformed,
    own_identity,
)
from product.durable.processes import Presence, Sighting, Stamp
from tests.durable.support import (
    NEW_PID_NAMESPACE,
    needs_linux,
    needs_namespaces,
    needs_posix,
    needs_root,
    run_worker,
    running,
)

MACHINE, BOOT = "a" * 32, "12345678-1234-1234-1234-123456789abc"
OTHER_BOOT = "87654321-4321-4321-4321-cba987654321"
TOKEN = f"linux:{MACHINE}:{BOOT}:4026531836:178907"


# --------------------------------------------------------------------------------------------------- the table


def read_words(boot: Boot, space: PidSpace, pid: Pid, query: Query) -> Holder:
    """The table of collector.md read as prose, top to bottom: the first sentence that applies."""
    if boot is Boot.OTHER:
        return Holder.UNPROVEN
    if boot is Boot.EARLIER or space is PidSpace.OTHER:
        return Holder.DEAD
    if pid is not Pid.OTHER:
        return Holder.SELF if pid is Pid.OURS else Holder.DEAD
    answers = {Query.GONE: Holder.DEAD, Query.SAME_STAMP: Holder.ALIVE, Query.OTHER_STAMP: Holder.REUSED}
    return answers.get(query, Holder.UNPROVEN)


def test_the_table_says_what_its_words_say_for_every_state() -> None:
    states = list(HOLDER_TABLE.states())
    assert len(states) == 3 * 2 * 3 * 5
    for state, row in states:
        assert row.action is read_words(**state), row.label  # type: ignore[arg-type]


def test_the_docstring_has_the_rows_of_the_code() -> None:
    lines = re.findall(r"^(H[0-9]+) .* ([A-Z]+)$", str(identity.__doc__), re.MULTILINE)
    assert lines == [(row.label, row.action.value) for row in HOLDER_TABLE.rows]


def test_death_is_never_concluded_from_a_failed_question() -> None:
    for state, row in HOLDER_TABLE.states():
        if state["boot"] is Boot.THIS and state["space"] is PidSpace.OURS and state["pid"] is Pid.OTHER:
            assert (row.action is Holder.DEAD) == (state["query"] is Query.GONE)


# ------------------------------------------------------------------------------------------------------- boots


def stamp(machine: str = MACHINE, boot: str = BOOT, system: str = "linux") -> Stamp:
    return Stamp(system, machine, boot, 4026531836, 178907)


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"),
    [
        (stamp(), stamp(), Boot.THIS),
        (stamp(machine="-"), stamp(), Boot.THIS),  # the name of a boot is enough
        (stamp(machine="-"), stamp(machine="-"), Boot.THIS),
        (stamp(boot=OTHER_BOOT), stamp(), Boot.EARLIER),
        (stamp(boot=OTHER_BOOT, machine="b" * 32), stamp(), Boot.OTHER),
        (stamp(boot=OTHER_BOOT, machine="-"), stamp(machine="-"), Boot.OTHER),  # two unknown machines are not one
        (stamp(boot=OTHER_BOOT, machine="-"), stamp(), Boot.OTHER),
        (stamp(boot=OTHER_BOOT), stamp(machine="-"), Boot.OTHER),
        (stamp(system="macos"), stamp(), Boot.OTHER),
        (stamp(system="windows", boot="-"), stamp(system="windows", boot="-"), Boot.THIS),
        (stamp(system="windows", boot="-", machine="-"), stamp(system="windows", boot="-", machine="-"), Boot.OTHER),
        (stamp(system="windows", boot="-"), stamp(system="windows", boot="-", machine="b" * 32), Boot.OTHER),
    ],
)
def test_which_boot_a_stamp_is_from(theirs: Stamp, ours: Stamp, expected: Boot) -> None:
    assert compare_boots(theirs, ours) is expected


def classify(monkeypatch: pytest.MonkeyPatch, theirs: Stamp, ours: Stamp) -> Holder:
    monkeypatch.setattr(processes, "own_stamp", lambda: ours)
    token = f"{theirs.system}:{theirs.machine}:{theirs.boot}:{theirs.space}:{theirs.start}"
    return classify_holder(2**22, token)


def test_a_boot_before_this_one_is_gone_with_all_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert classify(monkeypatch, stamp(boot=OTHER_BOOT), stamp()) is Holder.DEAD
    assert classify(monkeypatch, stamp(boot=OTHER_BOOT, machine="-"), stamp()) is Holder.UNPROVEN
    assert classify(monkeypatch, replace(stamp(), space=1), stamp()) is Holder.DEAD


@pytest.mark.parametrize("text", ["", "uninitialized\n", "short\n", "A" * 32, "g" * 32, b"\xff" * 32])
def test_a_machine_id_that_is_none_is_unknown(monkeypatch: pytest.MonkeyPatch, text: Any) -> None:
    monkeypatch.setattr(processes, "_read_text", lambda path: str(text).strip())
    assert processes._linux_machine() == processes.UNKNOWN


def test_a_machine_id_that_cannot_be_read_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: str) -> str:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(processes, "_read_text", denied)
    assert processes._linux_machine() == processes.UNKNOWN


# ---------------------------------------------------------------------------------------------------- the token


def test_b003_the_stamp_is_exact_and_survives_json() -> None:
    own = own_identity()
    assert all(own_identity() == own for _ in range(100))
    assert is_wellformed(own.pid, own.created_at)
    assert canonical.decode(canonical.encode([own.pid, own.created_at])) == [own.pid, own.created_at]
    assert own.created_at.rsplit(":", 1)[1].isdigit()


@needs_posix
def test_b003_a_stamp_off_by_one_is_another_process_and_never_a_dead_one() -> None:
    with running("identify") as worker:
        answer = worker.ask()
        place, _, start = answer["created_at"].rpartition(":")
        for off in (-1, 1):
            assert classify_holder(answer["pid"], f"{place}:{int(start) + off}") is Holder.REUSED


@pytest.mark.parametrize("pid", [0, -1, True, False, 1.0, "1", None, 2**22 + 1, 2**31, 2**64])
def test_b136_a_malformed_pid_is_no_holder(monkeypatch: pytest.MonkeyPatch, pid: Any) -> None:
    monkeypatch.setattr(processes, "own_stamp", never_asked)
    monkeypatch.setattr(processes, "observe_process", never_asked)
    assert not is_wellformed(pid, TOKEN)
    with pytest.raises(ValueError, match="malformed holder"):
        classify_holder(pid, TOKEN)


def never_asked(*arguments: object) -> None:
    raise AssertionError("the system was asked about a malformed holder")


@pytest.mark.parametrize(
    "token",
    [
        *("", "linux", "linux::::", None, True, 178907, TOKEN.encode()),
        *(f"{TOKEN} ", f"{TOKEN}\n", f"{TOKEN}:1", TOKEN.upper(), TOKEN.replace("178907", "0178907")),
        *(TOKEN.replace("178907", "-1"), TOKEN.replace("178907", "1.5"), TOKEN.replace(":178907", "")),
        *(TOKEN.replace(MACHINE, "a" * 31), TOKEN.replace(BOOT, "-"), TOKEN.replace("linux", "plan9")),
        TOKEN.replace("178907", "1" * 21),
        TOKEN.replace("178907", "\u0661"),
    ],
)
def test_a_malformed_token_is_no_holder(token: Any) -> None:
    assert not is_wellformed(1, token)
    with pytest.raises(ValueError, match="malformed holder"):
        classify_holder(1, token)


def test_tokens_of_other_systems_are_wellformed_and_prove_nothing() -> None:
    for token in (f"macos:{MACHINE}:{BOOT}:0:1700000000000000", f"windows:{BOOT}:-:0:133500000000000000"):
        assert is_wellformed(4, token)
        assert classify_holder(4, token) is Holder.UNPROVEN
    assert is_wellformed(2**32 - 1, f"windows:{BOOT}:-:0:133500000000000000")
    assert not is_wellformed(2**32, f"windows:{BOOT}:-:0:133500000000000000")


@given(st.text() | st.from_regex(r"(linux|macos|windows):[0-9a-f-]*:[0-9a-f-]*:[0-9]*:[0-9]*"))
def test_any_text_is_a_token_or_not(token: str) -> None:
    if is_wellformed(1, token):
        stamp = identity._parse(token)
        assert stamp is not None
        assert identity._format(stamp) == token


# ----------------------------------------------------------------------------------------------- real processes


def test_we_are_ourselves_and_not_an_earlier_process_with_our_pid() -> None:
    own = own_identity()
    place, _, start = own.created_at.rpartition(":")
    assert classify_holder(own.pid, own.created_at) is Holder.SELF
    assert classify_holder(own.pid, f"{place}:{int(start) - 6000}") is Holder.DEAD


@needs_posix
def test_a_process_is_alive_stopped_and_dead() -> None:
    with running("identify") as worker:
        answer = worker.ask()
        holder = answer["pid"], answer["created_at"]
        assert classify_holder(*holder) is Holder.ALIVE
        worker.send(signal.SIGSTOP)
        worker.await_state(os.WSTOPPED)
        assert classify_holder(*holder) is Holder.ALIVE
        worker.send(signal.SIGCONT)
        worker.send(signal.SIGKILL)
        worker.await_state(os.WEXITED)
        assert classify_holder(*holder) is Holder.DEAD  # a zombie
    assert classify_holder(*holder) is Holder.DEAD  # reaped


@needs_posix
def test_a_forked_child_is_not_its_parent() -> None:
    parent = own_identity()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        own = own_identity()
        answers = (
            own == parent,
            classify_holder(parent.pid, parent.created_at),
            classify_holder(own.pid, own.created_at),
        )
        os.write(writer, repr(answers).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 1000).decode() == repr((False, Holder.ALIVE, Holder.SELF))
    os.close(reader)
    os.close(writer)


@needs_linux
def test_b016_a_query_that_is_denied_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    own, stamp = own_identity(), processes.own_stamp()
    monkeypatch.setattr(processes, "own_stamp", lambda: stamp)
    for fault in (PermissionError(errno.EACCES, "denied"), OSError(errno.EIO, "broken"), ValueError("no such field")):

        def failing(name: str, fault: Exception = fault) -> tuple[str, int]:
            raise fault

        monkeypatch.setattr(processes, "_read_stat", failing)
        assert classify_holder(1, own.created_at) is Holder.UNPROVEN


@needs_linux
def test_no_stamp_of_our_own_proves_nothing_about_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied() -> Stamp:
        raise OSError(errno.ENOENT, "no /proc")

    token = own_identity().created_at
    monkeypatch.setattr(processes, "own_stamp", denied)
    assert classify_holder(1, token) is Holder.UNPROVEN
    with pytest.raises(OSError, match="no /proc"):
        own_identity()


@needs_root
@needs_linux
def test_b016_a_process_that_takes_no_signals_from_us_is_seen_all_the_same() -> None:
    _, start = processes._read_stat("1")
    place = own_identity().created_at.rpartition(":")[0]
    assert run_worker("classify", "1", f"{place}:{start}", "65534") == [{"holder": "ALIVE"}]
    assert run_worker("classify", "1", f"{place}:{start + 1}", "65534") == [{"holder": "REUSED"}]


HIDDEN_PROC = ("unshare", "--mount", "sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "sh")


@needs_namespaces
def test_a_process_that_proc_hides_is_not_taken_for_dead() -> None:
    with running("identify") as worker:
        answer = worker.ask()
        arguments = "classify", str(answer["pid"]), answer["created_at"], "65534"
        assert run_worker(*arguments, prefix=HIDDEN_PROC) == [{"holder": "UNPROVEN"}]
        worker.send(signal.SIGKILL)
    assert run_worker(*arguments, prefix=HIDDEN_PROC) == [{"holder": "DEAD"}]


def test_a_missing_entry_needs_the_word_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in /proc, but a signal would arrive: hidden from us, so nothing is proven."""
    assert processes._confirm_absence(os.getpid()).presence is Presence.FAILED


@needs_namespaces
def test_a_process_of_another_pid_namespace_on_this_boot_holds_no_kernel_lock_any_more() -> None:
    inside = run_worker("identify", prefix=NEW_PID_NAMESPACE)[0]
    assert classify_holder(inside["pid"], inside["created_at"]) is Holder.DEAD
    own = own_identity()
    arguments = "classify", str(own.pid), own.created_at
    assert run_worker(*arguments, prefix=NEW_PID_NAMESPACE) == [{"holder": "DEAD"}]


@needs_namespaces
def test_a_proc_of_another_namespace_is_not_believed() -> None:
    """In a new pid namespace with the old /proc, our numbers show other people's processes."""
    prefix = tuple(word for word in NEW_PID_NAMESPACE if word != "--mount-proc")
    assert run_worker("classify_child", prefix=prefix)[0]["holder"] == "UNPROVEN"
    assert run_worker("classify_child", prefix=NEW_PID_NAMESPACE)[0]["holder"] == "REUSED"


@needs_linux
def test_a_command_name_cannot_forge_its_stamp(tmp_path: Path) -> None:
    script = tmp_path / "x) Z 1 (y"
    script.write_text("#!/bin/sh\nread word\n")
    script.chmod(0o755)
    process = psutil.Popen([str(script)], stdin=-1)
    try:
        state, start = processes._read_stat(str(process.pid))
        assert state in "RSD"
        assert start > 1
    finally:
        process.communicate()


# --------------------------------------------------------------------------- the way of macOS and Windows, run here


def test_psutil_answers_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    with running("identify") as worker:
        pid = worker.ask()["pid"]
        first = processes._observe_with_psutil(pid, 1_000_000)
        assert first.presence is Presence.PRESENT
        assert first == processes._observe_with_psutil(pid, 1_000_000)
        assert first.start == processes._psutil_start(pid, 1_000_000)
        worker.send(signal.SIGKILL)
        worker.await_state(os.WEXITED)
        assert processes._observe_with_psutil(pid, 1_000_000).presence is Presence.ZOMBIE
    assert processes._observe_with_psutil(pid, 1_000_000) == Sighting(Presence.ABSENT)
    with pytest.raises(OSError, match="no creation time"):
        processes._psutil_start(pid, 1_000_000)


def test_b016_psutil_access_denied_is_a_failed_question(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(self: psutil.Process) -> float:
        raise psutil.AccessDenied(self.pid)

    monkeypatch.setattr(psutil.Process, "create_time", denied)
    assert processes._observe_with_psutil(4, 10_000_000).presence is Presence.FAILED
