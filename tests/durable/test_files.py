"""Each primitive: what it does, what it refuses, and that a refusal changes nothing."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from product.durable import files, rename
from product.durable.errors import DurableError, PathReparse, ReadBackMismatch, UnexpectedContent
from product.durable.files import Digest
from tests.durable import points
from tests.durable.support import names, needs_posix, run_worker, snapshot
from tests.durable.worker import NEW, OLD


def seed_link(path: Path) -> None:
    (path.parent / "elsewhere").write_bytes(OLD)
    path.symlink_to(path.parent / "elsewhere")


def seed_hard_link(path: Path) -> None:
    (path.parent / "elsewhere").write_bytes(OLD)
    os.link(path.parent / "elsewhere", path)


def seed_fifo(path: Path) -> None:
    os.mkfifo(path)


SEEDS: dict[str, Callable[[Path], None]] = {
    "symbolic link": seed_link,
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "hard link": seed_hard_link,
    "directory": Path.mkdir,
    "fifo": seed_fifo,
}
not_plain = pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS.keys())


def refused(directory: Path, act: Callable[[], object]) -> DurableError:
    """The UnexpectedContent that ``act`` raises, having changed nothing."""
    before = snapshot(directory)
    with pytest.raises(UnexpectedContent) as caught:
        act()
    assert snapshot(directory) == before
    assert str(directory) in caught.value.message
    return caught.value


# ----------------------------------------------------------------------------------------------------- reading


def test_reading_tells_absent_from_empty(tmp_path: Path) -> None:
    assert files.read_file(tmp_path / "none") is None
    assert files.digest_file(tmp_path / "none") is None
    (tmp_path / "empty").write_bytes(b"")
    assert files.read_file(tmp_path / "empty") == b""
    assert files.digest_file(tmp_path / "empty") == Digest.of(b"")


def test_a_large_file_is_digested_in_pieces_and_read_up_to_the_bound(tmp_path: Path) -> None:
    data = os.urandom(2**20 + 7) * 3
    (tmp_path / "large").write_bytes(data)
    assert files.digest_file(tmp_path / "large") == Digest.of(data)
    assert files.read_file(tmp_path / "large", size_max_bytes=len(data)) == data
    refused(tmp_path, lambda: files.read_file(tmp_path / "large", size_max_bytes=len(data) - 1))


@not_plain
@needs_posix
def test_b070_reading_follows_nothing_and_waits_for_nothing(tmp_path: Path, seed: Callable[[Path], None]) -> None:
    seed(tmp_path / "state")
    refused(tmp_path, lambda: files.read_file(tmp_path / "state"))
    refused(tmp_path, lambda: files.digest_file(tmp_path / "state"))


@not_plain
@needs_posix
def test_what_is_not_a_plain_file_is_not_even_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: Callable[[Path], None]
) -> None:
    """To open a device is an act of its own: a tape rewinds, a terminal takes us for its session."""
    seed(tmp_path / "state")
    with monkeypatch.context() as patch, pytest.raises(UnexpectedContent):
        patch.setattr("product.durable.plain.os.open", None)
        files.read_file(tmp_path / "state")


@not_plain
@needs_posix
def test_what_takes_the_name_at_the_last_instant_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: Callable[[Path], None]
) -> None:
    path, honest = tmp_path / "state", os.lstat
    path.write_bytes(OLD)

    def late(asked: Path) -> os.stat_result:
        status = honest(asked)
        path.unlink()
        seed(path)
        return status

    with monkeypatch.context() as patch, pytest.raises(UnexpectedContent):
        patch.setattr("product.durable.plain.os.lstat", late)
        files.read_file(path)


def test_an_error_of_the_system_passes_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        files.read_file(tmp_path / "file" / "below")


# --------------------------------------------------------------------------------------------- put_new and put


def test_put_new_creates_and_leaves_nothing_beside(tmp_path: Path) -> None:
    files.put_new(tmp_path / "target", NEW, point=points.PUT_NEW)
    assert (tmp_path / "target").read_bytes() == NEW
    assert names(tmp_path) == ["target"]


def test_put_new_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(OLD)
    before = snapshot(tmp_path)
    with pytest.raises(FileExistsError):
        files.put_new(tmp_path / "target", NEW, point=points.PUT_NEW)
    assert snapshot(tmp_path) == before


def test_put_creates_and_replaces(tmp_path: Path) -> None:
    for data in (OLD, NEW, b"", OLD):
        files.put(tmp_path / "target", data, point=points.PUT)
        assert (tmp_path / "target").read_bytes() == data
    assert names(tmp_path) == ["target"]


@not_plain
@needs_posix
def test_b070_put_refuses_what_is_not_a_plain_file(tmp_path: Path, seed: Callable[[Path], None]) -> None:
    seed(tmp_path / "target")
    refused(tmp_path, lambda: files.put(tmp_path / "target", NEW, point=points.PUT))


@needs_posix
def test_b070_put_refuses_a_link_that_comes_while_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "target"
    with monkeypatch.context() as patch, pytest.raises(UnexpectedContent):
        patch.setattr(files, "_sync_file", lambda descriptor: seed_link(target))
        files.put(target, NEW, point=points.PUT)
    assert target.is_symlink()
    assert names(tmp_path) == ["elsewhere", "target"]
    assert (tmp_path / "elsewhere").read_bytes() == OLD


@needs_posix
@pytest.mark.parametrize("mode", [0o640, 0o600, 0o444])
def test_b070_put_keeps_the_mode(tmp_path: Path, mode: int) -> None:
    (tmp_path / "target").write_bytes(OLD)
    (tmp_path / "target").chmod(mode)
    files.put(tmp_path / "target", NEW, point=points.PUT)
    assert stat.S_IMODE((tmp_path / "target").stat().st_mode) == mode


@not_plain
@needs_posix
def test_a_temporary_name_of_somebody_else_is_refused_and_stays(tmp_path: Path, seed: Callable[[Path], None]) -> None:
    seed(tmp_path / ".target.tmp")
    refused(tmp_path, lambda: files.put(tmp_path / "target", NEW, point=points.PUT))
    refused(tmp_path, lambda: files.put_new(tmp_path / "target", NEW, point=points.PUT_NEW))
    refused(tmp_path, lambda: files.clear_temporary(tmp_path / "target"))


def test_what_a_death_left_is_cleared(tmp_path: Path) -> None:
    target = tmp_path / "target"
    assert files.temporary_path(target) == tmp_path / ".target.tmp"
    assert not files.clear_temporary(target)
    (tmp_path / ".target.tmp").write_bytes(b"half of")
    assert files.clear_temporary(target, point=points.CLEAR)
    assert names(tmp_path) == []
    (tmp_path / ".target.tmp").write_bytes(b"half of")
    files.put_new(target, NEW, point=points.PUT_NEW)
    assert names(tmp_path) == ["target"]


def test_b046_short_writes_are_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: whole(descriptor, bytes(data)[: len(data) // 2 or 1]))
    files.put(tmp_path / "target", NEW, point=points.PUT)
    monkeypatch.undo()
    assert (tmp_path / "target").read_bytes() == NEW


def test_b062_a_disk_that_fills_up_in_the_middle_leaves_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "target").write_bytes(OLD)
    before, whole = snapshot(tmp_path), os.write

    def filling(descriptor: int, data: bytes) -> int:
        if len(data) < len(NEW):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return whole(descriptor, bytes(data)[:5])

    monkeypatch.setattr(os, "write", filling)
    for _ in range(50):
        with pytest.raises(OSError, match="No space left"):
            files.put(tmp_path / "target", NEW, point=points.PUT)
        assert snapshot(tmp_path) == before


@needs_posix
def test_a_write_that_the_kernel_stops_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(OLD)
    with pytest.raises(AssertionError, match="File too large"):
        run_worker("put_beyond_limit", str(tmp_path), "5")
    assert (tmp_path / "target").read_bytes() == OLD
    assert names(tmp_path) == ["target"]


def test_a_temporary_file_that_comes_at_the_last_instant_is_another_writers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    monkeypatch.setattr(files, "_clear", lambda temporary: temporary.write_bytes(OLD))
    with pytest.raises(UnexpectedContent, match="another writer is at work"):
        files.put_new(path, NEW, point=None)
    assert files.temporary_path(path).read_bytes() == OLD and not path.exists()


@needs_posix
@pytest.mark.parametrize("number", [errno.EIO, errno.EBADF])
def test_a_sync_that_fails_is_told_and_the_old_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    before = snapshot(tmp_path)

    def fail(_descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.os, "fsync", fail)
    acts: list[Callable[[], None]] = [
        lambda: files.put(path, NEW, point=None),
        lambda: files.require_durable(path, expected=Digest.of(OLD), point=None),
        lambda: files.sync_directory(tmp_path),
    ]
    for act in acts:
        with pytest.raises(OSError) as caught:
            act()
        assert caught.value.errno == number and snapshot(tmp_path) == before


def test_what_comes_back_from_the_disk_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(directory: Path) -> None:
        (tmp_path / "target").write_bytes(b"\0" * len(NEW))

    monkeypatch.setattr(files, "sync_directory", forgetful)
    with pytest.raises(ReadBackMismatch):
        files.put(tmp_path / "target", NEW, point=points.PUT)
    (tmp_path / "target").unlink()
    with pytest.raises(ReadBackMismatch):
        files.put_new(tmp_path / "target", NEW, point=points.PUT_NEW)
    (tmp_path / "target").unlink()
    (tmp_path / "source").write_bytes(NEW)
    with pytest.raises(ReadBackMismatch):
        files.move_new(tmp_path / "source", tmp_path / "target", expected=Digest.of(NEW), point=points.MOVE)


# -------------------------------------------------------------------------------------------------------- move


def move(directory: Path, data: bytes = OLD) -> None:
    files.move_new(directory / "source", directory / "target", expected=Digest.of(data), point=points.MOVE)


def test_move_new_moves(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(OLD)
    move(tmp_path)
    assert names(tmp_path) == ["target"]
    assert (tmp_path / "target").read_bytes() == OLD


def test_move_new_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(OLD)
    (tmp_path / "target").write_bytes(NEW)
    before = snapshot(tmp_path)
    with pytest.raises(FileExistsError):
        move(tmp_path)
    assert snapshot(tmp_path) == before
    with pytest.raises(FileNotFoundError):
        files.move_new(tmp_path / "none", tmp_path / "other", expected=Digest.of(OLD), point=points.MOVE)


@not_plain
@needs_posix
def test_move_new_refuses_what_is_not_exactly_that_file(tmp_path: Path, seed: Callable[[Path], None]) -> None:
    seed(tmp_path / "source")
    refused(tmp_path, lambda: move(tmp_path))


def test_b064_nuls_of_the_same_length_are_other_content(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"\0" * len(OLD))
    error = refused(tmp_path, lambda: move(tmp_path))
    assert error.detail["expected"] != error.detail["found"]
    (tmp_path / "source").write_bytes(OLD + b"\0" * 4096)
    refused(tmp_path, lambda: move(tmp_path))
    refused(tmp_path, lambda: files.remove(tmp_path / "source", expected=Digest.of(OLD), point=points.REMOVE))


def test_another_volume_is_the_systems_own_error(tmp_path: Path) -> None:
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second volume on this machine")
    (tmp_path / "source").write_bytes(OLD)
    target = shm / f"durable-test-{os.getpid()}"
    with pytest.raises(OSError, match="ross-device") as caught:
        files.move_new(tmp_path / "source", target, expected=Digest.of(OLD), point=points.MOVE)
    assert caught.value.errno == errno.EXDEV
    assert (tmp_path / "source").read_bytes() == OLD
    assert not target.exists()


# ---------------------------------------------------------------------------------------------------- exchange


@pytest.fixture
def exchangeable(tmp_path: Path) -> Path:
    """A target with the base and a candidate beside, on a system that can exchange two names."""
    if not rename.CAN_EXCHANGE:
        pytest.skip("this system cannot exchange two names")
    return seed_exchange(tmp_path)


@pytest.fixture(params=["exchange", "replace"])
def segments(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, on a system with the exchange and on one without."""
    if request.param == "replace":
        monkeypatch.setattr(rename, "CAN_EXCHANGE", False)
    elif not rename.CAN_EXCHANGE:
        pytest.skip("this system cannot exchange two names")
    return seed_exchange(tmp_path)


def seed_exchange(directory: Path) -> Path:
    (directory / "candidates").mkdir()
    (directory / "candidates" / "candidate").write_bytes(NEW)
    (directory / "target").write_bytes(OLD)
    return directory


def exchange(directory: Path) -> None:
    files.put_exchanged(
        directory / "candidates" / "candidate",
        directory / "target",
        base=Digest.of(OLD),
        candidate_digest=Digest.of(NEW),
        point=points.EXCHANGE,
    )


def test_a_candidate_takes_the_place_of_its_base(segments: Path) -> None:
    exchange(segments)
    assert (segments / "target").read_bytes() == NEW
    assert names(segments) == ["candidates", "target"]


@needs_posix
def test_a_candidate_takes_the_mode_of_its_base(segments: Path) -> None:
    (segments / "target").chmod(0o640)
    exchange(segments)
    assert stat.S_IMODE((segments / "target").stat().st_mode) == 0o640


@pytest.mark.parametrize("content", [b"third content", b"\0" * len(OLD), OLD + b"one line more\n", b""])
def test_third_content_is_put_back(segments: Path, content: bytes) -> None:
    (segments / "target").write_bytes(content)
    inode = (segments / "target").stat().st_ino
    refused(segments, lambda: exchange(segments))
    assert (segments / "target").stat().st_ino == inode


@not_plain
@needs_posix
def test_what_is_not_a_plain_target_is_refused(segments: Path, seed: Callable[[Path], None]) -> None:
    (segments / "target").unlink()
    seed(segments / "target")
    refused(segments, lambda: exchange(segments))


def test_a_wrong_candidate_never_gets_the_name(segments: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (segments / "candidates" / "candidate").write_bytes(NEW[:-1])
    (segments / "target").chmod(0o640)
    monkeypatch.setattr(rename, "exchange", None)
    monkeypatch.setattr(os, "replace", None)
    refused(segments, lambda: exchange(segments))


def test_a_missing_side_is_the_systems_own_error(segments: Path) -> None:
    (segments / "target").unlink()
    with pytest.raises(FileNotFoundError):
        exchange(segments)
    assert (segments / "candidates" / "candidate").read_bytes() == NEW
    (segments / "candidates" / "candidate").rename(segments / "target")
    with pytest.raises(FileNotFoundError):
        exchange(segments)
    assert (segments / "target").read_bytes() == NEW


def test_a_rival_at_the_last_instant_loses_nothing(exchangeable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody replaces the target right before the exchange: his file comes out, is seen, and goes back."""
    honest = rename.exchange
    calls: list[tuple[Path, Path]] = []

    def late(first: Path, second: Path) -> None:
        if not calls:
            (exchangeable / "rival").write_bytes(b"the rival's file")
            os.replace(exchangeable / "rival", exchangeable / "target")
        calls.append((first, second))
        honest(first, second)

    monkeypatch.setattr(rename, "exchange", late)
    with pytest.raises(UnexpectedContent):
        exchange(exchangeable)
    assert len(calls) == 2
    assert (exchangeable / "target").read_bytes() == b"the rival's file"
    assert (exchangeable / "candidates" / "candidate").read_bytes() == NEW


def test_a_candidate_changed_at_the_last_instant_does_not_cost_the_base(
    exchangeable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = rename.exchange

    def late(first: Path, second: Path) -> None:
        if (exchangeable / "target").read_bytes() == OLD:
            (exchangeable / "candidates" / "candidate").write_bytes(b"torn")
        honest(first, second)

    monkeypatch.setattr(rename, "exchange", late)
    with pytest.raises(UnexpectedContent):
        exchange(exchangeable)
    assert (exchangeable / "target").read_bytes() == OLD


def test_a_read_that_fails_after_the_exchange_proves_nothing(
    exchangeable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path, expected: Digest) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(files, "require_exactly", broken)
    with pytest.raises(OSError, match="Input/output"):
        exchange(exchangeable)
    assert (exchangeable / "target").read_bytes() == OLD
    assert (exchangeable / "candidates" / "candidate").read_bytes() == NEW


# ------------------------------------------------------------------------------------- remove, make a directory


def test_remove_removes_exactly_that_file(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(NEW)
    refused(tmp_path, lambda: files.remove(target, expected=Digest.of(OLD), point=points.REMOVE))
    files.remove(target, expected=Digest.of(NEW), point=points.REMOVE)
    assert names(tmp_path) == []
    with pytest.raises(FileNotFoundError):
        files.remove(target, expected=Digest.of(NEW), point=points.REMOVE)


@not_plain
@needs_posix
def test_remove_refuses_what_is_not_a_plain_file(tmp_path: Path, seed: Callable[[Path], None]) -> None:
    seed(tmp_path / "target")
    refused(tmp_path, lambda: files.remove(tmp_path / "target", expected=Digest.of(OLD), point=points.REMOVE))


def test_make_directory_makes_it_once(tmp_path: Path) -> None:
    assert files.make_directory(tmp_path / "target", point=points.DIRECTORY) is True
    assert files.make_directory(tmp_path / "target", point=points.DIRECTORY) is False
    (tmp_path / "file").write_bytes(b"")
    refused(tmp_path, lambda: files.make_directory(tmp_path / "file", point=points.DIRECTORY))
    (tmp_path / "link").symlink_to(tmp_path / "target", target_is_directory=True)
    with pytest.raises(PathReparse):
        files.make_directory(tmp_path / "link", point=points.DIRECTORY)
