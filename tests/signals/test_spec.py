"""SPEC.md and the code have the same tables, row by row and word by word."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

import pytest

import product.signals
from product.durable.cursor import CursorState, EffectState
from product.durable.table import ANY
from product.signals.states import TABLES
from product.signals.tally import REASONS

SPEC = Path(product.signals.__file__).with_name("SPEC.md")


def read_table(section: str, text: str = "") -> tuple[list[str], list[list[str]]]:
    """Header and rows of the first table below that heading."""
    body = (text or SPEC.read_text()).split(f"\n{section}\n")[1].split("\n#")[0]
    lines = [[part.strip() for part in line.strip("|").split("|")] for line in body.splitlines() if line[:1] == "|"]
    return lines[0], lines[2:]


def words(value: object, column: type[Enum]) -> str:
    if value is ANY:
        return "any"
    if isinstance(value, Enum):
        return str(value.value)
    assert isinstance(value, (frozenset, set))
    return " / ".join(str(member.value) for member in column if member in value)


@pytest.mark.parametrize("name", TABLES)
def test_the_spec_and_the_code_have_the_same_rows(name: str) -> None:
    table = TABLES[name]
    header, rows = read_table(f"### {name}")
    assert header == ["row", *table.columns, "only action"]
    coded = [
        [
            row.label,
            *(words(row.when[c], table.columns[c]) if row.when else "else" for c in table.columns),
            row.action.value,
        ]
        for row in table.rows
    ]
    assert rows == coded


def test_the_spec_and_the_code_reject_for_the_same_reasons() -> None:
    assert [reason.strip("`") for reason, _ in read_table("## Lines")[1]] == list(REASONS)


@pytest.mark.parametrize("name", TABLES)
def test_a_broken_document_is_refused_in_every_state(name: str) -> None:
    for state, row in TABLES[name].states():
        if EffectState.BROKEN in state.values() or CursorState.BROKEN in state.values():
            assert row.action.value == "refuse: the state is not sound", state
