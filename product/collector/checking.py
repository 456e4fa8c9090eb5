"""Everything that is ours against everything else that is ours: ``check`` (collector.md section 6). Pure.

Names every finding, not only the first; each has one of the codes of SPEC.md, a file, and a line where there is one. What
is in flight is not a finding: with a pending record, what its phase leaves open is not asked for. Neither is what the
next command settles by itself: temporary files, evidence that no run has, evidence in both roots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import TypeVar

from product.collector.chains import ChainLine, End, Finding, Walk
from product.collector.claims import Item
from product.collector.coverage import TerminalState, no_new_token
from product.collector.layout import LOCK_NAME, MARKER_BYTES, attempt_name, hour_number, slot_of
from product.collector.leftovers import Leftover, parse_leftovers
from product.collector.manifests import names_of
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
    slot_name,
)
from product.collector.records import Pending, Phase, parse_pending
from product.collector.shape import ShapeError
from product.collector.slots import Latest, Slot, parse_latest, parse_slot
from product.durable.errors import JsonRejected
from product.durable.files import Digest

T = TypeVar("T")
STRAY = "K_STRAY"
_SAME = (
    "hour", "run_id", "task_id", "transaction_id", "state", "cards_appended", "evidence_sha256",
    "coverage_proof_sha256",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RunLine:
    """One line of the runs manifest (``file``, ``line``) and what it says."""

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
class _Cards:
    """The cards of one run: where the first one stands, and how far they go."""

    first: ChainLine
    last_seq: int
    count: int = 1


@dataclass(slots=True)
class Report:
    """``contents``: the segments that were read. ``tips``: seq and hash of each manifest's last line, None: not known."""

    findings: list[Finding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    contents: dict[str, Digest] = field(default_factory=dict)
    tips: dict[str, tuple[int | None, str | None]] = field(default_factory=dict)
    runs: list[RunLine] = field(default_factory=list)
    pending: Pending | None = None


def check(inventory: Inventory, row: Finding | None) -> Report:
    """All findings over what was found; the segments of the inventory are used up.

    ``row`` is a refusal of the tables, told unless its file is already.
    """
    report = Report()
    check_names(inventory, report)
    documents = read_documents(inventory, report)
    report.pending = documents.pending
    cards = _check_cards(inventory, documents, report)
    opaque = _check_runs(inventory, documents, report)
    _check_run_cards(cards, report)
    _check_run_slots(documents, report)
    _check_latest(documents, report)
    _check_evidence(inventory, opaque, report)
    _check_locks(inventory, documents, report)
    _count(inventory, documents, report)
    if row is not None and (row.file == PENDING or row.file not in {finding.file for finding in report.findings}):
        report.findings.append(row)
    report.findings.sort(key=lambda finding: (finding.file, finding.line or 0, finding.code))
    return report


def check_names(inventory: Inventory, report: Report) -> None:
    """Every name has a place, and what lies there is of the right type and can be read."""
    for entry in inventory.entries:
        if entry.place is None:
            _find(report, STRAY, entry.name, f"{entry.found.value} that nothing accounts for")
            continue
        due = Found.DIRECTORY if entry.place.kind is Kind.DIRECTORY else Found.FILE
        if entry.found is not due:
            _find(report, "K_NOT_PLAIN", entry.name, f"{entry.found.value}, where {due.value} is due")
    for name, content in (*inventory.documents.items(), *inventory.digests.items()):
        if isinstance(content, Unreadable):
            _find(report, "K_NOT_PLAIN", name, f"cannot be read as a plain file: {content.reason}")


@dataclass(frozen=True, slots=True)
class Documents:
    """``slots`` by number; ``unread``: the numbers of slots that are there and say nothing."""

    pending: Pending | None
    latest: Latest | None
    leftovers: tuple[Leftover, ...]
    slots: dict[int, Slot]
    unread: frozenset[int]

    def is_in_flight(self, hour: str, *phases: Phase) -> bool:
        """Whether the run of that hour is in flight, in one of these phases."""
        return self.pending is not None and self.pending.hour == hour and self.pending.phase in phases


def read_documents(inventory: Inventory, report: Report) -> Documents:
    """A document that is not ours is a finding, and then as good as not there."""

    def parse(name: str, reader: Callable[[bytes], T]) -> T | None:
        data = inventory.documents.get(name)
        if data is None or isinstance(data, Unreadable):
            return None
        try:
            return reader(data)
        except (ShapeError, JsonRejected) as error:
            _find(report, "K_DOCUMENT", name, f"not a record of ours: {error.pointer or '/'}: {error.reason}")
            return None

    slots: dict[int, Slot] = {}
    unread = set()
    for entry, (number,) in _of(inventory, Kind.SLOT):
        slot = parse(entry.name, parse_slot)
        fault = None if slot is None else _find_slot_fault(slot, int(number))
        if fault is not None:
            _find(report, "K_DOCUMENT", entry.name, fault)
        if slot is None or fault is not None:
            unread.add(int(number))
        else:
            slots[int(number)] = slot
    return Documents(
        parse(PENDING, parse_pending),
        parse(LATEST, parse_latest),
        parse(LEFTOVERS, parse_leftovers) or (),
        slots,
        frozenset(unread),
    )


def _find_slot_fault(slot: Slot, number: int) -> str | None:
    """What a record that reads well contradicts itself in."""
    if slot_of(slot.hour) != number:
        return f"the hour {slot.hour} belongs to slot {slot_of(slot.hour):03d}"
    if slot.no_new_token != no_new_token(TerminalState(slot.state)):
        return f"no_new_token {slot.no_new_token} does not go with {slot.state}"
    ended = slot.state != TerminalState.ABORTED
    if (slot.runs is not None) is not ended or (slot.cards is None and slot.cards_appended > 0):
        return f"a run that ended as {slot.state} with {slot.cards_appended} cards says otherwise where they end"
    return None


def _check_cards(inventory: Inventory, documents: Documents, report: Report) -> dict[str, _Cards]:
    """The chain, and that no post is there twice. The cards of each run."""
    named: dict[str, ChainLine] = {}
    own: dict[str, _Cards] = {}
    for line in _walk("cards", inventory, documents, report):
        try:
            keys, _ = names_of(line.fields)
        except ValueError as error:  # schema 1 only; the walk has judged all others
            _find(report, "K_LINE_FOREIGN", line.file, f"not a card line: {error}", line.number)
            continue
        for key in keys:
            first = named.setdefault(key, line)
            if first is not line:
                message = f"{key} is archived twice: first in {first.file} line {first.number}"
                _find(report, "K_POST_REPEATED", line.file, message, line.number)
        if not line.chained:
            continue
        cards = own.setdefault(str(line.fields["run_id"]), _Cards(line, line.seq, 0))
        cards.count, cards.last_seq = cards.count + 1, line.seq
    return own


def _check_runs(inventory: Inventory, documents: Documents, report: Report) -> set[str]:
    """The chain, and that no run is there twice. The run ids of lines of schema 1, of which nothing else is asked."""
    keys = [item.name for item in fields(RunLine)][2:]
    opaque: set[str] = set()
    seen: dict[str, ChainLine] = {}
    for line in _walk("runs", inventory, documents, report):
        run_id = str(line.fields.get("run_id"))
        first = seen.setdefault(run_id, line)
        if first is not line:
            message = f"run {run_id} is there twice: first in {first.file} line {first.number}"
            _find(report, "K_RUN_REPEATED", line.file, message, line.number)
        elif line.chained:
            report.runs.append(RunLine(line.file, line.number, *(line.fields[key] for key in keys)))  # type: ignore[arg-type]
        else:
            opaque.add(run_id)
    return opaque


def _walk(manifest: str, inventory: Inventory, documents: Documents, report: Report) -> Iterator[ChainLine]:
    ends: dict[int, list[End]] = {}
    for number, slot in documents.slots.items():
        tip: dict[str, object] | None = getattr(slot, manifest)
        if tip is not None:
            segment, size, last_seq = (tip[key] for key in ("segment", "size", "last_seq"))
            assert isinstance(segment, int) and isinstance(size, int) and isinstance(last_seq, int)
            ends.setdefault(segment, []).append(End(slot_name(number), size, str(tip["sha256"]), last_seq))
    walk = Walk(manifest, inventory.segments[manifest], ends, report.findings.append)
    yield from walk
    report.contents |= walk.contents
    report.tips[manifest] = walk.seq, walk.sha256
    report.counts[manifest] = walk.lines


def _check_run_cards(cards: dict[str, _Cards], report: Report) -> None:
    """Each run counts exactly the cards that carry its id, and they stand together from the first it names."""
    for run in report.runs:
        own = cards.pop(run.run_id, None)
        found = (own.count, own.first.seq) if own else (0, None)
        if found != (run.cards_appended, run.first_card_seq):
            message = f"run {run.run_id} says {run.cards_appended} cards from seq {run.first_card_seq} on; "
            message += f"there are {found[0]} from {found[1]} on"
            _find(report, "K_RUN_CARDS", run.file, message, run.line)
        elif own is not None and own.last_seq - own.first.seq + 1 != own.count:
            _find(report, "K_RUN_CARDS", run.file, f"the cards of run {run.run_id} do not stand together", run.line)
    pending = report.pending
    for run_id, own in cards.items():
        if pending is None or (pending.run_id, pending.phase) != (run_id, Phase.TRANSACTION_INTENT):
            message = f"{own.count} cards from here on are of run {run_id}, which is not in the runs manifest"
            _find(report, "K_CARDS_WITHOUT_RUN", own.first.file, message, own.first.number)


def _check_run_slots(documents: Documents, report: Report) -> None:
    """Each run against its slot, as long as the ring has its hour; and each slot against its run."""
    for run in report.runs:
        number = slot_of(run.hour)
        slot = documents.slots.get(number)
        name = slot_name(number)
        if number in documents.unread or (slot is not None and hour_number(slot.hour) > hour_number(run.hour)):
            continue  # told already; or a later hour has taken the place
        if documents.is_in_flight(run.hour, Phase.TRANSACTION_INTENT, Phase.BUSINESS_COMMITTED):
            continue  # its slot comes next
        if slot is None:
            _find(report, "K_RUN_SLOT_GONE", run.file, f"run {run.run_id} has no {name}", run.line)
            continue
        other = [key for key in _SAME if getattr(run, key) != getattr(slot, key)]
        if other:
            message = f"run {run.run_id} and {name} (run {slot.run_id}) differ in {', '.join(other)}"
            _find(report, "K_RUN_SLOT_OTHER", run.file, message, run.line)
    known = {(run.run_id, run.transaction_id) for run in report.runs}
    for number, slot in documents.slots.items():
        if slot.state != TerminalState.ABORTED and (slot.run_id, slot.transaction_id) not in known:
            message = f"run {slot.run_id} of {slot.hour} is not in the runs manifest"
            _find(report, "K_SLOT_WITHOUT_RUN", slot_name(number), message)


def _check_latest(documents: Documents, report: Report) -> None:
    """latest is the newest slot; behind it only while the run of that slot is in flight."""
    if documents.unread or any(finding.file == LATEST for finding in report.findings):
        return  # which slot is the newest cannot be said; or told already
    latest = documents.latest
    newest = max(documents.slots.values(), key=lambda slot: hour_number(slot.hour), default=None)
    if (latest is None and newest is None) or (newest is not None and latest == Latest.of(newest)):
        return
    behind = newest is not None and (latest is None or latest.hour < newest.hour)
    if newest is not None and behind and documents.is_in_flight(newest.hour, Phase.BEGUN, Phase.BUSINESS_COMMITTED):
        return
    points_at = f"it points at run {latest.run_id} of {latest.hour}" if latest else "it is not there"
    due = f"the newest slot is of run {newest.run_id} of {newest.hour}" if newest else "there is no slot"
    _find(report, "K_LATEST", LATEST, f"{points_at}; {due}")


def _check_evidence(inventory: Inventory, opaque: set[str], report: Report) -> None:
    """The evidence of every run is in one of the roots, or both, and is exactly what the run says."""
    due: dict[str, str] = {}
    for run in report.runs:
        names = evidence_name(run.run_id), archived_name(run.hour, run.run_id)
        due |= dict.fromkeys(names, run.evidence_sha256)
        if not any(name in inventory.digests for name in names):
            message = f"the evidence of run {run.run_id} is neither here nor at {names[1]}"
            _find(report, "K_EVIDENCE_MISSING", names[0], message)
    pending = report.pending
    if pending is not None and pending.evidence is not None:
        name = evidence_name(pending.run_id)
        due[name] = pending.evidence.digest.sha256
        if name not in inventory.digests:
            _find(report, "K_EVIDENCE_MISSING", name, "the evidence of the run in flight is not there")
    for name, sha256 in due.items():
        found = inventory.digests.get(name)
        if isinstance(found, Digest) and found.sha256 != sha256:
            _find(report, "K_EVIDENCE_CHANGED", name, f"its hash is {found.sha256}, {sha256} was archived")
    for entry, parts in _of(inventory, Kind.ARCHIVED):
        if entry.name not in due and parts[-1] not in opaque:
            _find(report, STRAY, entry.name, f"no run {parts[-1]} of that month is in the runs manifest")


def _check_locks(inventory: Inventory, documents: Documents, report: Report) -> None:
    """Formal lock, quarantine, marker, candidates, dead owners: each is there because somebody accounts for it."""
    pending = documents.pending
    takeover = pending.takeover if pending else None
    lock = inventory.documents.get(LOCK_NAME)
    known = [pending.claim.record if pending and pending.claim else None]
    known += [takeover.old, takeover.new] if takeover else []
    if isinstance(lock, bytes) and lock not in [record.data for record in known if record is not None]:
        _find(report, "K_FORMAL_LOCK", LOCK_NAME, "a formal lock that pending does not know")
    _check_quarantine(inventory, documents, report)
    marker = inventory.documents.get(MARKER)
    if marker is None and any(_of(inventory, Kind.QUARANTINED)):
        _find(report, "K_MARKER", MARKER, "the quarantine directory is not marked as ours")
    elif isinstance(marker, bytes) and marker != MARKER_BYTES:
        _find(report, "K_MARKER", MARKER, "the quarantine directory's marker has other content")
    if pending is None or pending.phase not in (Phase.PREPARED, Phase.TRANSACTION_INTENT):
        for entry, _ in _of(inventory, Kind.CANDIDATE):
            _find(report, STRAY, entry.name, "a candidate, and no transaction that it is of")
    for entry, (sha256,) in _of(inventory, Kind.OWNER):
        found = inventory.digests.get(entry.name)
        if isinstance(found, Digest) and found.sha256 != sha256:
            _find(report, "K_OWNER", entry.name, f"its hash is {found.sha256}, not its name")


def _check_quarantine(inventory: Inventory, documents: Documents, report: Report) -> None:
    pending = documents.pending
    listed = pending.quarantined if pending else ()
    items: dict[str, Item] = {item.path: item for item in (*documents.leftovers, *listed)}
    in_progress = names_in_progress(pending) if pending else set()
    for entry, _ in _of(inventory, Kind.QUARANTINED):
        found = inventory.digests.get(entry.name)
        if entry.name not in items and entry.name not in in_progress:
            _find(report, "K_QUARANTINE", entry.name, "neither pending nor leftovers accounts for it")
        elif entry.name in items and isinstance(found, Digest) and found != items[entry.name].digest:
            _find(report, "K_QUARANTINE", entry.name, f"its hash is {found.sha256}, another one is listed")
    if pending is not None and pending.phase not in (Phase.TERMINAL, Phase.RELEASING):
        for item in listed:
            if item.path not in inventory.digests:
                _find(
                    report, "K_QUARANTINE", item.path, f"pending lists it before {pending.phase.value}, and it is gone"
                )


def names_in_progress(pending: Pending) -> set[str]:
    """Quarantine names that a takeover may have used just before pending lists them."""
    takeover = pending.takeover
    if takeover.old is None:
        return set()
    names = {takeover.quarantine_path}
    if takeover.new is not None:
        generation, sha256 = takeover.new.recovery_generation, Digest.of(takeover.new.data).sha256
        names.add(attempt_name(pending.run_id, generation, takeover.claim_attempt, sha256))
    return names


def _count(inventory: Inventory, documents: Documents, report: Report) -> None:
    runs = {run.run_id for run in report.runs}
    runs |= {report.pending.run_id} if report.pending else set()
    stored = [parts[0] for _, parts in _of(inventory, Kind.EVIDENCE)]
    report.counts |= {
        "segments": len(report.contents),
        "slots": len(documents.slots),
        "evidence": len(stored),
        "archived_evidence": sum(1 for _ in _of(inventory, Kind.ARCHIVED)),
        "orphans": len(set(stored) - runs),
        "quarantined": sum(1 for _ in _of(inventory, Kind.QUARANTINED)),
        "leftovers": len(documents.leftovers),
        "temporaries": sum(1 for _ in _of(inventory, Kind.TEMPORARY)),
    }


def _of(inventory: Inventory, kind: Kind) -> Iterator[tuple[Entry, tuple[str, ...]]]:
    for entry in inventory.entries:
        if entry.place is not None and entry.place.kind is kind:
            yield entry, entry.place.parts


def _find(report: Report, code: str, file: str, message: str, line: int | None = None) -> None:
    report.findings.append(Finding(code, file, line, message))
