"""Directories as a whole, and require_durable(): what each refuses with nothing changed, and the order of its syncs.

Deaths at their steps are the kills of tests/collector/test_handoff.py and test_move_completed.py.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from killpoints import declare
from product.durable import directories, files, rename
from product.durable.errors import UnexpectedContent
from product.durable.files import Digest
from tests.durable.support import armed, needs_linux, needs_posix, snapshot

MOVED = declare("durable-test.move_directory", "the directory is there", steps=directories.MOVE_DIRECTORY_STEPS)
GONE = declare("durable-test.remove_directory", "the directory is gone", steps=directories.REMOVE_DIRECTORY_STEPS)
DURABLE = declare("durable-test.require_durable", "the file stays", steps=files.DURABLE_STEPS)

DATA = b"content\n"


@pytest.fixture
def aside(tmp_path: Path) -> Path:
    """A directory with something in it, to be given a name in another one."""
    directory = tmp_path / "aside"
    directory.mkdir()
    (directory / "file").write_bytes(DATA)
    (tmp_path / "there").mkdir()
    return directory


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, Path]]]:
    """Renames, deletions and syncs, each with the path that it acts on, in order."""
    made: list[tuple[str, Path]] = []

    def record(module: Any, name: str, path_of: Callable[..., Path]) -> None:
        real = getattr(module, name)

        def recorded(*arguments: Any) -> Any:
            made.append((name, path_of(*arguments)))
            return real(*arguments)

        monkeypatch.setattr(module, name, recorded)

    record(os, "fsync", lambda descriptor: Path(os.readlink(f"/proc/self/fd/{descriptor}")))
    record(os, "rmdir", Path)
    record(rename, "rename_new", lambda _source, target: target)
    yield made


@needs_linux
def test_a_directory_moves_whole_and_both_its_parents_are_synced(
    aside: Path, calls: list[tuple[str, Path]], tmp_path: Path
) -> None:
    target = tmp_path / "there" / "name"
    directories.move_directory_new(aside, target, point=MOVED)
    assert not aside.exists() and (target / "file").read_bytes() == DATA
    assert calls == [("rename_new", target), ("fsync", target.parent), ("fsync", tmp_path)]


@needs_posix
@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere")])
def test_a_name_that_is_taken_is_not_overwritten_not_even_by_an_empty_directory(
    aside: Path, tmp_path: Path, make: Callable[[Path], object]
) -> None:
    target = tmp_path / "there" / "name"
    make(target)
    before = snapshot(tmp_path)
    with pytest.raises(FileExistsError):
        directories.move_directory_new(aside, target, point=MOVED)
    assert snapshot(tmp_path) == before


@needs_linux
def test_an_empty_directory_goes_and_its_parent_is_synced(tmp_path: Path, calls: list[tuple[str, Path]]) -> None:
    (tmp_path / "empty").mkdir()
    directories.remove_directory(tmp_path / "empty", point=GONE)
    assert not (tmp_path / "empty").exists()
    assert calls == [("rmdir", tmp_path / "empty"), ("fsync", tmp_path)]


@needs_posix
def test_a_directory_with_something_in_it_and_a_link_stay(aside: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "there")
    before = snapshot(tmp_path)
    for path, number in ((aside, errno.ENOTEMPTY), (tmp_path / "link", errno.ENOTDIR)):
        with pytest.raises(OSError) as raised:
            directories.remove_directory(path, point=GONE)
        assert raised.value.errno == number
    assert snapshot(tmp_path) == before


@needs_posix
@pytest.mark.parametrize("name", [str(MOVED), f"{MOVED}/renamed", str(GONE), f"{GONE}/removed"])
def test_an_error_before_the_name_changes_leaves_everything_as_it_was(aside: Path, tmp_path: Path, name: str) -> None:
    before = snapshot(tmp_path)
    with armed(f"{name}#1=error:EIO"), pytest.raises(OSError, match="injected"):
        if name.startswith(MOVED):
            directories.move_directory_new(aside, tmp_path / "there" / "name", point=MOVED)
        else:
            directories.remove_directory(tmp_path / "there", point=GONE)
    assert snapshot(tmp_path) == before


@needs_linux
def test_what_others_wrote_is_synced_with_its_name(aside: Path, calls: list[tuple[str, Path]]) -> None:
    files.require_durable(aside / "file", expected=Digest.of(DATA), point=DURABLE)
    assert calls == [("fsync", aside / "file"), ("fsync", aside)]


@needs_linux
def test_what_is_not_as_expected_is_refused_and_not_synced(aside: Path, calls: list[tuple[str, Path]]) -> None:
    with pytest.raises(UnexpectedContent):
        files.require_durable(aside / "file", expected=Digest.of(b"other"), point=DURABLE)
    with pytest.raises(FileNotFoundError):
        files.require_durable(aside / "missing", expected=Digest.of(b"other"), point=DURABLE)
    assert calls == []
