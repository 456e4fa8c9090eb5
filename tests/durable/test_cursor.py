"""The consumer's primitive, with a product of its own: exactly once after every fault at every point, and synced in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from killpoints import Point
from product.durable import canonical, cursor, evidence, files
from product.durable.cursor import RESUME, CursorState, Durability, EffectState, SourceState
from product.durable.errors import JsonRejected, ReadBackMismatch
from product.durable.evidence import Evidence, Identity, Position, parse_evidence, parse_position
from product.durable.plain import Digest
from tests.durable.consumer import POINTS, consume, read_paths
from tests.durable.support import REPOSITORY, TIMEOUT_S, armed, names, needs_linux, needs_posix
from tests.durable.test_call_order import Recorder, faults_in

LINES = b"a.org up\nb.org up\na.org down\n"
MORE = b"a.org up\n"
DUE = {"a.org": ["up", "down"], "b.org": ["up"]}

ALL = [
    place
    for point in (POINTS.read, POINTS.source_synced, POINTS.effect, POINTS.saved, POINTS.cursor)
    for place in (point, *point.steps)
]
STEPS = ["tmp-written", "tmp-synced", "replaced", "dir-synced", "read-back"]
ERROR_ROW = {  # what a reopen finds when the step failed instead of being done
    **dict.fromkeys((POINTS.read, POINTS.source_synced, POINTS.effect), "R1"),
    **{POINTS.effect.at(step): row for step, row in zip(STEPS, ["R1", "R1", "R1", "R2", "R2"], strict=True)},
    **dict.fromkeys((POINTS.saved, POINTS.cursor), "R2"),
    **{POINTS.cursor.at(step): row for step, row in zip(STEPS, ["R2", "R2", "R2", "R5", "R5"], strict=True)},
}
KILL_ROW = ERROR_ROW | {
    POINTS.effect: "R2",
    POINTS.effect.at("replaced"): "R2",
    POINTS.cursor: "R5",
    POINTS.cursor.at("replaced"): "R5",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "journal").write_bytes(LINES)
    return tmp_path


def append(root: Path, data: bytes) -> None:
    with (root / "journal").open("ab") as stream:
        stream.write(data)


def require_exact(root: Path) -> None:
    """After whatever happened: the next one goes on, one more line comes, and each line has its effect once."""
    append(root, MORE)
    row, progress = consume(root)
    assert progress is not None, row
    assert read_paths(root) == DUE | {"a.org": ["up", "down", "up"]}
    assert progress.offset == progress.applied == len(LINES + MORE)
    assert consume(root)[0] == "R5"
    assert names(root) == ["cursor.json", "journal", "state.json"]


@pytest.mark.parametrize("place", ALL)
def test_an_error_at_every_step(root: Path, place: Point) -> None:
    with armed(f"{place}#1=error:EIO"), pytest.raises(OSError, match="Input/output"):
        consume(root)
    row, _ = consume(root)
    assert row == ERROR_ROW[place]
    require_exact(root)


@needs_posix
@pytest.mark.parametrize("place", ALL)
def test_a_death_at_every_step(root: Path, place: Point) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "tests.durable.consumer", str(root)],
        cwd=REPOSITORY,
        env=os.environ | {"KILLPOINTS": f"{place}#1=kill"},
        capture_output=True,
        timeout=TIMEOUT_S,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
    row, _ = consume(root)
    assert row == KILL_ROW[place]
    require_exact(root)


@pytest.mark.parametrize("batch_bytes", [1, 9, 20, 10_000])
def test_every_batch_is_saved_on_its_own(root: Path, batch_bytes: int) -> None:
    with armed(f"{POINTS.saved}#1=error:EIO"), pytest.raises(OSError):
        consume(root, batch_bytes=batch_bytes)
    row, progress = consume(root, batch_bytes=batch_bytes)
    assert row == "R2" and progress is not None
    assert progress.lines_read == 3 > progress.lines_applied
    require_exact(root)


def test_the_effect_is_only_saved_where_something_is_new(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cursor that was left behind is moved without touching the effect."""
    with armed(f"{POINTS.saved}#1=error:EIO"), pytest.raises(OSError):
        consume(root)
    before = (root / "state.json").stat()
    _, progress = consume(root)
    assert progress is not None and (progress.lines_read, progress.lines_applied) == (3, 0)
    assert (root / "state.json").stat().st_ino == before.st_ino


# ----------------------------------------------------------------------------------------------------- order of syncs


@needs_linux
def test_power_syncs_the_source_then_the_effect_then_the_cursor(root: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        calls = Recorder(patch).calls
        consume(root)
    assert faults_in(calls) == []
    kinds = [(call.kind, call.path.name) for call in calls if call.kind != "write"]
    assert kinds == [
        ("sync", "journal"),
        ("sync", ".state.json.tmp"),
        ("rename", ".state.json.tmp"),
        ("sync", root.name),
        ("sync", ".cursor.json.tmp"),
        ("rename", ".cursor.json.tmp"),
        ("sync", root.name),
    ]


@needs_linux
def test_process_syncs_nothing_and_keeps_the_order(root: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        calls = Recorder(patch).calls
        consume(root, Durability.PROCESS)
    assert [(call.kind, call.path.name) for call in calls if call.kind != "write"] == [
        ("rename", ".state.json.tmp"),
        ("rename", ".cursor.json.tmp"),
    ]


@needs_linux
@pytest.mark.parametrize("without", range(5))
def test_leaving_out_a_sync_is_noticed(tmp_path: Path, without: int) -> None:
    (tmp_path / "journal").write_bytes(LINES)
    with pytest.MonkeyPatch.context() as patch:
        calls = Recorder(patch, without).calls
        consume(tmp_path)
    source_first = [call.path.name for call in calls if call.kind == "sync"][:1] == ["journal"]
    assert faults_in(calls) or not source_first


@pytest.mark.parametrize("durability", Durability)
def test_an_error_before_the_name_is_given_leaves_no_litter(root: Path, durability: Durability) -> None:
    for point in (POINTS.effect, POINTS.cursor):
        with armed(f"{point.at('replaced')}#1=error:ENOSPC"), pytest.raises(OSError):
            consume(root, durability)
        assert not any(name.startswith(".") for name in names(root))


# ---------------------------------------------------------------------------------------------------- what is compared


@pytest.mark.parametrize("durability", Durability)
def test_what_comes_back_from_the_disk_is_compared(
    root: Path, monkeypatch: pytest.MonkeyPatch, durability: Durability
) -> None:
    replace = files._replace

    def damage(temporary: Path, path: Path) -> None:
        replace(temporary, path)
        path.write_bytes(path.read_bytes()[:-1])

    monkeypatch.setattr(files, "_replace", damage)
    with pytest.raises(ReadBackMismatch):
        consume(root, durability)


def test_every_sound_state_has_one_way_on() -> None:
    going_on = [row.label for _, row in RESUME.states() if row.action not in (
        cursor.Action.REFUSE_CHANGED, cursor.Action.REFUSE_STATE)]  # fmt: skip
    assert sorted(going_on) == ["R1", "R2", "R3", "R4", "R5"]


def test_nothing_is_read_on_from_a_state_that_cannot_be() -> None:
    for state, row in RESUME.states():
        if state["cursor"] is CursorState.AHEAD or EffectState.BROKEN in state.values():
            assert row.action is cursor.Action.REFUSE_STATE, state
        elif state["effect"] is EffectState.SOUND and state["source"] not in (SourceState.SAME, SourceState.NEW):
            assert row.action in (cursor.Action.REFUSE_CHANGED, cursor.Action.REFUSE_STATE), state


EMPTY = Digest.of(b"")
EVIDENCE = Evidence(2, 80, Identity("1", "2", Digest(80, "0" * 64), Digest(80, "0" * 64)))


@pytest.mark.parametrize(
    ("position", "evidence", "due"),
    [
        (Position(2, 80), EVIDENCE, CursorState.LEVEL),
        (Position(2, 79), EVIDENCE, CursorState.BEHIND),
        (Position(2, 0), EVIDENCE, CursorState.BEHIND),
        (Position(2, 81), EVIDENCE, CursorState.AHEAD),
        (Position(1, 9999), EVIDENCE, CursorState.EARLIER),
        (Position(3, 0), EVIDENCE, CursorState.AHEAD),
        (Position(1, 0), None, CursorState.AHEAD),
    ],
)
def test_the_cursor_against_the_evidence(position: Position, evidence: Evidence | None, due: CursorState) -> None:
    assert cursor.compare_cursor(position, evidence) is due


@given(st.integers(1, 2**53), st.integers(0, 2**53))
def test_documents_are_read_as_they_were_written(epoch: int, applied: int) -> None:
    assert parse_position(Position(epoch, applied).format()) == Position(epoch, applied)
    size = min(applied, 4096)
    evidence = Evidence(
        epoch, applied, Identity("7", "18446744073709551615", Digest(size, "a" * 64), Digest(size, "b" * 64))
    )
    assert parse_evidence(canonical.decode(canonical.encode(evidence.as_fields()))) == evidence


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b'{"epoch":1,"offset":0}',
        b'{"epoch":0,"offset":0,"schema":1}',
        b'{"epoch":1,"offset":-1,"schema":1}',
        b'{"epoch":true,"offset":0,"schema":1}',
        b'{"epoch":1,"offset":0,"schema":2}',
        b'{"epoch":1,"offset":0,"schema":1}\n',
        b'{"offset":0,"epoch":1,"schema":1}',
    ],
)
def test_another_position_is_refused(data: bytes) -> None:
    with pytest.raises(JsonRejected):
        parse_position(data)


def test_a_reader_without_the_lock_sees_no_cursor_ahead(root: Path) -> None:
    """Between its two reads a whole scan may happen: the cursor is read first, so it is behind at most."""
    consume(root)
    source = os.open(root / "journal", os.O_RDONLY)

    def load_after_a_scan() -> Evidence | None:
        append(root, MORE)
        consume(root)
        data = files.read_file(root / "state.json")
        assert data is not None
        return parse_evidence(canonical.decode(data))

    try:
        found = cursor.observe(root / "cursor.json", source, load_after_a_scan)
    finally:
        os.close(source)
    assert (found.cursor, found.source) == (CursorState.BEHIND, SourceState.SAME)


def test_a_file_that_grows_meanwhile_is_read_to_where_it_ended(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a fast writer would keep one scan, and its lock, for ever."""
    identify, growths = evidence.observe_identity, iter(range(50))

    def grow(source: int, applied: int) -> Identity:
        if next(growths, None) is not None:
            append(root, MORE)
        return identify(source, applied)

    monkeypatch.setattr(cursor, "observe_identity", grow)
    _, progress = consume(root, batch_bytes=9)
    assert progress is not None and progress.offset == len(LINES)
