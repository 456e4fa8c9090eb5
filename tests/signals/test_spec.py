"""SPEC.md and the code have the same tables, row by row and word by word."""

from __future__ import annotations

from pathlib import Path

import pytest

import product.signals
from product.durable.cursor import CursorState, EffectState
from product.signals.states import TABLES
from product.signals.tally import REASONS
from tests.spec_tables import read_table, require_same_rows

SPEC = Path(product.signals.__file__).with_name("SPEC.md")


@pytest.mark.parametrize("name", TABLES)
def test_the_spec_and_the_code_have_the_same_rows(name: str) -> None:
    require_same_rows(SPEC.read_text(), f"### {name}", TABLES[name])


def test_the_spec_and_the_code_reject_for_the_same_reasons() -> None:
    assert [reason.strip("`") for reason, _ in read_table(SPEC.read_text(), "## Lines")[1]] == list(REASONS)


@pytest.mark.parametrize("name", TABLES)
def test_a_broken_document_is_refused_in_every_state(name: str) -> None:
    for state, row in TABLES[name].states():
        if EffectState.BROKEN in state.values() or CursorState.BROKEN in state.values():
            assert row.action.value == "refuse: the state is not sound", state
