"""What real processes do from every disk that crashes can leave, held against a model written from the spec alone.

The real search and the model's must know the same disks, take the same rows from each, and lead from one to another only
where the model does. A difference is a bug in one of the two.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.deepen import plan_deeper
from harness.exploration import Exploration
from harness.explore import explore
from harness.model import Verdict
from harness.mutants import with_mutant
from harness.plan import parse_cell, plan_cells
from harness.runner import default_spawn, open_project, run_cells
from tests.model.collector import Disk, closure, disks_after_death, journey
from tests.model.collector_disk import read_disk

ROOT = Path(__file__).resolve().parents[2]
HELD = Disk(phase="PREPARED", claim="HELD", lock="CLAIM").dead()
ALL_ROWS = {*"C1 C2 C3 C4 C5 C6 C7 T1 T2 T3 T4 T5 T6 T7 T8 T10 T11 X0 X1 X2 X3 X4 X5 X6 X7".split()}
pytestmark = pytest.mark.skipif(default_spawn() != "fork", reason="explorations are slow without warm forks")


def rows_of(disk: Disk, *, exchanged: bool) -> tuple[str, ...]:
    return tuple(row for turn in journey(disk, exchanged=exchanged) for row in turn.rows)


@pytest.fixture(scope="module")
def takeover() -> Exploration:
    return explore_real("collector.takeover-held")


def explore_real(scenario: str, depth_max: int | None = None) -> Exploration:
    project = open_project(ROOT / "matrix.yaml")
    found = explore(project, scenario, jobs=os.cpu_count() or 1, spawn="fork", exact_depth=0, depth_max=depth_max)
    assert not found.findings, found.findings[0]
    return found


def compare(found: Exploration, run_id: str, *, exchanged: bool) -> set[Disk]:
    """Each state's rows and each transition against the model; the model's disks that were really there."""
    disks = {state.number: read_disk(state.tree, run_id) for state in found.states if state.depth}
    for state in found.states:
        if state.depth and state.rows is not None:
            assert state.rows == rows_of(disks[state.number], exchanged=exchanged), state.steps
    for transition in found.transitions:
        if transition.source:
            before, after = disks[transition.source], disks[transition.target]
            assert after in disks_after_death(before, exchanged=exchanged), (before, transition.step, after)
    return set(disks.values())


def test_a_takeover_is_closed_and_is_the_models(takeover: Exploration) -> None:
    assert takeover.fixpoint
    real = compare(takeover, "first", exchanged=False)
    model = set(closure(HELD, exchanged=False))
    assert real == model


def test_every_row_is_taken_by_a_real_process(takeover: Exploration) -> None:
    """The closure of the takeover, and one crash and its recovery from an empty archive and from one that has a base."""
    first = explore_real("collector.first-commit", depth_max=2)
    compare(first, "first", exchanged=False)
    second = explore_real("collector.second-commit", depth_max=2)
    compare(second, "second", exchanged=True)
    taken = {*takeover.rows, *first.rows, *second.rows}
    assert taken >= ALL_ROWS, ALL_ROWS - taken


@pytest.mark.parametrize("exchanged", [False, True])
def test_the_model_itself_ends_appends_once_and_leaves_nothing(exchanged: bool) -> None:
    for disk in closure(Disk(phase="PREPARED"), exchanged=exchanged):
        turns = journey(disk, exchanged=exchanged)
        end = turns[-1].changes[-1] if turns else disk
        assert (end.phase, end.lock, end.aside, end.attempt, end.listed, end.out) == (None, None, False, False, 0, None)
        assert sum("X2" in turn.rows for turn in turns) == (0 if disk.cards else 1)


MISTAKE = "attempt-listed-by-its-mover"
PLACE = "collector.takeover.attempt-rename"


def test_a_mistake_that_only_another_crash_shows_is_found_by_depth_and_by_exploring() -> None:
    """One crash in a takeover does not show it: the claimant has to die, and then the recovery that moves its lock."""
    project = with_mutant(open_project(ROOT / "matrix.yaml"), MISTAKE)
    scenario, jobs = "collector.takeover-held", os.cpu_count() or 1
    shallow = [c for c in plan_cells(project.matrix) if c.scenario == scenario and c.steps[0].fault == "kill"]
    cells = plan_deeper(project, [scenario], 2, jobs=jobs, spawn="fork")
    deep = [cell for cell in cells if any(step.point.startswith(PLACE) for step in cell.steps)]
    done = run_cells(project, [*shallow, *deep], jobs=jobs, spawn="fork", whole=False)
    failed = [result.cell for result in done.results if result.verdict is not Verdict.PASS]
    assert failed and all(cell.depth == 2 for cell in failed)
    found = explore(project, scenario, jobs=jobs, spawn="fork", exact_depth=0)
    (finding, *_) = found.violations
    assert len(finding.steps) == 2 and finding.steps[1].point.startswith(PLACE)
    path = f"{scenario}/{'>'.join(map(str, finding.steps))}"
    again = run_cells(project, [parse_cell(path, project.matrix)], jobs=1, spawn="fork", whole=False)
    assert again.results[0].verdict is Verdict.FAIL
