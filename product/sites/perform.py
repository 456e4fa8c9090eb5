"""Writes. Journal first, state second, cursor last."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from product.durable import append, cursor, files
from product.durable.cursor import Durability, Found, Progress, Store
from product.durable.evidence import Evidence
from product.durable.lines import Block
from product.sites import points
from product.sites.entries import Entry
from product.sites.knowledge import Knowledge
from product.sites.layout import Layout
from product.sites.records import format_knowledge

BATCH_BYTES = 64 * 2**20


def make_state(layout: Layout) -> None:
    """The state directory, in a directory that is there."""
    files.make_directory(layout.state, point=points.DIRECTORY)


def make_journal(layout: Layout) -> None:
    files.put_new(layout.journal, b"", point=points.JOURNAL_MADE)


def append_entries(journal: int, entries: Iterable[Entry]) -> None:
    """Each entry is a line; nothing else is ever written there."""
    append.append_lines(journal, b"".join(entry.format() for entry in entries), point=points.JOURNAL)


@dataclass(frozen=True, slots=True)
class _Applying:
    """The product's side of product.durable.cursor."""

    known: Knowledge

    def apply(self, block: Block) -> None:
        self.known.apply_block(block)

    def format(self, evidence: Evidence) -> bytes:
        return format_knowledge(self.known, evidence)


def apply(layout: Layout, journal: int, found: Found, known: Knowledge, batch_bytes: int) -> Progress:
    """Read on from where ``found`` says, apply to ``known``, save."""
    store = Store(layout.knowledge, layout.cursor, points.CONSUMER, Durability.POWER)
    return cursor.consume(store, journal, cursor.start_of(found), _Applying(known), batch_bytes=batch_bytes)
