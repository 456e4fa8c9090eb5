"""Leads the processes of one story, one after the other, and writes down the moment after each (harness.md, "A cell").

A cell is one such story; an exploration is many that share their beginnings. A conduct only starts, waits and notes: what
a fault is and whether it fired is :mod:`harness.faults`, what the disk must look like is :mod:`harness.judge`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.faults import Stage, find_fault
from harness.faults.base import Proof, as_step_result
from harness.judge.scenario import Afterwards, Moment, Scenario
from harness.judge.tree import observe_tree
from harness.matrix import ScenarioSpec
from harness.model import Expect, ProcessResult, Step, StepResult, Verdict

NOTHING_SAID = Expect()
Starter = Callable[[list[str], str], Any]


class RecycledPid(Exception):
    """A new process got the number of a dead one of its own story: the dead owner on the disk looks like another now."""


@dataclass(slots=True)
class Story:
    """What happened so far. ``worst`` is the first verdict that keeps it from being a pass, ``why`` its reason."""

    moments: list[Moment]
    points: set[str] = field(default_factory=set)
    rows: set[str] = field(default_factory=set)
    steps: list[StepResult] = field(default_factory=list)
    worst: Verdict | None = None
    why: str = ""
    recoveries: int = 0
    pids: set[int] = field(default_factory=set)
    kept_at: str | None = None

    def blame(self, proof: Proof) -> None:
        if proof.verdict is not None and self.worst is None:
            self.worst, self.why = proof.verdict, proof.why

    def branch(self) -> Story:
        """The same past, to go on from in another way."""
        return replace(
            self,
            moments=list(self.moments),
            points=set(self.points),
            rows=set(self.rows),
            steps=list(self.steps),
            pids=set(self.pids),
        )


class Conduct:
    """The processes of one sandbox. ``start(argv, plan)`` starts one of them with the plan armed."""

    def __init__(
        self,
        scenario: Scenario,
        spec: ScenarioSpec,
        sandbox: Path,
        start: Starter,
        story: Story,
        *,
        expect: Expect = NOTHING_SAID,
        recoveries_max: int,
    ) -> None:
        self.sandbox, self.story = sandbox, story
        self._scenario, self._spec, self._start = scenario, spec, start
        self._expect, self._recoveries_max = expect, recoveries_max

    def run(self, step: Step) -> ProcessResult:
        """The command under test, with the fault."""
        return self._with_fault("run", self._spec.run, step)

    def recover(self, step: Step) -> ProcessResult:
        """A recovery, with the next fault: the crash after the crash."""
        self.story.recoveries += 1
        return self._with_fault("recovery", self._spec.recover, step)

    def settle(self) -> None:
        """Recover until it says done, once again, and let the client send its command again."""
        if self.story.worst is Verdict.HUNG:
            return  # its disk says nothing about a crash, and a recovery would only hang again
        self._recover()
        if self._spec.retry is not None and self._expect.refuses is None:
            self.plain("retry", self._spec.retry)

    def plain(self, role: str, argv: list[str], plan: str = "") -> ProcessResult:
        """A process without a fault."""
        result: ProcessResult = self._start(argv, plan).wait()
        self._note(role, result)
        return result

    def _recover(self) -> None:
        for _ in range(self._recoveries_max):
            self.story.recoveries += 1
            result = self.plain("recovery", self._spec.recover)
            if result.timed_out:
                self.story.blame(Proof(False, Verdict.HUNG, "the recovery was still running when its time was up"))
                return
            if result.exit_code == 0 or self._refused_as_expected():
                break
        self.plain("again", self._spec.recover)

    def _refused_as_expected(self) -> bool:
        expect = self._expect
        return expect.refuses is not None and self.story.moments[-1].answer.code == expect.refuses

    def _with_fault(self, role: str, argv: list[str], step: Step) -> ProcessResult:
        fault = find_fault(step.fault)
        beside = self._spec.arm if role == "run" and self._spec.arm else ""
        plan = ",".join(filter(None, (beside, fault.arm(step))))
        result = fault.lead(self._start(argv, plan), Stage(self._run_rival, self._tamper))
        self._note(role, result)
        proof = fault.prove(step, result)
        self.story.steps.append(as_step_result(step, result, proof))
        self.story.blame(proof)
        return result

    def _note(self, role: str, result: ProcessResult) -> None:
        if result.pid in self.story.pids:
            raise RecycledPid(f"the number {result.pid} is that of a process of this story that is dead")
        self.story.pids.add(result.pid)
        last = self.story.moments[-1].tree
        tree = observe_tree(self.sandbox)
        self.story.moments.append(Moment(role, last if tree.entries == last.entries else tree, result))
        self.story.points.update(record.point for record in result.records)
        self.story.rows.update(self.story.moments[-1].answer.rows)

    def _run_rival(self, name: str) -> None:
        self.story.moments.append(Moment("paused", observe_tree(self.sandbox)))
        self.plain("rival", self._spec.rivals[name])

    def _tamper(self, name: str) -> Afterwards:
        self.story.moments.append(Moment("paused", observe_tree(self.sandbox)))
        afterwards = self._scenario.tamper(name, self.sandbox)
        self.story.moments.append(Moment("tampered", observe_tree(self.sandbox)))
        return afterwards
