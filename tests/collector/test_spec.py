"""SPEC.md and states.py have the same tables, row by row and word by word."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

import pytest

import product.collector
from product.collector.states import TABLES
from product.durable.table import ANY

SPEC = Path(product.collector.__file__).with_name("SPEC.md")


def read_table(name: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table below ``### name``."""
    section = SPEC.read_text().split(f"\n### {name}\n")[1].split("\n#")[0]
    lines = [
        [part.strip() for part in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")
    ]
    return lines[0], lines[2:]


def words(value: object, column: type[Enum]) -> str:
    if value is ANY:
        return "any"
    if isinstance(value, Enum):
        return str(value.value)
    assert isinstance(value, frozenset)
    return " / ".join(str(member.value) for member in column if member in value)


@pytest.mark.parametrize("name", TABLES)
def test_the_spec_and_the_code_have_the_same_rows(name: str) -> None:
    table = TABLES[name]
    header, rows = read_table(name)
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


def test_every_label_of_the_protocol_is_there() -> None:
    labels = {row.label for table in TABLES.values() for row in table.rows}
    assert {f"C{n}" for n in range(1, 8)} | {f"T{n}" for n in range(1, 12)} | {f"X{n}" for n in range(8)} <= labels
