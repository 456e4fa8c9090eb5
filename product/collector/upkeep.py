"""What a user calls beside the runs: check, explain, move-completed, handoff. Each returns the fields of one JSON answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from product.collector import bundle, bundling, checking, explaining, inventory, moving, observe, perform
from product.collector.chains import Finding
from product.collector.commands import (
    Answer,
    describe_pending,
    find_latest_due,
    locked,
    opened,
    recover_first,
)
from product.collector.drive import decide
from product.collector.errors import CollectorError
from product.collector.layout import Layout
from product.collector.records import Pending, Phase
from product.collector.states import Action
from product.durable.owner import OWNER_TABLE, observe_owner
from product.durable.paths import require_plain_directory

SNAPSHOTS_MOST = 10


def check(layout: Layout, *, wait_s: float) -> Answer:
    """Verify everything; nothing is written but the StateLock's own files. Raises E_CHECK_FAILED with all findings."""
    require_plain_directory(layout.state)
    require_plain_directory(layout.archive)
    with locked(layout, "check", wait_s):
        report = checking.check(inventory.observe_inventory(layout), _find_ambiguous_row(layout))
    pending = None if report.pending is None else describe_pending(report.pending)
    beside: Answer = {"counts": report.counts, "pending": pending}
    _require_sound(report.findings, beside)
    return {"findings": [], **beside}


def _require_sound(findings: Sequence[Finding], beside: Answer) -> None:
    if findings:
        count = f"{len(findings)} findings" if len(findings) > 1 else "one finding"
        error = CollectorError("E_CHECK_FAILED", f"{count}, the first: {findings[0]}")
        error.beside = {"findings": [finding.as_json() for finding in findings], **beside}
        raise error


def _find_ambiguous_row(layout: Layout) -> Finding | None:
    """What is in flight is no finding, unless no row of the tables knows what to do with it."""
    name = "refresh/pending.json"
    try:
        pending = observe.observe_pending(layout)
        if pending is None or pending.phase is Phase.BEGUN:
            return None
        decision = decide(layout, pending, datetime.now(UTC), _read_memory(layout, pending))
    except CollectorError as error:
        return Finding("K_ROW", str(error.detail.get("file", name)), None, error.message)
    if decision.action is not Action.REFUSE_AMBIGUOUS:
        return None
    found = ", ".join(f"{key} {value}" for key, value in observe.describe(decision.facts).items())
    words = f"row {decision.labels[-1]}: {found}" + (f"; {decision.unsound}" if decision.unsound else "")
    return Finding("K_ROW", name, None, words)


def _read_memory(layout: Layout, pending: Pending | None) -> observe.Memory:
    """As the engine reads it before its first turn, without the index, which is only a writer's."""
    memory = observe.Memory()
    if pending is not None and pending.phase is Phase.PREPARED:
        try:
            memory.archive = inventory.read_archive(layout)
        except CollectorError as error:
            memory.unsound = error.message
    return memory


def explain(layout: Layout) -> Answer:
    """Which row applies now, who holds what, what is in the way. Reads only and takes no lock: somebody may be at work.

    What they change under the reading is read again, a few times; then the answer is of a moment.
    """
    observe.require_plain_layout(layout)
    for _ in range(SNAPSHOTS_MOST):
        before = inventory.read(layout.pending)
        view = _view(layout)
        if inventory.read(layout.pending) == before:
            break
    pending = None if view.pending is None else describe_pending(view.pending)
    return {**explaining.explain(view), "pending": pending, "words": explaining.in_words(view)}


def _view(layout: Layout) -> explaining.View:
    pending, decision, fault, holder = None, None, None, None
    try:
        pending = observe.observe_pending(layout)
        decision = decide(layout, pending, datetime.now(UTC), _read_memory(layout, pending))
    except CollectorError as error:
        fault = error
    record = explaining.asked_holder(pending) if pending is not None else None
    if record is not None:
        holder = record, observe.observe_holder(record)
    others = []
    for look in (observe.observe_marker, find_latest_due):
        try:
            look(layout)
        except CollectorError as error:
            others.append(error)
    owner = observe_owner(layout.owner)
    owner_row = OWNER_TABLE.decide(metadata=owner.metadata, owner=owner.owner).label
    if decision is None:
        return explaining.View(pending, (), {}, "", holder, owner, owner_row, fault, others)
    facts, unsound = decision.facts, decision.unsound
    return explaining.View(pending, decision.rows, facts, unsound, holder, owner, owner_row, None, others)


def move_completed(layout: Layout, *, wait_s: float, segment_max_bytes: int) -> Answer:
    """Move the evidence of every run that is in the runs manifest into the archive. What no run has stays."""
    with opened(layout, "move-completed", wait_s, segment_max_bytes) as desk:
        journey = recover_first(desk, everywhere=True)
        completed = inventory.observe_completed(layout)
        there = sorted(observe.run_ids(layout))
        moved = moving.move_completed(desk, [completed[run_id] for run_id in there if run_id in completed])
        return {
            "moved": [run.as_json() for run in moved],
            "kept": [run_id for run_id in there if run_id not in completed],
            "rows": journey.rows,
            "warnings": desk.warnings,
        }


def handoff(layout: Layout, *, out: str, wait_s: float, segment_max_bytes: int) -> Answer:
    """A bundle of the archive as the directory ``out``: there whole, or not there. Only of an archive that is sound."""
    target = inventory.require_target(layout, out)
    with opened(layout, "handoff", wait_s, segment_max_bytes) as desk:
        journey = recover_first(desk, everywhere=True)
        found = inventory.observe_inventory(layout)
        report = checking.check(found, None)
        # what nothing accounts for is not copied, and so not in the way
        _require_sound([finding for finding in report.findings if finding.code != checking.STRAY], {})
        files = bundle.plan_files(report, found)
        description = bundle.describe(report, files, perform.now_text())
        bundling.clear_leftover(target)
        sums = bundling.make_bundle(layout, target, files, description)
        told = json.loads(description)
        return {
            "out": str(target),
            "tasks": told["tasks"],
            "counts": told["counts"],
            "tips": told["tips"],
            "sums_sha256": sums.sha256,
            "rows": journey.rows,
            "warnings": desk.warnings,
        }
