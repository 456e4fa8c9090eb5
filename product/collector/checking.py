"""Everything that is ours against everything else that is ours: ``check`` (collector.md section 6). Pure.

Names every finding, not only the first; each has one of the codes of SPEC.md, a file, and a line where there is one. What
is in flight is not a finding: with a pending record, what its phase leaves open is not asked for. Neither is what the
next command settles by itself: temporary files, evidence that no run has, evidence in both roots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from product.collector.chains import ChainLine, End, Finding, Walk
from product.collector.layout import LOCK_NAME, MANIFESTS, MARKER_BYTES, hour_number, slot_of
from product.collector.leftovers import Leftover, parse_leftovers
from product.collector.places import (
    LATEST,
    LEFTOVERS,
    MARKER,
    PENDING,
    Entry,
    Found,
    Inventory,
    Kind,
    Unreadable,
    archived_name,
    evidence_name,
)
from product.collector.records import LockRecord, Pending, Phase, parse_pending, planned_names
from product.collector.shape import ShapeError
from product.collector.slots import Latest, Slot, parse_latest, parse_slot
from product.durable.errors import JsonRejected
from product.durable.files import Digest

T = TypeVar("T")
STRAY = "K_STRAY"
_CLEANING = (Phase.TERMINAL, Phase.RELEASING)
_PLACING = (Phase.TRANSACTION_INTENT, Phase.BUSINESS_COMMITTED)
_SAME = ("task_id", "transaction_id", "state", "cards_appended", "evidence_sha256", "coverage_proof_sha256")


@dataclass(frozen=True, slots=True)
class RunLine:
    """One line of the runs manifest, and where it stands."""

    file: str
    line: int
    task_id: str
    run_id: str
    transaction_id: str
    hour: str
    state: str
    cards_appended: int
    first_card_seq: int | None
    evidence_sha256: str
    coverage_proof_sha256: str


@dataclass(slots=True)
class Report:
    """``contents``: the segments that were read. ``tips``: last seq, and its hash, of each manifest, None where unknown."""

    findings: list[Finding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    contents: dict[str, Digest] = field(default_factory=dict)
    tips: dict[str, tuple[int | None, str | None]] = field(default_factory=dict)
    runs: list[RunLine] = field(default_factory=list)
    pending: Pending | None = None


def check(inventory: Inventory) -> Report:
    """All findings over what was found; the segments of the inventory are used up."""
    return _Check(inventory).run()


class _Check:
    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._report = Report()
        self._slots: dict[int, Slot] = {}
        self._unread_slots: set[int] = set()
        self._own: dict[str, list[int]] = {}  # run id -> count, first seq, last seq of its cards
        self._own_place: dict[str, ChainLine] = {}
        self._opaque_runs = 0

    def run(self) -> Report:
        self._check_names()
        self._report.pending = self._parse(PENDING, parse_pending)
        self._read_slots()
        for name, read in zip(MANIFESTS, (self._read_card, self._read_run), strict=True):
            self._walk(name, read)
        self._check_run_cards()
        self._check_slots()
        self._check_latest()
        self._check_evidence()
        self._check_locks()
        self._count()
        return self._report

    def _find(self, code: str, file: str, message: str, line: int | None = None) -> None:
        self._report.findings.append(Finding(code, file, line, message))

    def _parse(self, name: str, parse: Callable[[bytes], T]) -> T | None:
        """The document, or None where it is not there; one that is not ours is a finding."""
        data = self._inventory.documents.get(name)
        if data is None or isinstance(data, Unreadable):
            return None
        try:
            return parse(data)
        except (ShapeError, JsonRejected) as error:
            self._find("K_DOCUMENT", name, f"not a record of ours: at {error.pointer or '/'}: {error.reason}")
            return None

    # ---------------------------------------------------------------------------------------------- names

    def _check_names(self) -> None:
        for entry in self._inventory.entries:
            if entry.place is None:
                self._find(STRAY, entry.name, f"{entry.found.value} that nothing accounts for")
            elif entry.found is not (Found.DIRECTORY if entry.place.kind is Kind.DIRECTORY else Found.FILE):
                due = "a directory" if entry.place.kind is Kind.DIRECTORY else "a plain file"
                self._find("K_NOT_PLAIN", entry.name, f"{entry.found.value}, where {due} is due")
        for name, content in (*self._inventory.documents.items(), *self._inventory.digests.items()):
            if isinstance(content, Unreadable):
                self._find("K_NOT_PLAIN", name, f"cannot be read as a plain file: {content.reason}")

    def _of(self, *kinds: Kind) -> Iterable[tuple[Entry, tuple[str, ...]]]:
        for entry in self._inventory.entries:
            if entry.place is not None and entry.place.kind in kinds:
                yield entry, entry.place.parts

    # ---------------------------------------------------------------------------------------------- chains

    def _walk(self, manifest: str, read: Callable[[ChainLine], None]) -> None:
        ends: dict[int, list[End]] = {}
        for number, slot in self._slots.items():
            tip = slot.cards if manifest == "cards" else slot.runs
            if tip is not None:
                segment, size, sha256, last = (tip[key] for key in ("segment", "size", "sha256", "last_seq"))
                assert isinstance(segment, int) and isinstance(size, int) and isinstance(last, int)
                ends.setdefault(segment, []).append(End(slot_name(number), size, str(sha256), last))
        walk = Walk(manifest, self._told_segments(manifest), ends, self._report.findings.append)
        for line in walk:
            read(line)
        self._report.contents |= walk.contents
        self._report.tips[manifest] = walk.seq, walk.sha256
        self._report.counts[manifest] = walk.lines

    def _told_segments(self, manifest: str) -> Iterable[tuple[int, bytes | Unreadable]]:
        for number, data in self._inventory.segments[manifest]:
            yield number, data

    def _read_card(self, line: ChainLine) -> None:
        """Counted for its run, and its names held against all names before it."""

    def _read_run(self, line: ChainLine) -> None:
        """."""
