"""Reads the disk and the process table into the facts that the tables ask for. Writes nothing."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from product.collector.claims import Item, LockRecord, TakeoverPhase
from product.collector.errors import CollectorError, ambiguous
from product.collector.evidence import Evidence, EvidenceRejected, parse_evidence
from product.collector.layout import (
    MANIFESTS,
    MARKER_BYTES,
    MARKER_NAME,
    QUARANTINE_NAME,
    SLOTS,
    Layout,
    attempt_name,
    hour_number,
    segment_name,
    segment_number,
    slot_of,
)
from product.collector.leftovers import Leftover, parse_leftovers
from product.collector.manifests import ChainBroken, Tip, last_line, read_lines
from product.collector.records import ManifestPlan, Pending, Phase, parse_pending
from product.collector.shape import NAME, ShapeError
from product.collector.slots import Latest, Slot, may_write, parse_latest, parse_slot
from product.collector.states import Attempt, Clock, Content, Displaced, Items, MainLock, Material, Present, Quarantine
from product.collector.transaction import Archive, join
from product.durable.errors import DurableError, JsonRejected, PathReparse, VolumeMismatch
from product.durable.files import Digest, digest_file, read_file, temporary_path
from product.durable.identity import Holder, classify_holder
from product.durable.paths import is_reparse, require_plain_directory
from product.durable.volume import require_one_volume

CLOCK_TOLERANCE = timedelta(minutes=5)
_SLOT_NAME = re.compile(r"(0[0-9]{2}|1[0-5][0-9]|16[0-7])\.json")
T = TypeVar("T")


def observe_pending(layout: Layout) -> Pending | None:
    """The write-ahead record. Raises E_RECOVERY_AMBIGUOUS naming file and pointer for anything but ours or nothing."""
    return _observe_document(layout.pending, "refresh/pending.json", parse_pending)


def observe_leftovers(layout: Layout) -> tuple[Leftover, ...]:
    """What earlier runs could not delete. Raises E_RECOVERY_AMBIGUOUS for a file that is not ours."""
    return _observe_document(layout.leftovers, "refresh/leftovers.json", parse_leftovers) or ()


def observe_lock(layout: Layout, old: LockRecord | None, new: LockRecord | None) -> MainLock:
    try:
        data = read_file(layout.formal_lock)
    except DurableError:
        return MainLock.THIRD
    if data is None:
        return MainLock.ABSENT
    if new is not None and data == new.data:
        return MainLock.NEW
    if old is not None and data == old.data:
        return MainLock.OLD
    return MainLock.THIRD


def observe_presence(path: Path) -> Present:
    return Present.PRESENT if os.path.lexists(path) else Present.ABSENT


def observe_exact(path: Path, due: Digest) -> Attempt:
    """ABSENT, EXACT or OTHER for a quarantine file, wrong type included."""
    try:
        data = read_file(path)
    except DurableError:
        return Attempt.OTHER
    if data is None:
        return Attempt.ABSENT
    return Attempt.EXACT if Digest.of(data) == due else Attempt.OTHER


def observe_items(layout: Layout, pending: Pending | None, leftovers: tuple[Leftover, ...]) -> Items:
    """The quarantine directory against every item that somebody accounts for (V004 section 2: listed exactly)."""
    listed = {item.path: item.digest for item in (pending.quarantined if pending else ())}
    accounted = set(listed) | {leftover.path for leftover in leftovers} | _in_progress(pending)
    ours = {MARKER_NAME, temporary_path(layout.marker).name}
    found = {f"{QUARANTINE_NAME}/{name}" for name in _names(layout.quarantine) if name not in ours}
    if not found <= accounted:
        return Items.OTHER
    answers = {observe_exact(layout.archive / path, digest) for path, digest in listed.items()}
    if Attempt.OTHER in answers:
        return Items.OTHER
    return Items.GONE if Attempt.ABSENT in answers else Items.EXACT


def _in_progress(pending: Pending | None) -> set[str]:
    """Names that a rename may have made just before its record."""
    if pending is None or pending.takeover.old is None:
        return set()
    names = {pending.takeover.quarantine_path}
    attempt = planned_item(pending)
    return names | {attempt.path} if attempt is not None else names


def planned_item(pending: Pending) -> Item | None:
    """Where the planned new claim's lock goes if its holder dies: path and content, or None outside CREATE_PLANNED."""
    takeover = pending.takeover
    if takeover.new is None:
        return None
    digest = Digest.of(takeover.new.data)
    generation = takeover.new.recovery_generation
    return Item(attempt_name(pending.run_id, generation, takeover.claim_attempt, digest.sha256), digest)


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """What the claim and takeover tables ask for."""

    main_lock: MainLock
    holder: Holder
    quarantine: Quarantine = Quarantine.ABSENT
    attempt: Attempt = Attempt.ABSENT


def observe_claim(layout: Layout, pending: Pending) -> ClaimFacts:
    """Lock, quarantine and holder, asked afresh: a cached answer about a process proves nothing."""
    claim, takeover = pending.claim, pending.takeover
    assert claim is not None
    if takeover.phase is TakeoverPhase.NONE:
        return ClaimFacts(observe_lock(layout, claim.record, None), observe_holder(claim.record))
    assert takeover.old is not None
    asked, new = {
        TakeoverPhase.TAKEOVER_PLANNED: (takeover.old, None),
        TakeoverPhase.OLD_LOCK_QUARANTINED: (takeover.old, None),
        TakeoverPhase.CREATE_PLANNED: (takeover.new, takeover.new),
        TakeoverPhase.NEW_LOCK_HELD: (claim.record, claim.record),
    }[takeover.phase]
    assert asked is not None
    planned = planned_item(pending)
    return ClaimFacts(
        observe_lock(layout, takeover.old, new),
        observe_holder(asked),
        _observe_quarantine(layout, pending),
        observe_exact(layout.archive / planned.path, planned.digest) if planned is not None else Attempt.ABSENT,
    )


def _observe_quarantine(layout: Layout, pending: Pending) -> Quarantine:
    takeover = pending.takeover
    assert takeover.old is not None
    path = layout.archive / takeover.quarantine_path
    if not takeover.old_materialised:
        return Quarantine.NONE_DUE if observe_presence(path) is Present.ABSENT else Quarantine.OTHER
    return Quarantine(observe_exact(path, Digest.of(takeover.old.data)).value)


def observe_holder(record: LockRecord) -> Holder:
    return classify_holder(record.holder.pid, record.holder.created_at)


@dataclass(frozen=True, slots=True)
class TransactionFacts:
    cards: Content
    runs: Content
    displaced: Displaced
    material: Material
    unsound: str = ""


@dataclass(slots=True)
class Memory:
    """What one process under the StateLock finds out only once.

    ``archive``: read by index.py when a transaction is to be built; ``unsound`` says why it could not be.
    ``digests``: content by file identity. It saves hashing a segment again in every turn; what is put in place is hashed
    anew by the primitive that does it, whatever is remembered here. ``joins``: evidence that goes with the archive.
    """

    archive: Archive | None = None
    unsound: str = "the archive was not read"
    joins: Evidence | None = None
    digests: dict[tuple[str, int, int, int, int], Digest] = field(default_factory=dict)

    def digest_of(self, path: Path) -> Digest | None:
        """The file's digest, None where there is none or it is no plain file."""
        try:
            status = os.lstat(path)
        except OSError:
            return None
        key = (str(path), status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if key not in self.digests:
            digest = _digest_or_none(path)
            if digest is None:
                return None
            self.digests[key] = digest
        return self.digests[key]


def observe_transaction(layout: Layout, pending: Pending, memory: Memory) -> TransactionFacts:
    """Both manifests, what lies beside, and whether what the phase's action needs is sound (``unsound`` says why not)."""
    found = {name: _observe_manifest(layout, name, pending, memory) for name in MANIFESTS}
    beside = {displaced for _, displaced in found.values()}
    displaced = next(kind for kind in (Displaced.THIRD, Displaced.BASE, Displaced.NONE) if kind in beside)
    try:
        _require_material(layout, pending, memory)
    except CollectorError as error:
        return TransactionFacts(found["cards"][0], found["runs"][0], displaced, Material.UNSOUND, error.message)
    return TransactionFacts(found["cards"][0], found["runs"][0], displaced, Material.SOUND)


def _require_material(layout: Layout, pending: Pending, memory: Memory) -> None:
    if pending.phase is Phase.PREPARED:
        evidence = observe_evidence(layout, pending)
        if memory.archive is None:
            raise ambiguous(memory.unsound)
        if memory.joins is evidence:
            return
        try:
            join(evidence, memory.archive)
            memory.joins = evidence
        except EvidenceRejected as error:
            raise ambiguous(f"the evidence contradicts the archive: {error.message}") from error
    elif pending.phase is Phase.BUSINESS_COMMITTED:
        assert pending.terminal is not None
        existing = observe_slot(layout, pending.terminal.slot)
        if existing is not None and existing.data != pending.terminal.data and not may_write(existing, pending.hour):
            raise ambiguous(f"slot {pending.terminal.slot:03d} holds another run of an hour within the week")
        observe_latest(layout)


def _observe_manifest(layout: Layout, name: str, pending: Pending, memory: Memory) -> tuple[Content, Displaced]:
    plan = pending.manifest(name)
    found = observe_last_segment(layout, name, memory)
    if pending.phase is Phase.PREPARED:
        return (Content.BASE if _is_base(found, plan) else Content.THIRD), Displaced.NONE
    if found == (plan.segment, plan.candidate) or (plan.unchanged and _is_base(found, plan)):
        return Content.CANDIDATE, _observe_displaced(layout, name, plan, pending.phase)
    if not _is_base(found, plan):
        return Content.THIRD, Displaced.NONE
    staged = _digest_or_none(layout.candidate(name)) == plan.candidate
    return (Content.BASE if staged else Content.THIRD), Displaced.NONE


def _is_base(found: tuple[int, Digest | None], plan: ManifestPlan) -> bool:
    """A candidate that starts a new segment stands on the segment before it; that one is not in the plan."""
    if plan.base is None:
        return found[0] == plan.segment - 1
    return found == (plan.segment, plan.base)


def _observe_displaced(layout: Layout, name: str, plan: ManifestPlan, phase: Phase) -> Displaced:
    """Only while the transaction is being put in place can an exchange have left something beside."""
    if phase is not Phase.TRANSACTION_INTENT or observe_presence(layout.candidate(name)) is Present.ABSENT:
        return Displaced.NONE
    if plan.base is not None and not plan.unchanged and _digest_or_none(layout.candidate(name)) == plan.base:
        return Displaced.BASE
    return Displaced.THIRD


def observe_last_segment(layout: Layout, name: str, memory: Memory) -> tuple[int, Digest | None]:
    """Number and content of a manifest's highest segment; (0, None) where there is none yet."""
    numbers = segment_numbers(layout, name)
    if not numbers:
        return 0, None
    return numbers[-1], memory.digest_of(layout.segment(name, numbers[-1]))


def segment_numbers(layout: Layout, name: str) -> list[int]:
    """The numbers of a manifest's segments, sorted. Raises E_RECOVERY_AMBIGUOUS where one is missing between."""
    found = sorted(n for n in map(segment_number, _names(layout.manifest_directory(name))) if n is not None)
    if found and found != list(range(1, found[-1] + 1)):
        missing = next(n for n in range(1, found[-1] + 1) if n not in found)
        raise ambiguous(f"{name}/{segment_name(missing)} is missing", file=f"{name}/{segment_name(missing)}")
    return found


def _digest_or_none(path: Path) -> Digest | None:
    try:
        return digest_file(path)
    except DurableError:
        return None


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def require_plain_layout(layout: Layout) -> None:
    """Raise PathReparse unless the roots, their parents and every directory of ours that is there are ordinary ones,
    and E_FORMAL_LOCK_VOLUME_IDENTITY unless those of the archive are on one volume (V004 section 1: at the start)."""
    require_plain_directory(layout.state)
    require_plain_directory(layout.archive)
    for directory in layout.directories():
        if observe_presence(directory) is Present.ABSENT:
            continue
        status = os.lstat(directory)
        if is_reparse(status) or not stat.S_ISDIR(status.st_mode):
            raise PathReparse(f"{directory} is not an ordinary directory", path=str(directory))
        if directory.parent == layout.archive:
            require_archive_volume(layout, directory)


def require_archive_volume(layout: Layout, directory: Path) -> None:
    """Raise E_FORMAL_LOCK_VOLUME_IDENTITY unless a rename between the archive root and ``directory`` can be atomic."""
    try:
        require_one_volume(layout.archive, directory)
    except VolumeMismatch as error:
        raise CollectorError("E_FORMAL_LOCK_VOLUME_IDENTITY", error.message, file=directory.name) from error


def observe_marker(layout: Layout) -> None:
    """Raise unless the quarantine directory is absent, or marked as ours (V004 section 1)."""
    try:
        data = read_file(layout.marker)
    except DurableError as error:
        raise ambiguous(f"the quarantine directory's marker: {error.message}", file=MARKER_NAME) from error
    if data is None and set(_names(layout.quarantine)) - {temporary_path(layout.marker).name}:
        raise ambiguous("the quarantine directory is not marked as ours", file=f"{QUARANTINE_NAME}/{MARKER_NAME}")
    if data is not None and data != MARKER_BYTES:
        raise ambiguous("the quarantine directory's marker has other content", file=f"{QUARANTINE_NAME}/{MARKER_NAME}")


def observe_clock(pending: Pending, now: datetime) -> Clock:
    """FUTURE when a claim was made later than this clock says, beyond what two clocks may differ by."""
    takeover = pending.takeover
    times = [pending.claim.record.lock_created_at] if pending.claim else []
    times += [record.lock_created_at for record in (takeover.old, takeover.new) if record is not None]
    times += [takeover.planned_at] if takeover.planned_at else []
    latest = now + CLOCK_TOLERANCE
    return Clock.FUTURE if any(datetime.fromisoformat(time) > latest for time in times) else Clock.PLAUSIBLE


def observe_evidence(layout: Layout, pending: Pending) -> Evidence:
    """The stored evidence of the run in flight. Raises E_RECOVERY_AMBIGUOUS unless it is exactly what was stored."""
    assert pending.evidence is not None
    file = pending.evidence.path
    try:
        data = read_file(layout.evidence(pending.run_id))
        if data is None or Digest.of(data) != pending.evidence.digest:
            raise ambiguous(f"{file} is not the evidence that pending names", file=file)
        return _parse_once(data)
    except (DurableError, EvidenceRejected) as error:
        raise ambiguous(f"{file}: {error.message}", file=file) from error


# every turn reads and hashes the evidence anew; only what the same bytes say is not found out again
_parse_once = lru_cache(maxsize=2)(parse_evidence)


def observe_runs_tip(layout: Layout) -> Tip:
    """Where the runs manifest ends, from its last line. Raises E_RECOVERY_AMBIGUOUS for a torn or foreign one."""
    numbers = segment_numbers(layout, "runs")
    if not numbers:
        return Tip()
    ((number, data),) = read_segments(layout, "runs", numbers[-1])
    try:
        fields, sha256 = last_line("runs", number, data)
    except ChainBroken as error:
        raise broken(error) from error
    seq = fields.get("seq")
    if type(seq) is not int:
        raise ambiguous(f"runs/{segment_name(number)}: the last line has no seq", file=f"runs/{segment_name(number)}")
    return Tip(number, seq, sha256, len(data))


def is_archived(layout: Layout, run_id: str) -> bool:
    """Whether the runs manifest, read to its end, has this run."""
    try:
        return any(line.fields.get("run_id") == run_id for line, _ in read_lines("runs", read_segments(layout, "runs")))
    except ChainBroken as error:
        raise broken(error) from error


def require_recorded(layout: Layout, archive: Archive, memory: Memory) -> None:
    """Raise E_RECOVERY_AMBIGUOUS where a manifest has less than the slots recorded: a chain that lost its end is whole."""
    slots = observe_slots(layout)
    for name, tip in (("cards", archive.cards_tip), ("runs", archive.runs_tip)):
        ends = [end for slot in slots if (end := getattr(slot, name)) is not None]
        last = max(ends, key=lambda end: end["last_seq"], default=None)
        if last is None or tip.seq > last["last_seq"]:  # more is no loss: an aborted run may have taken the last slot
            continue
        recorded = last["segment"], Digest(last["size"], last["sha256"])
        if tip.seq < last["last_seq"] or observe_last_segment(layout, name, memory) != recorded:
            file = f"{name}/{segment_name(last['segment'])}"
            raise ambiguous(f"{file} does not end where the last run left it, at line {last['last_seq']}", file=file)


def broken(error: ChainBroken) -> CollectorError:
    return ambiguous(str(error), file=f"{error.manifest}/{segment_name(error.segment)}", line=error.line)


def read_segments(layout: Layout, name: str, first: int = 1) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each segment from ``first`` on."""
    for number in segment_numbers(layout, name):
        if number < first:
            continue
        try:
            data = read_file(layout.segment(name, number))
        except DurableError as error:
            raise ambiguous(error.message, file=f"{name}/{segment_name(number)}") from error
        yield number, data or b""


def run_ids(layout: Layout) -> list[str]:
    """Runs that have a directory, finished or not; a file or a link of such a name is nobody's run."""
    names = [name for name in _names(layout.runs_directory) if NAME.fullmatch(name)]
    return [name for name in names if stat.S_ISDIR(os.lstat(layout.evidence(name).parent).st_mode)]


def observe_slot(layout: Layout, number: int) -> Slot | None:
    """One hour's terminal record, or None. Raises E_RECOVERY_AMBIGUOUS for a file that is not ours."""
    file = f"refresh/slots/{number:03d}.json"
    slot = _observe_document(layout.slot(number), file, parse_slot)
    if slot is not None and slot_of(slot.hour) != number:
        raise ambiguous(f"{file} is the record of slot {slot_of(slot.hour):03d}", file=file, pointer="/slot")
    return slot


def observe_latest(layout: Layout) -> Latest | None:
    return _observe_document(layout.latest, "refresh/latest.json", parse_latest)


def slots_half_written(layout: Layout) -> list[int]:
    """Numbers of the slots that have a temporary file."""
    names = {temporary_path(layout.slot(number)).name: number for number in range(SLOTS)} if _names_tmp(layout) else {}
    return [names[name] for name in _names_tmp(layout) if name in names]


def _names_tmp(layout: Layout) -> list[str]:
    return [name for name in _names(layout.slots_directory) if name.endswith(".tmp")]


def observe_slots(layout: Layout) -> list[Slot]:
    """The whole ring, in the order of the hours."""
    numbers = [int(name[:3]) for name in _names(layout.slots_directory) if _SLOT_NAME.fullmatch(name)]
    slots = [slot for number in numbers if (slot := observe_slot(layout, number)) is not None]
    return sorted(slots, key=lambda slot: hour_number(slot.hour))


def observe_slot_of_run(layout: Layout, run_id: str) -> Slot | None:
    """The terminal record of the run, as long as the ring has it; a begun run's hour need not be its evidence's."""
    return next((slot for slot in observe_slots(layout) if slot.run_id == run_id), None)


def _observe_document(path: Path, name: str, parse: Callable[[bytes], T]) -> T | None:
    try:
        data = read_file(path)
        return None if data is None else parse(data)
    except (JsonRejected, ShapeError) as error:
        raise ambiguous(f"{name} is not a record of ours: {error}", file=name, pointer=error.pointer) from error
    except DurableError as error:
        raise ambiguous(f"{name}: {error.message}", file=name) from error


def describe(facts: Mapping[str, object]) -> dict[str, str]:
    """Facts as words, for an error's detail."""
    return {key: str(getattr(value, "value", value)) for key, value in facts.items()}
