"""One cell end to end: set up, run, die, recover, judge (harness.md, "A cell, step by step").

A set-up is made once by real processes and kept as a tree; each cell starts from a copy of it. It is made again when a
process id of its dead holders is in use by somebody: a copy must not turn a dead owner into a reused one.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.faults import Stage, find_fault
from harness.faults.base import Proof, as_step_result, how_it_ended
from harness.judge.invariants import BlindJudge, check_sight, judge_history
from harness.judge.scenario import Afterwards, History, Moment, Scenario
from harness.judge.tree import Tree, observe_tree, restore_tree
from harness.matrix import Matrix, ScenarioSpec
from harness.model import (
    Cell,
    CellResult,
    Chapter,
    Command,
    Expect,
    ProcessResult,
    Step,
    StepResult,
    Verdict,
    Violation,
)
from harness.sandbox import remove_tree
from killpoints import Plan


class SetUpFailed(Exception):
    """The set-up of a scenario did not do what it says; nothing was tried."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A set-up, ready to be copied: the tree, and the ids of the processes that made it."""

    tree: Tree
    pids: frozenset[int]


@dataclass(slots=True)
class _Story:
    """What happened in one cell so far."""

    moments: list[Moment]
    points: set[str] = field(default_factory=set)
    rows: set[str] = field(default_factory=set)
    steps: list[StepResult] = field(default_factory=list)
    worst: Verdict | None = None
    why: str = ""
    recoveries: int = 0

    def blame(self, proof: Proof) -> None:
        if proof.verdict is not None and self.worst is None:
            self.worst, self.why = proof.verdict, proof.why


class Engine:
    """Runs cells one after the other with one spawner, in directories below ``root``. Not for two threads at once."""

    def __init__(self, project: Path, matrix: Matrix, spawner: Any, root: Path, *, keep: Path | None = None) -> None:
        self._project, self._matrix, self._spawner, self._root, self._keep = project, matrix, spawner, root, keep
        self._scenarios: dict[str, Scenario] = {}
        self._prepared: dict[str, Prepared] = {}
        self._seen: set[str] = set()
        self._count = 0

    def run_cell(self, cell: Cell) -> CellResult:
        """Never raises for what the program, the set-up or the judge does: that is a verdict."""
        started = time.perf_counter()
        story = _Story([])
        self._count += 1
        sandbox = self._root / f"cell-{self._count}"
        violations: tuple[Violation, ...] = ()
        verdict = Verdict.UNKNOWN
        try:
            scenario, spec = self._scenario(cell.scenario), self._matrix.scenarios[cell.scenario]
            prepared = self._prepare(cell.scenario, scenario, spec)
            sandbox.mkdir()
            restore_tree(prepared.tree, sandbox)
            story.moments.append(Moment("set-up", prepared.tree))
            _Conduct(self, cell, scenario, spec, sandbox, story).conduct()
            violations, why = self._judge(cell, scenario, story), story.why
            verdict = Verdict.FAIL if violations else story.worst or Verdict.PASS
        except SetUpFailed as error:
            why = f"set-up: {error}"
        except BlindJudge as error:
            why = str(error)
        except (Exception, SystemExit) as error:
            why = f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-4)}"
        finally:
            kept = self._put_away(sandbox)
        return self._result(cell, story, verdict, violations, why, started, kept)

    def _put_away(self, sandbox: Path) -> str | None:
        if not sandbox.exists():
            return None
        target = None
        if self._keep is not None:
            target = self._keep / f"{self._root.name}-{sandbox.name}"  # each worker counts its own cells
            with contextlib.suppress(shutil.Error):  # what cannot be copied (a pipe) is all that is missing there
                shutil.copytree(sandbox, target, symlinks=True)
        remove_tree(sandbox)
        return str(target) if target is not None else None

    def _scenario(self, name: str) -> Scenario:
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

    def _prepare(self, name: str, scenario: Scenario, spec: ScenarioSpec) -> Prepared:
        prepared = self._prepared.get(name)
        if prepared is not None and not any(_in_use(pid) for pid in prepared.pids):
            return prepared
        directory = self._root / f"set-up-{self._count}"
        directory.mkdir()
        try:
            scenario.set_up(directory)
            pids = set()
            for step in spec.prepare:
                command = self._command(step.run, directory, spec, step.fault or "")
                result = self._spawner.start(command).wait()
                pids.add(result.pid)
                _require_set_up(result, step.fault)
            scenario.finish_set_up(directory)
            prepared = Prepared(observe_tree(directory), frozenset(pids))
        finally:
            remove_tree(directory)
        self._prepared[name] = prepared
        return prepared

    def _command(self, argv: list[str], sandbox: Path, spec: ScenarioSpec, plan: str) -> Command:
        def fill(text: str) -> str:
            return text.replace("{sandbox}", str(sandbox)).replace("{project}", str(self._project))

        return Command(
            tuple(map(fill, argv)),
            str(self._project),
            {key: fill(value) for key, value in spec.env.items()},
            plan,
            spec.timeout_s or self._matrix.defaults.timeout_s,
        )

    def _judge(self, cell: Cell, scenario: Scenario, story: _Story) -> tuple[Violation, ...]:
        history = History(tuple(story.moments))
        expect = cell.expect if story.worst is None else _without_the_fault(cell.expect, history)
        judgement = judge_history(scenario, history, expect)
        if not judgement.violations and story.worst is None and cell.scenario not in self._seen:
            check_sight(scenario, history, expect)
            self._seen.add(cell.scenario)
        return judgement.violations

    def _result(
        self,
        cell: Cell,
        story: _Story,
        verdict: Verdict,
        violations: tuple[Violation, ...],
        why: str,
        started: float,
        kept: str | None,
    ) -> CellResult:
        recovery = next((moment for moment in story.moments if moment.role == "recovery"), None)
        rows = recovery.answer.rows if recovery else ()
        code = next((moment.answer.code for moment in story.moments if moment.answer.code), None)
        return CellResult(
            cell, verdict, tuple(story.steps), rows[0] if rows else None, rows, code, story.recoveries, violations, why,
            frozenset(story.points), tuple(map(_chapter, story.moments)), time.perf_counter() - started, kept,
            frozenset(story.rows),
        )  # fmt: skip


class _Conduct:
    """Leads the processes of one cell, and writes down the moment after each."""

    def __init__(
        self, engine: Engine, cell: Cell, scenario: Scenario, spec: ScenarioSpec, sandbox: Path, story: _Story
    ) -> None:
        self._engine, self._cell, self._scenario, self._spec = engine, cell, scenario, spec
        self._sandbox, self._story = sandbox, story

    def conduct(self) -> None:
        self._with_fault("run", self._spec.run, self._cell.steps[0])
        for step in self._cell.steps[1:]:
            self._story.recoveries += 1
            self._with_fault("recovery", self._spec.recover, step)
        if self._story.worst is Verdict.HUNG:
            return  # its disk says nothing about a crash, and a recovery would only hang again
        self._recover()
        if self._spec.retry is not None and self._cell.expect.refuses is None:
            self._plain("retry", self._spec.retry)

    def _recover(self) -> None:
        for _ in range(self._engine._matrix.defaults.recoveries_max):
            self._story.recoveries += 1
            result = self._plain("recovery", self._spec.recover)
            if result.timed_out:
                self._story.blame(Proof(False, Verdict.HUNG, "the recovery was still running when its time was up"))
                return
            if result.exit_code == 0 or self._refused_as_expected():
                break
        self._plain("again", self._spec.recover)

    def _refused_as_expected(self) -> bool:
        expect = self._cell.expect
        return expect.refuses is not None and self._story.moments[-1].answer.code == expect.refuses

    def _plain(self, role: str, argv: list[str]) -> ProcessResult:
        result: ProcessResult = self._start(argv, "").wait()
        self._note(role, result)
        return result

    def _with_fault(self, role: str, argv: list[str], step: Step) -> None:
        fault = find_fault(step.fault)
        beside = self._spec.arm if role == "run" and self._spec.arm else ""
        plan = ",".join(filter(None, (beside, fault.arm(step))))
        result = fault.lead(self._start(argv, plan), Stage(self._run_rival, self._tamper))
        self._note(role, result)
        proof = fault.prove(step, result)
        self._story.steps.append(as_step_result(step, result, proof))
        self._story.blame(proof)

    def _start(self, argv: list[str], plan: str) -> Any:
        return self._engine._spawner.start(self._engine._command(argv, self._sandbox, self._spec, plan))

    def _note(self, role: str, result: ProcessResult) -> None:
        last = self._story.moments[-1].tree
        tree = observe_tree(self._sandbox)
        self._story.moments.append(Moment(role, last if tree.entries == last.entries else tree, result))
        self._story.points.update(record.point for record in result.records)
        self._story.rows.update(self._story.moments[-1].answer.rows)

    def _run_rival(self, name: str) -> None:
        self._story.moments.append(Moment("paused", observe_tree(self._sandbox)))
        self._plain("rival", self._spec.rivals[name])

    def _tamper(self, name: str) -> Afterwards:
        self._story.moments.append(Moment("paused", observe_tree(self._sandbox)))
        afterwards = self._scenario.tamper(name, self._sandbox)
        self._story.moments.append(Moment("tampered", observe_tree(self._sandbox)))
        return afterwards


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


def _in_use(pid: int) -> bool:
    """Whether some process has this number now. Asking sends nothing."""
    try:
        os.kill(pid, 0) if sys.platform != "win32" else None
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return sys.platform != "win32"


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
