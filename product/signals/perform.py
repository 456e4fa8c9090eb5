"""Writes. Every act is one that a row of a table names."""

from __future__ import annotations

from dataclasses import dataclass

from product.durable import cursor, files
from product.durable.cursor import Durability, Found, Progress, Store
from product.durable.evidence import Evidence, Position, observe_identity
from product.durable.lines import Block
from product.signals import points
from product.signals.layout import Layout
from product.signals.records import format_counts
from product.signals.tally import Tally


def make_state(layout: Layout) -> None:
    """The state directory, in a directory that is there."""
    files.make_directory(layout.state, point=points.DIRECTORY)


def store_of(layout: Layout, durability: Durability) -> Store:
    return Store(layout.counts, layout.cursor, points.CONSUMER, durability)


@dataclass(frozen=True, slots=True)
class _Counting:
    """The product's side of product.durable.cursor."""

    tally: Tally

    def apply(self, block: Block) -> None:
        self.tally.apply(block)

    def format(self, evidence: Evidence) -> bytes:
        return format_counts(self.tally, evidence)


def count(store: Store, source: int, found: Found, tally: Tally, batch_bytes: int) -> Progress:
    """Read on from where ``found`` says, add to ``tally``, save."""
    return cursor.consume(store, source, cursor.start_of(found), _Counting(tally), batch_bytes=batch_bytes)


def start_epoch(store: Store, source: int, found: Found, tally: Tally) -> None:
    """The same counts, and nothing of this file is in them yet."""
    assert found.evidence is not None
    evidence = Evidence(found.evidence.epoch + 1, 0, observe_identity(source, 0))
    cursor.save(store, format_counts(tally.next_epoch(), evidence), Position(evidence.epoch, 0))


def keep_epoch(store: Store, source: int, found: Found, tally: Tally) -> None:
    """The same counts of the same lines, in a file of another identity; the cursor is about these lines already."""
    assert found.evidence is not None
    epoch, applied = found.evidence.epoch, found.evidence.applied
    cursor.save(store, format_counts(tally, Evidence(epoch, applied, observe_identity(source, applied))), None)


def finish_epoch(store: Store, found: Found) -> None:
    """An adoption died before its cursor."""
    assert found.evidence is not None
    cursor.save(store, None, Position(found.evidence.epoch, 0))
