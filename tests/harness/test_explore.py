"""Several crashes in a row: explored to a fixpoint, planned as deeper cells, and told from a beginning that is shared.

Real processes of the little program (tests/harness/toy.py), which is right, or wrong in a way that one crash does not show.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import conduct as conduct_module
from harness.branching import BranchingError, Node, go_on_from, kill_at, try_again
from harness.conduct import Conduct, RecycledPid, Story
from harness.deepen import DeepeningFailed, plan_deeper
from harness.engine import Engine
from harness.exploration import Exploration
from harness.explore import explore
from harness.model import CellResult, Step, Verdict
from harness.plan import parse_cell
from harness.runner import Project, open_engine, open_project
from tests.harness import toy
from tests.harness.support import family_of, start_harness, still_running

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the little program and the warm servers need Linux"),
    pytest.mark.usefixtures("toy_imports"),
]

SECOND, FOLDS, HARMLESS, BROKEN = "toy.second-time", "toy.folds", "toy.kill-does-nothing", "toy.broken"
REWINDS, INODES = "toy.rewinds", "toy.inodes"
SECOND_CRASH = f"{SECOND}/toy.pending#1=kill>toy.redone#1=kill"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    scenarios = {
        toy.HEALTHY: toy.scenario(),
        SECOND: toy.scenario("second-time"),
        FOLDS: toy.scenario(judge="Folds"),
        HARMLESS: toy.scenario("kill-does-nothing"),
        REWINDS: toy.scenario("rewinds"),
        INODES: toy.scenario(judge="KnowsInodes"),
        BROKEN: toy.scenario(prepare=[{"run": ["sh", "-c", "echo no disk >&2; exit 3"]}]),
    }
    return open_project(toy.write_toy(tmp_path_factory.mktemp("project"), toy.toy_matrix(scenarios)))


@pytest.fixture
def engine(project: Project, tmp_path: Path) -> Iterator[Engine]:
    with open_engine(project, "fork", tmp_path / "cells") as opened:
        yield opened


def search(project: Project, scenario: str, jobs: int = 1, **more: Any) -> Exploration:
    return explore(project, scenario, jobs=jobs, spawn="fork", **more)


def run(engine: Engine, project: Project, text: str) -> CellResult:
    return engine.run_cell(parse_cell(text, project.matrix))


def shape(found: Exploration) -> tuple[object, ...]:
    """All that does not differ from one search to the next."""
    states = [(state.number, state.depth, state.steps, state.rows) for state in found.states]
    return states, found.transitions, found.fixpoint


def test_the_closure_of_a_right_program(project: Project) -> None:
    """Two records, each pending, appended and cleared: the disks that crashes can leave are known by heart."""
    found = search(project, toy.HEALTHY)
    assert found.fixpoint and not found.findings and found.exit_status == 0
    assert {(state.tree.file("log"), state.tree.file("next")) for state in found.states} == {
        (b"a\nb\n", None),
        (b"a\nb\n", b"b"),
        (b"a\nb\n", b"c"),
        (b"a\nb\nc\n", None),
        (b"a\nb\nc\n", b"c"),
        (b"a\n", None),
        (b"a\n", b"b"),
    }
    assert found.depth == 1  # whatever a recovery leaves when it is killed, the first process could have left
    kills = [transition for transition in found.transitions if transition.step.point == "toy.redone"]
    assert len(kills) == 4 and found.rows == {"R1": 2, "R2": 2}


def test_the_search_does_not_depend_on_the_jobs(project: Project) -> None:
    alone = search(project, toy.HEALTHY, jobs=1)
    assert alone.fixpoint and shape(alone) == shape(search(project, toy.HEALTHY, jobs=3))


def test_a_mistake_that_only_a_second_crash_shows_is_found_by_its_shortest_path(
    project: Project, engine: Engine
) -> None:
    assert run(engine, project, f"{SECOND}/toy.pending#1=kill").verdict is Verdict.PASS
    found = search(project, SECOND)
    assert found.exit_status == 1 and not found.fixpoint
    finding = found.violations[0]
    assert ">".join(map(str, finding.steps)) == SECOND_CRASH.partition("/")[2]
    assert {violation.invariant for violation in finding.violations} >= {"append_at_most_once"}
    replayed = run(engine, project, SECOND_CRASH)
    assert replayed.verdict is Verdict.FAIL
    assert any(violation.invariant == "append_at_most_once" for violation in replayed.violations)


def test_a_kill_that_does_not_happen_is_no_fixpoint(project: Project) -> None:
    found = search(project, HARMLESS)
    assert found.exit_status == 2 and not found.fixpoint
    assert any("kill did not end it" in finding.unknown for finding in found.findings)


@pytest.mark.parametrize(("judge", "says"), [("Raises", "the judge stumbled"), ("EndsTheProcess", "the judge left")])
def test_a_judge_that_crashes_is_no_fixpoint(tmp_path: Path, judge: str, says: str) -> None:
    matrix = toy.write_toy(tmp_path / "project", toy.toy_matrix({"toy.crashes": toy.scenario(judge=judge)}))
    found = search(open_project(matrix), "toy.crashes")
    assert found.exit_status == 2 and not found.fixpoint
    assert says in found.findings[0].unknown


def test_a_search_that_is_stopped_proves_nothing(project: Project) -> None:
    found = search(project, toy.HEALTHY, depth_max=1)
    assert found.stopped and not found.fixpoint and found.exit_status == 2
    assert all(state.rows is None for state in found.states if state.depth == 1)


def test_folding_begins_after_the_exact_depth(project: Project) -> None:
    assert [len(search(project, FOLDS, exact_depth=depth).states) for depth in (0, 1)] == [2, 7]


def test_deeper_cells_are_the_states_that_fewer_crashes_do_not_leave(project: Project, engine: Engine) -> None:
    """A right recovery that is killed leaves what the first process could have left; the wrong one leaves a trace."""
    cells = plan_deeper(project, [toy.HEALTHY, SECOND], 2, jobs=2, spawn="fork")
    assert [str(cell) for cell in cells] == [SECOND_CRASH, SECOND_CRASH.replace("pending#1", "pending#2")]
    assert [engine.run_cell(cell).verdict for cell in cells] == [Verdict.FAIL, Verdict.FAIL]


def test_a_wrong_moment_on_the_way_to_a_state_that_is_known_is_found(project: Project, engine: Engine) -> None:
    """The recovery takes a record back and appends it again: killed between, it leaves what the first process left."""
    assert run(engine, project, f"{REWINDS}/toy.appended#1=kill").verdict is Verdict.PASS
    cells = plan_deeper(project, [REWINDS], 2, jobs=1, spawn="fork")
    results = [engine.run_cell(cell) for cell in cells]
    assert {str(result.cell): result.verdict for result in results} == {
        f"{REWINDS}/toy.appended#{hit}=kill>toy.redone#1=kill": Verdict.FAIL for hit in (1, 2)
    }
    found = search(project, REWINDS)
    assert found.exit_status == 1 and len(found.violations[0].steps) == 2
    assert "nothing_overwritten" in {violation.invariant for violation in found.violations[0].violations}


def test_nothing_is_planned_from_a_crash_that_did_not_happen(project: Project) -> None:
    with pytest.raises(DeepeningFailed, match="kill did not end it"):
        plan_deeper(project, [HARMLESS], 2, jobs=1, spawn="fork")


def test_a_program_that_knows_inodes_never_goes_on_in_a_copy(project: Project, engine: Engine) -> None:
    """Each branch is led there from the set-up: by a process of its own."""
    first = [run(engine, project, f"{INODES}/toy.pending#1=kill>toy.redone#1=kill").steps[0].pid for _ in range(2)]
    assert None not in first and first[0] != first[1]
    steps = (Step("toy.pending", 1, "kill"),)
    root = Node(0, INODES, (), Story([]))
    node = Node(0, INODES, steps, kill_at(engine, root, steps[0]))
    with go_on_from(engine, node) as conduct:
        assert conduct.story.worst is None and conduct.story.steps[0].step == steps[0]
        assert conduct.story.steps[0].pid != node.story.steps[0].pid
    assert search(project, INODES).fixpoint


def test_a_disk_is_watched_before_anything_can_write_to_it(
    project: Project, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    watch_tree = conduct_module.watch_tree

    @contextlib.contextmanager
    def watch(root: Path) -> Iterator[object]:
        with watch_tree(root) as found:
            order.append("watched")
            yield found

    monkeypatch.setattr(conduct_module, "watch_tree", watch)
    with engine.open_conduct(toy.HEALTHY, Story([])) as conduct:
        start = conduct._start

        def tell(role: str, argv: list[str], plan: str) -> object:
            order.append("started")
            return start(role, argv, plan)

        conduct._start = tell
        conduct.look_on(lambda _record, _tree: None)
    assert order == ["watched", "started"]


def test_each_further_crash_is_planned_from_the_one_before(project: Project) -> None:
    cells = plan_deeper(project, [SECOND], 4, jobs=1, spawn="fork")
    assert {cell.depth for cell in cells} == {2, 3, 4}
    for cell in cells:
        assert [step.point for step in cell.steps] == ["toy.pending", *["toy.redone"] * (cell.depth - 1)]


def test_a_set_up_that_fails_is_told_before_anything_runs(project: Project) -> None:
    with pytest.raises(DeepeningFailed, match=rf"{BROKEN}.*no disk"):
        plan_deeper(project, [BROKEN], 2, jobs=1, spawn="fork")


def test_a_shared_beginning_is_told_once(project: Project, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run(engine, project, f"{toy.HEALTHY}/toy.pending#1=kill>toy.redone#1=kill")
    second = run(engine, project, f"{toy.HEALTHY}/toy.pending#1=kill>toy.redone#1=error:EIO")
    other = run(engine, project, f"{toy.HEALTHY}/toy.appended#1=kill>toy.redone#1=kill")
    assert [result.verdict for result in (first, second, other)] == [Verdict.PASS] * 3
    assert first.steps[0] == second.steps[0] and first.steps[0].pid != other.steps[0].pid
    assert [len(result.steps) for result in (first, second, other)] == [2, 2, 2]
    monkeypatch.setattr(conduct_module, "is_in_use", lambda pid: pid == other.steps[0].pid)
    again = run(engine, project, f"{toy.HEALTHY}/toy.appended#1=kill>toy.redone#1=kill")
    assert again.verdict is Verdict.PASS and again.steps[0].pid != other.steps[0].pid


def test_a_beginning_that_went_wrong_is_not_shared(project: Project, engine: Engine) -> None:
    text = f"{toy.HEALTHY}/toy.pending#9=kill>toy.redone#1=kill"
    pids = [run(engine, project, text).steps[0].pid for _ in range(2)]
    assert None not in pids or pids == [None, None]
    assert run(engine, project, text).verdict is Verdict.UNREACHED


def test_a_number_that_was_given_out_again_is_another_try(
    project: Project, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    recycled = iter([True, False, False, False, False])
    go_on = Conduct.go_on

    def stumble(conduct: Conduct, step: Step) -> object:
        if next(recycled):
            raise RecycledPid("7 is in use again")
        return go_on(conduct, step)

    monkeypatch.setattr(Conduct, "go_on", stumble)
    assert run(engine, project, f"{toy.HEALTHY}/toy.pending#1=kill").verdict is Verdict.PASS
    recycled = iter([True] * 99)
    result = run(engine, project, f"{toy.HEALTHY}/toy.pending#1=kill")
    assert result.verdict is Verdict.UNKNOWN and result.why == "7 is in use again"


@pytest.mark.parametrize("where", ["before", "within", "after the circle begins again"])
def test_a_number_that_the_circle_passed_meanwhile_is_noticed(
    project: Project, engine: Engine, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A stranger may have had it for a moment, in which the program was told that the dead owner lives."""
    story = Story([])
    with engine.open_conduct(toy.HEALTHY, story) as conduct:
        conduct.run(Step("toy.pending", 1, "kill"))
        assert story.worst is None
        (dead,) = story.pids - {0}
        given = {"before": dead, "within": dead - 1, "after the circle begins again": dead + 1}[where]
        monkeypatch.setattr(
            conduct_module, "last_given", lambda: dead + 5 if where != "after the circle begins again" else dead
        )
        conduct._given = given
        if where == "before":
            conduct.settle()
        else:
            with pytest.raises(RecycledPid):
                conduct.settle()


def test_a_process_with_the_number_of_a_dead_one_of_its_story_is_noticed(project: Project, engine: Engine) -> None:
    story = Story([])
    with engine.open_conduct(toy.HEALTHY, story) as conduct:
        conduct.run(Step("toy.pending", 1, "kill"))
        assert story.worst is None
        story.pids.update(range(2, 1 << 22))
        with pytest.raises(RecycledPid):
            conduct.settle()


def test_a_branch_whose_dead_have_living_numbers_is_led_there_again(
    project: Project, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = (Step("toy.pending", 1, "kill"),)
    story = Story([])
    with engine.open_conduct(toy.HEALTHY, story) as conduct:
        conduct.run(steps[0])
        assert story.worst is None
    node = Node(0, toy.HEALTHY, steps, story)
    old = story.moments[-1].result.pid  # type: ignore[union-attr]
    monkeypatch.setattr(conduct_module, "is_in_use", lambda pid: pid == old)

    def settle(node: Node) -> int:
        branch = node.story.branch()
        with engine.open_conduct(node.scenario, branch) as conduct:
            conduct.settle()
        return branch.moments[1].result.pid  # type: ignore[union-attr]

    assert try_again(settle, engine, node) != old
    monkeypatch.setattr(conduct_module, "is_in_use", lambda pid: True)
    with pytest.raises(BranchingError):
        try_again(settle, engine, dataclasses.replace(node))


@pytest.mark.parametrize(("scenario", "status"), [(toy.HEALTHY, 0), (SECOND, 1), (HARMLESS, 2)])
def test_the_command(project: Project, tmp_path: Path, scenario: str, status: int) -> None:
    result = tmp_path / "graph.json"
    harness = start_harness(project.root, tmp_path / "temp", "explore", scenario, "--json", str(result))
    out, err = harness.communicate()
    assert harness.returncode == status, err
    document = json.loads(result.read_text())
    assert {"schema", "scenario", "states", "edges", "depth", "fixpoint", "abstraction", "rows", "violations",
            "duration_s"} <= document.keys()  # fmt: skip
    assert document["states"] == len(document["graph"]["states"]) and document["fixpoint"] is (status == 0)
    assert f"{document['states']} states, {document['edges']} edges, depth {document['depth']}" in out
    if status == 1:
        assert document["violations"][0]["path"] == SECOND_CRASH.partition("/")[2].split(">")
        assert f"killmatrix repro '{SECOND_CRASH}'" in out
    assert not list((tmp_path / "temp").iterdir())


@pytest.mark.parametrize("command", [["explore", "toy.waits"], ["run", "--depth", "2", "--scenario", "toy.waits"]])
def test_ctrl_c_ends_it_and_leaves_nothing(tmp_path: Path, command: list[str]) -> None:
    """In the middle of the first process, which waits for somebody who never lets it go on."""
    matrix = toy.write_toy(tmp_path / "project", toy.toy_matrix({"toy.waits": toy.scenario("waits")}))
    meeting = toy.Meeting(matrix.parent)
    harness = start_harness(matrix.parent, tmp_path / "temp", *command)
    meeting.wait()
    family = family_of(harness)
    harness.send_signal(signal.SIGINT)
    _, err = harness.communicate()
    assert harness.returncode == 130 and "interrupted" in err
    assert not still_running(family)
    assert not list((tmp_path / "temp").iterdir())


def test_a_scenario_that_is_not_there(project: Project, tmp_path: Path) -> None:
    harness = start_harness(project.root, tmp_path / "temp", "explore", "toy.helthy")
    _, err = harness.communicate()
    assert harness.returncode == 64 and toy.HEALTHY in err


def test_scenarios_that_treat_a_disk_alike_share_its_states(tmp_path: Path) -> None:
    """The second set-up is a state that the first leaves by its own death."""
    wrong = toy.scenario("second-time")
    prepare = [{"run": wrong["run"], "fault": "toy.pending#1=kill"}]
    twice = {SECOND: wrong, "toy.prepared": wrong | {"prepare": prepare, "run": wrong["recover"]}}
    project = open_project(toy.write_toy(tmp_path / "project", toy.toy_matrix(twice)))
    cells = plan_deeper(project, list(twice), 2, jobs=1, spawn="fork")
    assert [(cell.scenario, [step.point for step in cell.steps]) for cell in cells] == [
        (SECOND, ["toy.pending", "toy.redone"]),
        ("toy.prepared", ["toy.redone", "toy.redone"]),
    ]


def test_depth_on_the_command_line(project: Project, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    arguments = ["run", "--depth", "2", "--scenario", SECOND, "--fault", "kill", "--json", str(result), "--no-store"]
    harness = start_harness(project.root, tmp_path / "temp", *arguments)
    _, err = harness.communicate()
    assert harness.returncode == 1, err
    summary = json.loads(result.read_text())["summary"]
    assert summary["by_depth"]["1"]["cells"] == summary["by_depth"]["1"]["passed"] > 0
    assert summary["by_depth"]["2"] == {"cells": 2, "passed": 0}
