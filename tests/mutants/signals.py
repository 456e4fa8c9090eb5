"""The signal counter's wrong programs: first the designs that its page rejects, then protections that are left out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from killpoints import Point
from product.durable import canonical, cursor, evidence, files, kernel_lock, lines
from product.durable.cursor import Durability, EffectState, SourceState, Store
from product.durable.errors import JsonRejected
from product.durable.evidence import Evidence, Position
from product.durable.lines import Block
from product.signals import observe, perform
from product.signals.layout import Layout
from product.signals.tally import Tally
from tests.mutants.catalogue import mutant


@mutant(
    "the cursor is saved before the counts",
    cells=[
        "signals.first-scan/signals.counts#1=error:ENOSPC",
        "signals.first-scan/signals.counts/tmp-written#1=kill",
    ],
)
def cursor_first() -> None:
    def save(store: Store, document: bytes | None, position: Position | None) -> None:
        if position is not None:
            cursor._put(store.cursor, position.format(), store.points.cursor, store.durability)
        if document is not None:
            cursor._put(store.effect, document, store.points.effect, store.durability)

    cursor.save = save


@mutant(
    "the counts are saved without applied: the cursor alone says what is counted",
    cells=["signals.first-scan/signals.counted#1=kill", "signals.first-scan/signals.cursor#1=error:EIO"],
)
def no_applied() -> None:
    start_of = cursor.start_of

    def start_at_cursor(found: cursor.Found) -> cursor.Progress:
        progress = start_of(found)
        progress.applied = progress.offset
        return progress

    cursor.start_of = start_at_cursor


def _keep_applied_apart(*, first: bool) -> None:
    """applied.json beside counts.json, saved before or after it; what counts.json says about it is not looked at."""
    save, observe_counts = cursor.save, observe.observe_counts

    def save_apart(store: Store, document: bytes | None, position: Position | None) -> None:
        if document is None:
            save(store, None, position)
            return
        fields = json.loads(document)
        applied = canonical.encode({name: fields[name] for name in evidence.EVIDENCE_FIELDS})
        apart = store.effect.with_name("applied.json")
        if first:
            files.put(apart, applied, point=None)
        save(store, document, None)
        if not first:
            files.put(apart, applied, point=None)
        save(store, None, position)

    def observe_apart(layout: Layout) -> tuple[Tally, Evidence] | None:
        data = files.read_file(layout.counts.with_name("applied.json"))
        seen = observe_counts(layout)
        tally = seen[0] if seen else Tally()
        return (tally, evidence.parse_evidence(json.loads(data))) if data else None if seen is None else _at_zero(seen)

    def _at_zero(seen: tuple[Tally, Evidence]) -> tuple[Tally, Evidence] | None:
        tally, known = seen
        nothing = files.Digest.of(b"")
        identity = evidence.Identity(known.identity.device, known.identity.inode, nothing, nothing)
        return tally, Evidence(known.epoch, 0, identity)

    cursor.save = save_apart
    observe.observe_counts = observe_apart


@mutant(
    "applied is a file of its own, saved after the counts",
    cells=["signals.first-scan/signals.counts/replaced#1=kill", "signals.first-scan/signals.counts#1=kill"],
)
def applied_apart_after() -> None:
    _keep_applied_apart(first=False)


@mutant(
    "applied is a file of its own, saved before the counts",
    cells=["signals.first-scan/signals.counts/tmp-written#1=kill", "signals.first-scan/signals.counts#1=error:EIO"],
)
def applied_apart_before() -> None:
    _keep_applied_apart(first=True)


@mutant(
    "nothing is locked",
    cells=[
        "signals.first-scan/signals.read#1=rival:scan",
        "signals.first-scan/signals.counts/tmp-written#1=rival:scan",
    ],
)
def nothing_locked() -> None:
    def take_nothing(_lock: Any) -> None:
        return None

    kernel_lock.KernelLock.acquire = take_nothing


# ------------------------------------------------------------------------------------------- protections left out


@mutant("a last line without its end is counted", cells=["signals.batches/signals.done#1=kill"])
def torn_line_counted() -> None:
    read_blocks = lines.read_blocks

    def read_all(descriptor: int, start: int, limit: int, *, chunk_bytes: int = lines.CHUNK_BYTES) -> Iterator[Block]:
        end = start
        for block in read_blocks(descriptor, start, limit, chunk_bytes=chunk_bytes):
            end = block.end
            yield block
        if end < limit:
            yield Block(end, limit, lines.read_at(descriptor, end, limit - end) + b"\n")

    cursor.read_blocks = read_all


@mutant(
    "nobody looks whether it is the file that was counted",
    cells=["signals.first-scan/*=tamper:other-file", "signals.first-scan/*=tamper:rewritten"],
)
def file_not_compared() -> None:
    def trust(source: int, evidence: Evidence | None) -> SourceState:
        return SourceState.NEW if evidence is None else SourceState.SAME

    cursor.compare_source = trust


@mutant("only the inode is compared, not the bytes", cells=["signals.first-scan/*=tamper:rewritten"])
def bytes_not_compared() -> None:
    compare = cursor.compare_source

    def compare_numbers(source: int, evidence: Evidence | None) -> SourceState:
        found = compare(source, evidence)
        return SourceState.SAME if found is SourceState.OTHER else found

    cursor.compare_source = compare_numbers


@mutant(
    "counts that cannot be read are taken for none",
    cells=["signals.broken-counts/signals.done#1=tamper:cut-counts"],
)
def broken_is_empty() -> None:
    observe_state = cursor.observe

    def observe_gently(cursor_path: Path, source: int, load: Callable[[], Evidence | None]) -> cursor.Found:
        found = observe_state(cursor_path, source, load)
        if found.effect is not EffectState.BROKEN:
            return found
        return cursor.Found(EffectState.ABSENT, cursor.CursorState.ABSENT, SourceState.NEW, None, None)

    cursor.observe = observe_gently


@mutant("a cursor that cannot be read is taken for one at 0", cells=["signals.first-scan/*=tamper:cut-cursor"])
def broken_cursor_is_zero() -> None:
    parse = evidence.parse_position

    def parse_gently(data: bytes) -> Position:
        try:
            return parse(data)
        except JsonRejected:
            return Position(1, 0)

    cursor.parse_position = parse_gently


@mutant("a save that failed is passed over", cells=["signals.first-scan/signals.counts#1=error:ENOSPC"])
def failed_save_ignored() -> None:
    put = cursor._put

    def put_if_possible(path: Path, data: bytes, point: Point, durability: Durability) -> None:
        try:
            put(path, data, point, durability)
        except OSError:
            pass

    cursor._put = put_if_possible


@mutant("an adopted file begins where the old one ended", cells=["signals.adopt/signals.done#1=kill"])
def adopted_keeps_applied() -> None:
    perform.start_epoch = perform.keep_epoch


@mutant(
    "an adoption saves the cursor of an epoch that is not there yet",
    cells=["signals.adopt/signals.counts/tmp-written#1=kill"],
)
def adoption_cursor_first() -> None:
    cursor_first()
