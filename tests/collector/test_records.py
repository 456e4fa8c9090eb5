"""pending.json and the formal lock read strictly: one wrong byte anywhere is refused, and the place is named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from product.collector.claims import TakeoverPhase
from product.collector.layout import QUARANTINE_NAME, slot_of
from product.collector.leftovers import LeftoverList, parse_leftovers
from product.collector.records import ManifestPlan, Phase, parse_pending
from product.collector.shape import ShapeError
from product.durable.errors import JsonRejected
from product.durable.files import Digest
from tests.collector.helpers import alter
from tests.collector.helpers import canonical as to_canonical
from tests.collector.pending_samples import (
    FULL,
    ITEM,
    NOW,
    OTHER,
    SAMPLES,
    STAMP,
    TRANSACTION,
    make_lock,
    make_pending,
    make_takeover,
)


def fault_of(value: object) -> str:
    """The pointer under which this value is refused."""
    return fault_of_bytes(to_canonical(value))


def fault_of_bytes(data: bytes) -> str:
    try:
        parse_pending(data)
    except (ShapeError, JsonRejected) as error:
        return error.pointer
    pytest.fail(f"not refused: {data[:200]!r}")


def walk(value: Any, pointer: str = "") -> Iterator[tuple[str, Any]]:
    """Every place with its pointer, the proof's inside left out: it is bound by its hash."""
    yield pointer, value
    if pointer == "/proof":
        return
    for key, child in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from walk(child, f"{pointer}/{key}")


def replaced(value: object, pointer: str, by: object) -> Any:
    return by if pointer == "" else alter(value, pointer, lambda _: by)


LEAVES = [pointer for pointer, value in walk(FULL) if not isinstance(value, (dict, list))]
OBJECTS = [pointer for pointer, value in walk(FULL) if isinstance(value, dict) and pointer != "/proof"]


@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_written_is_read_again(name: str) -> None:
    pending = SAMPLES[name]
    assert parse_pending(pending.data) == pending
    assert parse_pending(pending.data).data == pending.data
    assert pending.data == to_canonical(pending.as_json())


def test_a_takeover_of_a_claim_that_never_became_a_file_is_read_again() -> None:
    pending = make_takeover(TakeoverPhase.CREATE_PLANNED, materialised=False)
    assert parse_pending(pending.data) == pending


# ------------------------------------------------------------------------------------- one wrong place at a time

SEEN_AT = {
    "/terminal/state": "/terminal/bytes",
    "/terminal/bytes": "/terminal/sha256",
    "/manifests/runs/base_size": "/manifests/runs/base_sha256",
    "/manifests/runs/base_sha256": "/manifests/runs/base_size",
}
"""Where a value shows that is of the right kind by itself, and wrong beside the others."""
JUNK: list[object] = [True, False, -1, 1.5, 2**53 + 1, "", "x" * 5000, "\u00e9/../x", [], {}, [1]]


@pytest.mark.parametrize("pointer", LEAVES)
def test_a_value_of_the_wrong_kind_is_refused_where_it_stands(pointer: str) -> None:
    """B136 in every field: ``true`` is no count, no pid, no version."""
    current = dict(walk(FULL))[pointer]
    for junk in JUNK:
        if not isinstance(junk, bool) or not isinstance(current, bool):
            assert fault_of(replaced(FULL, pointer, junk)) in (pointer, SEEN_AT.get(pointer)), repr(junk)[:40]


@pytest.mark.parametrize("pointer", LEAVES)
def test_nothing_may_be_null_but_the_base_of_a_new_segment(pointer: str) -> None:
    if dict(walk(FULL))[pointer] is not None:
        assert fault_of(replaced(FULL, pointer, None)) == pointer


@pytest.mark.parametrize("pointer", OBJECTS)
def test_an_object_has_exactly_its_keys(pointer: str) -> None:
    value = dict(walk(FULL))[pointer]
    for key in value:
        assert fault_of(replaced(FULL, pointer, {k: v for k, v in value.items() if k != key})) == (
            "/takeover/phase" if (pointer, key) == ("/takeover", "phase") else pointer
        )
    assert fault_of(replaced(FULL, pointer, value | {"note": None})) == pointer
    others: tuple[object, ...] = (None, [], "{}", 1)
    for other in others:
        assert fault_of(replaced(FULL, pointer, other)) == ("/takeover/phase" if pointer == "/takeover" else pointer)


@pytest.mark.parametrize("pointer", ["/updated_at", "/hour", "/takeover/planned_at",
                                     "/formal_lock_claim/lock_record/lock_created_at"])  # fmt: skip
@pytest.mark.parametrize("day", ["2026-02-30", "2026-13-01", "0000-01-01", "2026-11-31"])
def test_a_day_that_is_not_on_the_calendar_is_refused(pointer: str, day: str) -> None:
    assert fault_of(alter(FULL, pointer, lambda text: f"{day}{text[10:]}")) == pointer


@pytest.mark.parametrize("name", ["con", "NUL", "com1", "-a", "a.b", "a/b", "..", "a" * 65, "\u043e"])
def test_a_name_is_a_plain_file_name_everywhere(name: str) -> None:
    assert fault_of(replaced(FULL, "/run_id", name)) == "/run_id"


# ------------------------------------------------------------------------------------------- bytes, not values


def test_nan_and_duplicate_keys_are_refused() -> None:
    data = to_canonical(FULL)
    assert fault_of_bytes(data.replace(b'"claim_attempt":7', b'"claim_attempt":NaN')) == "/takeover/claim_attempt"
    doubled = data.replace(b'"claim_attempt":7', b'"claim_attempt":7,"claim_attempt":7')
    assert fault_of_bytes(doubled) == "/takeover/claim_attempt"
    escaped = data.replace(b'"claim_attempt":7', b'"claim_attempt":7,"claim_\\u0061ttempt":7')
    assert fault_of_bytes(escaped) == "/takeover/claim_attempt"


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data + b"\n",
        lambda data: b" " + data,
        lambda data: data.replace(b'"phase":', b'"phase": ', 1),
        lambda data: data.replace(b'"run-1"', b'"run\\u002d1"', 1),
        lambda data: json.dumps(dict(reversed(json.loads(data).items())), separators=(",", ":")).encode(),
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.decode().encode("utf-16"),
        lambda data: b"\0" * len(data),
        lambda data: data + data,
        lambda _: b"",
        lambda _: b"null",
        lambda _: b"[]",
    ],
)  # fmt: skip
def test_other_bytes_of_the_same_value_are_refused(change: Callable[[bytes], bytes]) -> None:
    """B064 for the NULs: never read as an empty record."""
    assert fault_of_bytes(change(SAMPLES["CREATE_PLANNED"].data)) == ""


@pytest.mark.parametrize(("name", "step"), [("BEGUN", 1), ("PREPARED", 1), ("CREATE_PLANNED", 13)])
def test_b044_a_record_that_was_cut_is_refused_at_every_length(name: str, step: int) -> None:
    data = SAMPLES[name].data
    for length in {*range(0, len(data), step), *range(len(data) - 9, len(data))}:
        fault_of_bytes(data[:length])


def test_b064_a_record_with_a_tail_of_nul_bytes_is_refused() -> None:
    data = SAMPLES["CREATE_PLANNED"].data
    for length in (*range(1, len(data), 211), len(data) - 1):
        fault_of_bytes(data[:length].ljust(len(data), b"\0"))
        fault_of_bytes(data[:length].ljust(4096, b"\0"))


# ------------------------------------------------------------------------------- what contradicts itself is refused


def with_lock(value: object, path: str, change: dict[str, object]) -> Any:
    """The record below ``path`` changed, and its bytes and hash with it: consistent in itself."""
    record, prefix = {
        "claim": ("/formal_lock_claim/lock_record", "/formal_lock_claim/lock"),
        "old": ("/takeover/old_claim", "/takeover/old_lock"),
        "new": ("/takeover/new_lock_record", "/takeover/new_lock"),
    }[path]
    value = alter(value, record, lambda fields: fields | change)
    data = to_canonical(dict(walk(value))[record])
    value = replaced(value, f"{prefix}_bytes", data.decode())
    return alter(value, f"{prefix}_sha256", lambda _: hashlib.sha256(data).hexdigest())


POINTERS = {"claim": "/formal_lock_claim/lock_record", "old": "/takeover/old_claim", "new": "/takeover/new_lock_record"}


@pytest.mark.parametrize("path", POINTERS)
@pytest.mark.parametrize(
    ("key", "other"),
    [("task_id", "task-2"), ("run_id", "run-2"), ("owner_nonce", OTHER), ("transaction_id", OTHER)],
)
def test_a_lock_of_another_run_is_refused(path: str, key: str, other: str) -> None:
    """V003 2.3 (5): another task, run, nonce or transaction is never taken over, however well formed."""
    changed = with_lock(FULL, path, {key: other})
    if path == "old":  # its quarantine name follows from it, and is checked as well
        expected = {f"{POINTERS[path]}/{key}", "/takeover/quarantine_path"}
        assert fault_of(changed) in expected
        name = f"{QUARANTINE_NAME}/{other if key == 'run_id' else 'run-1'}-g3-{changed['takeover']['old_lock_sha256']}.json"
        changed["takeover"]["quarantine_path"] = name
    assert fault_of(changed) == f"{POINTERS[path]}/{key}"


@pytest.mark.parametrize("generation", [0, 3, 5])
def test_a_new_claim_is_of_the_next_generation(generation: int) -> None:
    pointer = "/takeover/new_lock_record/recovery_generation"
    assert fault_of(with_lock(FULL, "new", {"recovery_generation": generation})) == pointer
    held = with_lock(SAMPLES["NEW_LOCK_HELD"].as_json(), "claim", {"recovery_generation": generation})
    assert fault_of(held) == "/formal_lock_claim/lock_record/recovery_generation"


@pytest.mark.parametrize("name", ["TAKEOVER_PLANNED", "OLD_LOCK_QUARANTINED", "CREATE_PLANNED"])
def test_the_old_claim_is_the_one_that_was_held(name: str) -> None:
    changed = with_lock(SAMPLES[name].as_json(), "claim", {"holder_pid": 9})
    assert fault_of(changed) == "/takeover/old_claim"


@pytest.mark.parametrize("pointer", ["/formal_lock_claim/lock_", "/takeover/old_lock_", "/takeover/new_lock_"])
def test_the_bytes_and_the_hash_of_a_lock_are_those_of_its_record(pointer: str) -> None:
    assert fault_of(alter(FULL, f"{pointer}bytes", lambda text: text.replace("task-1", "task-2"))) == f"{pointer}bytes"
    assert fault_of(alter(FULL, f"{pointer}bytes", lambda text: text + " ")) == f"{pointer}bytes"
    assert fault_of(replaced(FULL, f"{pointer}sha256", OTHER)) == f"{pointer}sha256"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("new_claim_state", "CREATE_PLANNED"),
        ("new_lock_bytes", make_lock(4, 2).data.decode()),
        ("new_lock_sha256", Digest.of(make_lock(4, 2).data).sha256),
        ("new_lock_record", make_lock(4, 2).as_json()),
        ("holder_pid", 4002),
        ("holder_process_created_at", STAMP.format(2)),
        ("lock_created_at", NOW),
    ],
)
@pytest.mark.parametrize("name", ["TAKEOVER_PLANNED", "OLD_LOCK_QUARANTINED", "NEW_LOCK_HELD"])
def test_a_plan_that_freezes_a_new_holder_is_refused(name: str, key: str, value: object) -> None:
    """V004 2: a plan depends on nobody who recovers."""
    record = SAMPLES[name].as_json()
    assert fault_of(alter(record, "/takeover", lambda fields: fields | {key: value})) == "/takeover"


def test_a_plan_names_no_new_holder_by_itself() -> None:
    planned = SAMPLES["TAKEOVER_PLANNED"].as_json()["takeover"]
    assert isinstance(planned, dict) and not [key for key in planned if "new" in key or "holder" in key]


@pytest.mark.parametrize(
    ("pid", "stamp", "key"),
    [
        (0, STAMP.format(1), "holder_pid"),
        (-1, STAMP.format(1), "holder_pid"),
        (True, STAMP.format(1), "holder_pid"),
        ("12", STAMP.format(1), "holder_pid"),
        (2**22 + 1, STAMP.format(1), "holder_pid"),
        (12, STAMP.format(-1), "holder_process_created_at"),
        (12, STAMP.format("1.0"), "holder_process_created_at"),
        (12, "2026-11-30T12:34:56Z", "holder_process_created_at"),
        (12, 1764500000, "holder_process_created_at"),
        (12, None, "holder_process_created_at"),
    ],
)
@pytest.mark.parametrize("path", POINTERS)
def test_a_holder_that_can_be_no_process_is_third_content(path: str, pid: object, stamp: object, key: str) -> None:
    changed = with_lock(FULL, path, {"holder_pid": pid, "holder_process_created_at": stamp})
    assert fault_of(changed) == f"{POINTERS[path]}/{key}"


@pytest.mark.parametrize(
    "path",
    [
        f"{QUARANTINE_NAME}/../cards/000001.jsonl.json",
        f"{QUARANTINE_NAME}/a/b.json",
        f"{QUARANTINE_NAME}/a\\b.json",
        f"/{QUARANTINE_NAME}/a.json",
        f"{QUARANTINE_NAME}/000001.jsonl",
        f"{QUARANTINE_NAME}/",
        "refresh/lock-recovery/a.json",
        "cards/000001.jsonl",
        "cards/000001.json",
        f"{QUARANTINE_NAME}.json",
    ],
)
def test_only_what_is_in_the_quarantine_can_be_listed_for_deletion(path: str) -> None:
    assert fault_of(replaced(FULL, "/quarantined/0/path", path)) == "/quarantined/0/path"


def test_the_next_generation_is_the_one_after_the_old() -> None:
    assert dict(walk(FULL))["/takeover/next_generation"] == 4 == make_lock(3).recovery_generation + 1


# ------------------------------------------------------------------------------------------------- lengths and ranges

TOO_MUCH = "x" * 1_000_001
NAMELESS = len(f"{QUARANTINE_NAME}/.json")


@pytest.mark.parametrize(
    ("pointer", "fits", "does_not"),
    [
        ("/quarantined/0/path", f"{QUARANTINE_NAME}/{TOO_MUCH[: 300 - NAMELESS]}.json",
                                f"{QUARANTINE_NAME}/{TOO_MUCH[: 301 - NAMELESS]}.json"),
        ("/terminal/state", TOO_MUCH[:40], TOO_MUCH[:41]),
        ("/terminal/bytes", TOO_MUCH[:-1], TOO_MUCH),
        ("/manifests/cards/segment", 1, 0),
        ("/manifests/cards/segment", 999_999, 1_000_000),
    ],
)  # fmt: skip
def test_a_limit_is_where_it_is_said_to_be(pointer: str, fits: object, does_not: object) -> None:
    """What fits may still contradict something else: that is found elsewhere, and later."""
    assert fault_of(replaced(FULL, pointer, does_not)) == pointer
    try:
        parse_pending(to_canonical(replaced(FULL, pointer, fits)))
    except ShapeError as error:
        assert error.pointer != pointer


def test_the_last_slot_of_the_ring_is_a_slot() -> None:
    hour = "2026-11-25T23:00:00Z"
    assert slot_of(hour) == 167
    slot = json.loads(make_pending(Phase.TERMINAL).terminal.data) | {"hour": hour, "slot": 167}  # type: ignore[union-attr]
    value: Any = _with_terminal(to_canonical(slot))
    terminal = parse_pending(to_canonical(replaced(value | {"hour": hour}, "/terminal/slot", 167))).terminal
    assert terminal is not None and terminal.slot == 167


def test_the_terminal_record_goes_to_the_slot_of_its_hour() -> None:
    slot = FULL["terminal"]["slot"]
    assert fault_of(replaced(FULL, "/terminal/slot", (slot + 1) % 168)) == "/terminal/slot"


def test_a_manifest_that_gets_nothing_is_unchanged() -> None:
    assert ManifestPlan(1, ITEM.digest, ITEM.digest).unchanged
    assert not ManifestPlan(1, None, ITEM.digest).unchanged
    assert not ManifestPlan(1, ITEM.digest, Digest(10, OTHER)).unchanged


# ------------------------------------------------------------------------------------- phases and what they freeze


@pytest.mark.parametrize("key", ["evidence", "proof", "manifests", "terminal", "formal_lock_claim"])
def test_a_begun_run_has_nothing_else_yet(key: str) -> None:
    begun = SAMPLES["BEGUN"].as_json()
    assert fault_of(begun | {key: FULL[key]}) == f"/{key}"
    assert fault_of(begun | {"takeover": {"phase": "NONE", "claim_attempt": 1}}) == "/takeover"
    assert fault_of(begun | {"quarantined": [ITEM.as_json()]}) == "/quarantined"


def test_nothing_is_frozen_in_prepared_and_everything_after_it() -> None:
    prepared = SAMPLES["PREPARED"].as_json()
    for key in ("proof", "terminal"):
        assert fault_of(prepared | {key: FULL[key]}) == f"/{key}"
        assert fault_of(FULL | {key: None}) == f"/{key}"
    assert fault_of(prepared | {"manifests": FULL["manifests"]}) == "/manifests/cards/candidate_size"
    runs = {"segment": 2, "base_size": None, "base_sha256": None, "candidate_size": None, "candidate_sha256": None}
    assert fault_of(replaced(FULL, "/manifests/runs", runs)) == "/manifests/runs/candidate_size"


@pytest.mark.parametrize(
    "change",
    [
        {"task_id": "task-2"},
        {"run_id": "run-2"},
        {"transaction_id": OTHER},
        {"hour": "2026-11-23T12:00:00Z"},  # 168 hours before: the same slot
        {"state": "NO_NEW"},
        {"evidence_sha256": None},
        {"coverage_proof_sha256": OTHER},
        {"cards": None},
        {"runs": {"segment": 2, "size": 51, "sha256": TRANSACTION, "last_seq": 2}},
        {"runs": {"segment": 3, "size": 50, "sha256": TRANSACTION, "last_seq": 2}},
    ],
)
def test_the_terminal_record_is_this_transaction_s(change: dict[str, Any]) -> None:
    """What would be written to the slot is held against the rest of pending before it is believed."""
    slot = json.loads(make_pending(Phase.TERMINAL).terminal.data)  # type: ignore[union-attr]
    assert fault_of(_with_terminal(to_canonical(slot | change))) == "/terminal/bytes"


def _with_terminal(data: bytes) -> object:
    value = replaced(FULL, "/terminal/bytes", data.decode())
    return alter(value, "/terminal/sha256", lambda _: hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize("data", [b"{}", b"[]", b"not JSON", b'{"schema_version":true}', b"\xe2\x82\xac"])
def test_a_terminal_record_that_is_no_slot_is_refused(data: bytes) -> None:
    assert fault_of(_with_terminal(data)) == "/terminal/bytes"


def test_a_proof_that_was_changed_is_refused() -> None:
    assert fault_of(replaced(FULL, "/proof/complete", False)) == "/terminal/bytes"


# ----------------------------------------------------------------------------------------------------- leftovers


def test_leftovers_are_read_as_strictly() -> None:
    other = replace(ITEM, path=ITEM.path.replace("g0", "g1"))
    data = LeftoverList((other, ITEM)).data
    assert parse_leftovers(data) == (ITEM, other), "sorted by path"
    value = json.loads(data)
    for pointer, junk in (
        ("/schema_version", True), ("/items/0/size", True), ("/items/1/sha256", "AB" * 32), ("/items/1/path", "cards/a"),
        ("/items", {}),
    ):  # fmt: skip
        with pytest.raises(ShapeError) as caught:
            parse_leftovers(to_canonical(replaced(value, pointer, junk)))
        assert caught.value.pointer == pointer
