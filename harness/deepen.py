"""Cells of depth 2 and more: a crash inside the recovery of a crash (harness.md, "Words").

They are planned from what is reachable, not from a product of points: a dry run of each recovery, held at each of its
points, tells which disks it passes. One cell is planned for each state that so many crashes can leave and fewer cannot; the
scenario's canonical form, unfolded, says what is one state. A recovery is a new process and knows nothing but the disk, so
another way to the same state would try the same again, and so would another scenario that recovers, retries and judges
alike. What a recovery must not do on its way there is looked at in the dry run: a place where the disk is wrong already has
its cell, whatever state it is. The cells are run like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from harness.branching import Node, Places, go_on_from, kill_at, open_engines, try_again
from harness.conduct import Story
from harness.engine import Engine
from harness.judge.invariants import judge_passage
from harness.judge.scenario import History, Moment
from harness.model import Cell, Step
from harness.plan import expect_of
from harness.runner import Project, SpawnKind
from harness.sandbox import session_directory


class DeepeningFailed(Exception):
    """A dry run could not be made: nothing is known about what is reachable. The message says in which scenario."""


@dataclass(frozen=True, slots=True)
class Place:
    """A disk to survey from: what is left when the process that starts on ``node`` is killed at ``step``."""

    node: Node
    step: Step | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """The disk, and where the process that starts on it can be killed: the form of what that leaves -> the step.

    ``wrong``: the forms of disks that should not have been there, however they go on.
    """

    node: Node
    places: Mapping[str, Step]
    wrong: frozenset[str]


def plan_deeper(
    project: Project,
    scenarios: Iterable[str],
    depth: int,
    *,
    jobs: int,
    spawn: SpawnKind,
    observe: Callable[[int], None] = lambda _cells: None,
) -> tuple[Cell, ...]:
    """Every cell of depth 2 to ``depth``, in a fixed order; ``observe`` is told how many are known so far.

    Raises DeepeningFailed.
    """
    cells: list[Cell] = []
    frontier = [Place(Node(0, name, (), Story([], name))) for name in scenarios]
    seen: set[tuple[str, str]] = set()
    with session_directory() as root, open_engines(project, spawn, root, jobs) as engines:
        for level in range(1, depth + 1):
            new: list[Place] = []
            for survey in engines.map(_try_to_survey, frontier):
                for form, step in survey.places.items():
                    state = (_kind(project, survey.node.scenario), form)
                    if state not in seen:
                        new.append(Place(survey.node, step))
                    if level > 1 and (state not in seen or form in survey.wrong):
                        cells.append(_cell(project, survey.node, step))
                    seen.add(state)
                observe(len(cells))
            frontier = new
    return tuple(cells)


def _kind(project: Project, scenario: str) -> str:
    """What becomes of a disk of this scenario: equal for two that do the same with it."""
    spec = project.matrix.scenarios[scenario]
    return repr((spec.judge, spec.recover, spec.retry, spec.env))


def _cell(project: Project, node: Node, step: Step) -> Cell:
    steps = (*node.steps, step)
    return Cell(node.scenario, steps, expect_of(node.scenario, steps, project.matrix))


def _try_to_survey(engine: Engine, place: Place) -> Survey:
    def survey(node: Node) -> Survey:
        if place.step is not None:
            node = replace(node, steps=(*node.steps, place.step), story=kill_at(engine, node, place.step))
        scenario = engine.scenario(node.scenario)
        places = Places(scenario, exact=True)
        with go_on_from(engine, node) as conduct:
            before = len(conduct.story.moments)
            conduct.look_on(places.look)
        if conduct.story.worst is not None:
            raise DeepeningFailed(conduct.story.why)  # the disk is not what a crash there leaves
        *past, ran = conduct.story.moments[: before + 1]
        wrong = (
            form
            for form, tree in places.trees.items()
            if judge_passage(scenario, History((*past, Moment(ran.role, tree))))
        )
        return Survey(node, places.steps, frozenset(wrong))

    try:
        return try_again(survey, engine, place.node)
    except Exception as error:  # the scenario's own code is asked for the set-up and the form
        raise DeepeningFailed(f"{place.node.scenario}: {type(error).__name__}: {error}") from error
