"""One cell end to end: set up, run, die, recover, judge (harness.md, "A cell, step by step").

A set-up is made once by real processes and kept as a tree; each cell starts from a copy of it. It is made again when a
process id of its dead holders is in use by somebody: a copy must not turn a dead owner into a reused one.
"""

from __future__ import annotations

import contextlib
import importlib
import shutil
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.conduct import NOTHING_SAID, TRIES_MAX, Conduct, RecycledPid, Story
from harness.faults import find_fault
from harness.faults.base import how_it_ended
from harness.judge.invariants import BlindJudge, check_sight, judge_history
from harness.judge.planted import check_invariants
from harness.judge.scenario import History, Moment, Scenario
from harness.judge.tree import Tree, observe_tree, restore_tree
from harness.kept import keep_history
from harness.matrix import Matrix, ScenarioSpec
from harness.model import (
    Cell,
    CellResult,
    Chapter,
    Command,
    Expect,
    ProcessResult,
    Step,
    Verdict,
    Violation,
)
from harness.pids import is_in_use
from harness.sandbox import remove_tree
from killpoints import Plan


class SetUpFailed(Exception):
    """The set-up of a scenario did not do what it says; nothing was tried."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A set-up, ready to be copied: the tree, and the ids of the processes that made it."""

    tree: Tree
    pids: frozenset[int]


class Engine:
    """Runs cells one after the other with one spawner, in directories below ``root``. Not for two threads at once."""

    def __init__(self, project: Path, matrix: Matrix, spawner: Any, root: Path, *, keep: Path | None = None) -> None:
        self._project, self._matrix, self._spawner, self._root, self._keep = project, matrix, spawner, root, keep
        self._scenarios: dict[str, Scenario] = {}
        self._prepared: dict[str, Prepared] = {}
        self._seen: set[str] = set()
        self._begun: tuple[tuple[str, tuple[Step, ...]], Story | None] = (("", ()), None)
        self._count = 0

    def run_cell(self, cell: Cell) -> CellResult:
        """Never raises for what the program, the set-up or the judge does: that is a verdict."""
        why = ""
        for _ in range(TRIES_MAX):
            try:
                return self._run_cell(cell)
            except RecycledPid as error:
                why = str(error)
                self.forget_set_up(cell.scenario)
        return self._result(cell, Story([]), Verdict.UNKNOWN, (), why, time.perf_counter())

    def _run_cell(self, cell: Cell) -> CellResult:
        started = time.perf_counter()
        story = self._begin(cell)
        violations: tuple[Violation, ...] = ()
        verdict = Verdict.UNKNOWN
        try:
            with self.open_conduct(cell.scenario, story, cell.expect) as conduct:
                if not cell.steps:  # the command with nothing done to it
                    conduct.plain("run", conduct.spec.run)
                for step in cell.steps[len(story.steps) :]:
                    conduct.go_on(step)
                    self._remember(cell, story)
                conduct.settle()
                _require_recovered(story)
                if self._keep is not None:  # only what was told to its end: half a story could look like a pass
                    keep_history(self._keep, str(cell), story.moments, story.worst, story.why)
                violations, why = self.judge(cell.scenario, story, cell.expect), story.why
                verdict = Verdict.FAIL if violations else story.worst or Verdict.PASS
        except SetUpFailed as error:
            why = f"set-up: {error}"
        except BlindJudge as error:
            why = str(error)
        except RecycledPid:
            raise
        except (Exception, SystemExit) as error:
            why = f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-4)}"
        return self._result(cell, story, verdict, violations, why, started)

    def _begin(self, cell: Cell) -> Story:
        """A beginning that the cell before this one had too is not told again: its disk is where the next process starts."""
        begun, story = self._begun
        if story is None or begun != (cell.scenario, cell.steps[:-1]):
            return Story([], str(cell))
        return replace(story.branch(), about=str(cell))

    def _remember(self, cell: Cell, story: Story) -> None:
        if (
            len(story.steps) == len(cell.steps) - 1
            and story.worst is None
            and not self.scenario(cell.scenario).knows_inodes
        ):
            self._begun = ((cell.scenario, cell.steps[:-1]), story.branch())

    @contextlib.contextmanager
    def open_conduct(self, name: str, story: Story, expect: Expect = NOTHING_SAID) -> Iterator[Conduct]:
        """A fresh sandbox in the state of the story's last moment (its set-up, for a story without one), gone at the end.

        Raises SetUpFailed, RecycledPid, and what a judge or the spawner raises.
        """
        scenario, spec = self.scenario(name), self._matrix.scenarios[name]
        self._count += 1
        sandbox = self._root / f"cell-{self._count}"
        if not story.moments:
            prepared = self._prepare(name, scenario, spec)
            story.moments.append(Moment("set-up", prepared.tree))
            story.pids |= prepared.pids
        sandbox.mkdir()
        try:
            restore_tree(story.moments[-1].tree, sandbox)

            def start(role: str, argv: list[str], plan: str) -> Any:
                context = f"{story.about or name}|{role}"
                return self._spawner.start(self._command(argv, sandbox, spec, plan, context))

            yield Conduct(
                scenario, spec, sandbox, start, story,
                expect=expect, recoveries_max=self._matrix.defaults.recoveries_max,
            )  # fmt: skip
        finally:
            story.kept_at = self._put_away(sandbox)

    def _put_away(self, sandbox: Path) -> str | None:
        target = None
        if self._keep is not None:
            target = self._keep / f"{self._root.name}-{sandbox.name}"  # each worker counts its own cells
            with contextlib.suppress(shutil.Error):  # what cannot be copied (a pipe) is all that is missing there
                shutil.copytree(sandbox, target, symlinks=True)
        remove_tree(sandbox)
        return str(target) if target is not None else None

    def scenario(self, name: str) -> Scenario:
        if name not in self._scenarios:
            module, _, attribute = self._matrix.scenarios[name].judge.partition(":")
            if str(self._project) not in sys.path:
                sys.path.insert(0, str(self._project))
            try:
                found = getattr(importlib.import_module(module), attribute)()
            except (ImportError, AttributeError) as error:
                raise SetUpFailed(f"judge {module}:{attribute}: {error}") from error
            if not isinstance(found, Scenario):
                raise SetUpFailed(f"judge {module}:{attribute} is no harness.judge.scenario.Scenario")
            self._scenarios[name] = found
        return self._scenarios[name]

    def forget_set_up(self, name: str) -> None:
        """Make it anew for whoever asks next: its dead processes have numbers that somebody else has now."""
        self._prepared.pop(name, None)
        self._begun = (("", ()), None)

    def _prepare(self, name: str, scenario: Scenario, spec: ScenarioSpec) -> Prepared:
        prepared = self._prepared.get(name)
        if prepared is not None and not any(map(is_in_use, prepared.pids)):
            return prepared
        directory = self._root / f"set-up-{self._count}"
        directory.mkdir()
        try:
            scenario.set_up(directory)
            pids = set()
            for step in spec.prepare:
                command = self._command(step.run, directory, spec, step.fault or "", f"{name}|set-up")
                result = self._spawner.start(command).wait()
                pids.add(result.pid)
                _require_set_up(result, step.fault)
            scenario.finish_set_up(directory)
            prepared = Prepared(observe_tree(directory), frozenset(pids))
        finally:
            remove_tree(directory)
        self._prepared[name] = prepared
        return prepared

    def _command(self, argv: list[str], sandbox: Path, spec: ScenarioSpec, plan: str, context: str = "") -> Command:
        def fill(text: str) -> str:
            return text.replace("{sandbox}", str(sandbox)).replace("{project}", str(self._project))

        return Command(
            tuple(map(fill, argv)),
            str(self._project),
            {key: fill(value) for key, value in spec.env.items()},
            plan,
            spec.timeout_s or self._matrix.defaults.timeout_s,
            context,
        )

    def abandon(self) -> None:
        """From any thread: end the processes of the cell that runs now, which is UNKNOWN then, as is every later one."""
        self._spawner.abandon()

    def judge(self, name: str, story: Story, expect: Expect = NOTHING_SAID) -> tuple[Violation, ...]:
        """What is wrong with the story. Raises BlindJudge, and whatever the scenario's judge raises."""
        scenario, history = self.scenario(name), History(tuple(story.moments))
        if story.worst is not None:
            expect = _without_the_fault(expect, history)
        judgement = judge_history(scenario, history, expect)
        if not judgement.violations and story.worst is None and name not in self._seen:
            check_invariants()
            check_sight(scenario, history, expect)
            self._seen.add(name)
        return judgement.violations

    def _result(
        self,
        cell: Cell,
        story: Story,
        verdict: Verdict,
        violations: tuple[Violation, ...],
        why: str,
        started: float,
    ) -> CellResult:
        recovery = next((moment for moment in story.moments if moment.role == "recovery"), None)
        rows = recovery.answer.rows if recovery else ()
        code = next((moment.answer.code for moment in story.moments if moment.answer.code), None)
        return CellResult(
            cell, verdict, tuple(story.steps), rows[0] if rows else None, rows, code, story.recoveries, violations, why,
            frozenset(story.points), tuple(map(_chapter, story.moments)), time.perf_counter() - started, story.kept_at,
            frozenset(story.rows),
        )  # fmt: skip


def _require_recovered(story: Story) -> None:
    """Raise BlindJudge for a story in which nothing recovered: what a crash leaves is not what a program makes of it."""
    roles = [moment.role for moment in story.moments]
    if story.worst is not Verdict.HUNG and not {"recovery", "again"} <= {*roles}:
        raise BlindJudge(f"no recovery was started, or none again: {', '.join(roles)}")


def _without_the_fault(expect: Expect, history: History) -> Expect:
    """What is still due where the fault is not proven: what it was to lead to would be a violation that nobody did."""
    rival_ran = any(moment.role == "rival" for moment in history.moments)
    return Expect(refuses=expect.refuses, code=expect.code if rival_ran else None)


def _require_set_up(result: ProcessResult, fault: str | None) -> None:
    if fault is None:
        if result.exit_code != 0:
            raise SetUpFailed(f"{' '.join(result.argv)} {how_it_ended(result)}")
        return
    arming = Plan.parse(fault).armings[0]
    proof = find_fault(str(arming.action)).prove(Step(arming.name, arming.hit, str(arming.action)), result)
    if proof.verdict is not None:
        raise SetUpFailed(f"{' '.join(result.argv)}: {proof.why}")


def _chapter(moment: Moment) -> Chapter:
    result = moment.result
    if result is None:
        return Chapter(moment.role, (), None, "", (), moment.tree.listing(), "", "", 0.0)
    ended = (
        "timed out"
        if result.timed_out
        else f"died by {result.died_by}"
        if result.died_by
        else f"exit {result.exit_code}"
    )
    return Chapter(
        moment.role,
        result.argv,
        result.pid,
        ended,
        tuple(f"{r.point}#{r.hit}" + ("" if r.kind == "pass" else f" {r.kind}") for r in result.records),
        moment.tree.listing(),
        result.stdout[-4000:].decode(errors="replace"),
        result.stderr[-4000:].decode(errors="replace"),
        result.duration_s * 1000,
    )
