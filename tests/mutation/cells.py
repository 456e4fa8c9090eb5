"""The kill matrix as a test of a changed line."""

from __future__ import annotations

import fnmatch
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


def is_seen_by_a_cell(scenarios: str) -> bool:
    """Whether a cell is not green, of one at each point that the scenarios of that glob have."""
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
    """One of each point, the same each time."""
    random.Random(0).shuffle(cells)
    return iter({cell.steps[0].point: cell for cell in cells}.values())
