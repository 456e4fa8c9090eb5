"""Roots without links, names that mean the same everywhere, volumes that are proven to be one."""

from __future__ import annotations

import errno
import os
import types
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyfakefs.fake_filesystem import FakeFilesystem, OSType

from product.durable import volume
from product.durable.errors import PathReparse, VolumeMismatch
from product.durable.paths import is_plain_name, is_reparse, require_plain_directory


def refusal(root: Path) -> tuple[str, str]:
    """The component that is to blame, and why."""
    with pytest.raises(PathReparse) as caught:
        require_plain_directory(root)
    assert caught.value.code == "E_PATH_REPARSE"
    assert caught.value.detail["path"] == str(root)
    return str(caught.value.detail["component"]), str(caught.value.detail["reason"])


def test_an_ordinary_directory_passes(tmp_path: Path) -> None:
    require_plain_directory(tmp_path.resolve())


def test_b070_a_link_anywhere_in_the_path_is_refused(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "real" / "inner").mkdir(parents=True)
    (root / "link").symlink_to(root / "real", target_is_directory=True)
    (root / "real" / "last").symlink_to(root / "real" / "inner", target_is_directory=True)
    (root / "dangling").symlink_to(root / "nowhere")
    require_plain_directory(root / "real" / "inner")
    assert refusal(root / "link" / "inner") == (str(root / "link"), "a symbolic link, junction or other reparse point")
    assert refusal(root / "real" / "last")[0] == str(root / "real" / "last")
    assert refusal(root / "dangling")[0] == str(root / "dangling")


def test_what_is_no_absolute_directory_is_refused(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "file").write_bytes(b"")
    assert refusal(Path("relative/path"))[1] == "not absolute"
    assert refusal(root / ".." / root.name)[1] == "contains '..'"
    assert refusal(root / "file") == (str(root / "file"), "not a directory")
    assert refusal(root / "file" / "below")[0] == str(root / "file")
    assert refusal(root / "none" / "below") == (str(root / "none"), "missing")
    assert refusal(root / "nul\0byte")[1] == "not a possible name"


def test_a_windows_path_is_checked_from_its_drive(fs: FakeFilesystem) -> None:
    fs.os = OSType.WINDOWS
    fs.create_dir(r"C:\data\state")
    fs.create_symlink(r"C:\link", r"C:\data")
    require_plain_directory(Path(r"C:\data\state"))
    assert refusal(Path(r"C:\link\state"))[0] == r"C:\link"
    assert refusal(Path(r"C:data\state"))[1] == "not absolute"
    assert refusal(Path(r"\data\state"))[1] == "not absolute"


def test_a_macos_path_through_its_private_link_is_refused(fs: FakeFilesystem) -> None:
    fs.os = OSType.MACOS
    fs.create_dir("/private/var/state")
    fs.create_symlink("/var", "/private/var")
    require_plain_directory(Path("/private/var/state"))
    assert refusal(Path("/var/state"))[0] == "/var"


def test_a_junction_is_a_reparse_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows a junction is a directory to S_ISDIR; only its attributes tell."""
    root = tmp_path.resolve()
    (root / "junction").mkdir()
    honest = os.lstat

    def lstat(path: Any) -> Any:
        status = honest(path)
        attributes = 0x410 if str(path).endswith("junction") else 0x10
        return types.SimpleNamespace(st_mode=status.st_mode, st_file_attributes=attributes)

    monkeypatch.setattr("product.durable.paths.os.lstat", lstat)
    require_plain_directory(root)
    assert refusal(root / "junction")[0] == str(root / "junction")


def test_an_ordinary_status_is_no_reparse_point(tmp_path: Path) -> None:
    assert not is_reparse(os.lstat(tmp_path))


@pytest.mark.parametrize("name", ["a", "A-1_b.c", "run-0001", "x" * 100, "-", "console", "com0", "nulls", "com10"])
def test_plain_names(name: str) -> None:
    assert is_plain_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", ".hidden", "x" * 101, "a/b", "a\\b", "a b", "a\n", "a\0", "é", "a:b", "dot.", "C:"),
        *("con", "NUL", "Com1", "lpt9.txt", "aux.a.b", "prn"),
        *(None, 1, True, b"a", ["a"]),
    ],
)
def test_names_that_are_not_plain(name: object) -> None:
    assert not is_plain_name(name)


def test_one_volume_passes_and_two_do_not(tmp_path: Path) -> None:
    volume.require_one_volume(tmp_path, tmp_path)
    other = next((path for path in (Path("/proc"), Path("/dev/shm")) if path.is_dir()), None)
    if other is None:
        pytest.skip("no second volume on this machine")
    with pytest.raises(VolumeMismatch) as caught:
        volume.require_one_volume(tmp_path, other)
    assert caught.value.code == "E_VOLUME_IDENTITY"


def test_a_volume_that_cannot_be_asked_is_not_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(VolumeMismatch):
        volume.require_one_volume(tmp_path, tmp_path / "missing")

    def denied(path: Path) -> str:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(volume, "volume_of", denied)
    with pytest.raises(VolumeMismatch, match="Permission denied"):
        volume.require_one_volume(tmp_path, tmp_path)


def test_volumes_of_the_same_number_are_one_and_others_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serials = {tmp_path: "1", tmp_path / "b": "2", tmp_path / "c": "1"}
    monkeypatch.setattr(volume, "volume_of", lambda path: serials[path])
    volume.require_one_volume(tmp_path, tmp_path / "c")
    with pytest.raises(VolumeMismatch):
        volume.require_one_volume(tmp_path, tmp_path / "b")


# --- whatever the shape of the tree: one link, somewhere

NAMES = st.lists(st.sampled_from(["a", "B", "data", "state dir", "é", "x.y"]), min_size=1, max_size=5)
SHAPES = {OSType.WINDOWS: "C:\\", OSType.MACOS: "/", OSType.LINUX: "/"}


@pytest.mark.parametrize("system", SHAPES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(names=NAMES, data=st.data())
def test_whichever_component_is_the_link_is_named(
    fs: FakeFilesystem, system: OSType, names: list[str], data: st.DataObject
) -> None:
    """Without it the directory passes; with it neither it nor anything below passes, and all above still does."""
    fs.reset()
    fs.os = system
    top, separator = SHAPES[system], fs.path_separator
    places = [Path(top + separator.join(names[: depth + 1])) for depth in range(len(names))]
    fs.create_dir(places[-1]) if not fs.exists(places[-1]) else None
    require_plain_directory(places[-1])
    depth = data.draw(st.integers(0, len(names) - 1))
    target = Path(f"{top}elsewhere")
    fs.rename(places[depth], target)
    fs.create_symlink(places[depth], target)
    for above in places[:depth]:
        require_plain_directory(above)
    for below in places[depth:]:
        assert refusal(below) == (str(places[depth]), "a symbolic link, junction or other reparse point")


@given(
    st.text(max_size=12)
    | st.text("aB9._-", min_size=99, max_size=102)
    | st.from_regex(r"(?i)(con|nul|com1)[.a]*", fullmatch=True)
)
def test_a_plain_name_is_one_component_everywhere(text: str) -> None:
    """What passes is the name of a file on every system, and itself again when it is split off a path."""
    if not is_plain_name(text):
        return
    assert 1 <= len(text) <= 100 and text.isascii() and text[0] != "." and text[-1] != "."
    for flavour in (PurePosixPath, PureWindowsPath):
        assert (flavour("root") / text).name == text and (flavour("root") / text).parent == flavour("root")
    assert not PureWindowsPath(text).is_reserved() and PureWindowsPath(text).drive == ""
