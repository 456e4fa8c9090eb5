"""recover: what a death, a full disk or somebody else's hand leaves is finished, or refused by name and left alone."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.collector.helpers import (
    LOCK,
    QUARANTINE,
    Collector,
    armed,
    canonical,
    copy_of,
    die_at,
    differences,
    needs_linux,
    needs_posix,
    nothing_changes,
    set_holder,
    stamp_of,
)

pytestmark = needs_posix

HELD, INTENT = "collector.claim.HELD", "collector.transaction.TRANSACTION_INTENT"
COMMITTED = "collector.transaction.BUSINESS_COMMITTED"
TAKEN_OVER = ["C6", "T1", "T2", "T4", "T5", "T7", "T10"]


def commit_zero(collector: Collector) -> None:
    """The archive is not empty: the next run exchanges its manifests."""
    collector.commit("zero", [9], hour="2026-11-30T10")


def require_finished(collector: Collector, posts: list[int]) -> None:
    assert collector.settled() and collector.posts() == posts
    assert len(collector.run_ids()) == len(set(collector.run_ids()))


# ------------------------------------------------------------------------------------------------ death and recovery


def test_nothing_in_flight_is_nothing_to_do(collector: Collector) -> None:
    for _ in range(2):
        with nothing_changes(collector):
            answer = collector.call("recover").require_done()
        assert (answer["state"], answer["rows"], answer["run_id"]) == ("NOTHING", [], None)
    assert not (collector.state / "refresh").exists() and list(collector.archive.iterdir()) == []


def test_another_process_takes_over_and_says_which_rows_it_took(collector: Collector) -> None:
    die_at(collector, INTENT, used=True)
    answer = collector.run("recover").require_done()
    assert answer["rows"][: len(TAKEN_OVER)] == TAKEN_OVER and answer["rows"][len(TAKEN_OVER)] == "X2"
    assert (answer["run_id"], answer["state"]) == ("first", "NEW_APPENDED")
    require_finished(collector, [9, 1, 2])
    assert collector.commit()["already"] is True


def test_the_next_commit_recovers_first(collector: Collector) -> None:
    die_at(collector, HELD)
    done = collector.run("commit", "--evidence", collector.evidence("second", [2, 3], hour="2026-11-30T13"))
    assert done.require_done()["cards_appended"] == 1
    assert collector.run_ids() == ["first", "second"]
    require_finished(collector, [1, 2, 3])


def test_each_takeover_is_a_generation_and_what_it_replaced_is_kept_until_the_end(collector: Collector) -> None:
    die_at(collector, HELD)
    for generation in (1, 2):
        collector.kill("collector.takeover.NEW_LOCK_HELD", "recover")
        assert collector.pending["formal_lock_claim"]["lock_record"]["recovery_generation"] == generation
        listed = [item["path"] for item in collector.pending["quarantined"]]
        assert len(listed) == generation and all((collector.archive / path).is_file() for path in listed)
    collector.run("recover").require_done()
    assert [path.name for path in (collector.home / QUARANTINE).iterdir()] == [".owner-marker.json"]
    require_finished(collector, [1, 2])


def test_b054_recovering_again_and_again_changes_nothing(collector: Collector) -> None:
    die_at(collector, COMMITTED, used=True)
    collector.call("recover").require_done()
    first = collector.tree()
    for _ in range(13):
        collector.call("recover").require_done()
    assert differences(first, collector.tree()) == []
    require_finished(collector, [9, 1, 2])


@pytest.mark.parametrize(
    "point",
    [
        "collector.transaction.cards/exchanged",
        "collector.transaction.cards",
        "collector.transaction.runs/exchanged",
        "collector.transaction.runs",
    ],
)
def test_b051_a_death_between_the_two_manifests(collector: Collector, point: str) -> None:
    die_at(collector, point, used=True)
    counts = []
    for _ in range(3):
        collector.call("recover").require_done()
        counts.append((collector.posts(), collector.run_ids()))
    assert counts == [([9, 1, 2], ["zero", "first"])] * 3 and collector.settled()


def test_the_abolished_quarantine_is_neither_made_nor_read(collector: Collector) -> None:
    """V004 1. An old lock that lies there, exactly as the takeover wants it, is nobody's proof."""
    die_at(collector, HELD)
    data = collector.lock.read_bytes()
    abolished = collector.state / "refresh/lock-recovery"
    name = f"first-g0-{hashlib.sha256(data).hexdigest()}.json"
    collector.kill("collector.takeover.TAKEOVER_PLANNED", "recover")
    assert not abolished.exists()
    abolished.mkdir()
    (abolished / name).write_bytes(data)
    collector.lock.unlink()
    with nothing_changes(collector):
        collector.call("recover").require_refused("E_RECOVERY_AMBIGUOUS", 70)
    collector.lock.write_bytes(data)
    collector.call("recover").require_done()
    assert (abolished / name).read_bytes() == data and [path.name for path in abolished.iterdir()] == [name]


# -------------------------------------------------------------------------------------------------- the disk says no

ON_THE_WAY = [
    "collector.layout.directory/made",
    "collector.layout.marker/tmp-synced",
    "collector.evidence.stored/renamed",
    "collector.claim.before-PLANNED",
    "collector.claim.PLANNED/tmp-written",
    "collector.claim.PLANNED/dir-synced",
    "collector.lock.created/tmp-written",
    "collector.lock.created/dir-synced",
    "collector.claim.HELD/replaced",
    "collector.candidate.cards/tmp-written",
    "collector.candidate.runs/tmp-synced",
    "collector.transaction.TRANSACTION_INTENT/replaced",
    "collector.transaction.cards/exchanged",
    "collector.transaction.cards/dir-synced",
    "collector.transaction.cards/displaced-removed",
    "collector.transaction.runs/exchanged",
    "collector.transaction.BUSINESS_COMMITTED/tmp-written",
    "collector.terminal.slot/replaced",
    "collector.terminal.latest/tmp-written",
    "collector.transaction.TERMINAL/replaced",
    "collector.release.RELEASING/tmp-synced",
    "collector.release.lock/removed",
    "collector.release.pending/removed",
]


@needs_linux
@pytest.mark.parametrize("point", ON_THE_WAY)
def test_b062_a_full_disk_is_said_and_the_next_run_goes_on(collector: Collector, point: str) -> None:
    """The process lives on: it is its own holder, and nothing is taken over."""
    new = point.startswith("collector.layout")
    if not new:
        commit_zero(collector)
    before = collector.posts()
    evidence = collector.evidence()
    with armed(f"{point}#1=error:ENOSPC"):
        refused = collector.call("commit", "--evidence", evidence).require_refused("E_IO", 73)
    assert refused["detail"]["errno"] == "ENOSPC"
    assert not [path for path in collector.tree() if path.endswith(".tmp")]
    assert collector.posts() in (before, [*before, 1, 2])
    recovered = collector.call("recover").require_done()
    assert not [row for row in recovered["rows"] if row.startswith("T")]
    collector.call("commit", "--evidence", evidence).require_done()
    require_finished(collector, [*before, 1, 2])


@needs_linux
@pytest.mark.parametrize(
    "point",
    [
        "collector.takeover.TAKEOVER_PLANNED/replaced",
        "collector.takeover.rename/renamed",
        "collector.takeover.rename/dir-synced",
        "collector.takeover.OLD_LOCK_QUARANTINED/tmp-written",
        "collector.takeover.CREATE_PLANNED/replaced",
        "collector.takeover.new-lock/renamed",
        "collector.takeover.new-lock/dir-synced",
        "collector.takeover.NEW_LOCK_HELD/replaced",
    ],
)
def test_a_full_disk_in_a_takeover_is_no_end_either(collector: Collector, point: str) -> None:
    die_at(collector, HELD)
    with armed(f"{point}#1=error:ENOSPC"):
        collector.call("recover").require_refused("E_IO", 73)
    collector.call("recover").require_done()
    require_finished(collector, [1, 2])


@needs_linux
def test_b062_fifty_restarts_on_a_full_disk_leave_no_litter(collector: Collector) -> None:
    commit_zero(collector)
    evidence = collector.evidence()
    with armed("collector.transaction.cards/exchanged#1=error:ENOSPC"):
        collector.call("commit", "--evidence", evidence).require_refused("E_IO", 73)
    stuck = collector.tree()
    for _ in range(50):
        with armed("collector.transaction.cards/exchanged#1=error:ENOSPC"):
            collector.call("recover").require_refused("E_IO", 73)
    assert differences(stuck, collector.tree()) == []
    collector.call("recover").require_done()
    require_finished(collector, [9, 1, 2])


UNDELETABLE = "collector.cleanup.item/removed#1=error:EACCES,collector.cleanup.item/removed#2=error:EACCES"


def test_an_item_that_cannot_be_deleted_blocks_nothing(collector: Collector) -> None:
    die_at(collector, HELD)
    with armed(UNDELETABLE):
        done = collector.call("recover")
    (warning,) = done.require_done()["warnings"]
    assert warning["code"] == "W_STALE_LOCK_QUARANTINE" and warning["code"] in done.words
    leftovers = collector.state / "refresh/leftovers.json"
    (item,) = json.loads(leftovers.read_bytes())["items"]
    assert item["path"] == warning["path"] and (collector.archive / item["path"]).is_file()
    with armed(UNDELETABLE):
        second = collector.call("commit", "--evidence", collector.evidence("second", [3], hour="2026-11-30T13"))
    assert second.require_done()["warnings"][0]["path"] == item["path"], "tried again, and still not in the way"
    assert collector.call("recover").require_done()["warnings"] == []
    assert not leftovers.exists() and not (collector.archive / item["path"]).exists()
    require_finished(collector, [1, 2, 3])


def test_a_leftover_that_was_changed_is_never_deleted(collector: Collector) -> None:
    die_at(collector, HELD)
    with armed(UNDELETABLE):
        collector.call("recover").require_done()
    (item,) = json.loads((collector.state / "refresh/leftovers.json").read_bytes())["items"]
    path = collector.archive / item["path"]
    path.write_bytes(b"somebody's")
    with nothing_changes(collector):
        (warning,) = collector.call("recover").require_done()["warnings"]
    assert warning["path"] == item["path"] and path.read_bytes() == b"somebody's"


# ------------------------------------------------------------------------------------------------- the quarantine


@needs_linux
def test_a_rename_to_another_volume_moves_nothing(collector: Collector) -> None:
    die_at(collector, HELD)
    collector.kill("collector.takeover.TAKEOVER_PLANNED", "recover")
    with nothing_changes(collector), armed("collector.takeover.rename/renamed#1=error:EXDEV"):
        answer = collector.call("recover").require_refused("E_FORMAL_LOCK_VOLUME_IDENTITY", 70)
    assert answer["row"] == "T1"
    collector.call("recover").require_done()
    require_finished(collector, [1, 2])


def test_other_content_in_the_old_lock_s_place_is_not_overwritten(collector: Collector) -> None:
    die_at(collector, HELD)
    collector.kill("collector.takeover.TAKEOVER_PLANNED", "recover")
    path = collector.archive / collector.pending["takeover"]["quarantine_path"]
    path.write_bytes(b"somebody's")
    with nothing_changes(collector):
        answer = collector.call("recover").require_refused("E_RECOVERY_AMBIGUOUS", 70)
    assert answer["detail"]["found"]["quarantine"] == "OTHER"
    path.unlink()
    collector.call("recover").require_done()
    require_finished(collector, [1, 2])


def test_what_is_listed_stays_until_the_terminal_record(collector: Collector) -> None:
    die_at(collector, HELD)
    collector.kill("collector.takeover.NEW_LOCK_HELD", "recover")
    (item,) = collector.pending["quarantined"]
    path = collector.archive / item["path"]
    data = path.read_bytes()
    for change in (path.unlink, lambda: path.write_bytes(data + b" "), lambda: path.write_bytes(b"")):
        change()
        with nothing_changes(collector):
            answer = collector.call("recover").require_refused("E_RECOVERY_AMBIGUOUS", 70)
        assert answer["row"] == "Q-AMBIGUOUS"
    path.write_bytes(data)
    collector.call("recover").require_done()


# ---------------------------------------------------------------------------------------- refusals look ahead


def damage_evidence(collector: Collector) -> Path:
    return collector.state / "refresh/runs/first/evidence.json"


def damage_base(collector: Collector) -> Path:
    return collector.archive / "cards/000001.jsonl"


def damage_latest(collector: Collector) -> Path:
    return collector.state / "refresh/latest.json"


def damage_candidate(collector: Collector) -> Path:
    return collector.archive / ".candidates/cards.jsonl"


MATERIAL = [
    (HELD, damage_evidence),
    (HELD, damage_base),
    (INTENT, damage_base),
    (INTENT, damage_candidate),
    (COMMITTED, damage_base),
    (COMMITTED, damage_latest),
]


@pytest.mark.parametrize(
    ("point", "damage", "how"),
    [
        (point, damage, how)
        for point, damage in MATERIAL
        for how in ("changed", "cut", "nul", "gone")
        if (damage, how) != (damage_latest, "gone")  # it is made again
    ],
)
def test_nothing_is_taken_over_for_a_transaction_that_cannot_go_on(
    collector: Collector, point: str, damage: Callable[[Collector], Path], how: str
) -> None:
    """B064. The holder is dead, and yet no step of the takeover is done: the refusal leaves no trace."""
    die_at(collector, point, used=True)
    path = damage(collector)
    data = path.read_bytes()
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes({"changed": data + b"\n", "cut": data[: len(data) // 2], "nul": b"\0" * len(data)}[how])
    for _ in range(2):
        with nothing_changes(collector):
            answer = collector.call("recover").require_refused("E_RECOVERY_AMBIGUOUS", 70)
    assert answer["row"] in ("X-AMBIGUOUS", None)
    path.write_bytes(data)
    collector.call("recover").require_done()
    require_finished(collector, [9, 1, 2])


def test_a_slot_that_somebody_else_took_is_seen_before_the_takeover(collector: Collector) -> None:
    die_at(collector, COMMITTED, used=True)
    slot = collector.state / f"refresh/slots/{collector.pending['terminal']['slot']:03d}.json"
    other = json.loads(collector.pending["terminal"]["bytes"]) | {"run_id": "other"}
    slot.write_bytes(canonical(other))
    with nothing_changes(collector):
        answer = collector.call("recover").require_refused("E_RECOVERY_AMBIGUOUS", 70)
    assert (answer["row"], answer["detail"]["found"]["material"]) == ("X-AMBIGUOUS", "UNSOUND")


def test_a_claim_from_the_future_is_ambiguous(collector: Collector) -> None:
    """V003 2.2 (5)."""
    die_at(collector, HELD)
    record = collector.pending["formal_lock_claim"]["lock_record"] | {"lock_created_at": "2999-01-01T00:00:00Z"}
    data = canonical(record)
    claim = {
        "claim_state": "HELD", "lock_path": Path(LOCK).name, "lock_bytes": data.decode(),
        "lock_sha256": hashlib.sha256(data).hexdigest(), "lock_record": record,
    }  # fmt: skip
    collector.write_pending(collector.pending | {"formal_lock_claim": claim})
    collector.lock.write_bytes(data)
    with nothing_changes(collector):
        answer = collector.call("recover").require_refused("E_RECOVERY_AMBIGUOUS", 70)
    assert (answer["row"], answer["detail"]["found"]["clock"]) == ("Q-AMBIGUOUS", "FUTURE")


# ------------------------------------------------------------------------------------------- the same again


def test_b054_a_refusal_is_the_same_fourteen_times(collector: Collector) -> None:
    """A live holder that is not in the state lock: everybody waits for it, and nobody touches anything."""
    die_at(collector, HELD)
    set_holder(collector.home, os.getppid(), stamp_of(os.getppid()))
    answers: list[dict[str, Any]] = []
    with nothing_changes(collector):
        for _ in range(14):
            answers.append(collector.call("recover").require_refused("E_FORMAL_LOCK_BUSY", 75))
    assert all(answer == answers[0] for answer in answers) and answers[0]["row"] == "C-HELD-ALIVE"


def test_every_recovery_of_a_copy_ends_alike(collector: Collector, tmp_path: Path) -> None:
    """The state is in the roots alone: a copy of them is recovered to the same archive."""
    die_at(collector, INTENT, used=True)
    tree = collector.tree()
    twin = copy_of(tree, tmp_path.resolve() / "twin")
    collector.call("recover").require_done()
    twin.call("recover").require_done()
    for manifest in ("cards", "runs"):
        path = f"archive/{manifest}/000001.jsonl"
        assert (collector.home / path).read_bytes() == (twin.home / path).read_bytes()
