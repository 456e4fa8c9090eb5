"""Shards: disjoint and complete on every machine, alike in time, and joined again only where they are those of one plan."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.merge import MergeError, merge_shards
from harness.model import Cell, CellResult, Run, Shard, Step, Verdict
from harness.plan import fingerprint_shards, plan_shards
from harness.report.tally import summarize
from tests.harness import toy
from tests.harness.support import TIMEOUT_S, start_harness
from tests.harness.test_report_sample import make_result, make_run

quick = settings(max_examples=60, deadline=None)
CELLS = [Cell("s", (Step("p", hit, "kill"),)) for hit in range(1, 61)]
durations = st.dictionaries(st.sampled_from([str(cell) for cell in CELLS]), st.floats(0, 30))


# --- the plan


@quick
@given(st.integers(1, 12), durations)
def test_shards_are_disjoint_complete_and_in_order(count: int, told: dict[str, float]) -> None:
    parts = plan_shards(CELLS, count, told)
    assert len(parts) == count
    assert sorted((cell for part in parts for cell in part), key=CELLS.index) == CELLS
    for part in parts:
        assert list(part) == sorted(part, key=CELLS.index), "cells that share a set-up stay neighbours"


@quick
@given(st.integers(1, 12), durations)
def test_no_shard_has_much_more_to_do_than_another(count: int, told: dict[str, float]) -> None:
    """Two differ by one cell at the most: the last that the longer one got, when it was the one with the least to do."""
    usual = median(told.values()) if told else 1.0
    loads = [sum(told.get(str(cell), usual) for cell in part) for part in plan_shards(CELLS, count, told)]
    assert max(loads) - min(loads) <= max([usual, *told.values()]) + 0.01


def test_the_longest_go_first() -> None:
    told = {str(cell): weight for cell, weight in zip(CELLS, (7.0, 6.0, 5.0, 4.0, 3.0, 2.0), strict=False)}
    parts = plan_shards(CELLS[:6], 3, told)
    assert [[cell.steps[0].hit for cell in part] for part in parts] == [[1, 6], [2, 5], [3, 4]]


def test_a_cell_that_was_never_run_counts_as_the_median() -> None:
    told = {str(CELLS[0]): 1.0, str(CELLS[1]): 4.0, str(CELLS[2]): 40.0}  # so the fourth counts 4
    parts = plan_shards(CELLS[:4], 2, told)
    assert [[cell.steps[0].hit for cell in part] for part in parts] == [[3], [1, 2, 4]]


def test_durations_of_no_length_do_not_fill_one_shard() -> None:
    parts = plan_shards(CELLS, 4, {str(cell): 0.0 for cell in CELLS})
    assert [len(part) for part in parts] == [15] * 4


@quick
@given(st.integers(2, 6), st.integers(0, 59))
def test_the_fingerprint_tells_plans_apart(count: int, moved: int) -> None:
    parts = [list(map(str, part)) for part in plan_shards(CELLS, count)]
    whole = fingerprint_shards(parts)
    assert whole == fingerprint_shards([sorted(part, reverse=True) for part in parts]), "order within one says nothing"
    home = next(part for part in parts if str(CELLS[moved]) in part)
    home.remove(str(CELLS[moved]))
    without = fingerprint_shards(parts)
    parts[(parts.index(home) + 1) % count].append(str(CELLS[moved]))
    assert len({whole, without, fingerprint_shards(parts)}) == 3


# --- joined again


def run_shards(count: int = 3, cells: int = 10, **changes: Any) -> list[tuple[str, Run]]:
    """What each of ``count`` machines would have written, every cell a pass."""
    all_cells = [make_result(hit=hit).cell for hit in range(1, cells + 1)]
    parts = plan_shards(all_cells, count)
    plan = fingerprint_shards([str(cell) for cell in part] for part in parts)
    shards = []
    for index, part in enumerate(parts, 1):
        results = [make_result(hit=cell.steps[0].hit) for cell in part]
        shard = Shard(index, count, plan, cells, True)
        run = make_run(results, run_id=f"run-{index}", shard=shard, whole=False, fingerprints={"sources": "a"})
        shards.append((f"{index}.json", replace(run, **changes)))
    return shards


def problems_of(shards: list[tuple[str, Run]]) -> str:
    """Why the shards together are no pass; not one of their cells says so."""
    merged = merge_shards(shards)
    assert summarize(merged).exit_status == 2 and not merged.whole
    return "\n".join(merged.problems)


def without(run: Run, dropped: CellResult) -> Run:
    results = [result for result in run.results if result is not dropped]
    return replace(run, results=results, planned=len(results))


def test_all_shards_of_a_plan_are_one_run() -> None:
    shards = run_shards()
    for order in (shards, shards[::-1]):
        merged = merge_shards(order)
        assert merged.problems == () and merged.whole and merged.shard is None and len(merged.results) == 10
        assert summarize(merged).exit_status == 0 and summarize(merged).reasons == ()
    assert merged.planned == 10 and merged.duration_s == 2.0 and merged.jobs == 6


def test_points_that_no_shard_reached_count_where_the_plan_was_the_whole_matrix() -> None:
    shards = run_shards(listed_points=frozenset({"shop.pay.charged", "shop.never"}))
    assert "shop.never is listed and no cell reached it" in summarize(merge_shards(shards)).reasons
    partly = [(name, replace(run, shard=replace(run.shard, whole=False))) for name, run in shards if run.shard]
    assert summarize(merge_shards(partly)).exit_status == 0


def test_a_violation_in_one_shard_is_a_violation() -> None:
    shards = run_shards()
    name, run = shards[1]
    shards[1] = (name, replace(run, results=[make_result(hit=2, verdict=Verdict.FAIL), *run.results[1:]]))
    assert summarize(merge_shards(shards)).exit_status == 1
    assert summarize(merge_shards(shards[1:])).exit_status == 1, "also where another shard is missing"


def test_a_shard_is_missing() -> None:
    assert "shard 2 of 3 is missing" in problems_of([run_shards()[0], run_shards()[2]])
    assert "shard 2, 3 of 3 is missing" in problems_of(run_shards()[:1]), "one alone is not the plan"


def test_a_shard_is_there_twice() -> None:
    shards = run_shards()
    told = problems_of([*shards, ("copy.json", shards[0][1])])
    assert "shard 1 of 3 is there more than once: 1.json and copy.json" in told
    assert "is in two shards: 1.json and copy.json" in told


def test_a_cell_is_in_two_shards() -> None:
    """The worse of its results is taken."""
    shards = run_shards()
    strange = make_result(hit=shards[0][1].results[0].cell.steps[0].hit, verdict=Verdict.UNREACHED)
    for place in (1, 2):
        name, run = shards[place]
        spoilt = [*shards]
        spoilt[place] = (name, replace(run, results=[*run.results, strange], planned=run.planned + 1))
        assert f"{strange.cell} is in two shards: 1.json and {name}" in problems_of(spoilt)
        assert Verdict.UNREACHED in {result.verdict for result in merge_shards(spoilt).results}


def test_a_cell_is_in_no_shard() -> None:
    shards = run_shards()
    name, run = shards[2]
    shards[2] = (name, without(run, run.results[0]))
    assert "1 of 10 cells of the plan are in no shard" in problems_of(shards)


def test_a_cell_changed_places() -> None:
    """As many cells as there should be, and each once; but not those of the plan."""
    shards = run_shards()
    name, run = shards[2]
    shards[2] = (name, replace(run, results=[make_result(hit=77), *run.results[1:]]))
    assert "the cells of these shards are not those of their plan" in problems_of(shards)


def test_a_shard_of_another_plan() -> None:
    other = run_shards(cells=11)
    assert "2.json and 1.json are shards of two plans" in problems_of([run_shards()[0], other[1], run_shards()[2]])
    assert "shards of two plans" in problems_of([*run_shards()[:2], run_shards(4)[2]])


def test_a_shard_of_other_sources() -> None:
    shards = run_shards()
    shards[1] = ("2.json", replace(shards[1][1], fingerprints={"sources": "b"}))
    assert "2.json and 1.json were not made of the same: the project's Python sources" in problems_of(shards)


def test_a_shard_that_was_interrupted() -> None:
    shards = run_shards()
    name, run = shards[0]
    shards[0] = (name, replace(run, results=run.results[1:], interrupted=True))
    merged = merge_shards(shards)
    told = summarize(merged)
    assert told.exit_status == 2 and told.reasons == ("the run was interrupted", "1 of 10 planned cells have no result")


def test_a_shard_that_its_budget_cut() -> None:
    """Told, and not the whole matrix; what ran is a pass."""
    shards = run_shards()
    name, run = shards[0]
    shards[0] = (name, replace(run, results=run.results[1:], left_out=1))
    merged = merge_shards(shards)
    assert summarize(merged).exit_status == 0 and merged.left_out == 1 and not merged.whole and merged.problems == ()


def test_what_is_no_shard() -> None:
    with pytest.raises(MergeError, match=r"whole\.json is no shard"):
        merge_shards([*run_shards(), ("whole.json", make_run([make_result()]))])


# --- the commands


@pytest.mark.skipif(sys.platform != "linux", reason="the little program needs Linux")
def test_shards_by_the_command_line(tmp_path: Path) -> None:
    """A duration file makes other shards than none; all of a plan are the run; of two plans they are not."""
    project, temp = tmp_path / "project", tmp_path / "temp"
    toy.write_toy(project, toy.small_matrix())

    def call(*arguments: str) -> tuple[int, str]:
        process = start_harness(project, temp, *arguments)
        out, err = process.communicate(timeout=TIMEOUT_S)
        return int(process.returncode), out + err

    assert call("run", "--json", "whole.json", "--no-store")[0] == 0
    document = json.loads((project / "whole.json").read_text())
    for number, cell in enumerate(document["cells"]):
        cell["duration_ms"] = 1000.0 if number == 0 else 1.0
    (project / "durations.json").write_text(json.dumps(document))
    for index in ("1", "2"):
        assert call("run", "--shard", f"{index}/2", "--durations", "durations.json", "--json", f"{index}.json")[0] == 0
        assert call("run", "--shard", f"{index}/2", "--json", f"plain-{index}.json")[0] == 0
    sizes = [json.loads((project / f"{index}.json").read_text())["summary"]["cells"] for index in (1, 2)]
    assert sizes == [1, 6], "the long one has a shard of its own"
    status, told = call("report", "2.json", "1.json", "--json", "joined.json")
    assert status == 0 and "PASS: All 7 cells passed." in told
    joined = json.loads((project / "joined.json").read_text())
    assert {cell["id"] for cell in joined["cells"]} == {cell["id"] for cell in document["cells"]}
    for wrong, why in (
        (("1.json",), "shard 2 of 2 is missing"),
        (("1.json", "plain-2.json"), "are shards of two plans"),
        (("1.json", "2.json", "2.json"), "is there more than once"),
    ):
        status, told = call("report", *wrong)
        assert status == 2 and why in told and "PASS:" not in told
    assert call("report", "1.json", "whole.json")[0] == 64
    for arguments, why in (
        (("--durations", "durations.json"), "--durations is for --shard"),
        (("--shard", "1/2", "--durations", "none.json"), "--durations none.json"),
        (("--shard", "1/2", "--durations", "matrix.yaml"), "--durations matrix.yaml"),
        (("--shard", "8/8"), "there are 7 cells only"),
    ):
        status, told = call("run", *arguments)
        assert status == 64 and why in told
