"""handoff: DIR is there whole or not there; nothing that is not a dead handoff's is ever cleared."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import killpoints
from product.collector import points_archive
from tests.collector.helpers import Collector, Ran, armed, canonical, needs_linux, needs_posix, nothing_changes

MAKING = [str(point) for point in killpoints.catalogue() if point.startswith("collector.handoff.")]
CLEARING = [name for name in MAKING if name.startswith("collector.handoff.leftover-")]
MAKING = [name for name in MAKING if name not in CLEARING]
PUBLISHED = [name for name in MAKING if name.startswith(points_archive.PUBLISHED)]
LATE = str(points_archive.SUMS)


@pytest.fixture
def sound(collector: Collector) -> Collector:
    """Two runs; the evidence of the first is moved to the archive, that of the second is not."""
    collector.commit("first", [1, 2])
    collector.call("move-completed").require_done()
    collector.commit("second", [2, 3], hour="2026-12-01T00")
    return collector


def out_of(collector: Collector) -> Path:
    return collector.home / "bundle"


def aside_of(collector: Collector) -> Path:
    return collector.home / ".bundle.tmp"


def handoff(collector: Collector) -> Ran:
    return collector.call("handoff", "--out", str(out_of(collector)))


def require_whole(collector: Collector) -> None:
    """Exactly what the archive has, and SHA256SUMS says so."""
    out = out_of(collector)
    evidence = {
        "evidence/2026/11/first.json": (collector.archive / "evidence/2026/11/first.json").read_bytes(),
        "evidence/2026/12/second.json": (collector.state / "refresh/runs/second/evidence.json").read_bytes(),
    }
    segments = {name: (collector.archive / name).read_bytes() for name in ("cards/000001.jsonl", "runs/000001.jsonl")}
    found = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    description, sums = found.pop("bundle.json"), found.pop("SHA256SUMS")
    assert found == evidence | segments
    due = {name: hashlib.sha256(data).hexdigest() for name, data in (found | {"bundle.json": description}).items()}
    assert sums.decode() == "".join(f"{sha256}  {name}\n" for name, sha256 in sorted(due.items()))
    value = json.loads(description)
    assert canonical(value) == description
    tips = {name: {"seq": len(data.splitlines()), "sha256": hashlib.sha256(data.splitlines()[-1]).hexdigest()}
            for name, data in (("cards", segments["cards/000001.jsonl"]), ("runs", segments["runs/000001.jsonl"]))}  # fmt: skip
    counts = {"cards": 3, "runs": 2, "segments": 2, "evidence": 2, "files": 4, "bytes": sum(map(len, found.values()))}
    assert (value["tasks"], value["counts"], value["tips"]) == (["task-1"], counts, tips)
    assert not aside_of(collector).exists()


def test_a_bundle_is_exactly_the_archive(sound: Collector) -> None:
    with nothing_changes(sound):
        answer = handoff(sound).require_done()
    require_whole(sound)
    sums = (out_of(sound) / "SHA256SUMS").read_bytes()
    assert (answer["out"], answer["sums_sha256"]) == (str(out_of(sound)), hashlib.sha256(sums).hexdigest())
    assert (answer["counts"]["files"], answer["tips"]["runs"]["seq"]) == (4, 2)


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs sha256sum")
def test_sha256sum_takes_the_sums_and_sees_a_changed_file(sound: Collector) -> None:
    handoff(sound).require_done()
    verify = ["sha256sum", "--strict", "-c", "SHA256SUMS"]
    assert subprocess.run(verify, cwd=out_of(sound), capture_output=True).returncode == 0
    (out_of(sound) / "cards/000001.jsonl").write_bytes(b"x")
    assert subprocess.run(verify, cwd=out_of(sound), capture_output=True).returncode == 1


def test_an_archive_of_which_nothing_is_there_yet_is_a_bundle_too(collector: Collector) -> None:
    assert handoff(collector).require_done()["counts"]["files"] == 0
    assert sorted(path.name for path in out_of(collector).iterdir()) == ["SHA256SUMS", "bundle.json"]


# ------------------------------------------------------------------------------------------------------- killed


@needs_posix
@pytest.mark.parametrize("point", MAKING)
def test_killed_at_any_point_it_is_whole_or_not_there_and_the_same_command_makes_it(
    sound: Collector, point: str
) -> None:
    sound.kill(point, "handoff", "--out", str(out_of(sound)))
    if point in PUBLISHED:
        require_whole(sound)
        assert sound.call("recover").require_done()["rows"] == []
        handoff(sound).require_refused("E_HANDOFF_EXISTS", 73)
    else:
        assert not out_of(sound).exists()
        assert sound.call("recover").require_done()["rows"] == []
        handoff(sound).require_done()
    require_whole(sound)
    sound.call("check").require_done()


@needs_posix
@pytest.mark.parametrize("point", CLEARING)
def test_killed_while_a_leftover_is_cleared_the_next_one_clears_it(sound: Collector, point: str) -> None:
    """At every file and every directory of a nearly whole leftover, the last ones included."""
    sound.kill(LATE, "handoff", "--out", str(out_of(sound)))
    kills = 0
    for hit in range(1, 20):
        plan = f"{point}#{hit}=kill"
        copy = Collector(sound.home / f"{hit}")
        shutil.copytree(sound.state, copy.state, dirs_exist_ok=True)
        shutil.copytree(sound.archive, copy.archive, dirs_exist_ok=True)
        shutil.copytree(aside_of(sound), aside_of(copy))
        with copy.started("handoff", "--out", str(out_of(copy)), plan=plan) as process:
            if process.read_record() == "":
                break
            assert process.end().status == -9
        kills += 1
        assert not out_of(copy).exists()
        handoff(copy).require_done()
        require_whole(copy)
    assert kills == (6 if "file" in point else 7)


@needs_posix
@pytest.mark.parametrize("point", MAKING)
def test_refused_by_the_disk_at_any_point_it_says_so_and_the_same_command_makes_it(
    sound: Collector, point: str
) -> None:
    if point == points_archive.VERIFIED:
        return  # nothing is done there that a disk could refuse
    with armed(f"{point}#1=error:ENOSPC"):
        refused = handoff(sound).require_refused("E_IO", 73)
    assert refused["detail"]["errno"] == "ENOSPC"
    if not out_of(sound).exists():
        handoff(sound).require_done()
    require_whole(sound)


# -------------------------------------------------------------------------------------------------- the leftover


def nothing_in_it(aside: Path) -> None:
    aside.mkdir()


def only_the_torn_description(aside: Path) -> None:
    aside.mkdir()
    (aside / ".bundle.json.tmp").write_bytes(b"{")


@pytest.mark.parametrize("leftover", [nothing_in_it, only_the_torn_description], ids=lambda f: f.__name__)
def test_what_a_death_before_the_first_file_leaves_is_cleared(
    sound: Collector, leftover: Callable[[Path], None]
) -> None:
    leftover(aside_of(sound))
    handoff(sound).require_done()
    require_whole(sound)


def somebody_elses_directory(aside: Path) -> None:
    aside.mkdir()
    (aside / "thesis.tex").write_bytes(b"x")


def names_of_a_bundle_without_its_description(aside: Path) -> None:
    (aside / "cards").mkdir(parents=True)
    (aside / "cards/000001.jsonl").write_bytes(b"x")


def sums_without_the_description(aside: Path) -> None:
    aside.mkdir()
    (aside / "SHA256SUMS").write_bytes(b"")


def empty_directories_of_a_bundle(aside: Path) -> None:
    (aside / "cards").mkdir(parents=True)


def another_description(aside: Path) -> None:
    aside.mkdir()
    (aside / "bundle.json").write_bytes(b'{"kind":"webpack"}')


def description_that_is_a_link(aside: Path) -> None:
    aside.mkdir()
    (aside.parent / "elsewhere").write_bytes(b"{}")
    (aside / "bundle.json").symlink_to(aside.parent / "elsewhere")


def file_under_the_name(aside: Path) -> None:
    aside.write_bytes(b"x")


def link_under_the_name(aside: Path) -> None:
    (aside.parent / "elsewhere").mkdir()
    aside.symlink_to(aside.parent / "elsewhere")


@needs_posix
@pytest.mark.parametrize(
    "foreign",
    [
        somebody_elses_directory,
        names_of_a_bundle_without_its_description,
        sums_without_the_description,
        empty_directories_of_a_bundle,
        another_description,
        description_that_is_a_link,
        file_under_the_name,
        link_under_the_name,
    ],
    ids=lambda foreign: foreign.__name__,
)
def test_what_is_not_a_dead_handoffs_stays(sound: Collector, foreign: Callable[[Path], None]) -> None:
    foreign(aside_of(sound))
    before = sound.tree()
    handoff(sound).require_refused("E_RECOVERY_AMBIGUOUS", 70)
    assert before.differences(sound.tree()) == [] and not out_of(sound).exists()


@needs_posix
@pytest.mark.parametrize(
    "name",
    [
        "notes",
        "cards/notes",
        "cards/deeper/000001.jsonl",
        "slots/000.json",
        "refresh/pending.json",
        "evidence/2026/13/a.json",
        "empty/",
        "refresh/slots/",
        "cards/deeper/",
    ],
)
def test_a_dead_handoffs_directory_with_something_else_in_it_stays(sound: Collector, name: str) -> None:
    sound.kill(LATE, "handoff", "--out", str(out_of(sound)))
    path = aside_of(sound) / name
    (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
    if not name.endswith("/"):
        path.write_bytes(b"somebody else's")
    before = sound.tree()
    handoff(sound).require_refused("E_RECOVERY_AMBIGUOUS", 70)
    # the state lock's files aside: the killed one's metadata goes to quarantine
    changed = [path for path, _ in before.differences(sound.tree()) if not path.startswith("state/")]
    assert changed == [] and not out_of(sound).exists()


# ----------------------------------------------------------------------------------------------- what is refused


def directory_there(out: Path) -> None:
    out.mkdir()


def file_there(out: Path) -> None:
    out.write_bytes(b"x")


def dangling_link_there(out: Path) -> None:
    out.symlink_to(out.with_name("nowhere"))


@needs_posix
@pytest.mark.parametrize("there", [directory_there, file_there, dangling_link_there], ids=lambda there: there.__name__)
def test_a_name_that_is_taken_is_refused_whatever_has_it(sound: Collector, there: Callable[[Path], None]) -> None:
    there(out_of(sound))
    before = sound.tree()
    handoff(sound).require_refused("E_HANDOFF_EXISTS", 73)
    assert before.differences(sound.tree()) == []


@needs_posix
@pytest.mark.parametrize("there", [directory_there, file_there, dangling_link_there], ids=lambda there: there.__name__)
def test_a_name_that_is_taken_at_the_last_moment_is_not_overwritten(
    sound: Collector, there: Callable[[Path], None]
) -> None:
    with sound.started("handoff", "--out", str(out_of(sound)), plan=f"{points_archive.VERIFIED}#1=pause") as process:
        process.await_pause(str(points_archive.VERIFIED))
        there(out_of(sound))
        before = os.lstat(out_of(sound))
        process.resume()
        process.end().require_refused("E_HANDOFF_EXISTS", 73)
    after = os.lstat(out_of(sound))
    assert (before.st_ino, before.st_mtime_ns, before.st_size) == (after.st_ino, after.st_mtime_ns, after.st_size)


@needs_posix
@pytest.mark.parametrize(
    ("out", "code", "status"),
    [
        ("state/bundle", "E_INPUT", 65),
        ("archive/bundle", "E_INPUT", 65),
        ("archive/cards/bundle", "E_INPUT", 65),
        ("elsewhere/../state/bundle", "E_INPUT", 65),
        (".hidden", "E_INPUT", 65),
        ("nul", "E_INPUT", 65),
        ("missing/bundle", "E_PATH_REPARSE", 78),
        ("link/bundle", "E_PATH_REPARSE", 78),
    ],
)
def test_a_place_where_no_bundle_may_be_is_refused_before_anything(
    sound: Collector, out: str, code: str, status: int
) -> None:
    (sound.home / "link").symlink_to(sound.archive)
    (sound.home / "elsewhere").mkdir()
    before = sound.tree()
    sound.call("handoff", "--out", f"{sound.home}/{out}").require_refused(code, status)
    assert before.differences(sound.tree()) == []


def test_a_relative_name_is_below_the_working_directory(sound: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(sound.home)
    assert sound.call("handoff", "--out", "bundle").require_done()["out"] == str(out_of(sound))


def test_an_archive_that_is_not_sound_is_not_handed_over(sound: Collector) -> None:
    path = sound.archive / "cards/000001.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"video"', b'"vidxo"', 1))
    refused = handoff(sound).require_refused("E_CHECK_FAILED", 70)
    assert {finding["code"] for finding in refused["findings"]} == {"K_LINE_CHANGED", "K_SLOT_TIP"}
    assert not out_of(sound).exists() and not aside_of(sound).exists()


def test_what_nothing_accounts_for_is_not_in_the_way_and_not_in_the_bundle(sound: Collector) -> None:
    (sound.archive / "cards/README").write_bytes(b"x")
    (sound.archive / "notes.txt").write_bytes(b"x")
    sound.call("check").require_refused("E_CHECK_FAILED", 70)
    handoff(sound).require_done()
    require_whole(sound)


# ---------------------------------------------------------------------------------- what changes in the meantime


@needs_posix
@pytest.mark.parametrize(
    "change",
    [
        lambda aside: (aside / "cards/000001.jsonl").write_bytes(b"x"),
        lambda aside: (aside / "bundle.json").write_bytes(b"{}"),
        lambda aside: (aside / "evidence/2026/11/first.json").unlink(),
        lambda aside: (aside / "notes").write_bytes(b"x"),
        lambda aside: (aside / "notes").mkdir(),
        lambda aside: (aside / "notes").symlink_to(aside),
        lambda aside: (aside / "SHA256SUMS").write_bytes(b"x"),
    ],
)
def test_a_bundle_that_somebody_touches_does_not_get_its_name(
    sound: Collector, change: Callable[[Path], object]
) -> None:
    with sound.started("handoff", "--out", str(out_of(sound)), plan=f"{LATE}#1=pause") as process:
        process.await_pause(LATE)
        change(aside_of(sound))
        process.resume()
        ended = process.end()
    assert (ended.code, ended.status) in (("E_RECOVERY_AMBIGUOUS", 70), ("E_UNEXPECTED_CONTENT", 70)), ended.words
    assert not out_of(sound).exists()


@needs_posix
@pytest.mark.parametrize("name", ["archive/cards/000001.jsonl", "state/refresh/runs/second/evidence.json"])
def test_a_source_that_changes_between_the_check_and_the_copy_is_refused(sound: Collector, name: str) -> None:
    point = str(points_archive.ASIDE)
    with sound.started("handoff", "--out", str(out_of(sound)), plan=f"{point}#1=pause") as process:
        process.await_pause(point)
        (sound.home / name).write_bytes((sound.home / name).read_bytes() + b" ")
        process.resume()
        process.end().require_refused("E_RECOVERY_AMBIGUOUS", 70)
    assert not out_of(sound).exists()


# -------------------------------------------------------------------------------------- first of all, and in order


@needs_posix
def test_it_recovers_first_and_hands_over_that_run_too(collector: Collector) -> None:
    collector.kill("collector.transaction.BUSINESS_COMMITTED", "commit", "--evidence", collector.evidence())
    answer = handoff(collector).require_done()
    assert answer["rows"][0] == "C6" and answer["counts"]["runs"] == 1
    assert collector.settled()


@needs_posix
def test_it_waits_for_the_state_lock(collector: Collector) -> None:
    held = "collector.claim.HELD"
    with collector.started("commit", "--evidence", collector.evidence(), plan=f"{held}#1=pause") as holder:
        holder.await_pause(held)
        before = collector.tree()
        handoff(collector).require_refused("E_STATE_LOCKED", 75)
        assert before.differences(collector.tree()) == []
        holder.resume()
        answer = collector.call("handoff", "--out", str(out_of(collector)), "--wait", "60").require_done()
        assert answer["counts"]["cards"] == 2


@needs_linux
def test_every_file_and_directory_is_synced_before_the_bundle_has_its_name(
    sound: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced.append(path.with_name(path.name[1:-4]) if path.name.endswith(".tmp") and path != aside else path)
        real(descriptor)

    aside = aside_of(sound)
    monkeypatch.setattr(os, "fsync", fsync)
    handoff(sound).require_done()
    made = [aside / path.relative_to(out_of(sound)) for path in out_of(sound).rglob("*")]
    assert {aside, *made} <= set(synced)
    assert synced.index(aside / "SHA256SUMS") < len(synced) - 1 - synced[::-1].index(sound.home)
