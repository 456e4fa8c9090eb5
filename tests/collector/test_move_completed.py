"""move-completed: the evidence of a finished run is in the state root, in the archive, or in both; never in neither."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import killpoints
from harness.judge.tree import observe_tree
from product.collector import moving, points_archive
from product.collector.completed import MOVE
from tests.collector.helpers import (
    Collector,
    armed,
    evidence_of,
    needs_linux,
    needs_posix,
    nothing_changes,
)
from tests.collector.test_spec import SPEC
from tests.spec_tables import require_same_rows

ONE, TWO = "one volume", "two volumes"
EVIDENCE = {"first": evidence_of("first", [1, 2]), "second": evidence_of("second", [2, 3], hour="2026-12-01T00")}
POINTS = [str(point) for point in killpoints.catalogue() if point.startswith("collector.move.")]
ONLY_ON: dict[str, str] = {points_archive.RENAMED: ONE, points_archive.COPIED: TWO, points_archive.SOURCE_REMOVED: TWO}
"""Where a point is reached; all others are on both."""
KILLS = [(volumes, point) for point in POINTS for volumes in (ONE, TWO)
         if ONLY_ON.get(point.partition("/")[0], volumes) == volumes]  # fmt: skip


@pytest.fixture(params=[ONE, TWO])
def two_runs(request: pytest.FixtureRequest, collector: Collector, tmp_path: Path) -> Collector:
    """Two finished runs, in November and in December."""
    collector = on_volumes(request.param, collector, tmp_path)
    for run_id, data in EVIDENCE.items():
        path = collector.home / f"{run_id}.evidence.json"
        path.write_bytes(data)
        collector.call("commit", "--evidence", str(path)).require_done()
    return collector


def on_volumes(volumes: str, collector: Collector, tmp_path: Path) -> Collector:
    """The collector itself, or one whose archive is on the disk and not where its state is."""
    if volumes == TWO:
        collector.archive = tmp_path.resolve() / "archive"
        collector.archive.mkdir()
        if os.stat(collector.archive).st_dev == os.stat(collector.state).st_dev:
            pytest.skip("needs a second volume: tmpfs beside the disk")
    return collector


def volumes_of(collector: Collector) -> str:
    return ONE if os.stat(collector.archive).st_dev == os.stat(collector.state).st_dev else TWO


def places_of(collector: Collector, run_id: str) -> tuple[Path, Path]:
    """Before and after."""
    month = {"first": "2026/11", "second": "2026/12"}[run_id]
    return (
        collector.state / f"refresh/runs/{run_id}/evidence.json",
        collector.archive / f"evidence/{month}/{run_id}.json",
    )


def require_kept(collector: Collector) -> None:
    """Each evidence is there at least once, and wherever it is it is exact."""
    for run_id, data in EVIDENCE.items():
        there = [place.read_bytes() for place in places_of(collector, run_id) if place.exists()]
        assert there and set(there) == {data}, run_id


def require_moved(collector: Collector) -> None:
    for run_id, data in EVIDENCE.items():
        source, target = places_of(collector, run_id)
        assert not source.parent.exists() and target.read_bytes() == data
    counts = collector.call("check").require_done()["counts"]
    assert (counts["archived_evidence"], counts["evidence"], counts["temporaries"]) == (2, 0, 0)
    for run_id in EVIDENCE:
        sent = collector.call("commit", "--evidence", str(collector.home / f"{run_id}.evidence.json")).require_done()
        assert (sent["already"], sent["run_id"]) == (True, run_id)


def test_a_move_that_does_not_end_is_ambiguous(two_runs: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "_TURNS_MAX", 1)
    answer = two_runs.call("move-completed").require_refused("E_RECOVERY_AMBIGUOUS", 70)
    assert "does not stay where it is put" in answer["message"]
    monkeypatch.undo()
    two_runs.call("move-completed").require_done()
    require_moved(two_runs)


def test_the_spec_and_the_code_have_the_same_rows() -> None:
    require_same_rows(SPEC.read_text(), "### Move", MOVE)


def test_every_evidence_moves_and_a_second_time_nothing_is_left_to_do(two_runs: Collector) -> None:
    answer = two_runs.call("move-completed").require_done()
    rows = ["M1", "M4"] if volumes_of(two_runs) == ONE else ["M2", "M3", "M4"]
    assert answer["moved"] == [
        {"run_id": "first", "path": "evidence/2026/11/first.json", "rows": rows},
        {"run_id": "second", "path": "evidence/2026/12/second.json", "rows": rows},
    ]
    assert answer["kept"] == []
    require_moved(two_runs)
    with nothing_changes(two_runs):
        assert two_runs.call("move-completed").require_done()["moved"] == []


@needs_posix
@pytest.mark.parametrize(("two_runs", "point"), KILLS, indirect=["two_runs"])
def test_killed_at_any_point_the_evidence_is_there_and_the_same_command_finishes(
    two_runs: Collector, point: str
) -> None:
    two_runs.kill(point, "move-completed")
    require_kept(two_runs)
    two_runs.call("check").require_done()
    assert two_runs.call("recover").require_done()["rows"] == []
    require_kept(two_runs)
    two_runs.call("move-completed").require_done()
    require_moved(two_runs)


@needs_posix
@pytest.mark.parametrize(("two_runs", "point"), KILLS, indirect=["two_runs"])
def test_refused_by_the_disk_at_any_point_it_says_so_and_the_same_command_finishes(
    two_runs: Collector, point: str
) -> None:
    with armed(f"{point}#1=error:ENOSPC"):
        refused = two_runs.call("move-completed").require_refused("E_IO", 73)
    assert refused["detail"]["errno"] == "ENOSPC"
    require_kept(two_runs)
    two_runs.call("move-completed").require_done()
    require_moved(two_runs)


def test_two_mounts_of_one_volume_refuse_the_rename_and_it_is_copied(collector: Collector) -> None:
    collector.commit()
    with armed(f"{points_archive.RENAMED}/renamed#1=error:EXDEV"):
        (moved,) = collector.call("move-completed").require_done()["moved"]
    assert moved["rows"] == ["M1", "M3", "M4"]
    counts = collector.call("check").require_done()["counts"]
    assert (counts["archived_evidence"], counts["evidence"]) == (1, 0)


# ------------------------------------------------------------------------------------------------- what is refused


def other_target(c: Collector) -> None:
    place_target(c, b"{}")


def target_that_is_a_link(c: Collector) -> None:
    source, target = places_of(c, "second")
    target.parent.mkdir(parents=True)
    target.symlink_to(source)


def directory_that_is_a_link(c: Collector) -> None:
    """The whole of evidence/ points elsewhere: nothing of ours goes through it."""
    (c.home / "elsewhere").mkdir()
    (c.archive / "evidence").symlink_to(c.home / "elsewhere")


def other_source(c: Collector) -> None:
    source, _ = places_of(c, "second")
    source.write_bytes(source.read_bytes() + b" ")


def other_source_beside_the_exact_target(c: Collector) -> None:
    place_target(c, EVIDENCE["second"])
    other_source(c)


def evidence_nowhere(c: Collector) -> None:
    source, _ = places_of(c, "second")
    source.unlink()


def place_target(c: Collector, data: bytes) -> None:
    _, target = places_of(c, "second")
    target.parent.mkdir(parents=True)
    target.write_bytes(data)


@needs_posix
@pytest.mark.parametrize(
    "damage",
    [
        other_target,
        target_that_is_a_link,
        directory_that_is_a_link,
        other_source,
        other_source_beside_the_exact_target,
        evidence_nowhere,
    ],
    ids=lambda damage: damage.__name__,
)
def test_what_has_no_row_is_refused_before_the_first_run_is_moved(
    two_runs: Collector, damage: Callable[[Collector], None]
) -> None:
    damage(two_runs)
    before = observe_tree(two_runs.archive)
    with nothing_changes(two_runs):
        refused = two_runs.call("move-completed").require_refused("E_RECOVERY_AMBIGUOUS", 70)
    assert refused["row"] == "M-AMBIGUOUS" and before.differences(observe_tree(two_runs.archive)) == []


def test_a_copy_that_is_there_and_exact_is_taken_and_the_source_goes(two_runs: Collector) -> None:
    place_target(two_runs, EVIDENCE["second"])
    moved = {run["run_id"]: run["rows"] for run in two_runs.call("move-completed").require_done()["moved"]}
    assert moved["second"] == ["M3", "M4"]
    require_moved(two_runs)


@needs_posix
def test_what_appears_at_the_last_moment_is_not_overwritten(two_runs: Collector) -> None:
    """Somebody writes the target between the look and the rename, on one volume or two."""
    point = f"{points_archive.ARCHIVE_DIRECTORY}/dir-synced"
    with two_runs.started("move-completed", plan=f"{point}#3=pause") as process:
        assert process.read_record() == f"pause\t{point}\t3\t{process.pid}"
        source, target = places_of(two_runs, "first")
        target.write_bytes(b"somebody else's")
        process.resume()
        process.end().require_refused("E_RECOVERY_AMBIGUOUS", 70)
    assert (source.read_bytes(), target.read_bytes()) == (EVIDENCE["first"], b"somebody else's")


@needs_posix
def test_what_changes_before_it_is_moved_is_not_moved(two_runs: Collector) -> None:
    """M1, M2: another content at the source than was looked at does not become the run's evidence."""
    point = f"{points_archive.ARCHIVE_DIRECTORY}/dir-synced"
    with two_runs.started("move-completed", plan=f"{point}#3=pause") as process:
        assert process.read_record() == f"pause\t{point}\t3\t{process.pid}"
        source, target = places_of(two_runs, "first")
        source.write_bytes(b"changed")
        process.resume()
        ended = process.end()
    assert (ended.code, ended.status) in (("E_UNEXPECTED_CONTENT", 70), ("E_RECOVERY_AMBIGUOUS", 70)), ended.words
    assert source.read_bytes() == b"changed" and not target.exists()


@needs_posix
@pytest.mark.parametrize("changed", [0, 1], ids=["source", "target"])
def test_what_changes_before_the_source_goes_is_seen(two_runs: Collector, changed: int) -> None:
    """M3: whichever of the two somebody changes after the look, the other one is not deleted for it."""
    for run_id in EVIDENCE:
        if not places_of(two_runs, run_id)[1].parent.exists():
            places_of(two_runs, run_id)[1].parent.mkdir(parents=True)
        shutil.copyfile(*places_of(two_runs, run_id))
    point = f"{points_archive.ARCHIVE_DIRECTORY}" if changed else f"{points_archive.DURABLE}"
    hit = 3 if changed else 1
    with two_runs.started("move-completed", plan=f"{point}#{hit}=pause") as process:
        assert process.read_record() == f"pause\t{point}\t{hit}\t{process.pid}"
        places = places_of(two_runs, "first")
        places[changed].write_bytes(b"changed")
        process.resume()
        process.end().require_refused("E_UNEXPECTED_CONTENT", 70)
    assert places[0].exists() and EVIDENCE["first"] in [place.read_bytes() for place in places]


# ----------------------------------------------------------------------------------------------- what stays as it is


@needs_posix
def test_the_evidence_of_a_run_that_is_not_archived_stays(collector: Collector) -> None:
    collector.commit()
    orphan = collector.evidence("orphan", [7], hour="2026-11-30T13")
    collector.kill("collector.claim.before-PLANNED", "commit", "--evidence", orphan)
    answer = collector.call("move-completed").require_done()
    assert ([run["run_id"] for run in answer["moved"]], answer["kept"]) == (["first"], ["orphan"])
    assert (collector.state / "refresh/runs/orphan/evidence.json").exists()
    assert collector.call("check").require_done()["counts"]["orphans"] == 1
    collector.call("commit", "--evidence", orphan).require_done()
    assert collector.call("move-completed").require_done()["kept"] == []


def test_what_somebody_put_into_the_runs_directory_stays_and_so_does_it(collector: Collector) -> None:
    collector.commit()
    notes = collector.state / "refresh/runs/first/notes.txt"
    notes.write_bytes(b"somebody else's")
    for _ in range(2):
        ran = collector.call("move-completed")
        (warning,) = ran.require_done()["warnings"]
        assert (warning["code"], warning["path"]) == ("W_RUN_DIRECTORY", "refresh/runs/first")
        assert "W_RUN_DIRECTORY" in ran.words and notes.read_bytes() == b"somebody else's"
    assert (collector.archive / "evidence/2026/11/first.json").exists()


@needs_posix
def test_a_dead_writers_temporary_files_go_with_the_run(two_runs: Collector) -> None:
    """Also where a begun run waits, with which the common sweep does nothing."""
    two_runs.call("begin", "--task", "task-1").require_done()
    source, target = places_of(two_runs, "first")
    target.parent.mkdir(parents=True)
    for path in (source, target):
        path.with_name(f".{path.name}.tmp").write_bytes(b"torn")
    assert two_runs.call("check").require_done()["counts"]["temporaries"] == 2
    assert two_runs.call("move-completed").require_done()["warnings"] == []
    assert not source.parent.exists()
    assert two_runs.call("check").require_done()["counts"]["temporaries"] == 0


@needs_posix
def test_it_recovers_first_and_then_moves_that_run_too(collector: Collector) -> None:
    collector.kill("collector.transaction.BUSINESS_COMMITTED", "commit", "--evidence", collector.evidence())
    answer = collector.call("move-completed").require_done()
    assert answer["rows"][0] == "C6" and [run["run_id"] for run in answer["moved"]] == ["first"]
    assert collector.settled()


def test_a_run_id_stays_taken_when_its_evidence_is_moved_and_its_slot_is_reused(collector: Collector) -> None:
    collector.commit("first", [1])
    collector.call("move-completed").require_done()
    collector.commit("later", [2], hour="2026-12-07T12")
    for hour in ("2026-11-30T12", "2026-12-08T00"):
        again = collector.evidence("first", [1, 9], hour=hour)
        with nothing_changes(collector):
            collector.call("commit", "--evidence", again).require_refused("E_RUN_ID_TAKEN", 65)
    assert collector.run_ids() == ["first", "later"]


@needs_posix
def test_it_waits_for_the_state_lock(collector: Collector) -> None:
    held = "collector.claim.HELD"
    with collector.started("commit", "--evidence", collector.evidence(), plan=f"{held}#1=pause") as holder:
        holder.await_pause(held)
        before = collector.tree()
        collector.call("move-completed").require_refused("E_STATE_LOCKED", 75)
        assert before.differences(collector.tree()) == []
        holder.resume()
        assert collector.call("move-completed", "--wait", "60").require_done()["moved"]


@needs_linux
def test_the_target_is_durable_before_the_source_goes(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that somebody made and did not sync: its content, then its name, then the deletion."""
    collector.commit()
    source, target = places_of(collector, "first")
    target.parent.mkdir(parents=True)
    shutil.copyfile(source, target)
    with recorded(monkeypatch) as calls:
        collector.call("move-completed").require_done()
    at = {call: index for index, call in reversed(list(enumerate(calls)))}
    order = [("fsync", target), ("fsync", target.parent), ("unlink", source), ("fsync", source.parent),
             ("rmdir", source.parent), ("fsync", source.parent.parent)]  # fmt: skip
    assert [at[call] for call in order[:4]] == sorted(at[call] for call in order[:4])
    assert at[order[4]] < max(index for index, call in enumerate(calls) if call == order[5])
    for directory in (collector.archive, collector.archive / "evidence", collector.archive / "evidence/2026"):
        assert at["fsync", directory] < at["unlink", source]


class recorded:
    """fsync, unlink and rmdir with their paths, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.calls: list[tuple[str, Path]] = []

    def __enter__(self) -> list[tuple[str, Path]]:
        for name in ("fsync", "unlink", "rmdir"):
            self._monkeypatch.setattr(os, name, self._wrap(name, getattr(os, name)))
        return self.calls

    def _wrap(self, name: str, real: Callable[..., None]) -> Callable[..., None]:
        def call(what: int | Path) -> None:
            path = os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else what
            self.calls.append((name, Path(path)))
            real(what)

        return call

    def __exit__(self, *_: object) -> None:
        self._monkeypatch.undo()
