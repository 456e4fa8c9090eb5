"""What is not ours is refused by name, the same each time, and stays: records, locks and quarantine of other content."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.collector.helpers import (
    LOCK,
    PENDING,
    QUARANTINE,
    Collector,
    alter,
    die_at,
    needs_linux,
    needs_posix,
    nothing_changes,
)

pytestmark = needs_posix

HELD, INTENT = "collector.claim.HELD", "collector.transaction.TRANSACTION_INTENT"
COMMITTED = "collector.transaction.BUSINESS_COMMITTED"


def commit_second(collector: Collector) -> tuple[str, ...]:
    return ("commit", "--evidence", collector.evidence("second", [3], hour="2026-11-30T13"))


def require_finished(collector: Collector, posts: list[int]) -> None:
    assert collector.settled() and collector.posts() == posts


# --------------------------------------------------------------------------------------- records that are not ours


@pytest.mark.parametrize(
    "pointer",
    ["/schema_version", "/formal_lock_claim/lock_record/holder_pid", "/phase", "/manifests/cards/base_size"],
)
def test_b136_a_bool_in_pending_is_refused_by_its_place(collector: Collector, pointer: str) -> None:
    die_at(collector, INTENT, used=True)
    collector.write_pending(alter(collector.pending, pointer, lambda _: True))
    with nothing_changes(collector):
        answer = collector.call("recover").require_refused("E_RECOVERY_AMBIGUOUS", 70)
    assert answer["detail"] == {"file": "refresh/pending.json", "pointer": pointer}


def test_a_plan_that_freezes_a_new_holder_is_refused(collector: Collector) -> None:
    """V004 2."""
    die_at(collector, HELD)
    collector.kill("collector.takeover.TAKEOVER_PLANNED", "recover")
    claim = collector.pending["formal_lock_claim"]
    more = {"new_claim_state": "CREATE_PLANNED", "new_lock_bytes": claim["lock_bytes"],
            "new_lock_sha256": claim["lock_sha256"], "new_lock_record": claim["lock_record"]}  # fmt: skip
    collector.write_pending(alter(collector.pending, "/takeover", lambda fields: fields | more))
    with nothing_changes(collector):
        answer = collector.call("recover").require_refused("E_RECOVERY_AMBIGUOUS", 70)
    assert answer["detail"]["pointer"] == "/takeover"


def cuts(data: bytes) -> list[bytes]:
    """B044 and B064: some of the lengths (test_records.py reads them all), and NULs in place of all and of the end."""
    lengths = sorted({0, 1, 2, len(data) - 1, *range(3, len(data), max(1, len(data) // 12))})
    return [*(data[:length] for length in lengths), b"\0" * len(data), data[:-40] + b"\0" * 40, data + b"\0" * 4096]


def test_b044_pending_that_was_cut_is_refused_by_name(collector: Collector) -> None:
    die_at(collector, INTENT, used=True)
    path = collector.home / PENDING
    data = path.read_bytes()
    evidence = collector.evidence("second", [3], hour="2026-11-30T13")
    for other in cuts(data):
        path.write_bytes(other)
        with nothing_changes(collector):
            for command in (("recover",), ("commit", "--evidence", evidence), ("status",)):
                answer = collector.call(*command).require_refused("E_RECOVERY_AMBIGUOUS", 70)
                assert answer["detail"]["file"] == "refresh/pending.json" in answer["message"]
    path.write_bytes(data)
    collector.call("recover").require_done()
    require_finished(collector, [9, 1, 2])


@pytest.mark.parametrize("manifest", ["cards", "runs"])
@pytest.mark.parametrize("point", [INTENT, COMMITTED])
def test_b044_a_manifest_that_was_cut_stops_the_transaction(collector: Collector, manifest: str, point: str) -> None:
    die_at(collector, point, used=True)
    path = collector.archive / manifest / "000001.jsonl"
    data = path.read_bytes()
    for other in cuts(data):
        path.write_bytes(other)
        with nothing_changes(collector):
            answer = collector.call("recover").require_refused("E_RECOVERY_AMBIGUOUS", 70)
        assert (answer["row"], answer["detail"]["found"][manifest]) == ("X-AMBIGUOUS", "THIRD")
    path.write_bytes(data)
    collector.call("recover").require_done()
    require_finished(collector, [9, 1, 2])


@needs_linux
def test_b044_both_copies_of_an_exchange_that_died_are_looked_at(collector: Collector) -> None:
    """The base lies beside: it is deleted only if it is exactly the base."""
    die_at(collector, "collector.transaction.cards/exchanged", used=True)
    beside = collector.archive / ".candidates/cards.jsonl"
    base = beside.read_bytes()
    for other in (base + b"\n", base[:-1], b"", b"\0" * len(base)):
        beside.write_bytes(other)
        with nothing_changes(collector):
            answer = collector.call("recover").require_refused("E_RECOVERY_AMBIGUOUS", 70)
        assert answer["detail"]["found"]["displaced"] == "THIRD"
    beside.write_bytes(base)
    assert "X0" in collector.call("recover").require_done()["rows"]
    require_finished(collector, [9, 1, 2])


@pytest.mark.parametrize("form", ["symlink", "hard link", "directory"])
def test_b070_pending_is_a_plain_file_or_refused(collector: Collector, form: str) -> None:
    die_at(collector, HELD)
    path, elsewhere = collector.home / PENDING, collector.home / "elsewhere"
    if form == "symlink":
        path.rename(elsewhere)
        path.symlink_to(elsewhere)
    elif form == "hard link":
        elsewhere.hardlink_to(path)
    else:
        path.unlink()
        path.mkdir()
    for _ in range(2):
        with nothing_changes(collector):
            answer = collector.call("recover").require_refused("E_RECOVERY_AMBIGUOUS", 70)
        assert answer["detail"]["file"] == "refresh/pending.json"


# ----------------------------------------------------------------------------- locks that are nobody's or another's


PARTIAL = [b"", b"{", b'{"pid":', b'{"pid":1}garbage', b"\0" * 300]


@pytest.mark.parametrize("content", [*PARTIAL, None], ids=[*(repr(p[:9]) for p in PARTIAL), "ours and garbage"])
@pytest.mark.parametrize("in_flight", [False, True], ids=["idle", "in flight"])
def test_b025_a_partial_or_foreign_lock_is_the_same_refusal_each_time(
    collector: Collector, in_flight: bool, content: bytes | None
) -> None:
    die_at(collector, HELD)
    data = collector.lock.read_bytes()
    if not in_flight:
        collector.call("recover").require_done()
    collector.lock.write_bytes(data + b"garbage" if content is None else content)
    answers = []
    with nothing_changes(collector):
        for _ in range(3):
            for command in (("recover",), commit_second(collector)):
                answers.append(collector.call(*command).require_refused("E_RECOVERY_AMBIGUOUS", 70))
    assert {answer["row"] for answer in answers} == {"C-AMBIGUOUS" if in_flight else "I-AMBIGUOUS"}
    collector.lock.write_bytes(data) if in_flight else collector.lock.unlink()
    collector.call("recover").require_done()
    require_finished(collector, [1, 2])


def lock_as_link(path: Path, data: bytes) -> None:
    path.with_name("elsewhere").write_bytes(data)
    path.symlink_to(path.with_name("elsewhere"))


def lock_as_second_name(path: Path, data: bytes) -> None:
    path.with_name("elsewhere").write_bytes(data)
    path.hardlink_to(path.with_name("elsewhere"))


def lock_as_directory(path: Path, data: bytes) -> None:
    path.mkdir()


def lock_as_fifo(path: Path, data: bytes) -> None:
    os.mkfifo(path)


def lock_to_nowhere(path: Path, data: bytes) -> None:
    path.symlink_to(path.with_name("nowhere"))


FORMS = [lock_as_link, lock_as_second_name, lock_as_directory, lock_as_fifo, lock_to_nowhere]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("in_flight", [False, True], ids=["idle", "in flight"])
def test_b070_a_lock_of_another_form_is_third_content(
    collector: Collector, in_flight: bool, form: Callable[[Path, bytes], None]
) -> None:
    """Be its bytes exactly ours."""
    die_at(collector, HELD)
    data = collector.lock.read_bytes()
    if in_flight:
        collector.lock.unlink()
    else:
        collector.call("recover").require_done()
    form(collector.lock, data)
    for _ in range(2):
        with nothing_changes(collector):
            answer = collector.call("recover").require_refused("E_RECOVERY_AMBIGUOUS", 70)
        assert answer["row"] == ("C-AMBIGUOUS" if in_flight else "I-AMBIGUOUS")


def test_a_lock_that_appears_while_a_run_is_on_its_way_is_never_overwritten(collector: Collector) -> None:
    point = "collector.claim.PLANNED"
    with collector.started("commit", "--evidence", collector.evidence(), plan=f"{point}#1=pause") as holder:
        holder.await_pause(point)
        collector.lock.write_bytes(b"somebody's")
        holder.resume()
        holder.end().require_refused("E_RECOVERY_AMBIGUOUS", 70)
    assert collector.lock.read_bytes() == b"somebody's" and not (collector.archive / "cards/000001.jsonl").exists()


def test_a_held_lock_that_is_gone_is_ambiguous(collector: Collector) -> None:
    die_at(collector, HELD)
    collector.lock.unlink()
    with nothing_changes(collector):
        assert collector.call("recover").require_refused("E_RECOVERY_AMBIGUOUS", 70)["row"] == "C-AMBIGUOUS"


# ---------------------------------------------------------------------------------------------------- quarantine


@pytest.mark.parametrize("state", ["idle", "begun", "in flight"])
@pytest.mark.parametrize("name", ["first-g0-" + "ab" * 32 + ".json", "notes.txt", ".hidden"])
def test_an_item_that_nobody_accounts_for_stops_everything(collector: Collector, state: str, name: str) -> None:
    if state == "in flight":
        die_at(collector, HELD)
    else:
        collector.commit("zero", [9], hour="2026-11-30T10")
    if state == "begun":
        collector.call("begin", "--task", "t", "--run-id", "b", "--at", "2099-01-01T00:00:00Z").require_done()
    (collector.home / QUARANTINE / name).write_bytes(b"somebody's")
    for command in (("recover",), commit_second(collector)):
        with nothing_changes(collector):
            answer = collector.call(*command).require_refused("E_RECOVERY_AMBIGUOUS", 70)
        assert answer["row"] == {"idle": "I", "begun": "B", "in flight": "Q"}[state] + "-AMBIGUOUS"
    (collector.home / QUARANTINE / name).unlink()
    collector.call("recover").require_done()


MARKER = ".owner-marker.json"


@pytest.mark.parametrize("content", [b"", b"{}", b'{"owner":"another-tool","schema_version":1}', None])
def test_a_quarantine_that_is_not_marked_as_ours_is_not_used(collector: Collector, content: bytes | None) -> None:
    """V004 1. ``None``: no marker, and something of somebody in it."""
    die_at(collector, HELD)
    marker = collector.home / QUARANTINE / MARKER
    data = marker.read_bytes()
    if content is None:
        marker.unlink()
        (collector.home / QUARANTINE / "theirs").write_bytes(b"")
    else:
        marker.write_bytes(content)
    for command in (("recover",), commit_second(collector)):
        with nothing_changes(collector):
            answer = collector.call(*command).require_refused("E_RECOVERY_AMBIGUOUS", 70)
        assert "marke" in answer["message"]
    if content is None:
        (collector.home / QUARANTINE / "theirs").unlink()
    marker.write_bytes(data)
    collector.call("recover").require_done()
    require_finished(collector, [1, 2])


def test_a_quarantine_of_somebody_is_seen_before_the_first_run(collector: Collector) -> None:
    (collector.home / QUARANTINE).mkdir()
    (collector.home / QUARANTINE / "theirs").write_bytes(b"")
    with nothing_changes(collector):
        collector.call("commit", "--evidence", collector.evidence()).require_refused("E_RECOVERY_AMBIGUOUS", 70)
    (collector.home / QUARANTINE / "theirs").unlink()
    collector.call("commit", "--evidence", collector.evidence()).require_done()
    require_finished(collector, [1, 2])


def test_the_lock_s_name_is_where_the_spec_says(collector: Collector) -> None:
    die_at(collector, HELD)
    assert collector.lock == collector.archive / ".bili-dynamic-formal-manifest.lock" == collector.home / LOCK
    record = json.loads(collector.lock.read_bytes())
    assert set(record) == {
        "schema_version", "task_id", "run_id", "owner_nonce", "transaction_id", "recovery_generation", "holder_pid",
        "holder_process_created_at", "lock_created_at",
    }  # fmt: skip
    assert (record["schema_version"], record["run_id"], record["recovery_generation"]) == (1, "first", 0)
