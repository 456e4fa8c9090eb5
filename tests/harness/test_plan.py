"""Cells: their ids round-trip, filters that select nothing are errors, shards are disjoint and complete."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.matrix import Matrix
from harness.model import Cell, Expect, Step
from harness.plan import Filter, PlanningError, parse_cell, plan_cells, plan_shards, select, shard
from tests.harness import toy

quick = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def matrix(**changes: Any) -> Matrix:
    """The little project's matrix, with ``changes`` to the row of toy.pending."""
    document = copy.deepcopy(toy.toy_matrix({toy.HEALTHY: toy.scenario(), "toy.other": toy.scenario("other")}))
    document["points"]["toy.pending"] |= changes
    return Matrix.model_validate(document)


CELLS = plan_cells(matrix())


def ids(cells: tuple[Cell, ...]) -> list[str]:
    return [str(cell) for cell in cells]


def test_every_scenario_point_hit_and_fault_is_one_cell() -> None:
    healthy = [cell for cell in CELLS if cell.scenario == toy.HEALTHY]
    assert len(healthy) == 2 * 2 + 7 * 2 + 2 * 2 and len(CELLS) == 2 * len(healthy) + 1
    assert len(set(ids(CELLS))) == len(CELLS)
    assert ids(CELLS)[:4] == [
        "toy.healthy/toy.pending#1=kill",
        "toy.healthy/toy.pending#1=rival:commit",
        "toy.healthy/toy.pending#2=kill",
        "toy.healthy/toy.pending#2=rival:commit",
    ]


def test_neighbours_share_a_scenario() -> None:
    scenarios = [cell.scenario for cell in CELLS]
    assert scenarios == sorted(scenarios, key=[toy.HEALTHY, "toy.other", toy.RECOVERING].index)


def test_hits_by_scenario() -> None:
    planned = plan_cells(matrix(hits={"toy.other": 3}))
    hits = {(c.scenario, c.steps[0].hit) for c in planned if c.steps[0].point == "toy.pending"}
    assert hits == {(toy.HEALTHY, 1), ("toy.other", 1), ("toy.other", 2), ("toy.other", 3)}


def test_a_fault_that_is_tried_in_one_scenario_only() -> None:
    planned = plan_cells(matrix(only_in={"rival:*": ["toy.other"]}))
    with_fault = {(c.scenario, c.steps[0].fault) for c in planned if c.steps[0].point == "toy.pending"}
    assert with_fault == {(toy.HEALTHY, "kill"), ("toy.other", "kill"), ("toy.other", "rival:commit")}


def test_each_cell_expects_what_its_row_says_for_its_scenario() -> None:
    planned = plan_cells(matrix(expect_in={"toy.other": {"kill": {"row": "R7", "resumes": "B4"}}}))
    expected = {
        c.scenario: c.expect for c in planned if c.steps[0].point == "toy.pending" and c.steps[0].fault == "kill"
    }
    assert expected == {toy.HEALTHY: Expect(row="R1"), "toy.other": Expect(row="R7", resumes="B4")}
    assert {c.expect for c in planned if c.steps[0].fault == "rival:commit"} == {Expect(code="BUSY")}


# --- ids


@pytest.mark.parametrize("cell", CELLS[::5], ids=str)
def test_an_id_is_read_back_as_the_cell_with_its_expectation(cell: Cell) -> None:
    assert parse_cell(str(cell), matrix()) == cell
    assert parse_cell(f"matrix.yaml::{cell}\n", matrix()) == cell, "as pytest prints it"


steps = st.builds(
    Step,
    st.sampled_from(["toy.pending", "toy.appended", "toy.redone"]),
    st.integers(1, 10**6),
    st.sampled_from(["kill", "term", "error:EIO", "rival:commit", "tamper:a-b.c"]),
)


@quick
@given(st.sampled_from([toy.HEALTHY, "toy.other"]), st.lists(steps, min_size=1, max_size=4))
def test_every_id_round_trips(scenario: str, chain: list[Step]) -> None:
    cell = Cell(scenario, tuple(chain))
    read = parse_cell(str(cell), matrix())
    assert (read.scenario, read.steps, str(read), read.depth) == (cell.scenario, cell.steps, str(cell), len(chain))


def test_a_chain_expects_no_row_of_its_own() -> None:
    assert parse_cell("toy.healthy/toy.pending#1=kill>toy.redone#1=kill", matrix()).expect == Expect()


def test_a_chain_expects_what_is_due_whatever_came_before() -> None:
    """The code of its rivals where all rows that speak of them agree, and the refusal that its last fault leads to."""
    rivals = "toy.healthy/toy.pending#1=rival:commit>toy.appended#1=rival:commit>toy.redone#1=kill"
    assert parse_cell(rivals, matrix()).expect == Expect(code="BUSY")
    other = matrix(expect={"rival:*": {"code": "E_OTHER"}})
    assert parse_cell(rivals, other).expect == Expect()
    refusing = matrix(expect={"kill": {"row": "R9", "refuses": "E_LOCK"}})
    chain = "toy.healthy/toy.appended#1=kill>toy.pending#1=kill"
    assert parse_cell(chain, refusing).expect == Expect(refuses="E_LOCK")
    assert parse_cell(f"{chain}>toy.redone#1=kill", refusing).expect == Expect()
    divided = matrix(expect={"kill": {"refuses": "E_LOCK"}}, expect_in={"toy.other": {"kill": {"refuses": "E_MORE"}}})
    assert parse_cell(chain, divided).expect == Expect()


def test_a_chain_expects_the_refusal_that_its_scenario_is_about() -> None:
    """Where the rows of its last point do not agree, and every kill of the scenario leads to one refusal."""
    document = matrix().model_dump(by_alias=True, exclude_defaults=True)
    for row in document["points"].values():
        if "toy.other" in row["scenarios"] and "kill" in row["faults"]:
            row["expect_in"] = {"toy.other": {"kill": {"refuses": "E_MORE"}}}
    divided = Matrix.model_validate(document)
    chain = "toy.appended#1=kill>toy.pending#1=kill"
    assert parse_cell(f"toy.other/{chain}", divided).expect == Expect(refuses="E_MORE")
    assert parse_cell(f"toy.healthy/{chain}", divided).expect == Expect()
    document["points"]["toy.pending"]["expect_in"]["toy.other"]["kill"]["refuses"] = "E_LESS"
    assert parse_cell(f"toy.other/{chain}", Matrix.model_validate(document)).expect == Expect()


def test_a_chain_expects_the_refusal_that_it_began_with() -> None:
    """Where no row speaks of its last point in its scenario: a recovery that refuses, and is killed, refuses again."""
    begun = matrix(expect={"kill": {"row": "R9", "refuses": "E_LOCK"}})
    chain = "toy.pending#1=kill>toy.redone#1=kill"
    assert parse_cell(f"toy.healthy/{chain}", begun).expect == Expect(refuses="E_LOCK")
    assert parse_cell(f"toy.healthy/{chain}", matrix()).expect == Expect()


def test_a_step_that_the_matrix_does_not_plan_expects_no_row_either() -> None:
    """A point is tried by hand in a scenario that no row names for it."""
    assert parse_cell("toy.healthy/toy.redone#1=kill", matrix()).expect == Expect()
    assert parse_cell(f"{toy.RECOVERING}/toy.redone#1=kill", matrix()).expect == Expect(row="R2")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is no scenario"),
        ("toy.healthy", "is no scenario"),
        ("toy.helthy/toy.pending#1=kill", "'toy.helthy' is no scenario.*nearest known: toy.healthy"),
        ("toy.healthy/", "cannot read ''"),
        ("toy.healthy/toy.pending", "cannot read 'toy.pending'"),
        ("toy.healthy/toy.pending#0=kill", "cannot read"),
        ("toy.healthy/toy.pending#1=", "cannot read"),
        ("toy.healthy/toy.pendin#1=kill", "no point 'toy.pendin'.*nearest known: toy.pending"),
        ("toy.healthy/toy.pending#1=kil", "unknown fault 'kil'.*nearest known: kill"),
        ("toy.healthy/toy.pending#1=error:ENOPSC", "unknown errno 'ENOPSC'"),
        ("toy.healthy/toy.pending#1=rival:comit", "no rival 'comit'.*nearest known: commit"),
        ("toy.healthy/toy.pending#1=kill>", "cannot read ''"),
        ("toy.healthy/toy.pending#1=kill>toy.redone#1=kil", "unknown fault 'kil'"),
    ],
)
def test_what_is_no_cell_of_this_matrix(text: str, says: str) -> None:
    with pytest.raises(PlanningError, match=says):
        parse_cell(text, matrix())


# --- filters


def test_filters_are_globs_or_parts_of_a_name() -> None:
    assert select(CELLS, Filter()) == CELLS and Filter().selects_everything
    assert {cell.scenario for cell in select(CELLS, Filter(scenario="*.other"))} == {"toy.other"}
    assert {cell.scenario for cell in select(CELLS, Filter(scenario="recover"))} == {toy.RECOVERING}
    assert {cell.steps[0].point for cell in select(CELLS, Filter(point="toy.[ac]*"))} == {"toy.appended", "toy.cleared"}
    faults = {cell.steps[0].fault for cell in select(CELLS, Filter(fault="tamper:*"))}
    assert faults == {"tamper:stranger", "tamper:stranger-then-kill", "tamper:shoot"}
    one = select(CELLS, Filter("toy.healthy", "toy.appended", "error"))
    assert ids(one) == ["toy.healthy/toy.appended#1=error:ENOSPC", "toy.healthy/toy.appended#2=error:ENOSPC"]
    assert not Filter(fault="kill").selects_everything


def test_a_filter_is_told_as_it_was_asked_for() -> None:
    assert str(Filter()) == "" and str(Filter(fault="kill")) == "--fault kill"
    assert str(Filter("toy.*", "a b", "kill")) == "--scenario 'toy.*' --point 'a b' --fault kill"


def test_a_filter_looks_at_every_step_of_a_chain() -> None:
    chain = parse_cell("toy.healthy/toy.pending#1=kill>toy.redone#1=term", matrix())
    assert select([chain], Filter(point="toy.redone", fault="term")) == (chain,)


@pytest.mark.parametrize(
    "chosen", [Filter(scenario="nobody"), Filter(point="KILL"), Filter(fault="power"), Filter("", "", "x")]
)
def test_a_filter_that_selects_nothing_is_an_error(chosen: Filter) -> None:
    """A typo must not pass as green."""
    with pytest.raises(PlanningError, match="no cell matches"):
        select(CELLS, chosen)


# --- shards


@quick
@given(st.integers(1, 40), st.integers(0, 60))
def test_shards_are_disjoint_and_complete(count: int, size: int) -> None:
    cells = [Cell("s", (Step("p", hit, "kill"),)) for hit in range(1, size + 1)]
    parts = [shard(cells, index, count) for index in range(1, count + 1)]
    assert sorted((cell for part in parts for cell in part), key=lambda cell: cell.steps[0].hit) == cells
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_shard_is_the_part_of_its_number() -> None:
    assert [shard(CELLS, number, 4) for number in range(1, 5)] == list(plan_shards(CELLS, 4))


@pytest.mark.parametrize(("index", "count"), [(0, 3), (4, 3), (-1, 3), (1, 0)])
def test_a_shard_that_is_none(index: int, count: int) -> None:
    with pytest.raises(PlanningError, match="1 <= I <= N"):
        shard(CELLS, index, count)


def test_planning_is_the_same_every_time(tmp_path: Path) -> None:
    """Shards on two machines are of one plan."""
    assert plan_cells(matrix()) == CELLS
