"""Session directories: a place of its own for each, gone on every way out, and swept when its session was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

import pytest

from harness import sandbox
from harness.sandbox import remove_tree, sandbox_base, session_directory, sweep_dead_sessions

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="locks and modes as POSIX has them")

REPOSITORY = Path(__file__).resolve().parents[2]
HOLD = """
import os, signal
from harness.sandbox import session_directory
with session_directory() as root:
    (root / "cells").mkdir()
    print(root, flush=True)
    signal.pause()
"""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    base = tmp_path / "base"
    base.mkdir()
    monkeypatch.setenv("KILLMATRIX_TMP", str(base))
    return base


def hold_session() -> tuple[subprocess.Popen[str], Path]:
    """Another process that has a session, and its directory."""
    holder = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    stdout: IO[str] | None = holder.stdout
    assert stdout is not None
    with stdout:
        return holder, Path(stdout.readline().strip())


def end(holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()


def test_a_session_has_a_directory_of_its_own_that_goes_with_it(base: Path) -> None:
    with session_directory() as one, session_directory() as other:
        assert one.parent == other.parent == base and one != other
        (one / "cell").mkdir()
        (one / "cell/file").write_text("x")
        assert one.stat().st_mode & 0o777 == 0o700
    assert list(base.iterdir()) == []


def test_it_goes_when_the_session_ends_badly(base: Path) -> None:
    with pytest.raises(KeyboardInterrupt), session_directory() as root:
        (root / "cell").mkdir()
        raise KeyboardInterrupt
    assert list(base.iterdir()) == []


def test_a_killed_session_is_swept_by_the_next(base: Path) -> None:
    """And a living one is not, whoever sweeps."""
    dead, dead_root = hold_session()
    living, living_root = hold_session()
    try:
        end(dead)
        assert (dead_root / "cells").is_dir()
        with session_directory():
            assert not dead_root.exists() and (living_root / "cells").is_dir()
        assert sweep_dead_sessions(base) == 0
    finally:
        end(living)
    assert sweep_dead_sessions(base) == 1 and list(base.iterdir()) == []


def test_what_is_not_a_session_is_left_alone(base: Path) -> None:
    (base / "killmatrix-notes").mkdir()
    (base / "other").mkdir()
    (base / "other/.session").touch()
    (base / "killmatrix-file").touch()
    (base / "killmatrix-link").symlink_to(base / "other")
    (base / "killmatrix-deep").mkdir()
    (base / "killmatrix-deep/.session").symlink_to(base / "other/.session")
    before = sorted(base.rglob("*"))
    sweep_dead_sessions(base)
    assert sorted(base.rglob("*")) == before


def test_a_sweep_between_creation_and_lock(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B202: another session starts in the instant in which this one's directory is there and not locked yet."""
    fcntl = pytest.importorskip("fcntl")
    real, swept = fcntl.flock, list[int]()

    def flock(fd: int, how: int) -> None:
        if how == fcntl.LOCK_EX and not swept:
            swept.append(0)
            swept[0] = sweep_dead_sessions(base)
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with session_directory() as root:
        assert swept == [1], "the interleaving did not happen"
        assert root.is_dir()
        (root / "cells").mkdir()
        assert sweep_dead_sessions(base) == 0


def test_a_removal_that_is_killed_is_finished_by_the_next_session(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock file goes last: without it nobody could know that the directory is a session's."""

    def stop_at_the_lock(path: Path) -> None:
        if path == root:
            assert [left.name for left in root.iterdir()] == [".session"]
            raise KeyboardInterrupt
        remove_tree(path)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), session_directory() as root:
        (root / "cells").mkdir()
        patch.setattr(sandbox, "remove_tree", stop_at_the_lock)
    with session_directory():
        assert not root.exists()


def test_where_sessions_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KILLMATRIX_TMP", str(tmp_path))
    assert sandbox_base() == tmp_path
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KILLMATRIX_TMP", "here")
    assert sandbox_base() == tmp_path / "here", "programs run in another directory than this process"
    monkeypatch.delenv("KILLMATRIX_TMP")
    assert sandbox_base().is_dir()
    monkeypatch.setenv("KILLMATRIX_TMP", "")
    assert sandbox_base() == sandbox_base().absolute()


def test_everything_is_removed(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("mine")
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/file").touch(0o000)
    (root / "link").symlink_to(elsewhere)
    (root / "dangling").symlink_to("nowhere")
    os.mkfifo(root / "pipe")
    remove_tree(root)
    assert not root.exists() and (elsewhere / "file").read_text() == "mine"
    remove_tree(root)


UNREADABLE = """
import os, sys
from pathlib import Path
from harness.sandbox import remove_tree
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
root, elsewhere = Path(sys.argv[1], "root"), Path(sys.argv[1], "elsewhere")
for directory in (elsewhere, root / "a/b/c"):
    directory.mkdir(parents=True)
(root / "a/b/c/file").touch()
(root / "a/link").symlink_to(elsewhere)
elsewhere.chmod(0o500)
for directory in (root / "a/b/c", root / "a/b", root / "a", root):
    directory.chmod(0o000)
remove_tree(root)
print(root.exists(), oct(elsewhere.stat().st_mode & 0o777))
"""


def test_what_a_program_made_unreadable_is_removed_too() -> None:
    """As somebody who is not root; and what a link points at is not touched."""
    with tempfile.TemporaryDirectory() as place:  # pytest's own directories are for one user
        os.chmod(place, 0o777)
        done = subprocess.run(
            [sys.executable, "-c", UNREADABLE, place], cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
    assert done.stdout == "False 0o500\n", done.stderr
