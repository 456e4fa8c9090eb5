"""What comes back from a cluster is counted once, whatever comes; and how many cells go at a time."""

from __future__ import annotations

import pickle

import pytest

from harness.cluster.ledger import BATCH_S, FIRST_CELLS, Ledger, size_batch
from harness.model import Cell, CellResult, Step, Verdict
from harness.runner import Supply

CELLS = tuple(Cell("toy", (Step("toy.point", hit, "kill"),)) for hit in range(1, 7))


def answer(cell: Cell, duration_s: float = 0.1) -> tuple[bytes | None, str]:
    result = CellResult(cell, Verdict.PASS, (), None, (), None, 1, (), "", frozenset(), (), duration_s)
    return pickle.dumps(result), ""


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(Supply(CELLS, None))


def take(ledger: Ledger, threads: int = 1) -> tuple[str, tuple[Cell, ...]]:
    batch = ledger.take(threads)
    assert batch is not None
    return batch


def test_every_cell_goes_once(ledger: Ledger) -> None:
    taken: list[Cell] = []
    while batch := ledger.take(1):
        taken += batch[1]
    assert taken == list(CELLS) and len(ledger) > 1


def test_a_batch_that_comes_twice_counts_once(ledger: Ledger) -> None:
    key, cells = take(ledger)
    answers = [answer(cell) for cell in cells]
    assert [result.cell for result in ledger.settle(key, answers)] == list(cells)
    assert list(ledger.settle(key, answers)) == [] and len(ledger) == 0


def test_a_suspected_batch_runs_last_and_each_cell_alone(ledger: Ledger) -> None:
    """Also one of a single cell: it may have waited behind the guilty one. What still comes of it does not count."""
    key, cells = take(ledger)
    assert len(cells) > 1 and ledger.suspect(key) == ()
    assert list(ledger.settle(key, map(answer, cells))) == []
    others = []
    while batch := ledger.take(1):
        others.append(batch)
    assert not set(cells) & {cell for _, batch in others for cell in batch}
    lone, (late,) = others.pop()
    assert ledger.suspect(lone) == ()
    for other, of_it in others:
        assert ledger.take(1) is None
        list(ledger.settle(other, map(answer, of_it)))
    for cell in (*cells, late):
        key, alone = take(ledger)
        assert alone == (cell,) and ledger.take(1) is None
        assert ledger.suspect(key) == (cell,) if cell == CELLS[1] else list(ledger.settle(key, [answer(cell)]))
    assert ledger.take(1) is None and len(ledger) == 0


def test_what_nobody_can_run_is_not_lost(ledger: Ledger) -> None:
    key, cells = take(ledger)
    ledger.suspect(key)
    assert list(ledger.rest()) == list(CELLS) and cells


@pytest.mark.parametrize(
    "second", [(None, "it fell over"), (pickle.dumps("no result"), ""), answer(CELLS[0]), answer(CELLS[5]), None]
)
def test_a_cell_without_its_result_is_unknown(ledger: Ledger, second: tuple[bytes | None, str] | None) -> None:
    key, cells = take(ledger, 2)
    assert cells == CELLS[:2]
    answers = [answer(CELLS[0]), *([second] if second is not None else [])]
    first, other = ledger.settle(key, answers)
    assert (first.cell, first.verdict, other.cell, other.verdict) == (CELLS[0], Verdict.PASS, CELLS[1], Verdict.UNKNOWN)
    assert other.why and (second is None or second[0] is not None or other.why == "it fell over")


def test_the_first_batches_are_small_and_the_others_seconds() -> None:
    assert size_batch(10_000, 2, None) == FIRST_CELLS
    assert size_batch(10_000, 2, 0.01) == int(BATCH_S / 0.01)
    assert size_batch(10_000, 2, 60.0) == 1
    assert size_batch(8, 2, 0.01) == 2, "at the end everybody has something to do"
    assert size_batch(0, 0, None) == 1


def test_batches_follow_what_cells_took() -> None:
    ledger = Ledger(Supply(CELLS * 100, None))
    key, first = take(ledger)
    assert len(first) == FIRST_CELLS
    list(ledger.settle(key, [answer(cell, BATCH_S / 10) for cell in first]))
    assert len(take(ledger)[1]) == 10
