"""What leftover metadata of the state lock allows: the table, and what counts as exact schema 1."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from product.durable import canonical, owner
from product.durable.errors import StateLocked, StateOwnerReused, StateOwnerThirdContent, StateOwnerUnproven
from product.durable.identity import Holder, own_identity
from product.durable.owner import OWNER_TABLE, Metadata, Owner, OwnerAction, find_fault, format_owner, observe_owner


def record() -> dict[str, Any]:
    value: dict[str, Any] = canonical.decode_canonical(format_owner(own_identity(), "run-1"))
    return value


def test_the_docstring_has_the_rows_of_the_code() -> None:
    lines = re.findall(r"^(S[0-9]+) +(\S+) +(\S+)", str(owner.__doc__), re.MULTILINE)
    rows = [(row.label, row.when) for row in OWNER_TABLE.rows]
    assert rows[-1] == ("S8", None)
    assert lines[-1] == ("S8", "any", "other")
    assert (
        lines[:-1]
        == [
            (label, when["metadata"].name, when["owner"].value)  # type: ignore[union-attr]
            for label, when in rows[:-1]
            if when is not None
        ]
    )


def test_metadata_goes_only_where_its_owner_is_dead_or_ourselves() -> None:
    allowed = {(Metadata.ABSENT, Owner.NOT_ASKED), (Metadata.EXACT, Owner.DEAD), (Metadata.EXACT, Owner.SELF)}
    safe = {OwnerAction.WRITE, OwnerAction.QUARANTINE, OwnerAction.REPLACE}
    for state, row in OWNER_TABLE.states():
        assert (row.action in safe) == ((state["metadata"], state["owner"]) in allowed)


def test_every_holder_is_an_owner() -> None:
    assert {holder.value for holder in Holder} == {seen.value for seen in Owner} - {Owner.NOT_ASKED.value}


@pytest.mark.parametrize(
    ("action", "error"),
    [
        (OwnerAction.REFUSE_LOCKED, StateLocked),
        (OwnerAction.REFUSE_REUSED, StateOwnerReused),
        (OwnerAction.REFUSE_UNPROVEN, StateOwnerUnproven),
        (OwnerAction.REFUSE_THIRD, StateOwnerThirdContent),
    ],
)
def test_each_refusal_has_its_error(action: OwnerAction, error: type[Exception]) -> None:
    row = next(row for row in OWNER_TABLE.rows if row.action is action)
    seen = owner.OwnerObserved(Metadata.THIRD, Owner.NOT_ASKED, reason="why")
    refused = owner.refuse_owner(Path("/state/owner.json"), seen, row)
    assert type(refused) is error
    assert "/state/owner.json" in str(refused)


def test_what_is_written_is_exact_and_ours(tmp_path: Path) -> None:
    path = tmp_path / "owner.json"
    assert observe_owner(path).metadata is Metadata.ABSENT
    path.write_bytes(format_owner(own_identity(), "run-1"))
    seen = observe_owner(path)
    assert (seen.metadata, seen.owner) == (Metadata.EXACT, Owner.SELF)
    assert seen.record == record() | {"acquired_at": json.loads(path.read_bytes())["acquired_at"]}
    assert set(record()) == {"schema_version", "pid", "process_created_at", "run_id", "acquired_at"}


@pytest.mark.parametrize(
    "change",
    [
        *({"schema_version": value} for value in (True, 2, 0, "1", None)),
        *({"pid": value} for value in (True, False, 0, -1, "1", None, 2**22 + 1, 2**53, [1])),
        *({"process_created_at": value} for value in (True, 0, "", "linux", "yesterday", None)),
        *({"run_id": value} for value in (True, "", "../x", "a b", None, "x" * 101)),
        *({"acquired_at": value} for value in (True, 0, "", "2026-01-01", "2026-01-01T00:00:00Z", None)),
        {"extra": 1},
    ],
)
def test_b136_exact_schema_1_and_nothing_else(change: dict[str, Any]) -> None:
    good = record()
    assert find_fault(good) is None
    assert find_fault(good | change) is not None


def test_a_key_that_is_missing_is_a_fault() -> None:
    for key in record():
        assert find_fault({name: value for name, value in record().items() if name != key}) is not None
    others: list[object] = [[], "x", 1, None, True]
    assert all(find_fault(other) is not None for other in others)
