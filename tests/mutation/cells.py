"""The kill matrix as a test of a changed line."""

from __future__ import annotations

import fnmatch
import itertools
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from harness.matrix import MatrixError
from harness.model import Cell, Verdict
from harness.plan import plan_cells
from harness.runner import open_engine, open_project
from harness.sandbox import session_directory

CELLS_MOST = 80


def is_seen_by_a_cell(scenarios: str) -> bool:
    """Whether one of CELLS_MOST cells, drawn evenly from the scenarios of that glob, is not green."""
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    try:
        project = open_project(Path("matrix.yaml"))
    except MatrixError:  # the program can not even tell its points any more
        return True
    cells = [cell for cell in plan_cells(project.matrix) if fnmatch.fnmatchcase(cell.scenario, scenarios)]
    with session_directory() as root, open_engine(project, "fork", root / "cells") as engine:
        return any(engine.run_cell(cell).verdict is not Verdict.PASS for cell in _draw(cells))


def _draw(cells: list[Cell]) -> Iterator[Cell]:
    """The same each time: of every scenario one, and again."""
    random.Random(0).shuffle(cells)
    by_scenario = [list(some) for _, some in itertools.groupby(sorted(cells, key=_scenario), key=_scenario)]
    turns = itertools.chain.from_iterable(itertools.zip_longest(*by_scenario))
    return itertools.islice((cell for cell in turns if cell is not None), CELLS_MOST)


def _scenario(cell: Cell) -> str:
    return cell.scenario
