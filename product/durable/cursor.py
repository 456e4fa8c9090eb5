"""Consume an append-only file exactly once: effect and evidence are saved together, the cursor moves last.

Two documents stand between a consumer and its file:

- the **effect** is what the product makes of the lines, with the **evidence** in the same document: ``applied``, the end
  of the last line that is in the effect, and which file, and which history of it, that offset is about;
- the **cursor** is where to read next. It is put after the effect, so it is never ahead of it.

A death in between leaves the cursor behind the evidence: the same lines are read again, and the evidence says that they
are in the effect already. What a reopen finds is a row of RESUME, and there are no others.

Rejected: the cursor first (a death loses lines), the effect without evidence (a death counts lines twice), the evidence
in a file of its own (the same two deaths, between another pair of files).

Who calls holds the product's state lock over observe, consume and save; only readers of one document need none.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from killpoints import Point, attempt, reach
from product.durable import files
from product.durable.errors import JsonRejected
from product.durable.evidence import Evidence, Position, observe_identity, parse_position
from product.durable.lines import CHUNK_BYTES, Block, read_blocks
from product.durable.plain import read_file
from product.durable.table import ANY, Row, Table

_CURSOR_MAX_BYTES = 4096


class Durability(Enum):
    """What a save survives. PROCESS: the death of the process. POWER: a power cut as well (files and names are synced)."""

    PROCESS = "process"
    POWER = "power"


@dataclass(frozen=True, slots=True)
class ConsumerPoints:
    """The kill points of one product's consumer.

    ``read``: lines are read, nothing is saved. ``source_synced``: they would survive a power cut. ``effect``: PUT_STEPS.
    ``saved``: the effect is saved, the cursor is not. ``cursor``: PUT_STEPS. Durability.PROCESS passes no sync.
    """

    read: Point
    source_synced: Point
    effect: Point
    saved: Point
    cursor: Point


# --------------------------------------------------------------------------------------------- what a reopen may find


class EffectState(enum.Enum):
    """The effect's document."""

    ABSENT = "ABSENT"
    SOUND = "SOUND"
    BROKEN = "BROKEN"


class CursorState(enum.Enum):
    """The cursor against the evidence."""

    ABSENT = "ABSENT"
    EARLIER = "EARLIER"  # of an earlier epoch
    BEHIND = "BEHIND"
    LEVEL = "LEVEL"
    AHEAD = "AHEAD"  # points past what has its effect, or there is no evidence at all
    BROKEN = "BROKEN"


class SourceState(enum.Enum):
    """The file against the evidence."""

    NEW = "NEW"  # there is no evidence to hold it against
    SAME = "SAME"
    MOVED = "MOVED"  # other device or inode, the same first and last bytes
    SHORTER = "SHORTER"
    OTHER = "OTHER"


class Action(enum.Enum):
    START = "read from the start"
    REPLAY_ALL = "read from the start, nothing again that is applied"
    REPLAY = "read from the cursor, nothing again that is applied"
    GO_ON = "read from the cursor"
    REFUSE_CHANGED = "refuse: the file has changed"
    REFUSE_STATE = "refuse: the state is not sound"


_READABLE = frozenset({CursorState.ABSENT, CursorState.EARLIER, CursorState.BEHIND, CursorState.LEVEL})
_CHANGED = frozenset({SourceState.MOVED, SourceState.SHORTER, SourceState.OTHER})


def _row(label: str, effect: Any, cursor: Any, source: Any, action: Action) -> Row[Action]:
    return Row(label, {"effect": effect, "cursor": cursor, "source": source}, action)


RESUME: Table[Action] = Table(
    {"effect": EffectState, "cursor": CursorState, "source": SourceState},
    (
        _row("R1", EffectState.ABSENT, CursorState.ABSENT, SourceState.NEW, Action.START),
        _row("R2", EffectState.SOUND, CursorState.ABSENT, SourceState.SAME, Action.REPLAY_ALL),
        _row("R3", EffectState.SOUND, CursorState.EARLIER, SourceState.SAME, Action.REPLAY_ALL),
        _row("R4", EffectState.SOUND, CursorState.BEHIND, SourceState.SAME, Action.REPLAY),
        _row("R5", EffectState.SOUND, CursorState.LEVEL, SourceState.SAME, Action.GO_ON),
        _row("R-CHANGED", EffectState.SOUND, _READABLE, _CHANGED, Action.REFUSE_CHANGED),
        _row("R-AHEAD", {EffectState.ABSENT, EffectState.SOUND}, CursorState.AHEAD, ANY, Action.REFUSE_STATE),
        Row("R-UNSOUND", None, Action.REFUSE_STATE),
    ),
)


@dataclass(frozen=True, slots=True)
class Found:
    """What lies on the disk. ``why``: what is broken, for people."""

    effect: EffectState
    cursor: CursorState
    source: SourceState
    evidence: Evidence | None
    position: Position | None
    why: str = ""

    @property
    def facts(self) -> dict[str, Enum]:
        return {"effect": self.effect, "cursor": self.cursor, "source": self.source}


# ------------------------------------------------------------------------------------------------------------ observe


def observe(cursor_path: Path, source: int, load: Callable[[], Evidence | None]) -> Found:
    """Read both documents and the file, for RESUME.

    ``load`` reads the effect's document: its evidence, or None where there is none. It raises JsonRejected for one that
    is broken. The cursor is read first: then a reader without the lock never sees it ahead of the effect.
    """
    why, position, evidence = "", None, None
    cursor, effect = CursorState.ABSENT, EffectState.ABSENT
    try:
        data = read_file(cursor_path, size_max_bytes=_CURSOR_MAX_BYTES)
        position = None if data is None else parse_position(data)
    except JsonRejected as error:
        cursor, why = CursorState.BROKEN, f"{cursor_path.name}: {error.message}"
    try:
        evidence = load()
        effect = EffectState.ABSENT if evidence is None else EffectState.SOUND
    except JsonRejected as error:
        effect, why = EffectState.BROKEN, error.message
    if position is not None:
        cursor = compare_cursor(position, evidence)
    return Found(effect, cursor, compare_source(source, evidence), evidence, position, why)


def compare_cursor(position: Position, evidence: Evidence | None) -> CursorState:
    """Pure. A cursor says nothing without evidence; of another epoch, nothing about this one."""
    if evidence is None or position.epoch > evidence.epoch:
        return CursorState.AHEAD
    if position.epoch < evidence.epoch:
        return CursorState.EARLIER
    if position.offset == evidence.applied:
        return CursorState.LEVEL
    return CursorState.BEHIND if position.offset < evidence.applied else CursorState.AHEAD


def compare_source(source: int, evidence: Evidence | None) -> SourceState:
    """Reads at most twice PROOF_BYTES, whatever the size of the file."""
    if evidence is None:
        return SourceState.NEW
    known, found = evidence.identity, observe_identity(source, evidence.applied)
    if found == known:
        return SourceState.SAME
    if os.fstat(source).st_size < evidence.applied:
        return SourceState.SHORTER
    return SourceState.MOVED if (found.head, found.tail) == (known.head, known.tail) else SourceState.OTHER


# ------------------------------------------------------------------------------------------------------------ perform


class Product(Protocol):
    """What a product makes of lines, in memory."""

    def apply(self, block: Block) -> None:
        """Add the effect of these lines, once."""

    def format(self, evidence: Evidence) -> bytes:
        """The whole document: effect and evidence."""


@dataclass(frozen=True, slots=True)
class Store:
    """Where the two documents lie, and how they are saved."""

    effect: Path
    cursor: Path
    points: ConsumerPoints
    durability: Durability


@dataclass(slots=True)
class Progress:
    """What a consumption did: lines read, those of them whose effect was new, and where cursor and evidence are now."""

    epoch: int
    offset: int
    applied: int
    lines_read: int = 0
    lines_applied: int = 0


def start_of(found: Found) -> Progress:
    """Where the row of ``found`` says to read; only for rows that do not refuse."""
    if found.evidence is None:
        return Progress(epoch=1, offset=0, applied=0)
    offset = 0
    if found.position is not None and found.cursor is not CursorState.EARLIER:
        offset = found.position.offset
    return Progress(found.evidence.epoch, offset, found.evidence.applied)


def consume(store: Store, source: int, progress: Progress, product: Product, *, batch_bytes: int) -> Progress:
    """Read on from ``progress`` to the end that the file has now, and save after each ``batch_bytes``.

    ``product`` holds the effect of everything up to ``progress.applied``. After an OSError it holds more than is saved:
    let it go. A death makes the next one read at most the lines of one batch again.
    """
    limit = os.fstat(source).st_size
    reached = progress.offset
    for block in read_blocks(source, reached, limit, chunk_bytes=min(CHUNK_BYTES, batch_bytes)):
        reached = block.end
        progress.lines_read += block.count
        new = block.after(progress.applied)
        if new is not None:
            product.apply(new)
            progress.lines_applied += new.count
        if reached - progress.offset >= batch_bytes:
            _save_batch(store, source, progress, product, reached)
    if reached > progress.offset:
        _save_batch(store, source, progress, product, reached)
    return progress


def _save_batch(store: Store, source: int, progress: Progress, product: Product, reached: int) -> None:
    reach(store.points.read)
    document = None
    if reached > progress.applied:  # else all of it has its effect, and only the cursor was left behind
        if store.durability is Durability.POWER:
            # or a power cut leaves the effect of lines that the file has lost, and offsets past its end
            attempt(store.points.source_synced, files._sync_file, source)
        document = product.format(Evidence(progress.epoch, reached, observe_identity(source, reached)))
    save(store, document, Position(progress.epoch, reached))
    progress.offset, progress.applied = reached, max(progress.applied, reached)


def save(store: Store, document: bytes | None, position: Position | None) -> None:
    """Effect and evidence at once, and then the cursor; None for what is there already. Raises OSError, DurableError."""
    if document is not None:
        _put(store.effect, document, store.points.effect, store.durability)
    if position is not None:
        reach(store.points.saved)
        _put(store.cursor, position.format(), store.points.cursor, store.durability)


def _put(path: Path, data: bytes, point: Point, durability: Durability) -> None:
    if durability is Durability.POWER:
        files.put(path, data, point=point)
    else:
        attempt(point, _put_unsynced, path, data, point)


def _put_unsynced(path: Path, data: bytes, point: Point) -> None:
    """As files.put() without its syncs: the name changes at once for every process, a power cut may undo or empty it."""
    temporary = files.temporary_path(path)
    mode = files._mode_of_plain(path)
    os.close(attempt(point.at("tmp-written"), files._write_temporary, temporary, data, mode))
    try:
        attempt(point.at("replaced"), files._replace, temporary, path)
    except BaseException:
        files._discard(temporary)
        raise
    attempt(point.at("read-back"), files._read_back, path, data)
