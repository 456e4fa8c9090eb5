"""A product's SPEC.md held against its code: the same tables, row by row."""

from __future__ import annotations

from enum import Enum
from typing import Any

from product.durable.table import ANY, Table


def read_table(text: str, heading: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the first table below that heading of a Markdown text."""
    body = text.split(f"\n{heading}\n")[1].split("\n#")[0]
    lines = [[part.strip() for part in line.strip("|").split("|")] for line in body.splitlines() if line[:1] == "|"]
    return lines[0], lines[2:]


def require_same_rows(text: str, heading: str, table: Table[Any]) -> None:
    """The table below that heading has the columns and the rows of ``table``, in its order."""
    header, rows = read_table(text, heading)
    assert header == ["row", *table.columns, "only action"]
    coded = [
        [
            row.label,
            *(_words(row.when[name], table.columns[name]) if row.when else "else" for name in table.columns),
            row.action.value,
        ]
        for row in table.rows
    ]
    assert rows == coded


def _words(value: object, column: type[Enum]) -> str:
    if value is ANY:
        return "any"
    if isinstance(value, Enum):
        return str(value.value)
    assert isinstance(value, (frozenset, set))
    return " / ".join(str(member.value) for member in column if member in value)
