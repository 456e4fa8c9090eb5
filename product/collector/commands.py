"""What a user calls: begin, commit, recover, status, import-feed; upkeep.py has the others. Each returns the fields of one
JSON answer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from killpoints import reach
from product.collector import inventory, observe, perform, points
from product.collector.claims import Claim, ClaimState
from product.collector.drive import Journey, drive
from product.collector.errors import CollectorError, ambiguous
from product.collector.evidence import Evidence, hour_of, parse_evidence
from product.collector.feed import evidence_from_feed
from product.collector.index import open_archive
from product.collector.layout import MANIFESTS, Layout, hour_number, slot_of
from product.collector.manifests import SEGMENT_MAX_BYTES
from product.collector.perform import Desk
from product.collector.records import EvidenceFile, Pending, Phase
from product.collector.slots import Latest, Slot, may_write
from product.collector.states import Present
from product.collector.transaction import join, plan_base
from product.durable.files import Digest, put_new, read_file
from product.durable.identity import own_identity
from product.durable.lock import StateLock
from product.durable.rename import probe_renames

INPUT_MAX_BYTES = 8 * 1024 * 1024
Answer = dict[str, object]


@contextmanager
def opened(layout: Layout, run_id: str, wait_s: float, segment_max_bytes: int = SEGMENT_MAX_BYTES) -> Iterator[Desk]:
    """Hold the StateLock over the two checked roots. Every command that writes goes through here."""
    observe.require_plain_layout(layout)
    with locked(layout, run_id, wait_s):
        observe.observe_marker(layout)
        yield Desk(layout, own_identity(), segment_max_bytes)


def locked(layout: Layout, run_id: str, wait_s: float) -> StateLock:
    return StateLock(
        layout.state_lock,
        layout.owner,
        layout.owner_quarantine,
        run_id=run_id,
        points=points.STATE,
        wait_s=wait_s,
    )


def read_input(path: str) -> bytes:
    """A file that the user names. Raises CollectorError E_INPUT when it cannot be read or is over 8 MiB."""
    try:
        with open(path, "rb") as file:
            data = file.read(INPUT_MAX_BYTES + 1)
    except OSError as error:
        raise CollectorError("E_INPUT", f"cannot read {path}: {error.strerror}", file=path) from error
    if len(data) > INPUT_MAX_BYTES:
        raise CollectorError("E_INPUT", f"{path} is over {INPUT_MAX_BYTES} bytes", file=path)
    return data


def begin(layout: Layout, *, task_id: str, run_id: str, at: datetime, wait_s: float) -> Answer:
    """Take the hour for a run whose evidence is still to come: pending BEGUN."""
    hour = hour_text(at)
    with opened(layout, run_id, wait_s) as desk:
        if observe.observe_presence(layout.candidates) is not Present.PRESENT:
            probe_renames(layout.archive)
        journey = recover_first(desk)
        if (done := observe.observe_slot_of_run(layout, run_id)) is not None:
            raise _taken(run_id, f"it ended as {done.state} in the hour {done.hour}")
        _require_slot(layout, hour)
        if journey.waiting is not None:
            perform.remove_pending(desk, journey.waiting)  # superseded within its hour: it never had evidence
        perform.make_layout(desk)
        pending = Pending(
            task_id, run_id, perform.new_token(), perform.new_token(), hour, Phase.BEGUN, perform.now_text()
        )
        perform.write_pending(desk, pending, points.BEGUN)
        return {"task_id": task_id, "run_id": run_id, "hour": hour, "slot": slot_of(hour), "state": "BEGUN",
                "rows": journey.rows, "warnings": desk.warnings}  # fmt: skip


def commit(layout: Layout, *, evidence_file: str, wait_s: float, segment_max_bytes: int) -> Answer:
    """Append the new posts of the evidence, once, whatever died before."""
    data = read_input(evidence_file)
    evidence = parse_evidence(data)
    with opened(layout, evidence.run_id, wait_s, segment_max_bytes) as desk:
        journey = recover_first(desk, committing=evidence.run_id)
        begun = journey.waiting if journey.waiting and journey.waiting.run_id == evidence.run_id else None
        hour = begun.hour if begun else hour_of(evidence)
        done = observe.observe_slot_of_run(layout, evidence.run_id)
        if done is not None and done.evidence_sha256 == Digest.of(data).sha256:
            return _finished(desk, done, journey, already=True)
        _require_run_id(layout, evidence.run_id, data, done)
        _require_slot(layout, hour)
        pending = _prepare(desk, evidence, data, hour, begun)
        if journey.waiting is not None and begun is None:
            perform.remove_pending(desk, journey.waiting)
        reach(points.BEFORE_PLANNED)
        perform.write_pending(desk, pending, points.PLANNED)
        rows = list(journey.rows)
        journey = drive(desk)
        journey.rows[:0] = rows
        assert journey.finished is not None
        return _finished(desk, journey.finished, journey, already=False)


def _prepare(desk: Desk, evidence: Evidence, data: bytes, hour: str, begun: Pending | None) -> Pending:
    """Everything before pending PREPARED: the archive is read and the evidence stored, nothing formal is touched."""
    layout = desk.layout
    for name in MANIFESTS:
        if observe.observe_presence(layout.candidate(name)) is Present.PRESENT:
            file = f"{layout.candidates.name}/{layout.candidate(name).name}"
            raise ambiguous(f"{file} is there, though nothing is in flight", file=file)
    if observe.observe_presence(layout.candidates) is Present.ABSENT:
        probe_renames(layout.archive)
    perform.make_layout(desk)
    archive = desk.memory.archive = open_archive(layout)
    observe.require_recorded(layout, archive, desk.memory)
    token = (begun.owner_nonce, begun.transaction_id) if begun else (perform.new_token(), perform.new_token())
    tips = {"cards": archive.cards_tip, "runs": archive.runs_tip}
    plans = {
        name: plan_base(tips[name], observe.observe_last_segment(layout, name, desk.memory)[1], desk.segment_max_bytes)
        for name in MANIFESTS
    }
    pending = Pending(
        evidence.task_id,
        evidence.run_id,
        *token,
        hour,
        Phase.PREPARED,
        perform.now_text(),
        evidence=EvidenceFile(layout.evidence_name(evidence.run_id), Digest.of(data)),
        cards=plans["cards"],
        runs=plans["runs"],
    )
    join(evidence, archive)  # refuses what contradicts the archive: past PREPARED recovery only goes forward
    perform.store_evidence(desk, evidence.run_id, data)
    return pending.advanced(claim=Claim(ClaimState.PLANNED, perform.new_lock_record(desk, pending, 0)))


def recover(layout: Layout, *, wait_s: float, segment_max_bytes: int) -> Answer:
    """Finish what a dead process left; with nothing in flight, say so and change nothing."""
    with opened(layout, "recover", wait_s, segment_max_bytes) as desk:
        journey = recover_first(desk, everywhere=True)
        if journey.finished is not None:
            return _finished(desk, journey.finished, journey, already=False)
        state = "BEGUN" if journey.waiting else "NOTHING"
        run_id = journey.waiting.run_id if journey.waiting else None
        return {"run_id": run_id, "state": state, "rows": journey.rows, "warnings": desk.warnings}


def recover_first(desk: Desk, everywhere: bool = False, committing: str | None = None) -> Journey:
    """What every writing command does first: finish what a dead one left, clear its temporary files, settle latest."""
    journey = drive(desk, committing)
    if journey.waiting is None:
        perform.sweep_temporaries(desk, everywhere)
        perform.retry_leftovers(desk)
    _reconcile_latest(desk)
    return journey


def _reconcile_latest(desk: Desk) -> None:
    due = find_latest_due(desk.layout)
    if due is not None:
        perform.write_latest(desk, due)


def find_latest_due(layout: Layout) -> Latest | None:
    """latest.json missing or behind is rebuilt from the slots; ahead of them is ambiguous. None: it is right."""
    latest, slots = observe.observe_latest(layout), observe.observe_slots(layout)
    due = Latest.of(slots[-1]) if slots else None
    if latest == due:
        return None
    if due is None or (latest is not None and latest.hour >= due.hour):
        raise ambiguous("latest.json points at a slot that is not there", file="refresh/latest.json")
    return due


def status(layout: Layout) -> Answer:
    """What is in flight and what was last. Reads only, takes no lock."""
    observe.require_plain_layout(layout)
    pending, latest = observe.observe_pending(layout), observe.observe_latest(layout)
    return {
        "pending": None if pending is None else describe_pending(pending),
        "formal_lock": observe.observe_presence(layout.formal_lock).value,
        "latest": None if latest is None else {"hour": latest.hour, "run_id": latest.run_id, "state": latest.state},
        "segments": {name: len(observe.segment_numbers(layout, name)) for name in MANIFESTS},
    }


def describe_pending(pending: Pending) -> Answer:
    claim = pending.claim
    return {
        "task_id": pending.task_id,
        "run_id": pending.run_id,
        "hour": pending.hour,
        "phase": pending.phase.value,
        "claim_state": claim.state.value if claim else None,
        "takeover": pending.takeover.phase.value,
        "recovery_generation": claim.record.recovery_generation if claim else None,
        "claim_attempt": pending.takeover.claim_attempt,
        "quarantined": [item.path for item in pending.quarantined],
    }


def import_feed(
    *, feed_file: str, out: str | None, task_id: str, run_id: str, at: datetime, cursor_before: str | None
) -> Answer:
    """Turn a feed answer into evidence: written to ``out`` (never over a file that is there), or part of the answer."""
    data = evidence_from_feed(
        read_input(feed_file),
        task_id=task_id,
        run_id=run_id,
        observed_at=at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        cursor_before=cursor_before,
    )
    evidence = parse_evidence(data)
    answer: Answer = {
        "task_id": task_id,
        "run_id": run_id,
        "hour": hour_of(evidence),
        "cards": sum(len(observation.cards) for observation in evidence.observations),
        "unparsed_nodes": sum(len(observation.unparsed_nodes) for observation in evidence.observations),
        "sha256": Digest.of(data).sha256,
    }
    if out is None:
        return answer | {"evidence": data.decode()}
    try:
        put_new(Path(out), data, point=None)  # whole or not at all: half of it would look like evidence
    except FileExistsError as error:
        raise CollectorError("E_INPUT", f"{out} is there already; name a file that is not", file=out) from error
    return answer | {"out": out}


def hour_text(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:00:00Z")


def _require_run_id(layout: Layout, run_id: str, data: bytes, done: Slot | None) -> None:
    """A run id belongs to the evidence that it was first sent with, for good."""
    if done is not None:
        raise _taken(run_id, f"it ended as {done.state} in the hour {done.hour}, not with this evidence")
    stored = read_file(layout.evidence(run_id))
    if stored not in (None, data):
        raise _taken(run_id, "it is stored with other evidence")
    if stored is not None and observe.is_archived(layout, run_id):
        raise _taken(run_id, "it is archived, and its slot has been reused since")
    if (moved := inventory.find_archived(layout, run_id)) is not None:
        raise _taken(run_id, f"it is archived, with the evidence in {moved}")


def _taken(run_id: str, why: str) -> CollectorError:
    return CollectorError("E_RUN_ID_TAKEN", f"run id {run_id} is taken: {why}", run_id=run_id)


def _require_slot(layout: Layout, hour: str) -> None:
    existing = observe.observe_slot(layout, slot_of(hour))
    if not may_write(existing, hour):
        assert existing is not None
        raise CollectorError(
            "E_SLOT_TAKEN",
            f"the hour {hour} shares slot {slot_of(hour):03d} with {existing.hour} of run {existing.run_id}",
            hour=hour,
            taken_by=existing.run_id,
            free_from_hour_number=hour_number(existing.hour) + 168,
        )


def _finished(desk: Desk, slot: Slot, journey: Journey, *, already: bool) -> Answer:
    return {
        "task_id": slot.task_id,
        "run_id": slot.run_id,
        "transaction_id": slot.transaction_id,
        "hour": slot.hour,
        "slot": slot_of(slot.hour),
        "state": slot.state,
        "cards_appended": slot.cards_appended,
        "no_new_token": slot.no_new_token,
        "already": already,
        "rows": journey.rows,
        "warnings": desk.warnings,
    }


def roots(state_dir: str | None, archive_dir: str | None) -> Layout:
    """The two roots from flags or environment. Raises CollectorError E_CONFIG when one is not given."""
    given = {
        "--state-dir": state_dir or os.environ.get("COLLECTOR_STATE_DIR"),
        "--archive-dir": archive_dir or os.environ.get("COLLECTOR_ARCHIVE_DIR"),
    }
    for flag, value in given.items():
        if not value:
            variable = f"COLLECTOR_{flag[2:].replace('-', '_').upper()}"
            raise CollectorError("E_CONFIG", f"give {flag} or set {variable}", option=flag)
    state, archive = (Path(str(value)) for value in given.values())
    for flag, path in zip(given, (state, archive), strict=True):
        if not path.is_absolute() or path.root == "//":  # POSIX leaves open where two slashes lead
            raise CollectorError("E_CONFIG", f"{flag} must be an absolute path, not {str(path)!r}", option=flag)
    if state == archive or state in archive.parents or archive in state.parents:
        raise CollectorError("E_CONFIG", "the state and the archive directory must not lie in each other")
    return Layout(state, archive)
