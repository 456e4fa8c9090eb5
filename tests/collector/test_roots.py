"""The two roots and the file systems below them: what is not as it must be is refused before anything is written."""

from __future__ import annotations

import pytest

from product.durable import rename, volume
from product.durable.errors import RenameUnsupported
from tests.collector.helpers import Collector, armed, needs_linux, needs_posix, nothing_changes

BEGIN = ("begin", "--task", "task-1", "--run-id", "first", "--at", "2099-01-01T00:10:00Z")


def commands(collector: Collector) -> list[tuple[str, ...]]:
    return [("commit", "--evidence", collector.evidence()), BEGIN, ("recover",), ("status",)]


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
