"""The collector's wrong programs. Each function patches the running child and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import killpoints.actions
from product.collector import commands, drive, index, observe, perform, points
from product.collector.claims import TakeoverPhase
from product.collector.records import Phase
from product.collector.states import Clock, Content, Items, MainLock, Quarantine
from product.durable import files, rename
from product.durable.identity import Holder, own_identity
from tests.mutants.catalogue import mutant


@mutant("kill is a no-op", cells=["collector.first-commit/collector.claim.HELD#1=kill"])
def kill_is_a_no_op() -> None:
    def survive(_number: int) -> None:
        return None

    killpoints.actions._end_self = survive


@mutant("os.replace where a no-overwrite rename is due", cells=["*lock.created/tmp-synced#1=tamper:foreign-lock"])
def rename_overwrites() -> None:
    def replace(source: Path, target: Path) -> None:
        os.replace(source, target)

    def believe(_directory: Path) -> None:
        return None

    rename.rename_new = replace
    commands.probe_renames = believe


@mutant("what was written is not read back", cells=["*=tamper:cut-latest", "*=tamper:changed-lock"])
def read_back_skipped() -> None:
    def trust(_path: Path, _data: bytes) -> None:
        return None

    files._read_back = trust


@mutant("every owner but this process is taken for dead", cells=["collector.live-owner/*", "collector.reused-pid/*"])
def owner_not_asked() -> None:
    def answer(pid: int, created_at: str) -> Holder:
        me = own_identity()
        return Holder.SELF if (pid, created_at) == (me.pid, me.created_at) else Holder.DEAD

    observe.classify_holder = answer


@mutant("a dead attempt's file is not listed when the claim is rebound", cells=["collector.attempt-died/*"])
def attempt_not_listed() -> None:
    rebind = perform.rebind

    def forget(desk: Any, pending: Any, _attempt_there: bool) -> None:
        rebind(desk, pending, False)

    perform.rebind = forget


@mutant("what an exchange brought out is deleted unseen", cells=["*=tamper:changed-base"])
def base_not_checked() -> None:
    def trust(*_anything: object) -> None:
        return None

    files._require_exchanged = trust


# ---------------------------------------------------------------------------------------- order of lock and pending


@mutant(
    "the lock is created before pending knows it", cells=["collector.first-commit/collector.claim.PLANNED/tmp-*=kill"]
)
def lock_before_pending() -> None:
    write = perform.write_pending

    def early(desk: Any, pending: Any, point: Any) -> None:
        if point is points.PLANNED:
            files.put_new(desk.layout.formal_lock, pending.claim.record.data, point=None)
        write(desk, pending, point)

    perform.write_pending = early


@mutant(
    "pending says HELD before the lock is there", cells=["collector.first-commit/collector.lock.created/tmp-*=kill"]
)
def held_before_lock() -> None:
    create = perform.create_lock

    def late(desk: Any, pending: Any) -> None:
        perform.advance_held(desk, pending)
        create(desk, pending)

    perform.create_lock = late


@mutant(
    "BUSINESS_COMMITTED before runs are in place", cells=["collector.first-commit/collector.transaction.runs-new*=kill"]
)
def committed_before_runs() -> None:
    put = perform.put_manifest

    def late(desk: Any, pending: Any, name: str, point: Any, point_new: Any) -> None:
        if name == "runs":
            perform.advance_committed(desk, pending)
        put(desk, pending, name, point, point_new)

    perform.put_manifest = late


@mutant("TRANSACTION_INTENT before the candidates are written", cells=["*/collector.candidate.cards/tmp-*=kill"])
def intent_before_candidates() -> None:
    put = perform.put
    held: list[tuple[Path, bytes, Any]] = []

    def delay(path: Path, data: bytes, *, point: Any) -> None:
        if point in (points.CANDIDATE_CARDS, points.CANDIDATE_RUNS):
            held.append((path, data, point))
            return
        put(path, data, point=point)
        while point is points.INTENT and held:
            later, content, its_point = held.pop(0)
            put(later, content, point=its_point)

    perform.put = delay


@mutant("RELEASING removes pending before the lock", cells=["collector.first-commit/collector.release.pending*=kill"])
def pending_removed_first() -> None:
    def release(desk: Any, pending: Any) -> None:
        perform.remove_pending(desk, pending)
        due = files.Digest.of(pending.claim.record.data)
        files.remove(desk.layout.formal_lock, expected=due, point=points.LOCK_REMOVED)

    perform.release = release


@mutant("runs are put in place before cards", cells=["collector.first-commit/collector.transaction.*=kill"])
def runs_before_cards() -> None:
    put = perform.put_manifest
    swapped = {
        "cards": ("runs", points.RUNS, points.RUNS_NEW),
        "runs": ("cards", points.CARDS, points.CARDS_NEW),
    }

    def other(desk: Any, pending: Any, name: str, _point: Any, _point_new: Any) -> None:
        put(desk, pending, *swapped[name])

    perform.put_manifest = other


@mutant("latest is written before the slot", cells=["collector.first-commit/collector.terminal.latest*=kill"])
def latest_before_slot() -> None:
    write = perform.write_slot

    def early(desk: Any, slot: Any) -> None:
        perform.write_latest(desk, perform.Latest.of(slot))
        write(desk, slot)

    perform.write_slot = early


@mutant(
    "the quarantine is cleaned before the terminal record", cells=["collector.takeover-held/collector.terminal.*=kill"]
)
def quarantine_cleaned_early() -> None:
    settle = perform.settle

    def early(desk: Any, pending: Any) -> None:
        for item in pending.quarantined:
            (desk.layout.archive / item.path).unlink(missing_ok=True)
        settle(desk, pending)

    perform.settle = early


@mutant("evidence is not stored", cells=["collector.first-commit/collector.claim.PLANNED#1=kill"])
def evidence_not_stored() -> None:
    def forget(_desk: Any, _run_id: str, _data: bytes) -> None:
        return None

    perform.store_evidence = forget


@mutant(
    "the run is acknowledged before it is durable",
    cells=["collector.first-commit/collector.claim.before-PLANNED#1=kill"],
)
def acknowledged_early() -> None:
    prepare = commands._prepare

    def say(desk: Any, evidence: Any, data: bytes, hour: str, begun: Any) -> Any:
        print(f'{{"ok": true, "run_id": "{evidence.run_id}", "state": "NEW_APPENDED"}}', flush=True)
        return prepare(desk, evidence, data, hour, begun)

    commands._prepare = say


# -------------------------------------------------------------------------------------------------- who is alive


def _classify(change: Callable[[int, str, Holder], Holder]) -> None:
    classify = observe.classify_holder

    def answer(pid: int, created_at: str) -> Holder:
        return change(pid, created_at, classify(pid, created_at))

    observe.classify_holder = answer


@mutant("the owner is judged by its pid alone", cells=["collector.reused-pid/*", "*=tamper:holder-reused"])
def pid_alone() -> None:
    _classify(lambda _pid, _stamp, found: Holder.ALIVE if found is Holder.REUSED else found)


@mutant("an owner is dead when its lock is an hour old", cells=["collector.takeover-held/*"])
def judged_by_age() -> None:
    _classify(lambda _pid, _stamp, found: Holder.ALIVE if found is Holder.DEAD else found)


@mutant("the answer about an owner is kept", cells=["*=tamper:holder-alive-now"])
def answer_cached() -> None:
    kept: list[Holder] = []

    def once(_pid: int, _stamp: str, found: Holder) -> Holder:
        if found is not Holder.SELF:
            kept.append(found)
        return found if found is Holder.SELF else kept[0]

    _classify(once)


@mutant("a zombie is alive", cells=["*=tamper:holder-zombie"])
def zombie_alive() -> None:
    def look(pid: int, _stamp: str, found: Holder) -> Holder:
        there = found is Holder.DEAD and Path(f"/proc/{pid}").exists()
        return Holder.ALIVE if there else found

    _classify(look)


@mutant("an owner about whom nothing is proven is dead", cells=["*=tamper:holder-unproven"])
def unproven_is_dead() -> None:
    _classify(lambda _pid, _stamp, found: Holder.DEAD if found is Holder.UNPROVEN else found)


@mutant("a reused pid is a dead owner", cells=["collector.reused-pid/*", "*=tamper:holder-reused"])
def reused_is_dead() -> None:
    _classify(lambda _pid, _stamp, found: Holder.DEAD if found is Holder.REUSED else found)


@mutant("this process is taken for a dead one", cells=["collector.first-commit/collector.lock.created#1=kill"])
def self_is_dead() -> None:
    _classify(lambda _pid, _stamp, found: Holder.DEAD if found is Holder.SELF else found)


@mutant("times from the future are not looked at", cells=["*=tamper:future-claim"])
def future_ignored() -> None:
    def plausible(_pending: Any, _now: Any) -> Clock:
        return Clock.PLAUSIBLE

    observe.observe_clock = plausible


# --------------------------------------------------------------------------------------------------- the takeover


@mutant("the lock is taken over by unlink", cells=["collector.takeover-held/collector.takeover.*=kill"])
def takeover_by_unlink() -> None:
    def unlink(desk: Any, _pending: Any) -> None:
        desk.layout.formal_lock.unlink()

    perform.rename_old = unlink


@mutant("the old lock goes to the abolished place", cells=["collector.takeover-held/collector.takeover.rename*=kill"])
def old_quarantine_path() -> None:
    def move(desk: Any, name: str, expected: Any, point: Any) -> None:
        directory = desk.layout.refresh / "lock-recovery"
        directory.mkdir(exist_ok=True)
        files.move_new(desk.layout.formal_lock, directory / Path(name).name, expected=expected, point=point)

    perform._quarantine = move


@mutant("a quarantine file is overwritten", cells=["*=tamper:occupied-quarantine"])
def quarantine_overwritten() -> None:
    look = observe._observe_quarantine

    def lenient(layout: Any, pending: Any) -> Quarantine:
        found = look(layout, pending)
        return Quarantine.ABSENT if found is Quarantine.OTHER else found

    def replace_it(desk: Any, name: str, _expected: Any, _point: Any) -> None:
        os.replace(desk.layout.formal_lock, desk.layout.archive / name)

    observe._observe_quarantine = lenient
    perform._quarantine = replace_it


@mutant(
    "TAKEOVER_PLANNED freezes who will recover",
    cells=["collector.takeover-held/collector.takeover.TAKEOVER_PLANNED#1=kill"],
)
def new_holder_frozen() -> None:
    write = perform.write_pending

    def freeze(desk: Any, pending: Any, point: Any) -> None:
        if point is points.TAKEOVER_PLANNED:
            generation = pending.takeover.old.recovery_generation + 1
            new = perform.new_lock_record(desk, pending, generation)
            pending = pending.advanced(takeover=replace(pending.takeover, new=new))
        write(desk, pending, point)

    perform.write_pending = freeze


@mutant(
    "the dead claimant's identity is used again",
    cells=["collector.takeover-held/collector.takeover.CREATE_PLANNED#1=kill"],
)
def dead_identity_reused() -> None:
    fresh = perform.new_lock_record

    def stale(desk: Any, pending: Any, generation: int) -> Any:
        return pending.takeover.new or fresh(desk, pending, generation)

    perform.new_lock_record = stale


@mutant(
    "a dead attempt's file is listed only by the recovery that moved it",
    cells=["collector.attempt-died/collector.takeover.attempt-rename*=kill"],
)
def attempt_listed_by_its_mover() -> None:
    """From an empty archive it takes three crashes to show: the holder's, the claimant's, and one between the two steps."""
    rename, rebind = perform.rename_attempt, perform.rebind
    movers: set[int] = set()

    def remember(desk: Any, pending: Any) -> None:
        rename(desk, pending)
        movers.add(os.getpid())

    def forget(desk: Any, pending: Any, attempt_there: bool) -> None:
        rebind(desk, pending, attempt_there and os.getpid() in movers)

    perform.rename_attempt = remember
    perform.rebind = forget


@mutant("an attempt is not counted", cells=["collector.attempt-died/collector.takeover.rebound#1=kill"])
def attempt_not_counted() -> None:
    bind = perform._bind

    def forget(desk: Any, pending: Any, _attempt: int, listed: Any, point: Any) -> None:
        bind(desk, pending, pending.takeover.claim_attempt, listed, point)

    perform._bind = forget


@mutant("the generation starts again at 0", cells=["collector.takeover-held/collector.takeover.CREATE_PLANNED#1=kill"])
def generation_reset() -> None:
    fresh = perform.new_lock_record

    def reset(desk: Any, pending: Any, _generation: int) -> Any:
        return fresh(desk, pending, 0)

    perform.new_lock_record = reset


@mutant(
    "a takeover in RELEASING goes on releasing", cells=["collector.first-commit/collector.release.RELEASING#1=kill"]
)
def releasing_goes_on() -> None:
    write = perform.write_pending

    def stay(desk: Any, pending: Any, point: Any) -> None:
        if point is points.TAKEOVER_PLANNED and pending.phase is Phase.TERMINAL and not pending.quarantined:
            pending = pending.advanced(phase=Phase.RELEASING)
        write(desk, pending, point)

    perform.write_pending = stay


@mutant("what a dead exchange left beside is never removed", cells=["collector.exchange-died/*"])
def displaced_left() -> None:
    def leave(_desk: Any, _pending: Any) -> None:
        return None

    perform.remove_displaced = leave


# ----------------------------------------------------------------------------------------------------- third content


@mutant("third content at the lock's path is deleted", cells=["*=tamper:third-lock"])
def third_content_deleted() -> None:
    look = observe.observe_lock

    def clear(layout: Any, old: Any, new: Any) -> MainLock:
        found = look(layout, old, new)
        if found is MainLock.THIRD and layout.formal_lock.is_file():
            layout.formal_lock.unlink()
        return MainLock.ABSENT if found is MainLock.THIRD else found

    observe.observe_lock = clear


@mutant("third content is taken for the old claim", cells=["*=tamper:third-lock", "*=tamper:other-run-lock"])
def third_content_trusted() -> None:
    look = observe.observe_lock

    def trust(layout: Any, old: Any, new: Any) -> MainLock:
        found = look(layout, old, new)
        return MainLock.OLD if found is MainLock.THIRD else found

    observe.observe_lock = trust


@mutant("unlisted quarantine items are not looked at", cells=["*=tamper:foreign-quarantine", "*=tamper:changed-item"])
def items_ignored() -> None:
    def fine(_layout: Any, _pending: Any, _leftovers: Any) -> Items:
        return Items.EXACT

    observe.observe_items = fine


@mutant("pending that cannot be read is no pending", cells=["*=tamper:cut-pending"])
def pending_read_leniently() -> None:
    read = observe.observe_pending

    def lenient(layout: Any) -> Any:
        try:
            return read(layout)
        except commands.CollectorError:
            return None

    observe.observe_pending = lenient


@mutant("a candidate is not held against its hash", cells=["*=tamper:changed-candidate"])
def candidate_not_checked() -> None:
    look = observe._observe_manifest

    def trust(layout: Any, name: str, pending: Any, memory: Any) -> Any:
        found, displaced = look(layout, name, pending, memory)
        return (Content.BASE if found is Content.THIRD else found), displaced

    def believe(*_anything: object, **_more: object) -> None:
        return None

    observe._observe_manifest = trust
    files._require_durable = believe
    files._require_exchanged = believe


@mutant("a manifest is not held against its base", cells=["*=tamper:changed-cards", "*=tamper:changed-runs"])
def manifest_not_checked() -> None:
    def trust(found: Any, plan: Any) -> bool:
        return True

    def believe(*_anything: object, **_more: object) -> None:
        return None

    observe._is_base = trust
    files._require_exchanged = believe


@mutant("a taken slot is written again", cells=["collector.slot-taken/*"])
def slot_overwritten() -> None:
    def always(_existing: Any, _hour: str) -> bool:
        return True

    commands.may_write = perform.may_write = observe.may_write = always


# ------------------------------------------------------------------------------------------------ append and reopen


@mutant("known posts are appended again", cells=["collector.second-commit/*"])
def known_posts_appended() -> None:
    def unknown(_self: Any, _key: str) -> None:
        return None

    index._Lookup.post_of = unknown


@mutant("a reopen starts the transaction again", cells=["collector.first-commit/collector.transaction.*=kill"])
def transaction_restarted() -> None:
    write = perform.write_pending

    def restart(desk: Any, pending: Any, point: Any) -> None:
        if point is points.TAKEOVER_PLANNED and pending.phase is Phase.TRANSACTION_INTENT:
            memory = desk.memory
            plans = {
                name: replace(pending.manifest(name), base=observe.observe_last_segment(desk.layout, name, memory)[1],
                              candidate=None)
                for name in ("cards", "runs")
            }  # fmt: skip
            pending = pending.advanced(phase=Phase.PREPARED, proof=None, terminal=None, **plans)
        write(desk, pending, point)

    perform.write_pending = restart


@mutant("a run that is done is not recognised", cells=["collector.first-commit/collector.state.released#1=kill"])
def done_not_recognised() -> None:
    def nobody(_layout: Any, _run_id: str) -> None:
        return None

    observe.observe_slot_of_run = nobody


@mutant("recovery never ends", cells=["collector.first-commit/collector.transaction.runs-new#1=kill"])
def recovery_never_ends() -> None:
    def stand_still(_desk: Any, _pending: Any) -> None:
        return None

    perform.advance_committed = stand_still


@mutant("a refusal leaves a note", cells=["collector.live-owner/*"])
def refusal_leaves_a_trace() -> None:
    refuse = drive._refusal

    def noted(decision: Any) -> Any:
        state = Path(os.environ["COLLECTOR_STATE_DIR"])
        with (state / "refresh/refusals.log").open("a") as file:
            file.write(decision.rows[-1].label + "\n")
        return refuse(decision)

    drive._refusal = noted


@mutant("the tables are asked one after the other", cells=["*=tamper:changed-evidence", "*=tamper:cut-latest"])
def refusal_comes_late() -> None:
    decide = drive.decide

    def eager(*arguments: Any) -> Any:
        decision = decide(*arguments)
        pending = arguments[1]
        if decision.rows[-1].label == "X-AMBIGUOUS" and pending.takeover.phase is not TakeoverPhase.NEW_LOCK_HELD:
            sound = observe.TransactionFacts(Content.BASE, Content.BASE, observe.Displaced.NONE, observe.Material.SOUND)
            look, observe.observe_transaction = observe.observe_transaction, lambda *_: sound
            phase, fresh = pending.phase, pending.advanced(phase=Phase.PREPARED)
            try:
                first = decide(arguments[0], fresh if phase is not Phase.RELEASING else pending, *arguments[2:])
            finally:
                observe.observe_transaction = look
            return first if first.action.name.startswith("PLAN_TAKEOVER") else decision
        return decision

    drive.decide = eager


@mutant("temporary files of a dead writer stay", cells=["collector.begin/collector.pending.BEGUN/tmp-*=kill"])
def temporaries_left() -> None:
    def leave(_desk: Any, _everywhere: bool) -> None:
        return None

    perform.sweep_temporaries = leave


@mutant("what could not be deleted is not written down", cells=["collector.leftover/*"])
def leftovers_forgotten() -> None:
    def forget(_desk: Any, _items: Any) -> None:
        return None

    perform.write_leftovers = forget


@mutant("an index of anything is believed", cells=["*=tamper:cut-index", "*=tamper:nul-index"])
def index_believed() -> None:
    def never(*_anything: object) -> None:
        return None

    def trusting(self: Any, ask: Callable[[], Any]) -> Any:
        return ask()

    index._Lookup._trusting = trusting


# ------------------------------------------------------------------------------------------- what no cell can show


@mutant(
    "directories are not synced",
    cells=[],
    excuse="SIGKILL loses nothing that the kernel has; only a power cut shows it. tests/durable/test_call_order.py does",
)
def directory_sync_missing() -> None:
    def forget(_path: Path) -> None:
        return None

    files.sync_directory = forget


@mutant(
    "files are not synced",
    cells=[],
    excuse="SIGKILL loses nothing that the kernel has; only a power cut shows it. tests/durable/test_call_order.py does",
)
def file_sync_missing() -> None:
    def forget(_descriptor: int) -> None:
        return None

    files._sync_file = forget
