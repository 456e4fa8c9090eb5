"""Going on from one disk in several ways: what explorations and deeper cells share.

Where to kill is found out with a process held at each of its points in turn: points between which the form of the disk
does not change would be the same kill, and the first of them stands for all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from harness.conduct import TRIES_MAX, Conduct, RecycledPid, Story
from harness.engine import Engine
from harness.judge.scenario import Scenario
from harness.judge.tree import Tree
from harness.model import Expect, Record, Step
from harness.runner import Project, SpawnKind, open_engine

T = TypeVar("T")
R = TypeVar("R")


class BranchingError(Exception):
    """Something other than the program under test went wrong: nothing is known then. The message says what."""


@dataclass(frozen=True, slots=True)
class Node:
    """A disk to go on from: that of the story's last moment. ``number`` is for whoever counts them."""

    number: int
    scenario: str
    steps: tuple[Step, ...]
    story: Story
    expect: Expect = Expect()


def try_again(act: Callable[[Node], R], engine: Engine, node: Node) -> R:
    """``act(node)``; where a process got the number of a dead one of its own story, with other dead. Raises BranchingError."""
    for number in range(TRIES_MAX):
        with contextlib.suppress(RecycledPid):
            if number:
                with lead_again(engine, node) as conduct:
                    node = replace(node, story=conduct.story)
            return act(node)
    raise BranchingError(f"the numbers of dead processes were given out again {TRIES_MAX} times: {node.scenario}")


@contextlib.contextmanager
def lead_again(engine: Engine, node: Node) -> Iterator[Conduct]:
    """The same disk, led to from the set-up by the same steps, with other dead in it."""
    engine.forget_set_up(node.scenario)
    with engine.open_conduct(node.scenario, Story([], node.scenario), node.expect) as conduct:
        for step in node.steps:
            conduct.go_on(step)
        yield conduct


def go_on_from(engine: Engine, node: Node) -> contextlib.AbstractContextManager[Conduct]:
    """Go on in a copy of the node's disk; where the program would notice that it is one, led there again."""
    if engine.scenario(node.scenario).knows_inodes and node.steps:
        return lead_again(engine, node)
    return engine.open_conduct(node.scenario, node.story.branch(), node.expect)


@dataclass(slots=True)
class Places:
    """Where to kill a process that is held at each of its points: one place for each form of the disk under it.

    ``trees``: the disk where it first had the form.
    """

    scenario: Scenario
    exact: bool
    steps: dict[str, Step] = field(default_factory=dict)
    trees: dict[str, Tree] = field(default_factory=dict)
    _last: Tree | None = None

    def look(self, record: Record, tree: Tree) -> None:
        """The first of the points at which the disk has a form stands for all of them."""
        if tree is not self._last:
            self._last = tree
            form = self.scenario.canonical(tree, folded=not self.exact)
            if form not in self.steps:
                self.steps[form], self.trees[form] = Step(record.point, record.hit, "kill"), tree


def kill_at(engine: Engine, node: Node, step: Step) -> Story:
    """One real process, one real kill: the story up to there."""
    with go_on_from(engine, node) as conduct:
        conduct.go_on(step)
    return conduct.story


@contextlib.contextmanager
def open_engines(project: Project, spawn: SpawnKind, root: Path, jobs: int) -> Iterator[Engines]:
    with contextlib.ExitStack() as stack:
        engines = [stack.enter_context(open_engine(project, spawn, root / f"worker-{n}")) for n in range(jobs)]
        pool = ThreadPoolExecutor(jobs, thread_name_prefix="branch")
        try:
            yield Engines(engines, pool)
        except BaseException:  # Ctrl-C too: nobody waits for what is running
            for engine in engines:
                engine.abandon()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


class Engines:
    """Engines, one for each thread that asks; results in the order of what was asked."""

    def __init__(self, engines: Sequence[Engine], pool: ThreadPoolExecutor) -> None:
        self._idle: SimpleQueue[Engine] = SimpleQueue()
        for engine in engines:
            self._idle.put(engine)
        self._pool = pool

    def call(self, ask: Callable[[Engine], R]) -> R:
        engine = self._idle.get()
        try:
            return ask(engine)
        finally:
            self._idle.put(engine)

    def map(self, ask: Callable[[Engine, T], R], items: Sequence[T]) -> Iterator[R]:
        return self._pool.map(lambda item: self.call(lambda engine: ask(engine, item)), items)
