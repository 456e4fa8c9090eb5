"""Closure: every disk that any number of crashes can leave (harness.md, "Closure").

States are disks in the canonical form that the scenario defines. From each new state a real recovery runs to its end, twice,
and is judged; then it is killed, for real, wherever the disk under it takes another form. The search goes by the number
of crashes and in a fixed order, so the path to a state is a shortest one, and the result does not depend on ``jobs``.
"""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from harness.branching import BranchingError, Node, Places, go_on_from, kill_at, open_engines, try_again
from harness.conduct import Story
from harness.engine import Engine, SetUpFailed
from harness.exploration import Exploration, Finding, State, Transition
from harness.judge.invariants import BlindJudge, judge_passage
from harness.judge.scenario import History, Scenario
from harness.judge.tree import Tree
from harness.matrix import Matrix
from harness.model import Step, Violation
from harness.plan import expect_of, refusal_of
from harness.runner import Project, SpawnKind
from harness.sandbox import session_directory

STATES_MAX = 5_000


@dataclass(frozen=True, slots=True)
class Crash:
    """A branch of a story that ended in a kill, the forms of the disk it left, and what is wrong with it."""

    story: Story
    step: Step
    exact_form: str
    folded_form: str
    label: str
    violations: tuple[Violation, ...]


@dataclass(frozen=True, slots=True)
class Expansion:
    """Everything that one more process can do from a state."""

    start: Tree
    rows: tuple[str, ...]
    violations: tuple[Violation, ...]
    unknown: str
    crashes: tuple[Crash, ...]
    processes: int


def explore(
    project: Project,
    scenario: str,
    *,
    jobs: int,
    spawn: SpawnKind,
    exact_depth: int = 1,
    depth_max: int | None = None,
    observe: Callable[[Exploration, int], None] = lambda _so_far, _waiting: None,
) -> Exploration:
    """Search to the fixpoint, or through the level in which the first violation is found.

    ``exact_depth``: up to so many crashes, disks are told apart without the scenario's folding. ``observe`` is told after
    each state what was found so far and how many states wait. Raises BranchingError, SetUpFailed, BlindJudge.
    """
    started = time.perf_counter()
    with session_directory() as root, open_engines(project, spawn, root, jobs) as engines:
        search = _Search(project.matrix, engines.call(lambda engine: engine.scenario(scenario)), scenario, exact_depth)
        found, frontier, depth = search.found, [search.start()], 0
        while frontier and not found.findings:
            if depth == depth_max or len(found.states) > STATES_MAX:
                found.stopped = f"stopped after {depth} crashes, with {len(found.states):,} states"
                break
            depth += 1
            expansions = engines.map(functools.partial(_try_to_expand, exact=search.is_exact(depth)), frontier)
            new: list[Node] = []
            for number, (node, expansion) in enumerate(zip(frontier, expansions, strict=True), 1):
                new += search.take_in(node, expansion, depth)
                observe(found, len(frontier) - number + len(new))
            frontier = new
        found.fixpoint = not frontier and not found.findings
        found.duration_s = time.perf_counter() - started
    return found


class _Search:
    """What is known, and what is new. Level by level in a fixed order: the first path to a state is a shortest one."""

    def __init__(self, matrix: Matrix, judge: Scenario, scenario: str, exact_depth: int) -> None:
        self.found = Exploration(scenario, judge.abstraction, judge.folding, exact_depth)
        self._matrix, self._refusal, self._folds = matrix, refusal_of(scenario, matrix), bool(judge.folding)
        self._seen: dict[tuple[bool, str], int] = {}

    def is_exact(self, depth: int) -> bool:
        return depth <= self.found.exact_depth or not self._folds

    def start(self) -> Node:
        self.found.states.append(State(0, 0, True, (), "the set-up", Tree()))
        return self._node(0, (), Story([], self.found.scenario))

    def _node(self, number: int, steps: tuple[Step, ...], story: Story) -> Node:
        scenario = self.found.scenario
        expect = expect_of(scenario, steps, self._matrix) if len(steps) == 1 else self._refusal
        return Node(number, scenario, steps, story, expect)

    def take_in(self, node: Node, expansion: Expansion, depth: int) -> Iterator[Node]:
        """Write down what came of a state; the states that are new."""
        found = self.found
        found.processes += expansion.processes
        found.states[node.number] = replace(found.states[node.number], rows=expansion.rows, tree=expansion.start)
        if expansion.violations or expansion.unknown:
            found.findings.append(Finding(node.steps, expansion.violations, expansion.unknown))
        for crash in expansion.crashes:
            steps, exact = (*node.steps, crash.step), self.is_exact(depth)
            if crash.violations or crash.story.worst is not None:
                found.findings.append(Finding(steps, crash.violations, crash.story.why))
            key = (exact, crash.exact_form if exact else crash.folded_form)
            if key not in self._seen:
                number = self._seen[key] = len(found.states)
                self._seen.setdefault((False, crash.folded_form), number)  # a folded level need not go there again
                found.states.append(State(number, depth, exact, steps, crash.label, crash.story.moments[-1].tree))
                yield self._node(number, steps, crash.story)
            found.transitions.append(Transition(node.number, self._seen[key], crash.step))


def _try_to_expand(engine: Engine, node: Node, exact: bool) -> Expansion:
    try:
        return try_again(lambda node: expand(engine, node, exact=exact), engine, node)
    except (BranchingError, SetUpFailed, BlindJudge):
        raise
    except (Exception, SystemExit) as error:  # of the scenario's own code, which may meet a disk that it cannot read
        return Expansion(Tree(), (), (), f"{type(error).__name__}: {error}", (), 0)


def expand(engine: Engine, node: Node, *, exact: bool) -> Expansion:
    """Run from the state to the end and judge; then kill it wherever the disk under it takes another form."""
    places = Places(engine.scenario(node.scenario), exact)
    with go_on_from(engine, node) as conduct:
        ended = conduct.story
        before = len(ended.moments)
        conduct.look_on(places.look)
        conduct.settle()
    unknown = ended.why if ended.worst is not None else ""
    violations = engine.judge(node.scenario, ended, node.expect)
    crashes = tuple(_crash(engine, node, step) for step in places.steps.values())
    return Expansion(
        ended.moments[before - 1].tree,
        ended.moments[before].answer.rows,
        violations,
        unknown,
        crashes,
        len(ended.moments) - before + len(crashes),
    )


def _crash(engine: Engine, node: Node, step: Step) -> Crash:
    story = kill_at(engine, node, step)
    scenario, tree = engine.scenario(node.scenario), story.moments[-1].tree
    return Crash(
        story,
        step,
        _digest(scenario.canonical(tree, folded=False)),
        _digest(scenario.canonical(tree, folded=True)),
        scenario.describe(tree),
        judge_passage(scenario, History(tuple(story.moments))),
    )


def _digest(form: str) -> str:
    return hashlib.sha256(form.encode(errors="surrogatepass")).hexdigest()
