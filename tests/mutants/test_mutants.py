"""Each wrong program is red in the matrix: taking a protection out is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.mutants import read_mutants, run_mutants
from harness.plan import plan_cells
from harness.runner import default_spawn, open_project
from tests.mutants import run as _run  # noqa: F401  (fills the catalogue)
from tests.mutants.catalogue import MUTANTS

MATRIX = Path(__file__).resolve().parents[2] / "matrix.yaml"


@pytest.mark.parametrize("name", MUTANTS)
def test_a_named_cell_sees_the_mistake(name: str) -> None:
    project = open_project(MATRIX)
    mutants = [mutant for mutant in read_mutants(project) if mutant.id == name]
    (result,) = run_mutants(project, mutants, plan_cells(project.matrix), jobs=1, spawn=default_spawn())
    if result.mutant.excuse is not None:
        assert result.killed_by is None, "it has an excuse and a cell saw it: take the excuse away"
        assert not result.survived, result.unproven
        return
    assert result.killed_by is not None, result.unproven or f"no cell saw: {result.mutant.says}"
    assert result.invariant != "UNREACHED", "it leaves a point out; it should do wrong at it"
    assert result.cells_run <= 5, f"the cells named for it did not see it, {result.killed_by} did"
