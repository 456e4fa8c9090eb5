"""Cells of depth 2 and more: a crash inside the recovery of a crash (harness.md, "Words").

They are planned from what is reachable, not from a product of points: a dry run of each recovery tells where it can be
killed. Crashes that leave one and the same state, and places between which a recovery does not change it, are tried
once: the scenario's canonical form, unfolded, says what is the same. The cells are run like any other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from harness.branching import Node, Places, go_on_from, kill_at, open_crew, try_again
from harness.conduct import Story
from harness.engine import Engine
from harness.model import Cell, Step
from harness.plan import expect_of
from harness.runner import Project, SpawnKind
from harness.sandbox import session_directory


class DeepeningFailed(Exception):
    """A dry run could not be made: nothing is known about what is reachable. The message says in which scenario."""


@dataclass(frozen=True, slots=True)
class Survey:
    """Where the next process can be killed, and what each kill leaves (empty at the last level: nothing goes on there)."""

    places: tuple[Step, ...]
    crashes: tuple[tuple[str, Story], ...]


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
    frontier = [Node(0, name, (), Story([], name)) for name in scenarios]
    seen: set[tuple[str, str]] = set()
    with session_directory() as root, open_crew(project, spawn, root, jobs) as crew:
        for level in range(1, depth + 1):
            new: list[Node] = []
            surveys = crew.map(functools.partial(_try_to_survey, last=level == depth), frontier)
            for node, survey in zip(frontier, surveys, strict=True):
                if level > 1:
                    cells += [_cell(project, node, step) for step in survey.places]
                for step, (form, story) in zip(survey.places, survey.crashes, strict=False):
                    if (node.scenario, form) not in seen:
                        seen.add((node.scenario, form))
                        new.append(Node(0, node.scenario, (*node.steps, step), story))
                observe(len(cells))
            frontier = new
    return tuple(cells)


def _cell(project: Project, node: Node, step: Step) -> Cell:
    steps = (*node.steps, step)
    return Cell(node.scenario, steps, expect_of(node.scenario, steps, project.matrix))


def _try_to_survey(engine: Engine, node: Node, last: bool) -> Survey:
    try:
        return try_again(lambda node: _survey(engine, node, last), engine, node)
    except Exception as error:  # the scenario's own code is asked for the set-up and the form
        raise DeepeningFailed(f"{node.scenario}: {type(error).__name__}: {error}") from error


def _survey(engine: Engine, node: Node, last: bool) -> Survey:
    places = Places(engine.scenario(node.scenario), exact=True)
    with go_on_from(engine, node) as conduct:
        conduct.look_on(places.look)
    steps = tuple(places.steps.values())
    return Survey(steps, () if last else tuple(_crashes(engine, node, steps)))


def _crashes(engine: Engine, node: Node, places: Sequence[Step]) -> Iterable[tuple[str, Story]]:
    scenario = engine.scenario(node.scenario)
    for step in places:
        story = kill_at(engine, node, step)
        yield scenario.canonical(story.moments[-1].tree, folded=False), story
