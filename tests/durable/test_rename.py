"""Renames that never overwrite, exchanges, and the probe that refuses a file system without them."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

import pytest

from product.durable import rename
from product.durable.errors import RenameUnsupported
from tests.durable.support import names, needs_linux, snapshot


def test_a_free_name_is_given(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    rename.rename_new(tmp_path / "a", tmp_path / "b")
    assert names(tmp_path) == ["b"]


@pytest.mark.parametrize("there", ["file", "empty directory", "dangling link"])
def test_a_name_that_is_taken_is_refused_and_nothing_changes(tmp_path: Path, there: str) -> None:
    (tmp_path / "a").write_bytes(b"a")
    match there:
        case "file":
            (tmp_path / "b").write_bytes(b"b")
        case "empty directory":
            (tmp_path / "b").mkdir()
        case _:
            (tmp_path / "b").symlink_to("nowhere")
    before = snapshot(tmp_path)
    with pytest.raises(FileExistsError) as caught:
        rename.rename_new(tmp_path / "a", tmp_path / "b")
    assert (caught.value.filename, caught.value.filename2) == (str(tmp_path / "a"), str(tmp_path / "b"))
    assert snapshot(tmp_path) == before


def test_a_missing_source_is_the_systems_own_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        rename.rename_new(tmp_path / "a", tmp_path / "b")


def test_a_nul_in_a_name_does_not_cut_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    with pytest.raises(ValueError, match="null"):
        rename.rename_new(tmp_path / "a\0b", tmp_path / "c")
    assert names(tmp_path) == ["a"]


@needs_linux
def test_two_names_are_exchanged(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").mkdir()
    rename.exchange(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a").is_dir()
    assert (tmp_path / "b").read_bytes() == b"a"
    with pytest.raises(FileNotFoundError):
        rename.exchange(tmp_path / "b", tmp_path / "none")


@needs_linux
@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_them_is_refused_and_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def unsupported(source: bytes, target: bytes, flags: int) -> int:
        ctypes.set_errno(number)
        return -1

    (tmp_path / "theirs").write_bytes(b"theirs")
    before = snapshot(tmp_path)
    monkeypatch.setattr(rename, "_rename", unsupported)
    with pytest.raises(RenameUnsupported) as caught:
        rename.probe_renames(tmp_path)
    assert caught.value.code == "E_RENAME_UNSUPPORTED"
    assert snapshot(tmp_path) == before


@needs_linux
def test_a_system_without_exchange_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rename, "CAN_EXCHANGE", False)
    with pytest.raises(RenameUnsupported):
        rename.exchange(tmp_path / "a", tmp_path / "b")
    rename.probe_renames(tmp_path)
    monkeypatch.setattr(rename, "_rename", None)
    with pytest.raises(RenameUnsupported):
        rename.probe_renames(tmp_path)


@needs_linux
def test_the_probe_sees_a_rename_that_ignores_its_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(source: bytes, target: bytes, flags: int) -> int:
        os.replace(source, target)
        return 0

    monkeypatch.setattr(rename, "_rename", careless)
    with pytest.raises(RenameUnsupported, match="did overwrite"):
        rename.probe_renames(tmp_path)
    assert names(tmp_path) == []


@needs_linux
def test_the_probe_sees_a_rename_that_only_ever_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux itself refuses a name that is taken, before a file system that does not know the flag is asked."""
    exchange = rename._rename
    assert exchange is not None

    def refuse(source: bytes, target: bytes, flags: int) -> int:
        if flags == rename._RENAME_EXCHANGE:
            return exchange(source, target, flags)
        ctypes.set_errno(errno.EEXIST if os.path.lexists(target) else errno.EINVAL)
        return -1

    monkeypatch.setattr(rename, "_rename", refuse)
    with pytest.raises(RenameUnsupported, match="no such rename"):
        rename.probe_renames(tmp_path)
    assert names(tmp_path) == []


@needs_linux
def test_a_rename_that_a_signal_interrupts_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, interrupts = rename._rename, [errno.EINTR, errno.EINTR]
    assert real is not None

    def interrupted(source: bytes, target: bytes, flags: int) -> int:
        if interrupts:
            ctypes.set_errno(interrupts.pop())
            return -1
        return real(source, target, flags)

    (tmp_path / "a").touch()
    monkeypatch.setattr(rename, "_rename", interrupted)
    rename.rename_new(tmp_path / "a", tmp_path / "b")
    assert names(tmp_path) == ["b"] and not interrupts


@needs_linux
def test_the_probe_sees_an_exchange_that_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rename, "exchange", lambda first, second: None)
    with pytest.raises(RenameUnsupported, match="did not exchange"):
        rename.probe_renames(tmp_path)
    assert names(tmp_path) == []


def test_the_probe_passes_here_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / ".rename-probe-2.tmp").write_bytes(b"")  # a probe died here once
    rename.probe_renames(tmp_path)
    assert names(tmp_path) == []


def test_the_probe_never_touches_a_file_that_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / ".rename-probe-1.tmp").write_bytes(b"theirs")
    before = snapshot(tmp_path)
    with pytest.raises(FileExistsError):
        rename.probe_renames(tmp_path)
    assert snapshot(tmp_path) == before
