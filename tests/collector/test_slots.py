"""The ring of 168 hours and latest.json, which points at the newest."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from product.collector.layout import SLOTS, slot_of
from product.collector.shape import ShapeError
from product.collector.slots import Latest, Slot, may_write, parse_latest, parse_slot
from product.durable.errors import JsonRejected
from tests.collector.helpers import Collector, alter, canonical, nothing_changes

HOUR = datetime(2026, 11, 20, 12, tzinfo=UTC)
SHA = "ab" * 32
END: dict[str, object] = {"segment": 1, "size": 10, "sha256": SHA, "last_seq": 3}


def text_of(hours: int) -> str:
    """HOUR and so many hours, as the records write it."""
    return f"{HOUR + timedelta(hours=hours):%Y-%m-%dT%H}:00:00Z"


def make_slot(hours: int = 0) -> Slot:
    return Slot("task-1", "run-1", SHA, text_of(hours), "NEW_APPENDED", 0, 2, SHA, SHA, END, END)


def commit(collector: Collector, run_id: str, hours: int, posts: list[int]) -> dict[str, Any]:
    return collector.commit(run_id, posts, hour=text_of(hours)[:13])


def latest_of(collector: Collector) -> Path:
    return collector.state / "refresh/latest.json"


def slots_of(collector: Collector) -> dict[str, dict[str, Any]]:
    return {path.name: json.loads(path.read_bytes()) for path in collector.state.glob("refresh/slots/???.json")}


# ----------------------------------------------------------------------------------------------------- the records


def test_what_is_written_is_read_again() -> None:
    slot = make_slot()
    aborted = replace(slot, state="ABORTED", evidence_sha256=None, coverage_proof_sha256=None, cards=None, runs=None)
    for each in (slot, aborted):
        assert parse_slot(each.data) == each and parse_latest(Latest.of(each).data) == Latest.of(each)
        assert each.data == canonical(json.loads(each.data))


SLOT, LATEST = json.loads(make_slot().data), json.loads(Latest.of(make_slot()).data)


@pytest.mark.parametrize("junk", [True, 1.5, -1, 2**60, "", [], {}, "\u00e9/"])
@pytest.mark.parametrize(("record", "parse"), [(SLOT, parse_slot), (LATEST, parse_latest)], ids=["slot", "latest"])
def test_a_value_of_the_wrong_kind_is_refused_where_it_stands(
    record: dict[str, Any], parse: Callable[[bytes], object], junk: object
) -> None:
    ends = [f"/{name}/{key}" for name in ("cards", "runs") for key in END] if "runs" in record else []
    for pointer in [*(f"/{key}" for key in record), *ends]:
        if pointer == "/state" and parse is parse_latest and isinstance(junk, str):
            continue  # what latest says of the state is bound by the hash of the slot
        with pytest.raises((ShapeError, JsonRejected)) as caught:
            parse(canonical(alter(record, pointer, lambda _: junk)))
        assert getattr(caught.value, "pointer", None) == pointer


@pytest.mark.parametrize(("record", "parse"), [(SLOT, parse_slot), (LATEST, parse_latest)], ids=["slot", "latest"])
def test_keys_and_bytes_are_exact(record: dict[str, Any], parse: Callable[[bytes], object]) -> None:
    data = canonical(record)
    wrong = [canonical({k: v for k, v in record.items() if k != key}) for key in record]
    wrong += [canonical(record | {"note": 1}), data + b"\n", b" " + data, b"\0" * len(data), b"", b"null"]
    wrong += [data[:length] for length in range(len(data))]
    wrong += [canonical(record | {"hour": "2026-02-30T12:00:00Z"}), canonical(record | {"slot": record["slot"] + 1})]
    for other in wrong:
        with pytest.raises((ShapeError, JsonRejected)):
            parse(other)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(-(10**5), 10**5))
def test_a_slot_is_reused_for_an_hour_a_week_later_at_least(hours: int, later: int) -> None:
    existing = make_slot(hours)
    assert may_write(existing, text_of(hours + later)) == (later >= SLOTS)
    assert (slot_of(text_of(hours + later)) == slot_of(existing.hour)) == (later % SLOTS == 0)


def test_a_free_slot_is_free() -> None:
    assert may_write(None, text_of(0))


# -------------------------------------------------------------------------------------------------------- the ring


def test_one_run_an_hour(collector: Collector) -> None:
    commit(collector, "one", 0, [1])
    for posts in ([2], [1]):
        evidence = collector.evidence("two", posts, hour=text_of(0)[:13])
        with nothing_changes(collector):
            answer = collector.call("commit", "--evidence", evidence).require_refused("E_SLOT_TAKEN", 73)
        assert answer["detail"]["taken_by"] == "one"
    with nothing_changes(collector):
        begun = collector.call("begin", "--task", "task-1", "--run-id", "two", "--at", text_of(0))
    begun.require_refused("E_SLOT_TAKEN", 73)


def test_the_ring_is_a_week_long(collector: Collector) -> None:
    commit(collector, "one", 0, [1])
    first = slots_of(collector)
    name = f"{slot_of(text_of(0)):03d}.json"
    assert list(first) == [name]
    commit(collector, "two", SLOTS - 1, [2])
    assert len(slots_of(collector)) == 2 and slots_of(collector)[name] == first[name]
    commit(collector, "three", SLOTS, [3])
    assert slots_of(collector)[name]["run_id"] == "three"
    earlier = collector.evidence("four", [4], hour=text_of(0)[:13])
    with nothing_changes(collector):
        collector.call("commit", "--evidence", earlier).require_refused("E_SLOT_TAKEN", 73)
    assert collector.posts() == [1, 2, 3]


def test_latest_is_of_the_newest_hour_however_late_a_run_comes(collector: Collector) -> None:
    commit(collector, "noon", 0, [1])
    newest = latest_of(collector).read_bytes()
    commit(collector, "late", -3, [2])
    assert latest_of(collector).read_bytes() == newest
    commit(collector, "next", 1, [3])
    assert json.loads(latest_of(collector).read_bytes())["run_id"] == "next"


@pytest.mark.parametrize("command", ["recover", "commit", "begin"])
@pytest.mark.parametrize("behind", [False, True], ids=["missing", "behind"])
def test_latest_is_made_again_from_the_slots(collector: Collector, command: str, behind: bool) -> None:
    commit(collector, "one", 0, [1])
    older = latest_of(collector).read_bytes()
    commit(collector, "two", 1, [2])
    newest = latest_of(collector).read_bytes()
    if behind:
        latest_of(collector).write_bytes(older)
    else:
        latest_of(collector).unlink()
    arguments = {
        "recover": (),
        "commit": ("--evidence", collector.evidence("two", [2], hour=text_of(1)[:13])),
        "begin": ("--task", "task-1", "--run-id", "three", "--at", "2099-01-01T00:00:00Z"),
    }[command]
    collector.call(command, *arguments).require_done()
    assert latest_of(collector).read_bytes() == newest


def point_ahead(latest: dict[str, Any]) -> dict[str, Any]:
    hour = text_of(1)
    return latest | {"hour": hour, "slot": slot_of(hour)}


@pytest.mark.parametrize(
    "change",
    [
        point_ahead,
        lambda latest: latest | {"run_id": "other"},
        lambda latest: latest | {"state": "NO_NEW"},
        lambda latest: latest | {"slot_sha256": "cd" * 32},
    ],
    ids=["ahead", "other run", "other state", "other bytes"],
)
def test_latest_that_no_slot_explains_is_ambiguous(
    collector: Collector, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    commit(collector, "one", 0, [1])
    latest_of(collector).write_bytes(canonical(change(json.loads(latest_of(collector).read_bytes()))))
    evidence = collector.evidence("two", [2], hour=text_of(2)[:13])
    with nothing_changes(collector):
        for arguments in (("recover",), ("commit", "--evidence", evidence)):
            answer = collector.call(*arguments).require_refused("E_RECOVERY_AMBIGUOUS", 70)
            assert answer["detail"]["file"] == "refresh/latest.json"


def test_latest_without_any_slot_is_ambiguous(collector: Collector) -> None:
    commit(collector, "one", 0, [1])
    for path in collector.state.glob("refresh/slots/*"):
        path.unlink()
    with nothing_changes(collector):
        collector.call("recover").require_refused("E_RECOVERY_AMBIGUOUS", 70)


@pytest.mark.parametrize("name", ["slots/{slot}", "latest.json"])
@pytest.mark.parametrize("content", [b"", b"{}", b"null", b"\0" * 400, b'{"hour"', b"[]"])
def test_b064_a_record_that_is_not_ours_is_refused_by_name(collector: Collector, name: str, content: bytes) -> None:
    commit(collector, "one", 0, [1])
    file = f"refresh/{name.format(slot=f'{slot_of(text_of(0)):03d}.json')}"
    (collector.state / file).write_bytes(content)
    evidence = collector.evidence("two", [2], hour=text_of(2)[:13])
    with nothing_changes(collector):
        for arguments in (("recover",), ("commit", "--evidence", evidence), ("recover",)):
            answer = collector.call(*arguments).require_refused("E_RECOVERY_AMBIGUOUS", 70)
            assert answer["detail"]["file"] == file and file in answer["message"]


def test_a_slot_in_the_place_of_another_is_refused(collector: Collector) -> None:
    commit(collector, "one", 0, [1])
    name = f"{slot_of(text_of(0)):03d}.json"
    slots = collector.state / "refresh/slots"
    (slots / "000.json").write_bytes((slots / name).read_bytes())
    with nothing_changes(collector):
        answer = collector.call("recover").require_refused("E_RECOVERY_AMBIGUOUS", 70)
    assert answer["detail"]["file"] == "refresh/slots/000.json"


def test_a_file_of_another_name_is_no_slot(collector: Collector) -> None:
    commit(collector, "one", 0, [1])
    for name in ("168.json", "0.json", "old.json", "000.json.bak"):
        (collector.state / "refresh/slots" / name).write_bytes(b"somebody's")
    with nothing_changes(collector):
        collector.call("recover").require_done()


def test_a_token_is_0_or_1() -> None:
    hashes = {"evidence_sha256": None, "coverage_proof_sha256": None, "cards": None, "runs": None}
    for token in (0, 1):
        slot = Slot("task-1", "run-1", "a1" * 32, "2026-11-30T12:00:00Z", "NO_NEW", token, 0, **hashes)
        assert parse_slot(slot.data) == slot
    with pytest.raises(ShapeError) as caught:
        parse_slot(replace(slot, no_new_token=2).data)
    assert caught.value.pointer == "/no_new_token"
