"""begin and commit: what they append, what they refuse, and that a refusal leaves everything as it was."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from product.durable import rename, volume
from product.durable.errors import RenameUnsupported
from tests.collector.evidence_samples import make_card, make_observation
from tests.collector.helpers import Collector, armed, needs_linux, needs_posix, nothing_changes
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


# ----------------------------------------------------------------------------------------------------------- roots


def commands(collector: Collector) -> list[tuple[str, ...]]:
    return [("commit", "--evidence", collector.evidence()), begin("first"), ("recover",), ("status",)]


def refuse_all(collector: Collector, code: str, *flags: str) -> None:
    """Every command refuses these roots and makes nothing."""
    arguments = commands(collector)
    before = collector.tree()
    for command in arguments:
        refused = collector.run(*command, *flags) if flags else collector.call(*command)
        refused.require_refused(code, 78)
    assert before.differences(collector.tree()) == []


@pytest.mark.parametrize("root", ["state", "archive"])
def test_a_root_that_is_missing_is_never_made(collector: Collector, root: str) -> None:
    (collector.home / root).rmdir()
    refuse_all(collector, "E_PATH_REPARSE")
    (collector.home / root).write_bytes(b"a file")
    refuse_all(collector, "E_PATH_REPARSE")


@needs_posix
@pytest.mark.parametrize("root", ["state", "archive"])
@pytest.mark.parametrize("parent", [False, True], ids=["root", "parent"])
def test_b070_a_root_behind_a_link_is_refused(collector: Collector, root: str, parent: bool) -> None:
    if parent:
        (collector.home / "link").symlink_to(collector.home)
        setattr(collector, root, collector.home / "link" / root)
    else:
        (collector.home / root).rename(collector.home / "elsewhere")
        (collector.home / root).symlink_to(collector.home / "elsewhere")
    refuse_all(collector, "E_PATH_REPARSE")


OUR_DIRECTORIES = (
    "state/refresh", "state/refresh/runs", "state/refresh/slots", "archive/cards", "archive/runs", "archive/.candidates",
    "archive/.bili-dynamic-formal-manifest.lock.quarantine",
)  # fmt: skip


@needs_posix
@pytest.mark.parametrize("directory", OUR_DIRECTORIES)
def test_b070_a_directory_of_ours_behind_a_link_is_refused(collector: Collector, directory: str) -> None:
    """What is in flight is not carried on behind it, either: there would be two archives."""
    collector.commit("zero", [9], hour="2026-11-30T10")
    with armed("collector.transaction.cards=error:EIO"):
        collector.call("commit", "--evidence", collector.evidence()).require_refused("E_IO", 73)
    path = collector.home / directory
    path.rename(collector.home / "elsewhere")
    path.symlink_to(collector.home / "elsewhere")
    refuse_all(collector, "E_PATH_REPARSE")
    path.unlink()
    path.write_bytes(b"a file")
    refuse_all(collector, "E_PATH_REPARSE")
    path.unlink()
    (collector.home / "elsewhere").rename(path)
    collector.call("recover").require_done()
    assert collector.posts() == [9, 1, 2]


def test_roots_are_absolute_and_apart(collector: Collector) -> None:
    state, archive = str(collector.state), str(collector.archive)
    below = collector.archive / "below"
    below.mkdir()
    for roots in (
        ("state", archive),
        (state, "./archive"),
        (state, state),
        (str(below), archive),
        (archive, str(below)),
        (f"{state}/../archive/below", archive),
    ):
        before = collector.tree()
        for command in (("recover",), ("status",)):
            refused = collector.run(*command, "--state-dir", roots[0], "--archive-dir", roots[1])
            assert (refused.code, refused.status) in (("E_CONFIG", 78), ("E_PATH_REPARSE", 78)), roots
        assert before.differences(collector.tree()) == []


@needs_posix
def test_two_slashes_do_not_make_another_root(collector: Collector) -> None:
    refuse_all(collector, "E_CONFIG", "--archive-dir", f"/{collector.state}")


def test_roots_are_asked_for_by_name(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLLECTOR_STATE_DIR", raising=False)
    monkeypatch.setattr(Collector, "flags", ("--archive-dir", str(collector.archive)))
    answer = collector.call("status").require_refused("E_CONFIG", 78)
    assert "--state-dir" in answer["message"] and "COLLECTOR_STATE_DIR" in answer["message"]


# ---------------------------------------------------------------------------------------------- what a disk cannot do


def refuse_to_exchange(*_: object) -> None:
    raise RenameUnsupported("no such rename on this file system", path="")


@needs_linux
@pytest.mark.parametrize("primitive", ["exchange", "rename_new"])
@pytest.mark.parametrize("command", [0, 1], ids=["commit", "begin"])
def test_a_file_system_without_the_renames_is_refused_before_anything_is_written(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, primitive: str, command: int
) -> None:
    collector.call("recover").require_done()  # the state lock's own file is there
    monkeypatch.setattr(rename, primitive, refuse_to_exchange)
    archive = collector.archive
    collector.call(*commands(collector)[command]).require_refused("E_RENAME_UNSUPPORTED", 78)
    assert list(archive.iterdir()) == [] and not (collector.state / "refresh/pending.json").exists()


@needs_linux
def test_an_archive_that_was_moved_to_such_a_file_system_keeps_what_is_in_flight(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector.commit("zero", [9], hour="2026-11-30T10")
    with monkeypatch.context() as patched:
        patched.setattr(rename, "exchange", refuse_to_exchange)
        for _ in range(2):
            collector.call("commit", "--evidence", collector.evidence()).require_refused("E_RENAME_UNSUPPORTED", 78)
            assert collector.posts() == [9] and collector.pending["phase"] == "TRANSACTION_INTENT"
    assert collector.commit()["already"] is True
    assert collector.posts() == [9, 1, 2] and collector.settled()


@pytest.mark.parametrize("directory", ["cards", "runs", ".candidates", ".bili-dynamic-formal-manifest.lock.quarantine"])
def test_an_archive_over_two_volumes_is_refused_at_the_start(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, directory: str
) -> None:
    """V004 1: at the start, not when a rename fails half way."""
    collector.commit("zero", [9], hour="2026-11-30T10")
    real = volume.volume_of
    monkeypatch.setattr(volume, "volume_of", lambda path: "other" if path.name == directory else real(path))
    with nothing_changes(collector):
        for command in commands(collector):
            collector.call(*command).require_refused("E_FORMAL_LOCK_VOLUME_IDENTITY", 70)


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
