"""explain: the row that recover would take or refuse with, in words, without a lock and without a change."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import signal
from collections.abc import Callable

import pytest

import killpoints
from product.collector import explaining, observe, upkeep
from product.collector.claims import TakeoverPhase
from product.collector.layout import Layout
from product.collector.records import Phase
from product.collector.states import REFUSALS, TABLES
from product.durable.owner import OWNER_TABLE
from tests.collector.helpers import (
    LOCK,
    PENDING,
    QUARANTINE,
    Collector,
    Ran,
    canonical,
    copy_of,
    needs_linux,
    needs_posix,
    own_stamp,
    set_holder,
)
from tests.collector.pending_samples import make_pending, make_takeover

HELD, INTENT = "collector.claim.HELD", "collector.transaction.TRANSACTION_INTENT"
SCREEN_LINES = 24


def explained(collector: Collector, *, elsewhere: bool = False) -> Ran:
    """The answer, of this process or of one ``elsewhere``; not one byte is changed, and the words fit on a screen."""
    before = collector.tree()
    ran = (collector.run if elsewhere else collector.call)("explain")
    assert before.differences(collector.tree()) == []
    answer = ran.require_done()
    assert "words" not in answer and len(ran.words.splitlines()) <= SCREEN_LINES
    told = [answer["row"], answer["refuses"], answer["run"], *answer["facts"].values()]
    told += [text for obstacle in answer["in_the_way"] for text in obstacle.values()]
    assert all(text in ran.words for text in told if text is not None)
    return ran


# ------------------------------------------------------------------------------------------- the words are complete


def test_every_refusing_row_has_words_and_no_other() -> None:
    refusing = {row.label for table in TABLES.values() for row in table.rows if row.action in REFUSALS}
    assert set(explaining.ADVICE) == refusing
    assert all(advice.what and advice.unblocks and advice.run for advice in explaining.ADVICE.values())


def test_every_value_of_every_column_has_words_and_no_other() -> None:
    values = {value for table in TABLES.values() for column in table.columns.values() for value in column}
    assert set(explaining.FACTS) == values


def test_every_row_of_the_state_lock_has_words_and_each_refusal_says_what_unblocks_it() -> None:
    assert set(explaining.STATE_LOCK) == {row.label for row in OWNER_TABLE.rows}
    refusing = {row.label for row in OWNER_TABLE.rows if row.action.value.startswith("refuse")}
    assert {label for label, (_, unblocks) in explaining.STATE_LOCK.items() if unblocks} == refusing


@pytest.mark.parametrize("phase", TakeoverPhase)
def test_the_holder_told_is_the_one_that_the_tables_ask_about(
    phase: TakeoverPhase, monkeypatch: pytest.MonkeyPatch, collector: Collector
) -> None:
    pending = make_takeover(phase) if phase is not TakeoverPhase.NONE else make_pending(Phase.TRANSACTION_INTENT)
    asked = []
    monkeypatch.setattr(observe, "classify_holder", lambda *holder: asked.append(holder))
    observe.observe_claim(Layout(collector.state, collector.archive), pending)
    record = explaining.asked_holder(pending)
    assert record is not None and asked == [(record.holder.pid, record.holder.created_at)]


# -------------------------------------------------------------------------------------- what it says is what happens


@needs_posix
@pytest.mark.parametrize("scenario", ["commit", "recover"])
def test_at_every_point_check_is_clean_and_explain_names_the_row_that_recover_takes(
    collector: Collector, scenario: str
) -> None:
    """Killed at every step of a commit, and at every point of a takeover: nothing a death leaves is a finding."""
    collector.commit()
    commit = ("commit", "--evidence", collector.evidence("second", [2, 3], hour="2026-11-30T13"))
    command = commit if scenario == "commit" else ("recover",)
    base = collector.tree()

    def begin(name: str) -> Collector:
        one = copy_of(base, collector.home / name)
        assert scenario == "commit" or fork(one, f"{INTENT}#1=kill", *commit) == -signal.SIGKILL
        return one

    names = [name for name in reached(begin("reached"), *command) if scenario == "commit" or "/" not in name]
    assert len(names) > (60 if scenario == "commit" else 15)
    for number, name in enumerate(names):
        one = begin(f"{number}")
        assert fork(one, f"{name}#1=kill", *command) == -signal.SIGKILL, name
        assert one.call("check").require_done()["findings"] == [], name
        told = explained(one).answer
        assert told["refuses"] is None, name
        rows = one.call("recover").require_done()["rows"]
        assert rows[: len(told["rows"])] == told["rows"] if rows else told["row"] == "I1", name
        assert one.call("check").require_done()["counts"]["temporaries"] == 0, name


def reached(collector: Collector, *arguments: str) -> list[str]:
    """The points that the command passes, each once."""
    reader, writer = os.pipe()
    with open(reader) as records:
        assert fork(collector, "", *arguments, trace_fd=writer) == 0
        os.close(writer)
        return list(dict.fromkeys(record.split("\t")[1] for record in records))


def fork(collector: Collector, plan: str, *arguments: str, trace_fd: int | None = None) -> int:
    """Run the command in a forked process with that plan: its exit status, or the negative number of its signal."""
    pid = os.fork()
    if pid == 0:
        try:
            killpoints.arm(plan, control_fd=trace_fd, trace=trace_fd is not None)
            os._exit(collector.call(*arguments).status)
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# -------------------------------------------------------------------------------------------------- who holds it


@needs_posix
def test_a_dead_holder_is_told_with_its_number_and_its_time(collector: Collector) -> None:
    pid = collector.kill(HELD, "commit", "--evidence", collector.evidence())
    ran = explained(collector)
    answer = ran.answer
    record = collector.pending["formal_lock_claim"]["lock_record"]
    assert (answer["table"], answer["row"], answer["action"]) == ("Claim", "C6", "plan takeover")
    assert answer["facts"] == {"main_lock": "OLD", "holder": "DEAD", "claim": "HELD", "phase": "PREPARED"}
    holder = answer["holder"]
    assert (holder["pid"], holder["since"], holder["answer"]) == (pid, record["lock_created_at"], "DEAD")
    assert f"pid {pid} for run first since {record['lock_created_at']}" in ran.words and "dead, proven" in ran.words
    assert answer["state_lock"]["row"] == "S2" and answer["state_lock"]["pid"] == pid
    assert (answer["in_the_way"], answer["run"]) == ([], "python -m product.collector recover")


@needs_linux
@pytest.mark.parametrize(
    ("stamp", "row", "code", "says"),
    [
        (own_stamp, "C-HELD-ALIVE", "E_FORMAL_LOCK_BUSY", "it lives"),
        (lambda: own_stamp(-1), "C-HELD-REUSED", "E_FORMAL_LOCK_PID_REUSE", "another process now"),
        (
            lambda: of_another_machine(own_stamp()),
            "C-HELD-UNPROVEN",
            "E_FORMAL_LOCK_OWNER_UNPROVEN",
            "nothing is proven",
        ),
    ],
)
def test_a_holder_that_is_not_proven_dead_is_in_the_way(
    collector: Collector, stamp: Callable[[], str], row: str, code: str, says: str
) -> None:
    collector.kill(HELD, "commit", "--evidence", collector.evidence())
    set_holder(collector.home, os.getpid(), stamp())
    ran = explained(collector, elsewhere=True)
    assert (ran.answer["row"], ran.answer["refuses"], ran.answer["holder"]["pid"]) == (row, code, os.getpid())
    assert says in ran.answer["holder"]["words"] and says in ran.words
    assert collector.run("recover").answer["code"] == code


def of_another_machine(stamp: str) -> str:
    system, _, _, space, start = stamp.split(":")
    return f"{system}:{'0' * 32}:01234567-89ab-cdef-0123-456789abcdef:{space}:{start}"


@needs_linux
def test_it_answers_while_somebody_is_at_work(collector: Collector) -> None:
    with collector.started("commit", "--evidence", collector.evidence(), plan=f"{INTENT}#1=pause") as holder:
        holder.await_pause(INTENT)
        ran = explained(collector)
        state_lock = ran.answer["state_lock"]
        assert (state_lock["row"], state_lock["pid"], state_lock["run_id"]) == ("S4", holder.pid, "first")
        assert [obstacle["code"] for obstacle in ran.answer["in_the_way"]] == ["E_STATE_LOCKED", "E_FORMAL_LOCK_BUSY"]
        assert ran.answer["run"].endswith("recover --wait 60")
        assert f"pid {holder.pid} for first since {state_lock['since']}" in ran.words
        holder.resume()
        holder.end().require_done()
    assert explained(collector).answer["row"] == "I1"


@needs_linux
@pytest.mark.parametrize(
    ("owner", "code"),
    [
        (lambda: {"pid": os.getpid(), "process_created_at": own_stamp(-1)}, "E_STATE_OWNER_PID_REUSE"),
        (lambda: {"process_created_at": of_another_machine(own_stamp())}, "E_STATE_OWNER_UNPROVEN"),
        (lambda: {"pid": True}, "E_STATE_OWNER_THIRD_CONTENT"),
    ],
)
def test_metadata_of_the_state_lock_that_is_in_the_way_comes_first(
    collector: Collector, owner: Callable[[], dict[str, object]], code: str
) -> None:
    collector.kill(HELD, "commit", "--evidence", collector.evidence())
    path = collector.state / ".collector.lock.owner.json"
    path.write_bytes(canonical(json.loads(path.read_bytes()) | owner()))
    ran = explained(collector, elsewhere=True)
    assert (ran.answer["row"], ran.answer["refuses"]) == ("C6", code)
    assert collector.run("recover").answer["code"] == code


# ------------------------------------------------------------------------------------------------ what is odd


def foreign_lock(c: Collector) -> str:
    (c.home / LOCK).write_bytes(b"{}")
    return "I-AMBIGUOUS"


def unlisted_item(c: Collector) -> str:
    (c.home / QUARANTINE / "first-g0-x.json").write_bytes(b"{}")
    return "I-AMBIGUOUS"


def foreign_lock_of_a_begun_run(c: Collector) -> str:
    c.call("begin", "--task", "task-1").require_done()
    foreign_lock(c)
    return "B-AMBIGUOUS"


def clock_of_the_future(c: Collector) -> str:
    die_in_second(c, HELD)
    pending = c.pending
    claim = pending["formal_lock_claim"]
    claim["lock_record"] |= {"lock_created_at": "2099-01-01T00:00:00Z"}
    lock = canonical(claim["lock_record"])
    claim |= {"lock_bytes": lock.decode(), "lock_sha256": hashlib.sha256(lock).hexdigest()}
    c.write_pending(pending)
    (c.home / LOCK).write_bytes(lock)
    return "Q-AMBIGUOUS"


def lost_lock(c: Collector) -> str:
    die_in_second(c, HELD)
    (c.home / LOCK).unlink()
    return "C-AMBIGUOUS"


def third_lock_under_a_takeover(c: Collector) -> str:
    die_in_second(c, HELD)
    c.kill("collector.takeover.TAKEOVER_PLANNED", "recover")
    (c.home / LOCK).write_bytes(b"{}")
    return "T-AMBIGUOUS"


def longer_manifest(c: Collector) -> str:
    die_in_second(c, INTENT)
    with (c.archive / "cards/000001.jsonl").open("ab") as file:
        file.write(b"{}\n")
    return "X-AMBIGUOUS"


def broken_chain_before_the_run(c: Collector) -> str:
    """PREPARED: the archive is read for it, without an index, and cannot be."""
    die_in_second(c, HELD)
    path = c.archive / "cards/000001.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"seq":1', b'"seq":9'))
    return "X-AMBIGUOUS"


def die_in_second(c: Collector, point: str) -> None:
    c.kill(point, "commit", "--evidence", c.evidence("second", [3], hour="2026-11-30T13"))


ODD = (
    foreign_lock, unlisted_item, foreign_lock_of_a_begun_run, clock_of_the_future, lost_lock,
    third_lock_under_a_takeover, longer_manifest, broken_chain_before_the_run,
)  # fmt: skip


@needs_linux
@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd.__name__)
def test_a_state_without_a_row_is_told_as_recover_refuses_it(
    collector: Collector, odd: Callable[[Collector], str]
) -> None:
    collector.commit()
    row = odd(collector)
    ran = explained(collector)
    assert (ran.answer["row"], ran.answer["refuses"]) == (row, "E_RECOVERY_AMBIGUOUS")
    assert ran.answer["run"] == "python -m product.collector check"
    refused = collector.run("recover").require_refused("E_RECOVERY_AMBIGUOUS", 70)
    assert (refused["row"], refused["detail"]["found"]) == (row, ran.answer["facts"])


@pytest.mark.parametrize(
    ("file", "data", "pointer"),
    [
        (PENDING, b"{", ""),
        (PENDING, b'{"phase":"BEGUN"}', ""),
        (PENDING, None, "/phase"),
        ("state/refresh/leftovers.json", b'{"items":[1],"schema_version":1}', "/items/0"),
    ],
)
def test_a_broken_record_is_named_with_its_pointer_and_left_as_it_is(
    collector: Collector, file: str, data: bytes | None, pointer: str
) -> None:
    collector.commit()
    collector.call("begin", "--task", "task-1").require_done()
    if data is None:
        collector.write_pending(collector.pending | {"phase": "LATER"})
    else:
        (collector.home / file).write_bytes(data)
    ran = explained(collector)
    answer = ran.answer
    assert (answer["row"], answer["refuses"]) == (None, "E_RECOVERY_AMBIGUOUS")
    assert (answer["file"], answer["pointer"]) == (file.partition("/")[2], pointer)
    assert answer["file"] in ran.words and answer["run"] == "python -m product.collector check"


def test_what_the_tables_do_not_ask_about_is_in_the_way_too(collector: Collector) -> None:
    collector.commit()
    (collector.home / QUARANTINE / ".owner-marker.json").write_bytes(b"{}")
    latest = collector.state / "refresh/latest.json"
    latest.write_bytes(canonical(json.loads(latest.read_bytes()) | {"hour": "2026-11-30T15:00:00Z", "slot": 111}))
    ran = explained(collector)
    assert (ran.answer["row"], ran.answer["refuses"]) == ("I1", "E_RECOVERY_AMBIGUOUS")
    assert [obstacle["what"] for obstacle in ran.answer["in_the_way"]] == [
        "the quarantine directory's marker has other content",
        "latest.json points at a slot that is not there",
    ]


def test_a_begun_run_waits_for_its_evidence(collector: Collector) -> None:
    collector.call("begin", "--task", "task-1", "--run-id", "mine").require_done()
    ran = explained(collector)
    assert (ran.answer["row"], ran.answer["refuses"]) == ("B1", None)
    assert "run mine of" in ran.words and ran.answer["run"].endswith("commit --evidence FILE")


def test_roots_of_which_nothing_is_there_yet(collector: Collector) -> None:
    assert explained(collector).answer["row"] == "I1"


def test_pending_that_changes_under_the_reading_is_read_again(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody begins a run just after it was seen that there is none."""
    look, begun = upkeep._view, itertools.count()

    def and_then_begin(layout: Layout) -> explaining.View:
        view = look(layout)
        if next(begun) == 0:
            collector.call("begin", "--task", "task-1").require_done()
        return view

    monkeypatch.setattr(upkeep, "_view", and_then_begin)
    assert collector.call("explain").require_done()["row"] == "B1"
