"""Stories of any depth: real commands, crashes, errors, rivals and tampering in an order that nobody thought of.

Hypothesis tells the story a step at a time; after each, a branch of it is brought to its end as a cell would be, and
both the judge of the matrix and a small model (story_model.py) look at it. So every story is a cell, a failing one is
shrunk to its shortest, and the line that is printed replays it: ``killmatrix repro 'SCENARIO/POINT#HIT=FAULT>...'``.
The profile is Hypothesis's own: ``HYPOTHESIS_PROFILE=nightly`` (or ``make nightly``) tells thousands.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, Phase, reject, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from harness.conduct import RecycledPid, Story
from harness.engine import TRIES_MAX, Engine
from harness.model import Cell, Record, Step, Verdict
from harness.mutants import mutate
from harness.plan import parse_cell
from harness.runner import Project, default_spawn, open_engine, open_project
from harness.sandbox import session_directory
from tests.collector.story_model import Model

MATRIX = Path(__file__).resolve().parents[2] / "matrix.yaml"
RUNS = {"collector.first-commit": "first", "collector.second-commit": "second"}
STEPS_MOST = 4
NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
DEEP = ("takeover-by-unlink", "generation-reset", "dead-identity-reused")
PLANTED = ("runs-before-cards", *(DEEP if NIGHTLY else ()))

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="hundreds of processes: needs warm forks")


T = TypeVar("T")


def retried(act: Callable[[], T]) -> T:
    """Again where a process got the number of a dead one of its story: there are only some 32,768 of them."""
    for _ in range(TRIES_MAX):
        with contextlib.suppress(RecycledPid):
            return act()
    return reject()


class Told(AssertionError):
    """A story that must not be, in the words that replay it."""


class Stories(RuleBasedStateMachine):
    """One story. A rule is the next step; the places that it may be at are those that the next process passed before."""

    def __init__(self, project: Project, engine: Engine) -> None:
        super().__init__()
        self._matrix, self._engine = project.matrix, engine
        self._scenario, self._steps = "", tuple[Step, ...]()
        self._story = Story([])
        self._places: tuple[Record, ...] = ()

    @initialize(scenario=st.sampled_from(sorted(RUNS)))
    def begin(self, scenario: str) -> None:
        """The set-up; what the command passes when nobody disturbs it."""
        self._scenario = scenario
        self._places = retried(self._set_up)
        self._model = Model(self._story.moments[0].tree, RUNS[scenario])

    def _set_up(self) -> tuple[Record, ...]:
        self._story = Story([])
        with self._engine.open_conduct(self._scenario, self._story):
            pass
        with self._engine.open_conduct(self._scenario, self._story.branch()) as conduct:
            return conduct.plain("run", self._matrix.scenarios[self._scenario].run).records

    def _tell(self, place: Record, fault: str) -> None:
        """The next step, and a look at how the story would end now."""
        step = Step(place.point, place.hit, fault)
        cell = parse_cell(f"{Cell(self._scenario, (*self._steps, step))}", self._matrix)
        self._story, branch = retried(lambda: self._go_on(cell))
        wrong = [*map(str, self._engine.judge(self._scenario, branch, cell.expect))]
        wrong += self._model.follow(branch.moments)
        if branch.worst is not None:
            wrong.append(f"{branch.worst.value}: {branch.why}")
        if wrong:
            raise Told("\n".join((f"killmatrix repro '{cell}'", *wrong)))
        self._steps = cell.steps
        first = branch.moments[len(self._story.moments)].result
        over = cell.expect.refuses is not None or len(self._steps) >= STEPS_MOST
        self._places = () if over or first is None else first.records

    def _go_on(self, cell: Cell) -> tuple[Story, Story]:
        """The story with the cell's last step, and the branch of it that is brought to its end."""
        story = self._story.branch()
        with self._engine.open_conduct(self._scenario, story, cell.expect) as conduct:
            try:
                conduct.go_on(cell.steps[-1])
            except (OSError, LookupError, ValueError):
                if not cell.steps[-1].fault.startswith("tamper:"):
                    raise
                reject()  # what it would tamper with is not there at this place
        branch = story.branch()
        with self._engine.open_conduct(self._scenario, branch, cell.expect) as conduct:
            conduct.settle()
        return story, branch

    def _choices(self, *kinds: str) -> list[tuple[Record, str]]:
        """Every place with every fault of these kinds that the matrix knows at its point; kill and term go anywhere."""
        rivals = self._matrix.scenarios[self._scenario].rivals if self._scenario else {}
        return [
            (place, fault)
            for place in self._places
            for fault in dict.fromkeys(("kill", "term", *self._matrix.points[place.point].faults))
            if fault.partition(":")[0] in kinds and (not fault.startswith("rival:") or fault[6:] in rivals)
        ]

    def _may_go_on(self) -> bool:
        return bool(self._places)

    @precondition(_may_go_on)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self._tell(*data.draw(st.sampled_from(self._choices("kill", "term"))))

    @precondition(lambda self: bool(self._choices("error")))
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        self._tell(*data.draw(st.sampled_from(self._choices("error"))))

    @precondition(lambda self: bool(self._choices("rival")))
    @rule(data=st.data())
    def meet_a_rival(self, data: st.DataObject) -> None:
        self._tell(*data.draw(st.sampled_from(self._choices("rival"))))

    @precondition(lambda self: bool(self._choices("tamper")))
    @rule(data=st.data())
    def be_tampered_with(self, data: st.DataObject) -> None:
        self._tell(*data.draw(st.sampled_from(self._choices("tamper"))))

    @precondition(lambda self: not self._may_go_on())
    @rule()
    def rest(self) -> None:
        """The story is over; Hypothesis wants a rule that can always be taken."""


@pytest.fixture(scope="module")
def project() -> Project:
    return open_project(MATRIX)


@pytest.fixture
def no_descriptor_stays_open() -> None:
    """The warm servers that the stories start live as long as the module."""


@pytest.fixture(scope="module")
def engine(project: Project) -> Iterator[Engine]:
    with session_directory() as root, open_engine(project, default_spawn(), root / "stories") as engine:
        yield engine


def tell_stories(project: Project, engine: Engine, examples: int, *, derandomize: bool = True) -> None:
    """Raises Told, with the shortest story that Hypothesis found, for a collector that is wrong."""
    stories = settings(
        max_examples=examples,
        stateful_step_count=STEPS_MOST + 1,  # and the beginning
        derandomize=derandomize,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=tuple(phase for phase in Phase if phase is not Phase.explain),
        print_blob=False,
        report_multiple_bugs=False,
    )
    # any function that makes one will do, whatever the annotation says
    run_state_machine_as_test(lambda: Stories(project, engine), settings=stories)  # type: ignore[arg-type]


def test_no_story_ends_in_what_must_not_be(project: Project, engine: Engine) -> None:
    tell_stories(project, engine, 3000 if NIGHTLY else 30, derandomize=not NIGHTLY)


@pytest.mark.parametrize("mutant", PLANTED)
def test_a_planted_bug_is_found_and_its_line_replays_it(project: Project, engine: Engine, mutant: str) -> None:
    """The story is short, is red again when it is told by the line that was printed, and green with the right program."""
    wrong = Project(project.root, mutate(project.matrix, mutant), project.points)
    with session_directory() as root, open_engine(wrong, default_spawn(), root / mutant) as wrong_engine:
        with pytest.raises(Told) as caught:
            tell_stories(wrong, wrong_engine, 400 if NIGHTLY else 40)
        line = str(caught.value).splitlines()[0]
        match = re.fullmatch(r"killmatrix repro '(.*)'", line)
        assert match is not None, line
        cell = parse_cell(match[1], project.matrix)
        assert cell.depth <= 2, f"not shrunk: {cell}"
        assert wrong_engine.run_cell(cell).verdict is not Verdict.PASS
    assert engine.run_cell(cell).verdict is Verdict.PASS
