"""The command line: one JSON object on stdout, words on stderr, and the exit status that SPEC.md promises."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

import product
from product.collector.errors import CollectorError
from tests.collector.helpers import Collector, armed, die_at, needs_posix
from tests.collector.test_spec import SPEC

HELD = "collector.claim.HELD"
STATUS = {
    65: ("E_EVIDENCE_SCHEMA", "E_IDENTITY_CONFLICT", "E_FEED", "E_INPUT", "E_RUN_ID_TAKEN"),
    70: (
        "E_RECOVERY_AMBIGUOUS", "E_FORMAL_LOCK_PID_REUSE", "E_FORMAL_LOCK_OWNER_UNPROVEN",
        "E_FORMAL_LOCK_VOLUME_IDENTITY", "E_STATE_OWNER_PID_REUSE", "E_STATE_OWNER_UNPROVEN",
        "E_STATE_OWNER_THIRD_CONTENT", "E_UNEXPECTED_CONTENT", "E_READ_BACK", "E_VOLUME_IDENTITY", "E_JSON",
        "E_CHECK_FAILED",
    ),
    73: ("E_SLOT_TAKEN", "E_HANDOFF_EXISTS", "E_IO"),
    75: ("E_STATE_LOCKED", "E_FORMAL_LOCK_BUSY"),
    78: ("E_CONFIG", "E_PATH_REPARSE", "E_RENAME_UNSUPPORTED", "E_LOCKING_UNSUPPORTED"),
    130: ("E_INTERRUPTED",),
}  # fmt: skip
"""Exit status -> every code that ends with it."""


# ------------------------------------------------------------------------------------------------------ exit status


@pytest.mark.parametrize(("code", "status"), [(code, status) for status, codes in STATUS.items() for code in codes])
def test_every_code_has_its_status(code: str, status: int) -> None:
    assert CollectorError(code, "").exit_status == status


def test_no_code_is_forgotten_here() -> None:
    sources = Path(product.__path__[0])
    text = "".join(
        path.read_text() for package in ("collector", "durable") for path in (sources / package).glob("*.py")
    )
    assert set(re.findall(r'"(E_[A-Z_]+)"', text)) == {code for codes in STATUS.values() for code in codes}


def test_the_spec_names_every_status() -> None:
    section = SPEC.read_text().split("\n## Exit status\n")[1]
    assert {0, 64, *STATUS} <= {int(number) for number in re.findall(r"\b[0-9]{1,3}\b", section)}


# --------------------------------------------------------------------------------------------- one object, and words


def test_an_answer_is_one_line_of_json_and_nothing_else(collector: Collector) -> None:
    evidence = collector.evidence()
    for command in (("begin", "--task", "t", "--run-id", "first"), ("status",), ("recover",), ("recover",),
                    ("commit", "--evidence", evidence), ("commit", "--evidence", evidence), ("status",)):  # fmt: skip
        done = collector.call(*command)
        assert done.require_done()["command"] == command[0]
        assert done.stdout == json.dumps(done.answer) + "\n" and done.words == ""


def test_a_refusal_is_one_as_well(collector: Collector) -> None:
    die_at(collector, HELD)
    collector.lock.write_bytes(b"somebody's")
    refused = collector.call("recover")
    answer = refused.require_refused("E_RECOVERY_AMBIGUOUS", 70)
    assert answer.keys() >= {"ok", "command", "code", "message", "row", "detail"}
    assert answer["row"] == "C-AMBIGUOUS" and answer["detail"]["found"]["main_lock"] == "THIRD"
    assert refused.words == f"collector: E_RECOVERY_AMBIGUOUS: {answer['message']}\n"


def test_status_tells_what_is_in_flight_and_what_was_last(collector: Collector) -> None:
    collector.commit("zero", [9], hour="2026-11-30T10")
    with armed("collector.transaction.cards=error:EIO"):
        collector.call("commit", "--evidence", collector.evidence()).require_refused("E_IO", 73)
    answer = collector.call("status").require_done()
    assert answer["pending"] == {
        "task_id": "task-1", "run_id": "first", "hour": "2026-11-30T12:00:00Z", "phase": "TRANSACTION_INTENT",
        "claim_state": "HELD", "takeover": "NONE", "recovery_generation": 0, "claim_attempt": 0, "quarantined": [],
    }  # fmt: skip
    assert (answer["formal_lock"], answer["latest"]["run_id"]) == ("PRESENT", "zero")
    assert answer["segments"] == {"cards": 1, "runs": 1}


@needs_posix
def test_a_name_that_is_no_text_is_told_all_the_same(collector: Collector) -> None:
    """Bytes that are not UTF-8, and letters that a terminal may not have: stdout is ASCII."""
    for name in ("\udcff\udc80", "\u535a\u6587", "a\nb"):
        refused = collector.run("commit", "--evidence", str(collector.home / name))
        answer = refused.require_refused("E_INPUT", 65)
        assert answer["detail"]["file"].endswith(name) and refused.stdout.isascii()


# ------------------------------------------------------------------------------------------------------ help, usage


@pytest.mark.parametrize("command", ["", "begin", "commit", "recover", "status", "import-feed"])
def test_help_is_for_people(collector: Collector, command: str) -> None:
    shown = collector.call(*command.split(), "--help")
    assert shown.status == 0 and "usage: python -m product.collector" in shown.stdout and shown.words == ""
    assert command or all(str(status) in shown.stdout for status in (0, 64, *STATUS))


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("comit",),
        ("commit",),
        ("commit", "--evidence"),
        ("recover", "--wait", "soon"),
        ("recover", "--wait", "-1"),
        ("recover", "--wait", "nan"),
        ("recover", "--wait", "inf"),
        ("recover", "now"),
        ("begin", "--run-id", "first"),
        ("begin", "--task", "a/b"),
        ("begin", "--task", ""),
        ("begin", "--task", "nul"),
        ("begin", "--task", "t", "--run-id", "../x"),
        ("begin", "--task", "t", "--at", "yesterday"),
        ("begin", "--task", "t", "--at", "2026-11-30T12:00:00"),
        ("begin", "--task", "t", "--at", "2026-02-30T12:00:00Z"),
        ("begin", "--task", "t", "--at", "0001-01-01T00:00:00+14:00"),
        ("begin", "--task", "t", "--at", "0900-01-01T00:00:00Z"),
        ("begin", "--task", "t", "--at", "9999-12-31T23:59:59-14:00"),
    ],
)
def test_what_is_misspelt_is_usage_and_touches_nothing(collector: Collector, arguments: tuple[str, ...]) -> None:
    before = collector.tree()
    refused = collector.call(*arguments)
    assert refused.status == 64 and refused.stdout == ""
    assert "usage: python -m product.collector" in refused.words and "Traceback" not in refused.words
    assert before.differences(collector.tree()) == []


@pytest.mark.parametrize("plan", ["collector.claim.HELT#1=kill", "collector.claim.HELD#1=explode"])
def test_a_kill_point_that_is_misspelt_is_usage_as_well(collector: Collector, plan: str) -> None:
    before = collector.tree()
    refused = collector.run("recover", plan=plan)
    assert (refused.status, refused.stdout) == (64, "") and refused.words.startswith(("collector: ", "killpoints: "))
    assert before.differences(collector.tree()) == []


def test_flags_win_over_the_environment(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLECTOR_STATE_DIR", "/nowhere")
    monkeypatch.setenv("COLLECTOR_ARCHIVE_DIR", "/nowhere/else")
    collector.call("status").require_done()


# ------------------------------------------------------------------------------------------------------ interruption


@needs_posix
@pytest.mark.parametrize("point", ["collector.claim.PLANNED", HELD, "collector.transaction.cards-new"])
def test_ctrl_c_leaves_what_the_next_run_finishes(collector: Collector, point: str) -> None:
    # a test run in the background may have passed on that SIGINT is ignored
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    commit = ("commit", "--evidence", collector.evidence())
    with collector.started(*commit, plan=f"{point}#1=pause", patch=listen) as process:
        process.await_pause(point)
        process.send(signal.SIGINT)
        answer = process.end().require_refused("E_INTERRUPTED", 130)
    assert "recover" in answer["message"] and not (collector.state / ".collector.lock.owner.json").exists()
    assert collector.call("recover").require_done()["run_id"] == "first"
    assert collector.posts() == [1, 2] and collector.settled()
    assert collector.call(*commit).require_done()["already"] is True
