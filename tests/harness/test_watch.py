"""What a watch tells about a directory: every change that a program can make by writing, and nothing where none was made."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.judge import watch as watch_module
from harness.judge.watch import watch_tree

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's; elsewhere every answer is yes")


def write_over(root: Path) -> None:
    with (root / "sub/file").open("r+") as file:
        file.write("x")  # the same size, and the clock may not have moved


CHANGES: dict[str, Callable[[Path], object]] = {
    "write in place": write_over,
    "create": lambda root: (root / "new").touch(),
    "create below": lambda root: (root / "sub/new").touch(),
    "remove": lambda root: (root / "sub/file").unlink(),
    "rename": lambda root: (root / "sub/file").rename(root / "moved"),
    "replace": lambda root: (root / "other").replace(root / "sub/file"),
    "link": lambda root: os.link(root / "sub/file", root / "linked"),
    "symlink": lambda root: (root / "pointer").symlink_to("sub"),
    "mode": lambda root: (root / "sub/file").chmod(0o600),
    "truncate": lambda root: os.truncate(root / "sub/file", 1),
    "make a directory": lambda root: (root / "sub/deep").mkdir(),
    "remove a directory": lambda root: (root / "empty").rmdir(),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "sub/file").write_text("abc")
    (tmp_path / "other").write_text("def")
    return tmp_path


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_told_once(root: Path, change: str) -> None:
    with watch_tree(root) as watch:
        assert not watch.changed()
        CHANGES[change](root)
        assert watch.changed()
        assert not watch.changed()


def test_reading_is_no_change(root: Path) -> None:
    with watch_tree(root) as watch:
        (root / "sub/file").read_text()
        list(root.rglob("*"))
        assert not watch.changed()


def test_a_directory_that_is_made_is_watched_too(root: Path) -> None:
    with watch_tree(root) as watch:
        (root / "sub/deep").mkdir()
        assert watch.changed()
        (root / "sub/deep/file").touch()
        assert watch.changed()
        (root / "sub").rename(root / "elsewhere")
        assert watch.changed()
        (root / "elsewhere/deep/file").write_text("later")
        assert watch.changed()


def test_where_nothing_can_be_watched_the_answer_is_yes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "_open_inotify", lambda: None)
    with watch_tree(root) as watch:
        assert watch.changed() and watch.changed()


def test_nothing_stays_open(root: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with watch_tree(root):
        pass
    assert len(os.listdir("/proc/self/fd")) == before
