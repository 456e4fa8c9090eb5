"""Writes what a row decided, one function an action. Each ends durable before pending says that it is done.

Which crash each order survives stands at the line that makes it so. Nothing here decides: a primitive that finds
something else than it was told raises, and the disk stays for the next reopen.
"""

from __future__ import annotations

import errno
import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from killpoints import Point, attempt
from product.collector import observe, points
from product.collector.claims import Claim, ClaimState, Item, LockRecord, Takeover, TakeoverPhase
from product.collector.errors import CollectorError, ambiguous
from product.collector.layout import MANIFESTS, MARKER_BYTES, Layout, slot_of
from product.collector.leftovers import LeftoverList
from product.collector.manifests import SEGMENT_MAX_BYTES
from product.collector.records import Pending, Phase
from product.collector.slots import Latest, Slot, may_write, parse_slot
from product.collector.states import Attempt
from product.collector.transaction import build_transaction
from product.durable.errors import UnexpectedContent
from product.durable.files import (
    Digest,
    clear_temporary,
    make_directory,
    move_new,
    put,
    put_exchanged,
    put_new,
    read_file,
    remove,
)
from product.durable.identity import ProcessIdentity


def now_text() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(slots=True)
class Desk:
    """What every action needs: where, who, how large a segment may grow, and the warnings it leaves."""

    layout: Layout
    me: ProcessIdentity
    segment_max_bytes: int = SEGMENT_MAX_BYTES
    warnings: list[dict[str, object]] = field(default_factory=list)
    memory: observe.Memory = field(default_factory=observe.Memory)


def write_pending(desk: Desk, pending: Pending, point: Point) -> None:
    put(desk.layout.pending, pending.advanced(updated_at=now_text()).data, point=point)


def make_layout(desk: Desk) -> None:
    """Every directory and the quarantine's marker; only while nothing is in flight (V004 section 1)."""
    layout = desk.layout
    for directory in layout.directories():
        make_directory(directory, point=points.DIRECTORY)
    if read_file(layout.marker) is None:
        put_new(layout.marker, MARKER_BYTES, point=points.MARKER)


def store_evidence(desk: Desk, run_id: str, data: bytes) -> None:
    """Keep the exact bytes. Another run's evidence under this id is refused, the same bytes are taken as stored."""
    path = desk.layout.evidence(run_id)
    make_directory(path.parent, point=points.RUN_DIRECTORY)
    stored = read_file(path)
    if stored is None:
        put_new(path, data, point=points.EVIDENCE)
    elif stored != data:
        raise CollectorError("E_RUN_ID_TAKEN", f"run {run_id} is stored with other evidence", file=str(path))


def new_lock_record(desk: Desk, pending: Pending, generation: int) -> LockRecord:
    return LockRecord(
        pending.task_id,
        pending.run_id,
        pending.owner_nonce,
        pending.transaction_id,
        generation,
        desk.me,
        now_text(),
    )


def new_token() -> str:
    """64 random lowercase hex digits: a nonce, a transaction id."""
    return secrets.token_hex(32)


def create_lock(desk: Desk, pending: Pending) -> None:
    """C1. Pending knows these bytes already, so a crash never leaves a lock that pending does not know."""
    assert pending.claim is not None
    _create(desk, pending.claim.record, points.LOCK_CREATED)


def create_new_lock(desk: Desk, pending: Pending) -> None:
    """T5."""
    assert pending.takeover.new is not None
    _create(desk, pending.takeover.new, points.NEW_LOCK)


def _create(desk: Desk, record: LockRecord, point: Point) -> None:
    try:
        put_new(desk.layout.formal_lock, record.data, point=point)
    except FileExistsError as error:
        raise ambiguous("a formal lock appeared that is not ours", file=desk.layout.formal_lock.name) from error


def advance_held(desk: Desk, pending: Pending) -> None:
    """C3."""
    assert pending.claim is not None
    write_pending(desk, pending.advanced(claim=Claim(ClaimState.HELD, pending.claim.record)), points.HELD)


def plan_takeover(desk: Desk, pending: Pending, materialised: bool) -> None:
    """C2, C4, C6, T11: freezes only what does not depend on who recovers.

    In RELEASING the phase goes back to TERMINAL in the same write, so that this takeover's own item is cleaned too.
    """
    assert pending.claim is not None
    takeover = Takeover(
        TakeoverPhase.TAKEOVER_PLANNED,
        pending.takeover.claim_attempt,
        pending.claim.record,
        materialised,
        now_text(),
    )
    phase = Phase.TERMINAL if pending.phase is Phase.RELEASING else pending.phase
    write_pending(desk, pending.advanced(takeover=takeover, phase=phase), points.TAKEOVER_PLANNED)


def rename_old(desk: Desk, pending: Pending) -> None:
    """T1. Death after it leaves ABSENT and EXACT: row T2."""
    old = pending.takeover.old
    assert old is not None
    _quarantine(desk, pending.takeover.quarantine_path, Digest.of(old.data), points.RENAME)


def rename_attempt(desk: Desk, pending: Pending) -> None:
    """T8. Death after it leaves the file unlisted: row T6 finds it by its exact name and lists it."""
    item = observe.planned_item(pending)
    assert item is not None
    _quarantine(desk, item.path, item.digest, points.ATTEMPT_RENAME)


def _quarantine(desk: Desk, name: str, expected: Digest, point: Point) -> None:
    layout = desk.layout
    try:
        observe.require_archive_volume(layout, layout.quarantine)
        move_new(layout.formal_lock, layout.archive / name, expected=expected, point=point)
    except FileExistsError as error:
        raise ambiguous(f"{name} is there already", file=name) from error
    except OSError as error:
        if error.errno == errno.EXDEV:
            raise CollectorError("E_FORMAL_LOCK_VOLUME_IDENTITY", str(error), file=name) from error
        raise


def advance_quarantined(desk: Desk, pending: Pending) -> None:
    """T2: pending lists the old lock before anything new is planned."""
    takeover = pending.takeover
    assert takeover.old is not None
    item = Item(takeover.quarantine_path, Digest.of(takeover.old.data))
    moved = Takeover(
        TakeoverPhase.OLD_LOCK_QUARANTINED, takeover.claim_attempt, takeover.old, True, takeover.planned_at
    )
    write_pending(
        desk,
        pending.advanced(takeover=moved, quarantined=(*pending.quarantined, item)),
        points.OLD_LOCK_QUARANTINED,
    )


def plan_create(desk: Desk, pending: Pending) -> None:
    """T3, T4: only now is the claim of this process made, and written before its lock exists."""
    _bind(desk, pending, pending.takeover.claim_attempt, pending.quarantined, points.CREATE_PLANNED)


def rebind(desk: Desk, pending: Pending, attempt_there: bool) -> None:
    """T6: the same generation for this process; a dead attempt's file that nobody listed yet is listed first."""
    item = observe.planned_item(pending)
    assert item is not None
    listed = (*pending.quarantined, item) if attempt_there else pending.quarantined
    _bind(desk, pending, pending.takeover.claim_attempt + 1, listed, points.REBOUND)


def _bind(desk: Desk, pending: Pending, claim_attempt: int, listed: tuple[Item, ...], point: Point) -> None:
    takeover = pending.takeover
    assert takeover.old is not None
    new = new_lock_record(desk, pending, takeover.old.recovery_generation + 1)
    bound = Takeover(
        TakeoverPhase.CREATE_PLANNED,
        claim_attempt,
        takeover.old,
        takeover.old_materialised,
        takeover.planned_at,
        new,
    )
    write_pending(desk, pending.advanced(takeover=bound, quarantined=listed), point)


def advance_new_held(desk: Desk, pending: Pending) -> None:
    """T7."""
    takeover = pending.takeover
    assert takeover.new is not None
    held = Takeover(
        TakeoverPhase.NEW_LOCK_HELD,
        takeover.claim_attempt,
        takeover.old,
        takeover.old_materialised,
        takeover.planned_at,
    )
    write_pending(
        desk,
        pending.advanced(claim=Claim(ClaimState.HELD, takeover.new), takeover=held),
        points.NEW_LOCK_HELD,
    )


def build_candidates(desk: Desk, pending: Pending) -> None:
    """X1: both candidates are on the disk before pending freezes their hashes."""
    layout = desk.layout
    bases = {name: _last_segment(layout, name) for name in MANIFESTS}
    assert desk.memory.archive is not None, "row X1 says that the material is sound"
    built = build_transaction(
        pending,
        observe.observe_evidence(layout, pending),
        desk.memory.archive,
        bases,
        desk.segment_max_bytes,
    )
    if built.cards is not None:
        put(layout.candidate("cards"), built.cards, point=points.CANDIDATE_CARDS)
    put(layout.candidate("runs"), built.runs, point=points.CANDIDATE_RUNS)
    write_pending(desk, built.pending, points.INTENT)


def _last_segment(layout: Layout, name: str) -> bytes:
    numbers = observe.segment_numbers(layout, name)
    return (read_file(layout.segment(name, numbers[-1])) or b"") if numbers else b""


def put_manifest(desk: Desk, pending: Pending, name: str, point: Point, point_new: Point) -> None:
    """X2, X3: never destroys what it did not check; a third party's write comes back and is refused."""
    layout, plan = desk.layout, pending.manifest(name)
    target, candidate = layout.segment(name, plan.segment), layout.candidate(name)
    assert plan.candidate is not None
    try:
        if plan.base is None:
            move_new(candidate, target, expected=plan.candidate, point=point_new)
        else:
            put_exchanged(candidate, target, base=plan.base, candidate_digest=plan.candidate, point=point)
    except (UnexpectedContent, FileExistsError) as error:
        raise ambiguous(f"{name}: {error}", file=f"{name}/{target.name}") from error


def remove_displaced(desk: Desk, pending: Pending) -> None:
    """X0."""
    for name in MANIFESTS:
        base = pending.manifest(name).base
        if base is not None and observe.observe_exact(desk.layout.candidate(name), base) is Attempt.EXACT:
            remove(desk.layout.candidate(name), expected=base, point=points.DISPLACED)


def advance_committed(desk: Desk, pending: Pending) -> None:
    """X4."""
    write_pending(desk, pending.advanced(phase=Phase.BUSINESS_COMMITTED), points.COMMITTED)


def settle(desk: Desk, pending: Pending) -> None:
    """X5: slot, then latest, then TERMINAL, which also folds the takeover: its items are from now on only to be cleaned."""
    assert pending.terminal is not None
    write_slot(desk, parse_slot(pending.terminal.data))
    folded = Takeover(claim_attempt=pending.takeover.claim_attempt)
    write_pending(desk, pending.advanced(phase=Phase.TERMINAL, takeover=folded), points.TERMINAL)


def write_slot(desk: Desk, slot: Slot) -> None:
    """The slot and, if it is the newest, latest. Repeating it changes nothing."""
    layout = desk.layout
    existing = observe.observe_slot(layout, slot_of(slot.hour))
    if existing != slot:
        if not may_write(existing, slot.hour):
            raise ambiguous("the slot of this hour holds another run", file=f"refresh/slots/{slot_of(slot.hour):03d}")
        put(layout.slot(slot_of(slot.hour)), slot.data, point=points.SLOT)
    latest, due = observe.observe_latest(layout), Latest.of(slot)
    if latest is None or (latest.hour <= due.hour and latest != due):
        write_latest(desk, due)


def write_latest(desk: Desk, latest: Latest) -> None:
    put(desk.layout.latest, latest.data, point=points.LATEST)


def clean(desk: Desk, pending: Pending) -> None:
    """X6: fold a takeover that came after the terminal record; else delete what is listed and go to RELEASING."""
    if pending.takeover.phase is not TakeoverPhase.NONE:
        folded = Takeover(claim_attempt=pending.takeover.claim_attempt)
        write_pending(desk, pending.advanced(takeover=folded), points.FOLDED)
        return
    failed = [item for item in pending.quarantined if not _delete(desk, item)]
    if failed:
        # written down before pending forgets them: a quarantine item that nobody accounts for is ambiguous
        known = observe.observe_leftovers(desk.layout)
        write_leftovers(desk, tuple({item.path: item for item in (*known, *failed)}.values()))
    write_pending(desk, pending.advanced(phase=Phase.RELEASING, quarantined=()), points.RELEASING)


def write_leftovers(desk: Desk, items: tuple[Item, ...]) -> None:
    put(desk.layout.leftovers, LeftoverList(items).data, point=points.LEFTOVERS)


def _delete(desk: Desk, item: Item) -> bool:
    """Whether the item is gone. Only what is exactly as listed is deleted; a failure is a warning and blocks nothing."""
    try:
        remove(desk.layout.archive / item.path, expected=item.digest, point=points.ITEM_REMOVED)
    except FileNotFoundError:
        return True
    except (OSError, UnexpectedContent) as error:
        fields: dict[str, object] = {"path": item.path, "sha256": item.digest.sha256, "why": str(error)}
        # one an item, however often it was tried
        others = [warning for warning in desk.warnings if warning["path"] != item.path]
        desk.warnings[:] = [*others, {"code": "W_STALE_LOCK_QUARANTINE", **fields}]
        return False
    return True


def retry_leftovers(desk: Desk) -> None:
    """What earlier runs could not delete, tried again while nothing is in flight."""
    leftovers = observe.observe_leftovers(desk.layout)
    left = tuple(item for item in leftovers if not _delete(desk, item))
    if left and left != leftovers:
        write_leftovers(desk, left)
    elif leftovers and not left:
        due = Digest.of(LeftoverList(leftovers).data)
        remove(desk.layout.leftovers, expected=due, point=points.LEFTOVERS_REMOVED)


def release(desk: Desk, pending: Pending) -> None:
    """X7: the lock goes before pending, so that a crash between leaves C7 and not a lock that nobody knows."""
    assert pending.claim is not None
    remove(desk.layout.formal_lock, expected=Digest.of(pending.claim.record.data), point=points.LOCK_REMOVED)
    remove_pending(desk, pending)


def remove_pending(desk: Desk, pending: Pending) -> None:
    """C7."""
    remove(desk.layout.pending, expected=Digest.of(pending.data), point=points.PENDING_REMOVED)


def aborted_slot(pending: Pending) -> Slot:
    return Slot(
        pending.task_id, pending.run_id, pending.transaction_id, pending.hour,
        "ABORTED", 0, 0, None, None, None, None,
    )  # fmt: skip


def abort_begun(desk: Desk, pending: Pending) -> None:
    """B2: a run that was begun and never committed ends as ABORTED in its own hour; the archive is not touched."""
    slot = aborted_slot(pending)
    existing = observe.observe_slot(desk.layout, slot_of(pending.hour))
    if existing == slot or may_write(existing, pending.hour):
        write_slot(desk, slot)
    remove_pending(desk, pending)


def sweep_temporaries(desk: Desk, everywhere: bool) -> None:
    """Remove temporary files that a dead writer left; only while nothing is in flight and we hold the StateLock."""
    layout = desk.layout
    paths = [layout.pending, layout.latest, layout.leftovers, layout.formal_lock, layout.marker]
    paths += [layout.candidate(name) for name in MANIFESTS]
    if everywhere:
        paths += [layout.slot(number) for number in observe.slots_half_written(layout)]
        paths += [layout.evidence(run_id) for run_id in observe.run_ids(layout)]
    attempt(points.SWEPT, _clear_all, paths)


def _clear_all(paths: list[Path]) -> None:
    for path in paths:
        clear_temporary(path)
