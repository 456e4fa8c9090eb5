"""SPEC.md and states.py have the same tables, row by row and word by word."""

from __future__ import annotations

from pathlib import Path

import pytest

import product.collector
from product.collector.states import TABLES
from tests.spec_tables import require_same_rows

SPEC = Path(product.collector.__file__).with_name("SPEC.md")


@pytest.mark.parametrize("name", TABLES)
def test_the_spec_and_the_code_have_the_same_rows(name: str) -> None:
    require_same_rows(SPEC.read_text(), f"### {name}", TABLES[name])


def test_every_label_of_the_protocol_is_there() -> None:
    labels = {row.label for table in TABLES.values() for row in table.rows}
    assert {f"C{n}" for n in range(1, 8)} | {f"T{n}" for n in range(1, 12)} | {f"X{n}" for n in range(8)} <= labels
