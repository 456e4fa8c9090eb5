"""A snapshot that knows the one before it shares what is the same, and misses nothing that is not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.judge.tree import _read, observe_tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a").write_bytes(b"abc")
    (tmp_path / "b").write_bytes(b"")
    (tmp_path / "c").symlink_to("b")
    return tmp_path


def test_what_is_the_same_is_shared(root: Path) -> None:
    before = observe_tree(root)
    (root / "b").write_bytes(b"new")
    after = observe_tree(root, before)
    assert [path for path in before if after.entries[path] is not before.entries[path]] == ["b"]
    assert after.file("b") == b"new" and after.listing()[:1] == ("b  3 B  " + after.entries["b"].sha256[:8],)


def rewrite(root: Path) -> None:
    path = root / "d" / "a"
    status = path.stat()
    path.write_bytes(b"abd")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace_by_same_bytes(root: Path) -> None:
    (root / "d" / "new").write_bytes(b"abc")
    (root / "d" / "new").replace(root / "d" / "a")


CHANGES: list[Callable[[Path], object]] = [
    rewrite,
    replace_by_same_bytes,
    lambda root: (root / "d" / "a").chmod(0o600),
    lambda root: (root / "d" / "second").hardlink_to(root / "d" / "a"),
    lambda root: (root / "d" / "a").unlink(),
    lambda root: (root / "d" / "a").write_bytes(b"abc" * 500_000),
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_is_seen_however_little_shows(root: Path, change: Callable[[Path], object]) -> None:
    before = observe_tree(root)
    change(root)
    assert observe_tree(root, before) == observe_tree(root) != before


@pytest.mark.parametrize("size_bytes", [0, 1, 2, 3, 4])
def test_a_file_is_read_whole_whatever_size_it_was_found_to_have(root: Path, size_bytes: int) -> None:
    assert _read(str(root / "d" / "a"), size_bytes) == b"abc"
