"""What a user calls: scan, watch, show, check, adopt. Each returns the fields of one JSON answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from product.durable.cursor import Durability
from product.durable.errors import JsonRejected, StateLocked
from product.durable.kernel_lock import KernelLock
from product.durable.paths import require_plain_directory
from product.signals import drive, observe, perform, points
from product.signals.errors import SignalsError
from product.signals.layout import Layout
from product.signals.states import Claim
from product.signals.tally import Tally
from product.signals.watch import Look, follow, look

BATCH_BYTES = 64 * 2**20
Answer = dict[str, object]


@dataclass(frozen=True, slots=True)
class Saving:
    """How a command that writes does it. ``wait_s``: for the lock."""

    durability: Durability = Durability.POWER
    wait_s: float = 0.0
    batch_bytes: int = BATCH_BYTES


@contextmanager
def locked(layout: Layout, wait_s: float) -> Iterator[None]:
    """Hold the lock over the checked state directory. Every command that writes goes through here."""
    require_plain_directory(layout.state)
    with KernelLock(layout.lock, points=points.LOCK, wait_s=wait_s):
        yield


def scan(layout: Layout, file: Path, saving: Saving) -> Answer:
    """Count what is new in the file. The first scan makes the state directory."""
    with observe.opened_source(file) as source:
        require_plain_directory(layout.state.parent)
        perform.make_state(layout)
        with locked(layout, saving.wait_s):
            store = perform.store_of(layout, saving.durability)
            done = drive.scan(layout, store, source, saving.batch_bytes)
    progress = done.progress
    return {
        "rows": [done.row],
        "read": progress.lines_read,
        "counted": progress.lines_applied - done.rejected,
        "rejected": done.rejected,
        "replayed": progress.lines_read - progress.lines_applied,
        "epoch": progress.epoch,
        "applied": progress.applied,
        "offset": progress.offset,
        "keys": len(done.tally.counts),
        "rejected_so_far": _rejected(done.tally),
        "durability": saving.durability.value,
    }


def watch(layout: Layout, file: Path, saving: Saving) -> Iterator[Answer]:
    """Scan now, and again whenever the file has changed: an answer for each scan that read something. Without end."""
    scanned: Look | None = None
    for _ in follow(file):
        seen = look(file)
        if seen == scanned:
            continue
        try:
            answer = scan(layout, file, saving)
        except StateLocked:  # somebody else counts; who knows how far: look again
            continue
        if answer["read"] or scanned is None:
            yield answer
        scanned = seen


def show(layout: Layout, top: int | None) -> Answer:
    """How often each key was seen, the most frequent first. Takes no lock: one document is always whole."""
    require_plain_directory(layout.state)
    try:
        seen = observe.observe_counts(layout)
    except JsonRejected as error:
        raise SignalsError("E_SIGNAL_STATE", error.message, file=str(layout.counts)) from error
    tally, evidence = seen or (Tally(), None)
    ranked = sorted(tally.counts.items(), key=lambda item: (-item[1], item[0]))
    return {
        "counts": dict(ranked[:top]),
        "keys": len(tally.counts),
        "total": sum(tally.counts.values()),
        "epoch": evidence.epoch if evidence else 1,
        "applied": evidence.applied if evidence else 0,
        "rejected": _rejected(tally),
    }


def check(layout: Layout, file: Path) -> Answer:
    """Recount the file from zero and compare. Takes no lock and writes nothing; a scan may go on meanwhile."""
    require_plain_directory(layout.state)
    with observe.opened_source(file) as source:
        seen = observe.observe(layout, source)
        row = drive.require_resumable(layout, seen)
        again = drive.require_recount(source, seen, row.label)
        applied = seen.found.evidence.applied if seen.found.evidence else 0
    return {
        "rows": [row.label],
        "agrees": True,
        "applied": applied,
        "offset": seen.found.position.offset if seen.found.position else 0,
        "keys": len(again.counts),
        "total": sum(again.counts.values()),
        "rejected": _rejected(again),
    }


def adopt(layout: Layout, file: Path, claim: Claim, saving: Saving) -> Answer:
    """Accept another file, or another history of it, on purpose."""
    with observe.opened_source(file) as source, locked(layout, saving.wait_s):
        store = perform.store_of(layout, saving.durability)
        row, changed = drive.adopt(layout, store, source, claim)
    return {"rows": [row], "already": not changed}


def _rejected(tally: Tally) -> Answer:
    return {reason: {"count": entry.count, "first": entry.first} for reason, entry in sorted(tally.rejected.items())}
