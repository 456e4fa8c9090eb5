"""begin and commit: what they append, what they refuse, and that a refusal leaves everything as it was."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.collector.evidence_samples import make_card, make_observation
from tests.collector.helpers import Collector, armed, needs_posix, nothing_changes
from tests.scenarios.collector import read_manifest

AHEAD = "2099-01-01T00:10:00Z"
"""An hour that has not passed while these tests run."""
PAST = "2026-01-01T00:10:00Z"


def begin(run_id: str, at: str = AHEAD) -> tuple[str, ...]:
    return ("begin", "--task", "task-1", "--run-id", run_id, "--at", at)


# ------------------------------------------------------------------------------------------------------ real runs


def test_a_run_and_the_next_one(collector: Collector) -> None:
    """Through the command as a user calls it; the second shows posts that are known."""
    first = collector.run("commit", "--evidence", collector.evidence("first", [1, 2])).require_done()
    assert (first["state"], first["cards_appended"], first["already"], first["no_new_token"]) == (
        "NEW_APPENDED", 2, False, 0,
    )  # fmt: skip
    assert first["rows"] == [
        "C1",
        "C3",
        "C5",
        "X1",
        "C5",
        "X2",
        "C5",
        "X3",
        "C5",
        "X4",
        "C5",
        "X5",
        "C5",
        "X6",
        "C5",
        "X7",
    ]
    second = collector.run("commit", "--evidence", collector.evidence("second", [3, 2, 1], hour="2026-11-30T13"))
    assert second.require_done()["cards_appended"] == 1
    assert collector.posts() == [1, 2, 3] and collector.run_ids() == ["first", "second"]
    runs = read_manifest(collector.tree(), "runs")
    assert [(run["cards_appended"], run["first_card_seq"], run["hour"]) for run in runs] == [
        (2, 1, "2026-11-30T12:00:00Z"), (1, 3, "2026-11-30T13:00:00Z"),
    ]  # fmt: skip
    assert collector.settled()


def test_a_run_that_is_sent_again_changes_nothing(collector: Collector) -> None:
    evidence = collector.evidence("first", [1, 2])
    answer = collector.call("commit", "--evidence", evidence).require_done()
    with nothing_changes(collector):
        for _ in range(3):
            again = collector.call("commit", "--evidence", evidence).require_done()
            assert again["already"] is True and again["rows"] == []
            assert {k: again[k] for k in ("slot", "transaction_id", "state", "cards_appended")} == {
                k: answer[k] for k in ("slot", "transaction_id", "state", "cards_appended")
            }


@pytest.mark.parametrize("hour", ["2026-11-30T12", "2026-11-30T15"])
def test_a_run_id_with_other_evidence_is_taken(collector: Collector, hour: str) -> None:
    collector.commit("first", [1, 2])
    other = collector.evidence("first", [1, 2, 3], hour=hour)
    with nothing_changes(collector):
        collector.call("commit", "--evidence", other).require_refused("E_RUN_ID_TAKEN", 65)


def test_a_run_id_whose_evidence_is_stored_is_taken(collector: Collector) -> None:
    """The first died before anything was in flight; its evidence is kept, and the id is its own."""
    evidence = collector.evidence("first", [1, 2])
    with armed("collector.claim.before-PLANNED=error:EIO"):
        collector.call("commit", "--evidence", evidence).require_refused("E_IO", 73)
    with nothing_changes(collector):
        other = collector.call("commit", "--evidence", collector.evidence("first", [3]))
        other.require_refused("E_RUN_ID_TAKEN", 65)
    assert collector.commit("first", [1, 2])["already"] is False


def test_a_run_whose_slot_was_reused_is_still_known(collector: Collector) -> None:
    """Begun in one hour and observed in another, then sent again after its slot has gone to a later run."""
    collector.call(*begin("first", "2099-01-01T00:10:00Z")).require_done()
    evidence = collector.evidence("first", [1])
    collector.call("commit", "--evidence", evidence).require_done()
    collector.commit("second", [2], hour="2099-01-08T00")
    with nothing_changes(collector):
        collector.call("commit", "--evidence", evidence).require_refused("E_RUN_ID_TAKEN", 65)
    assert collector.run_ids() == ["first", "second"]


# ------------------------------------------------------------------------------------------------- evidence refused


def bad_json(_: Path) -> bytes:
    return b'{"schema_version":2'


def wrong_count(path: Path) -> bytes:
    return path.read_bytes().replace(b'"visible_node_count": 2', b'"visible_node_count": 3')


def bool_count(path: Path) -> bytes:
    """B136."""
    return path.read_bytes().replace(b'"schema_version": 2', b'"schema_version": true')


def device_name(path: Path) -> bytes:
    """A run id becomes a directory's name; some cannot be one."""
    return path.read_bytes().replace(b'"run_id": "first"', b'"run_id": "nul"')


@pytest.mark.parametrize("damage", [bad_json, wrong_count, bool_count, device_name])
@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "used"])
def test_evidence_that_is_refused_changes_nothing_at_all(
    collector: Collector, damage: Callable[[Path], bytes], fresh: bool
) -> None:
    """Not even a lock file is made."""
    if not fresh:
        collector.commit("zero", [9], hour="2026-11-30T10")
    path = Path(collector.evidence("first", [1, 2]))
    path.write_bytes(damage(path))
    before = collector.tree()
    answer = collector.call("commit", "--evidence", str(path)).require_refused("E_EVIDENCE_SCHEMA", 65)
    assert "pointer" in answer["detail"]
    assert before.differences(collector.tree()) == []


def absent(path: Path) -> None:
    path.unlink()


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def too_large(path: Path) -> None:
    os.truncate(path, 8 * 2**20 + 1)


def unreadable(path: Path) -> None:
    if sys.platform == "win32" or os.geteuid() == 0:
        pytest.skip("whoever runs this reads everything")
    path.chmod(0)


@pytest.mark.parametrize("damage", [absent, a_directory, too_large, unreadable])
def test_evidence_that_cannot_be_read_changes_nothing_at_all(
    collector: Collector, damage: Callable[[Path], None]
) -> None:
    path = Path(collector.evidence("first"))
    damage(path)
    before = collector.tree()
    answer = collector.call("commit", "--evidence", str(path)).require_refused("E_INPUT", 65)
    assert answer["detail"]["file"] == str(path)
    assert before.differences(collector.tree()) == []


def test_evidence_that_contradicts_the_archive_is_refused_before_anything_is_in_flight(collector: Collector) -> None:
    def shown(bvid: str) -> list[object]:
        card = make_card(0, dynamic="1", bvid=bvid)
        observation = make_observation([card])
        return [observation | {"observed_at": "2026-11-30T12:10:00Z"}]

    collector.commit("first", observations=shown("BV1xx411c7mD"))
    other = collector.evidence(
        "second", started_at="2026-11-30T12:10:00Z", observations=shown("BV1xx411c7mE"), hour="2026-11-30T12"
    )
    collector.call(*begin("second")).require_done()
    with nothing_changes(collector):
        answer = collector.call("commit", "--evidence", other).require_refused("E_IDENTITY_CONFLICT", 65)
    assert "BV1xx411c7mD" in answer["message"] and collector.pending["phase"] == "BEGUN"


# ----------------------------------------------------------------------------------------------------------- begin


def test_a_begun_run_is_committed_under_its_own_identity(collector: Collector) -> None:
    begun = collector.call(*begin("first")).require_done()
    assert (begun["state"], begun["hour"]) == ("BEGUN", "2099-01-01T00:00:00Z")
    record = collector.pending
    with nothing_changes(collector):
        waiting = collector.call("recover").require_done()
        assert (waiting["state"], waiting["run_id"], waiting["rows"]) == ("BEGUN", "first", ["B1"])
    evidence = collector.evidence("first", [1])
    done = collector.call("commit", "--evidence", evidence).require_done()
    assert (done["transaction_id"], done["hour"]) == (record["transaction_id"], begun["hour"])
    with nothing_changes(collector):
        assert collector.call("commit", "--evidence", evidence).require_done()["already"] is True
    assert collector.run_ids() == ["first"] and collector.settled()


def test_the_next_begun_run_takes_the_place_of_a_waiting_one(collector: Collector) -> None:
    collector.call(*begin("first")).require_done()
    collector.call(*begin("second")).require_done()
    assert collector.pending["run_id"] == "second"
    collector.call(*begin("second")).require_done()
    collector.commit("third", [1])
    assert collector.settled() and collector.run_ids() == ["third"]
    collector.commit("first", [2], hour="2026-11-30T13")


def test_a_run_that_was_begun_and_never_committed_ends_as_aborted(collector: Collector) -> None:
    collector.call(*begin("first", PAST)).require_done()
    aborted = collector.call("recover").require_done()
    assert (aborted["state"], aborted["rows"], aborted["cards_appended"]) == ("ABORTED", ["B2"], 0)
    latest = json.loads((collector.state / "refresh/latest.json").read_bytes())
    assert (latest["state"], latest["run_id"]) == ("ABORTED", "first")
    assert collector.run_ids() == [] and collector.settled()
    with nothing_changes(collector):
        assert collector.call("recover").require_done()["state"] == "NOTHING"
        late = collector.call("commit", "--evidence", collector.evidence("first", [1], hour="2026-01-01T00"))
        late.require_refused("E_RUN_ID_TAKEN", 65)
        collector.call(*begin("first")).require_refused("E_RUN_ID_TAKEN", 65)
        collector.call(*begin("second", PAST)).require_refused("E_SLOT_TAKEN", 73)


def test_the_next_commit_aborts_what_was_begun_in_a_past_hour(collector: Collector) -> None:
    collector.call(*begin("first", PAST)).require_done()
    done = collector.commit("second", [1])
    assert done["rows"][0] == "B2" and collector.run_ids() == ["second"]
    slots = {json.loads(path.read_bytes())["state"] for path in collector.state.glob("refresh/slots/*.json")}
    assert slots == {"ABORTED", "NEW_APPENDED"}


def test_a_refused_begin_leaves_the_waiting_run(collector: Collector) -> None:
    collector.commit("zero", [1], hour="2099-01-01T05")
    collector.call(*begin("first")).require_done()
    with nothing_changes(collector):
        collector.call(*begin("second", "2099-01-01T05:00:00Z")).require_refused("E_SLOT_TAKEN", 73)


# --------------------------------------------------------------------------------------------- what others have put


@pytest.mark.parametrize("name", ["cards.jsonl", "runs.jsonl"])
@pytest.mark.parametrize("posts", [[1], [9]], ids=["news", "no news"])
def test_a_candidate_that_nobody_accounts_for_is_never_overwritten(
    collector: Collector, name: str, posts: list[int]
) -> None:
    collector.commit("zero", [9], hour="2026-11-30T10")
    (collector.archive / ".candidates" / name).write_bytes(b"somebody's only copy")
    with nothing_changes(collector):
        answer = collector.call("commit", "--evidence", collector.evidence("first", posts))
        answer.require_refused("E_RECOVERY_AMBIGUOUS", 70)
    assert answer.answer["detail"]["file"] == f".candidates/{name}"


def test_files_of_others_stay_byte_for_byte(collector: Collector) -> None:
    foreign = {
        "archive/notes.txt": b"notes", "archive/cards/README": b"", "archive/cards/000001.jsonl.bak": b"a copy",
        "archive/cards/0000001.jsonl": b"no number of ours", "archive/runs/000000.jsonl": b"nor this",
        "state/refresh/slots/x.json": b"{}", "state/refresh/runs/README": b"?", "state/other": b"1",
    }  # fmt: skip
    for path, data in foreign.items():
        (collector.home / path).parent.mkdir(parents=True, exist_ok=True)
        (collector.home / path).write_bytes(data)
    collector.commit("first", [1])
    collector.commit("second", [2], hour="2026-11-30T13")
    collector.call("recover").require_done()
    assert {path: (collector.home / path).read_bytes() for path in foreign} == foreign


@needs_posix
def test_b070_a_segment_keeps_its_mode(collector: Collector) -> None:
    collector.commit("first", [1])
    segment = collector.archive / "cards/000001.jsonl"
    segment.chmod(0o640)
    collector.commit("second", [2], hour="2026-11-30T13")
    assert segment.stat().st_mode & 0o777 == 0o640 and collector.posts() == [1, 2]


def test_a_state_that_was_lost_does_not_append_twice(collector: Collector) -> None:
    """The archive says itself what it has; slots and index are made anew."""
    collector.commit("first", [1, 2])
    shutil.rmtree(collector.state)
    collector.state.mkdir()
    answer = collector.commit("again", [1, 2, 3])
    assert answer["cards_appended"] == 1 and collector.posts() == [1, 2, 3]


def test_a_begun_run_is_finished_by_its_own_commit_after_its_hour(collector: Collector) -> None:
    """begin at 12:58, evidence at 13:02: whoever brings it must not be told that its run was given up."""
    collector.call("begin", "--task", "task-1", "--run-id", "first", "--at", "2026-01-01T12:58:00Z").require_done()
    answer = collector.call("commit", "--evidence", collector.evidence("first", (1, 2))).require_done()
    assert (answer["hour"], answer["state"]) == ("2026-01-01T12:00:00Z", "NEW_APPENDED")
    assert collector.posts() == [1, 2] and collector.settled()
