"""Every primitive, ended or failed at each of its steps in a real process: what is there then, and what a second run
makes of it. The states in the tables are the guarantee of each step."""

from __future__ import annotations

from pathlib import Path

import pytest

from killpoints import Point
from product.durable import rename
from tests.durable import points
from tests.durable.support import armed, kill_worker_at, names, needs_posix, run_worker, snapshot
from tests.durable.worker import COMMANDS, NEW, OLD

pytestmark = needs_posix

TEMPORARY = {"tmp-written", "tmp-synced"}


def steps_of(point: Point) -> list[str]:
    """The point itself (the primitive is complete), and each of its steps."""
    return [str(point), *map(str, point.steps)]


def step_of(name: str) -> str:
    return name.partition("/")[2]


def read(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


@pytest.mark.parametrize("name", steps_of(points.PUT_NEW))
def test_put_new_killed_is_whole_or_not_at_all(tmp_path: Path, name: str) -> None:
    kill_worker_at(name, "put_new", str(tmp_path))
    if step_of(name) in TEMPORARY:
        assert names(tmp_path) == [".target.tmp"]
        run_worker("put_new", str(tmp_path))
    assert names(tmp_path) == ["target"]
    assert read(tmp_path / "target") == NEW


@pytest.mark.parametrize("name", steps_of(points.PUT))
@pytest.mark.parametrize("before", [OLD, None])
def test_put_killed_is_old_or_new(tmp_path: Path, name: str, before: bytes | None) -> None:
    if before is not None:
        (tmp_path / "target").write_bytes(before)
    kill_worker_at(name, "put", str(tmp_path))
    assert read(tmp_path / "target") == (before if step_of(name) in TEMPORARY else NEW)
    run_worker("put", str(tmp_path))
    assert names(tmp_path) == ["target"]
    assert read(tmp_path / "target") == NEW


@pytest.mark.parametrize("name", steps_of(points.MOVE))
def test_move_killed_has_moved(tmp_path: Path, name: str) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "source").write_bytes(OLD)
    kill_worker_at(name, "move", str(tmp_path))
    assert names(tmp_path) == ["there", "there/target"]
    assert read(tmp_path / "there" / "target") == OLD


@pytest.mark.parametrize("name", steps_of(points.EXCHANGE))
def test_exchange_killed_has_the_candidate_in_place_and_the_base_not_lost_before_that_is_durable(
    tmp_path: Path, name: str
) -> None:
    candidate = seed_exchange(tmp_path)
    kill_worker_at(name, "exchange", str(tmp_path))
    assert read(tmp_path / "target") == NEW
    beside = OLD if rename.CAN_EXCHANGE and step_of(name) in {"exchanged", "dir-synced"} else None
    assert read(candidate) == beside


@pytest.mark.parametrize("name", steps_of(points.REMOVE))
def test_remove_killed_has_removed(tmp_path: Path, name: str) -> None:
    (tmp_path / "target").write_bytes(OLD)
    kill_worker_at(name, "remove", str(tmp_path))
    assert names(tmp_path) == []


@pytest.mark.parametrize("name", steps_of(points.DIRECTORY))
def test_make_directory_killed_has_made_it(tmp_path: Path, name: str) -> None:
    kill_worker_at(name, "make_directory", str(tmp_path))
    assert names(tmp_path) == ["target"]
    run_worker("make_directory", str(tmp_path))


def seed_exchange(directory: Path) -> Path:
    (directory / "candidates").mkdir()
    candidate = directory / "candidates" / "candidate"
    candidate.write_bytes(NEW)
    (directory / "target").write_bytes(OLD)
    return candidate


@pytest.mark.parametrize(
    ("command", "first"),
    [
        ("put_new", points.PUT_NEW.at("renamed")),
        ("put", points.PUT.at("replaced")),
        ("move", points.MOVE.at("renamed")),
        ("exchange", points.EXCHANGE.at("exchanged")),
        ("remove", points.REMOVE.at("removed")),
        ("make_directory", points.DIRECTORY.at("made")),
    ],
)
def test_an_error_up_to_the_deciding_step_changes_nothing(tmp_path: Path, command: str, first: Point) -> None:
    """An armed error is raised instead of the step: no primitive goes on after it, none leaves litter."""
    if command in ("put", "remove"):
        (tmp_path / "target").write_bytes(OLD)
    elif command == "move":
        (tmp_path / "there").mkdir()
        (tmp_path / "source").write_bytes(OLD)
    elif command == "exchange":
        seed_exchange(tmp_path)
    before = snapshot(tmp_path)
    base = str(first).partition("/")[0]
    upto = [base]
    for name in (f"{base}/tmp-written", f"{base}/tmp-synced", str(first)):
        if command.startswith("put") or name == first:
            upto.append(name)
    for name in upto:
        with armed(f"{name}#1=error:ENOSPC"), pytest.raises(OSError, match="No space left"):
            COMMANDS[command](str(tmp_path))
        assert snapshot(tmp_path) == before


def test_an_error_in_the_sync_of_the_directory_is_not_swallowed(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(OLD)
    with armed(f"{points.PUT.at('dir-synced')}#1=error:EIO"), pytest.raises(OSError, match="Input/output"):
        COMMANDS["put"](str(tmp_path))
    assert read(tmp_path / "target") == NEW  # in place, and the caller knows that it may not be durable
    assert names(tmp_path) == ["target"]
