"""What no death and no rival of ours leads to is refused too: branches that no cell of the matrix can reach.

matrix.yaml (``coverage.explained``) names the test that reaches each of them.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harness.matrix import load_matrix
from product.collector import chains, commands, drive, index, observe, perform
from product.collector.claims import TakeoverPhase
from product.collector.cli import main
from product.collector.errors import CollectorError
from product.collector.evidence import parse_evidence
from product.collector.layout import Layout, slot_of
from product.collector.manifests import Tip, append_lines
from product.collector.perform import Desk
from product.collector.slots import Slot
from product.durable import volume
from product.durable.identity import own_identity
from tests.collector.helpers import (
    REPOSITORY,
    Collector,
    Ran,
    armed,
    die_at,
    evidence_of,
    needs_linux,
    needs_posix,
    nothing_changes,
    ran,
)
from tests.collector.pending_samples import make_pending, make_takeover
from tests.collector.test_commit import PAST, begin
from tests.collector.test_index import append, entry, known
from tests.collector.test_index import layout as archive

__all__ = ["archive"]
SHA = "ab" * 32


@pytest.fixture
def desk(collector: Collector) -> Desk:
    collector.commit("first", [1])
    return Desk(Layout(collector.state, collector.archive), own_identity())


def other_slot(hour: str) -> Slot:
    return Slot("task-1", "another", SHA, hour, "ABORTED", 0, 0, None, None, None, None)


def test_every_test_that_the_matrix_names_is_there() -> None:
    """A reason is worth what its test is."""
    explained = load_matrix(REPOSITORY / "matrix.yaml").coverage.explained
    reasons = [why for file, reasons in explained.items() if "/collector/" in file for why in reasons.values()]
    assert reasons
    for why in reasons:
        file, test = why.rpartition("; ")[2].split("::") if "::" in why else ("", "")
        source = (Path(__file__).parent / file).read_text() if file else ""
        assert f"\ndef {test}(" in source or why.startswith("unreachable; "), why


# ------------------------------------------------------------------------------------------------------- driving


@needs_posix
def test_a_drive_that_does_not_end_is_ambiguous(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    die_at(collector, "collector.claim.HELD")
    monkeypatch.setattr(drive, "TURNS_MAX", 2)
    answer = collector.call("recover").require_refused("E_RECOVERY_AMBIGUOUS", 70)
    assert "no end after 2 turns" in answer["message"] and len(answer["detail"]["rows"]) == 2
    monkeypatch.undo()
    collector.call("recover").require_done()
    assert collector.posts() == [1, 2]


# ---------------------------------------------------------------------------------------------------- performing


@needs_linux
def test_a_lock_that_appears_while_ours_is_made_is_not_overwritten(collector: Collector) -> None:
    step = "collector.lock.created/tmp-synced"
    with collector.started("commit", "--evidence", collector.evidence(), plan=f"{step}#1=pause") as process:
        process.await_pause(step)
        collector.lock.write_bytes(b"somebody's")
        process.resume()
        answer = process.end().require_refused("E_RECOVERY_AMBIGUOUS", 70)
    assert "a formal lock appeared that is not ours" in answer["message"]
    assert collector.lock.read_bytes() == b"somebody's"


@needs_linux
def test_the_quarantine_on_another_volume_is_refused_before_the_rename(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mounted since the start: the rename would fail too, after this."""
    real = volume.volume_of
    quarantine = Layout(collector.state, collector.archive).quarantine

    def mount() -> None:
        monkeypatch.setattr(volume, "volume_of", lambda path: "other" if path == quarantine else real(path))

    before_the_rename(collector, monkeypatch, mount)
    with nothing_changes(collector):
        answer = collector.call("recover").require_refused("E_FORMAL_LOCK_VOLUME_IDENTITY", 70)
    assert "different volumes" in answer["message"] and answer["row"] == "T1"


@needs_linux
def test_a_name_in_the_quarantine_that_is_taken_at_the_last_instant_is_not_overwritten(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_the_rename(collector, monkeypatch, lambda: path.write_bytes(b"somebody's"))
    path = collector.archive / collector.pending["takeover"]["quarantine_path"]
    answer = collector.call("recover").require_refused("E_RECOVERY_AMBIGUOUS", 70)
    assert "is there already" in answer["message"] and answer["row"] == "T1"
    assert path.read_bytes() == b"somebody's" and collector.lock.exists()


def before_the_rename(collector: Collector, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """A takeover is planned, and the next recovery comes to its rename: something happens just then."""
    die_at(collector, "collector.claim.HELD")
    collector.kill("collector.takeover.TAKEOVER_PLANNED", "recover")
    require, asked = observe.require_archive_volume, list[Path]()

    def require_later(layout: Layout, directory: Path) -> None:
        asked.append(directory)
        if asked.count(layout.quarantine) > 1:  # the first time is the start
            act()
        require(layout, directory)

    monkeypatch.setattr(observe, "require_archive_volume", require_later)


def test_evidence_under_a_name_that_is_taken_is_not_overwritten(desk: Desk) -> None:
    path = desk.layout.evidence("first")
    stored = path.read_bytes()
    perform.store_evidence(desk, "first", stored)
    with pytest.raises(CollectorError) as caught:
        perform.store_evidence(desk, "first", stored + b" ")
    assert caught.value.code == "E_RUN_ID_TAKEN" and path.read_bytes() == stored


def test_a_slot_of_this_week_is_not_overwritten(desk: Desk) -> None:
    (slot,) = observe.observe_slots(desk.layout)
    perform.write_slot(desk, slot)
    with pytest.raises(CollectorError, match="the slot of this hour holds another run"):
        perform.write_slot(desk, other_slot(slot.hour))
    assert observe.observe_slots(desk.layout) == [slot]


def test_what_can_be_deleted_of_the_leftovers_is_and_the_rest_stays_listed(collector: Collector) -> None:
    """Two takeovers whose items could not be deleted; one of them can be now."""
    undeletable = ",".join(f"collector.cleanup.item/removed#{hit}=error:EACCES" for hit in range(1, 5))
    for number, run_id in enumerate(("first", "second"), 1):
        evidence = collector.evidence(run_id, [number], hour=f"2026-11-30T1{number}")
        plan = f"{undeletable},collector.claim.HELD#1=kill"
        assert collector.run("commit", "--evidence", evidence, plan=plan).status == -signal.SIGKILL
        with armed(undeletable):
            collector.call("recover").require_done()
    listed = collector.state / "refresh/leftovers.json"
    first, second = (item["path"] for item in json.loads(listed.read_bytes())["items"])
    (collector.archive / first).write_bytes(b"somebody's")
    (warning,) = collector.call("recover").require_done()["warnings"]
    assert warning["path"] == first and not (collector.archive / second).exists()
    assert [item["path"] for item in json.loads(listed.read_bytes())["items"]] == [first]


def test_a_begun_run_whose_hour_somebody_took_is_given_up_without_its_slot(collector: Collector) -> None:
    collector.call(*begin("first", PAST)).require_done()
    hour = collector.pending["hour"]
    slot = other_slot(hour)
    path = Layout(collector.state, collector.archive).slot(slot_of(hour))
    path.write_bytes(slot.data)
    done = collector.call("recover").require_done()
    assert done["rows"] == ["B2"] and path.read_bytes() == slot.data and collector.settled()


@pytest.mark.parametrize("command", ["begin", "commit"])
def test_a_waiting_run_that_somebody_changed_is_not_superseded(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """After it was read: the next write would go over whatever is there."""
    collector.call(*begin("first")).require_done()
    path = collector.state / "refresh/pending.json"
    require = commands._require_slot

    def change(layout: Layout, hour: str) -> None:
        require(layout, hour)
        path.write_bytes(b"somebody's")

    monkeypatch.setattr(commands, "_require_slot", change)
    words = begin("second") if command == "begin" else ("commit", "--evidence", collector.evidence("second"))
    collector.call(*words).require_refused("E_UNEXPECTED_CONTENT", 70)
    assert path.read_bytes() == b"somebody's"


# ----------------------------------------------------------------------------------------------------- observing


def test_a_file_that_is_gone_has_no_digest(tmp_path: Path) -> None:
    assert observe.Memory().digest_of(tmp_path / "gone") is None


@needs_posix
def test_evidence_that_is_no_plain_file_is_ambiguous(collector: Collector) -> None:
    die_at(collector, "collector.claim.HELD")
    path = Layout(collector.state, collector.archive).evidence("first")
    aside = path.with_name("aside")
    path.rename(aside)
    os.symlink(aside, path)
    with nothing_changes(collector):
        answer = collector.call("recover").require_refused("E_RECOVERY_AMBIGUOUS", 70)
    assert path.name in answer["message"]


@needs_posix
def test_a_marker_that_is_no_plain_file_is_ambiguous(collector: Collector) -> None:
    collector.commit()
    marker = Layout(collector.state, collector.archive).marker
    marker.rename(marker.with_name("aside"))
    marker.symlink_to("aside")
    with nothing_changes(collector):
        answer = collector.call("recover").require_refused("E_RECOVERY_AMBIGUOUS", 70)
    assert "the quarantine directory's marker: " in answer["message"]


def test_a_run_is_not_taken_for_new_where_the_runs_cannot_be_read(desk: Desk) -> None:
    assert not observe.is_archived(desk.layout, "other")
    path = desk.layout.segment("runs", 1)
    path.write_bytes(path.read_bytes().replace(b'"seq":1', b'"seq":2'))
    with pytest.raises(CollectorError) as caught:
        observe.is_archived(desk.layout, "other")
    assert caught.value.code == "E_RECOVERY_AMBIGUOUS"


@needs_posix
def test_a_segment_that_is_no_plain_file_is_ambiguous(desk: Desk) -> None:
    path = desk.layout.segment("runs", 1)
    path.rename(path.with_name("aside"))
    path.symlink_to("aside")
    with pytest.raises(CollectorError) as caught:
        list(observe.read_segments(desk.layout, "runs"))
    assert caught.value.code == "E_RECOVERY_AMBIGUOUS" and path.name in str(caught.value)


@pytest.mark.parametrize("whose", ["old", "new"])
def test_a_lock_record_from_the_future_is_ambiguous_whoever_made_it(whose: str) -> None:
    pending = make_takeover(TakeoverPhase.CREATE_PLANNED)
    record = getattr(pending.takeover, whose)
    made = [found.lock_created_at for found in (pending.takeover.old, pending.takeover.new) if found is not None]
    now = max(map(datetime.fromisoformat, made))
    assert observe.observe_clock(pending, now) is observe.Clock.PLAUSIBLE
    later = (now + timedelta(minutes=6)).strftime("%Y-%m-%dT%H:%M:%SZ")
    takeover = replace(pending.takeover, **{whose: replace(record, lock_created_at=later)})
    assert observe.observe_clock(replace(pending, takeover=takeover), now) is observe.Clock.FUTURE


def test_a_takeover_that_was_planned_in_the_future_is_ambiguous() -> None:
    pending = make_takeover(TakeoverPhase.TAKEOVER_PLANNED)
    assert pending.takeover.planned_at is not None
    now = datetime.fromisoformat(pending.takeover.planned_at)
    assert observe.observe_clock(pending, now) is observe.Clock.PLAUSIBLE
    takeover = replace(pending.takeover, planned_at=(now + timedelta(minutes=6)).strftime("%Y-%m-%dT%H:%M:%SZ"))
    assert observe.observe_clock(replace(pending, takeover=takeover), now) is observe.Clock.FUTURE


def test_a_runs_manifest_without_numbers_is_ambiguous(desk: Desk) -> None:
    desk.layout.segment("runs", 1).write_bytes(b'{"schema_version":2}\n')
    with pytest.raises(CollectorError, match="the last line has no seq"):
        observe.observe_runs_tip(desk.layout)


def test_another_file_beside_the_candidate_that_is_in_place_is_third_content(desk: Desk) -> None:
    pending = make_pending(observe.Phase.TRANSACTION_INTENT)
    candidate = desk.layout.candidate("cards")
    candidate.write_bytes(b"somebody's")
    displaced = observe._observe_displaced(desk.layout, "cards", pending.manifest("cards"), pending.phase)
    assert displaced is observe.Displaced.THIRD


# ----------------------------------------------------------------------------------------------------- the index


def change_index(layout: Layout, statements: str) -> None:
    database = sqlite3.connect(layout.index)
    database.executescript(statements)
    database.close()


@pytest.mark.parametrize(
    "statements",
    [
        "DROP TABLE tip; DROP TABLE posts; DROP TABLE keys; CREATE TABLE notes (text)",
        "DELETE FROM posts WHERE seq = 3",
        "UPDATE posts SET (offset, size) = (SELECT offset, size FROM posts WHERE seq = 7) WHERE seq = 3",
    ],
)
def test_an_index_that_somebody_changed_is_made_again(archive: Layout, statements: str) -> None:
    append(archive, range(1, 51))
    index.open_archive(archive)
    change_index(archive, statements)
    opened = index.open_archive(archive)
    assert known(opened, range(1, 51)) == list(map(str, range(1, 51)))


def test_a_directory_in_the_place_of_the_index_is_ambiguous(collector: Collector) -> None:
    collector.commit("zero", [9], hour="2026-11-30T10")
    collector.commit("first", [1])
    path = Layout(collector.state, collector.archive).index
    path.unlink()
    path.mkdir()
    evidence = collector.evidence("second", [2], hour="2026-11-30T13")
    collector.call("commit", "--evidence", evidence).require_refused("E_RECOVERY_AMBIGUOUS", 70)
    assert collector.posts() == [9, 1] and path.is_dir()
    path.rmdir()
    collector.call("commit", "--evidence", evidence).require_done()
    assert collector.posts() == [9, 1, 2]


def test_a_card_without_identifiers_is_ambiguous(archive: Layout) -> None:
    cards: list[dict[str, object]] = [{**entry(1), "identifiers": None}]
    data, _ = append_lines(Tip(), cards)
    archive.segment("cards", 1).write_bytes(data)
    with pytest.raises(CollectorError, match="not a card line: no identifiers"):
        index.open_archive(archive)


def test_an_index_that_the_disk_takes_no_more_of_is_rolled_back_once(
    archive: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite itself has rolled back where the disk was full: there is nothing left to roll back."""
    append(archive, range(1, 4))

    def full(self: Any, line: Any, tip: Any) -> None:
        self._database.execute("ROLLBACK")
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(index._Index, "_add", full)
    with pytest.raises(CollectorError, match="database or disk is full"):
        index.open_archive(archive)
    monkeypatch.undo()
    assert index.open_archive(archive).cards_tip.seq == 3


# ----------------------------------------------------------------------------------------------------- the chains


def fields_of(manifest: str, collector: Collector) -> dict[str, Any]:
    collector.commit("first", [1])
    (path,) = (collector.archive / manifest).iterdir()
    fields: dict[str, Any] = json.loads(path.read_bytes().splitlines()[-1])
    assert chains.find_fault(manifest, fields) == ""
    return fields


@pytest.mark.parametrize(
    ("manifest", "change", "fault"),
    [
        ("cards", {"identifiers": None}, "/identifiers: no identifiers"),
        ("runs", {"state": "LOST"}, "/state: 'LOST' is none of "),
        ("runs", {"first_card_seq": None}, ""),
        ("runs", {"first_card_seq": 0}, "/first_card_seq: "),
    ],
)
def test_a_line_is_held_against_its_schema(
    collector: Collector, manifest: str, change: dict[str, Any], fault: str
) -> None:
    found = chains.find_fault(manifest, fields_of(manifest, collector) | change)
    assert found.startswith(fault) and bool(found) == bool(fault)


# ------------------------------------------------------------------------------------------------- the feed's way in


def test_evidence_is_part_of_the_answer_or_a_new_file(collector: Collector) -> None:
    feed = str(Path(__file__).parents[1] / "data/feed_space.json")
    words = ("import-feed", feed, "--task", "task-1", "--run-id", "first", "--at", "2026-11-30T12:00:00Z")
    answer = run_rootless(*words).require_done()
    assert parse_evidence(answer["evidence"].encode()).run_id == "first"
    out = collector.home / "out.json"
    out.write_bytes(evidence_of("other"))
    answer = run_rootless(*words, "--out", str(out)).require_refused("E_INPUT", 65)
    assert "is there already" in answer["message"] and out.read_bytes() == evidence_of("other")


@needs_posix
def test_evidence_is_written_whole_or_not_at_all(collector: Collector) -> None:
    feed = str(Path(__file__).parents[1] / "data/feed_space.json")
    out = collector.home / "out.json"
    words = ("import-feed", feed, "--task", "task-1", "--run-id", "first", "--out", str(out))
    patch = "import os; from product.durable import files; files._read_back = lambda *_: os._exit(9)"
    assert collector.run(*words, patch=patch.replace("_read_back", "_write_temporary")).status == 9 and not out.exists()
    assert collector.run(*words, patch=patch).status == 9 and parse_evidence(out.read_bytes()).run_id == "first"


def run_rootless(*arguments: str) -> Ran:
    stdout, words = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(words):
        status = main([*arguments])
    return ran(status, stdout.getvalue(), words.getvalue())
