"""Moves the evidence of finished runs into the archive, one row of the table Move at a time.

Which crash each order survives: the target is durable before the source goes, so a death leaves the evidence once or
twice, never not at all; the directory goes last, so what is left of it says that the run is not done with.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import assert_never

from killpoints import attempt
from product.collector import points_archive as points
from product.collector.completed import MOVE, CompletedRun, MoveAction
from product.collector.errors import CollectorError, ambiguous
from product.collector.inventory import MoveFacts, observe_move
from product.collector.perform import Desk
from product.collector.places import archived_name, evidence_name
from product.durable.directories import remove_directory
from product.durable.files import (
    Digest,
    clear_temporary,
    make_directory,
    move_new,
    put_new,
    read_file,
    remove,
    require_durable,
)

_TURNS_MAX = 4


@dataclass(slots=True)
class Moved:
    """A run whose evidence is now in the archive only, at ``path`` relative to its root; the rows that were taken."""

    run_id: str
    path: str
    rows: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        return {"run_id": self.run_id, "path": self.path, "rows": self.rows}


def move_completed(desk: Desk, runs: list[CompletedRun]) -> list[Moved]:
    """Raises E_RECOVERY_AMBIGUOUS, with nothing moved, when one of the runs has a refusing row."""
    for run in runs:
        _decide(run, observe_move(desk.layout, run))
    return [_move(desk, run) for run in runs]


def _decide(run: CompletedRun, facts: MoveFacts) -> tuple[str, MoveAction]:
    row = MOVE.decide(source=facts.source, target=facts.target, volumes=facts.volumes)
    if row.action is MoveAction.REFUSE:
        source, target = evidence_name(run.run_id), archived_name(run.hour, run.run_id)
        message = f"row {row.label}: the evidence of run {run.run_id}: {source} {facts.source.value}, {target} "
        raise ambiguous(message + facts.target.value, file=target, source=source).at_row(row.label)
    return row.label, row.action


def _move(desk: Desk, run: CompletedRun) -> Moved:
    moved = Moved(run.run_id, archived_name(run.hour, run.run_id))
    for _ in range(_TURNS_MAX):
        facts = observe_move(desk.layout, run)
        label, action = _decide(run, facts)
        moved.rows.append(label)
        match action:
            case MoveAction.RENAME:
                rename_evidence(desk, run, facts)
            case MoveAction.COPY:
                copy_evidence(desk, run, facts)
            case MoveAction.REMOVE_SOURCE:
                remove_source(desk, run, facts)
            case MoveAction.REMOVE_DIRECTORY:
                remove_run_directory(desk, run, facts)
                return moved
            case MoveAction.REFUSE:
                raise AssertionError(action)
            case _ as never:
                assert_never(never)
    raise ambiguous(f"the evidence of run {run.run_id} does not stay where it is put", rows=moved.rows)


def rename_evidence(desk: Desk, run: CompletedRun, facts: MoveFacts) -> None:
    """M1. Two mounts of one volume say so only when asked to rename: then it is copied."""
    assert facts.digest is not None
    _make_directories(desk, run)
    try:
        move_new(facts.source_path, facts.target_path, expected=facts.digest, point=points.RENAMED)
    except FileExistsError as error:
        raise _appeared(run) from error
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copy_evidence(desk, run, facts)


def copy_evidence(desk: Desk, run: CompletedRun, facts: MoveFacts) -> None:
    """M2. Written aside, synced, given its name without overwriting, read back. Death after it: row M3."""
    _make_directories(desk, run)
    data = read_file(facts.source_path)
    if data is None or Digest.of(data) != facts.digest:
        name = evidence_name(run.run_id)
        raise ambiguous(f"{name} changed while it was being copied", file=name)
    try:
        put_new(facts.target_path, data, point=points.COPIED)
    except FileExistsError as error:
        raise _appeared(run) from error


def remove_source(desk: Desk, run: CompletedRun, facts: MoveFacts) -> None:
    """M3."""
    digest = _make_durable(desk, run, facts)
    remove(facts.source_path, expected=digest, point=points.SOURCE_REMOVED)


def remove_run_directory(desk: Desk, run: CompletedRun, facts: MoveFacts) -> None:
    """M4. What somebody else put into it stays, and so does it."""
    _make_durable(desk, run, facts)
    attempt(points.RUN_SWEPT, _clear_temporaries, facts)
    try:
        remove_directory(facts.source_path.parent, point=points.RUN_REMOVED)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        path = evidence_name(run.run_id).rpartition("/")[0]
        desk.warnings.append({"code": "W_RUN_DIRECTORY", "path": path, "why": "something that is not ours is in it"})


def _make_durable(desk: Desk, run: CompletedRun, facts: MoveFacts) -> Digest:
    """Who died may have given it its name in the archive and not synced that: first this, then the other end goes."""
    assert facts.digest is not None
    _make_directories(desk, run)
    require_durable(facts.target_path, expected=facts.digest, point=points.DURABLE)
    return facts.digest


def _clear_temporaries(facts: MoveFacts) -> None:
    for path in (facts.source_path, facts.target_path):
        clear_temporary(path)


def _make_directories(desk: Desk, run: CompletedRun) -> None:
    """Each is synced in its parent, also where it was there: a death may have left it unsynced."""
    *parts, _ = archived_name(run.hour, run.run_id).split("/")
    directory = desk.layout.archive
    for part in parts:
        directory /= part
        make_directory(directory, point=points.ARCHIVE_DIRECTORY)


def _appeared(run: CompletedRun) -> CollectorError:
    name = archived_name(run.hour, run.run_id)
    return ambiguous(f"{name} appeared, and is not of this command", file=name)
