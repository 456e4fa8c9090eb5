"""Which cells are under way, how many go next, and what counts of what comes back. Knows no Dask.

A batch is a few seconds of work: much longer than the milliseconds that a cluster takes to hand it over, and short enough
that a lost worker costs little, that progress is seen, and that no worker is still busy when the others have long ended.
"""

from __future__ import annotations

import itertools
import math
import pickle
from collections import deque
from collections.abc import Iterable, Iterator

from harness.model import Cell, CellResult
from harness.runner import Supply, lost_cell

BATCH_S = 2.0
FIRST_CELLS = 4  # nothing is known yet of how long one takes


def size_batch(left: int, threads: int, mean_s: float | None) -> int:
    """How many of ``left`` cells go next to one of ``threads``. ``mean_s``: what one took so far; None: not known."""
    fair = math.ceil(left / (2 * max(1, threads)))
    wanted = FIRST_CELLS if mean_s is None else int(BATCH_S / max(mean_s, 1e-6))
    return max(1, min(wanted, fair))


class Ledger:
    """Batches by key. Each cell that was taken from the supply comes out of it with one result, never with two.

    A batch on which workers were lost is not yet guilty: a cluster suspects also what was only waiting on a worker that
    was lost. Its cells are run again when all others are done, each alone, so that it is known which of them it is.
    """

    def __init__(self, supply: Supply) -> None:
        self._supply = supply
        self._under_way: dict[str, tuple[Cell, ...]] = {}
        self._suspects: deque[Cell] = deque()
        self._alone = ""  # the batch that ran, or runs, with no other under way
        self._numbers = itertools.count()
        self._timed, self._total_s = 0, 0.0

    def __len__(self) -> int:
        """How many batches are under way."""
        return len(self._under_way)

    def take(self, threads: int) -> tuple[str, tuple[Cell, ...]] | None:
        """Key and cells of the next batch, which is under way now. None: there is no more, or not before others are done."""
        mean_s = self._total_s / self._timed if self._timed else None
        key = f"batch-{next(self._numbers)}"
        cells = tuple(itertools.islice(self._supply, size_batch(self._supply.left, threads, mean_s)))
        if not cells and self._suspects and not self._under_way:
            cells, self._alone = (self._suspects.popleft(),), key
        if not cells:
            return None
        self._under_way[key] = cells
        return key, cells

    def suspect(self, key: str) -> tuple[Cell, ...]:
        """Workers were lost on this batch. Returns the cell that ends them, if that is certain."""
        cells = self._under_way.pop(key, ())
        if key == self._alone:
            return cells
        self._suspects.extend(cells)
        return ()

    def rest(self) -> Iterator[Cell]:
        """What nobody can run any more."""
        return itertools.chain(self._suspects, self._supply)

    def settle(self, key: str, answers: Iterable[tuple[bytes | None, str]]) -> Iterator[CellResult]:
        """A result for each cell of a batch. Nothing for one that has been settled or is a suspect, whatever comes."""
        cells = self._under_way.pop(key, ())
        missing = (None, "the worker gave no answer for it")
        for cell, (packed, why) in zip(cells, itertools.chain(answers, itertools.repeat(missing)), strict=False):
            result = pickle.loads(packed) if packed is not None else None
            if not isinstance(result, CellResult) or result.cell != cell:
                result = lost_cell(cell, why or "the worker answered for something else")
            else:
                self._timed, self._total_s = self._timed + 1, self._total_s + result.duration_s
            yield result
