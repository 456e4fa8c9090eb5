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
from harness.judge.tree import Tree, observe_tree
from harness.judge.watch import watch_tree
from harness.matrix import ScenarioSpec
from harness.model import Expect, ProcessResult, Record, Step, StepResult, Verdict
from harness.pids import any_given, is_in_use, last_given
from killpoints.plan import EVERY

NOTHING_SAID = Expect()
TRIES_MAX = 3  # of a story whose dead have numbers that somebody got; there are only 32,768 on many machines
Starter = Callable[[str, list[str], str], Any]


class RecycledPid(Exception):
    """The number of a dead process of the story was given out again: the dead owner on the disk may look alive."""


@dataclass(slots=True)
class Story:
    """What happened so far. ``worst`` is the first verdict that keeps it from being a pass, ``why`` its reason.

    ``about`` says whose story it is (the id of the cell).
    """

    moments: list[Moment]
    about: str = ""
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
    """The processes of one sandbox. ``start(role, argv, plan)`` starts one of them with the plan armed.

    Whatever is asked of it raises RecycledPid where a number of the story's dead was given out again meanwhile.
    """

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
        self.spec, self._scenario, self._start = spec, scenario, start
        self._expect, self._recoveries_max = expect, recoveries_max
        self._given = last_given()
        if any(map(is_in_use, story.pids)):
            raise RecycledPid("the number of a dead process of this story is in use again")

    def go_on(self, step: Step) -> ProcessResult:
        """The next process with a fault: the command under test first, a recovery ever after."""
        return self.run(step) if len(self.story.moments) == 1 else self.recover(step)

    def run(self, step: Step) -> ProcessResult:
        """The command under test, with the fault."""
        return self._with_fault("run", self.spec.run, step)

    def recover(self, step: Step) -> ProcessResult:
        """A recovery, with the next fault: the crash after the crash."""
        self.story.recoveries += 1
        return self._with_fault("recovery", self.spec.recover, step)

    def look_on(self, look: Callable[[Record, Tree], None]) -> None:
        """The next process without a fault, held at each of its points to look at the disk, and let go on.

        The command under test first, a recovery ever after. Nothing happens to it: its records say that it passed.
        """
        first = len(self.story.moments) == 1
        argv, beside = (self.spec.run, self.spec.arm) if first else (self.spec.recover, None)
        role, tree = "run" if first else "recovery", self.story.moments[-1].tree
        self.story.recoveries += not first
        # watched before it starts: it may have written by the time that it is held first
        with watch_tree(self.sandbox) as watch:
            running = self._start(role, argv, ",".join(filter(None, (beside, EVERY))))
            while (record := running.wait_for_pause()) is not None:
                if watch.changed():
                    tree = observe_tree(self.sandbox)
                look(record, tree)
                running.resume()
        result: ProcessResult = running.wait()
        passed = (replace(record, kind="pass") if record.kind == "pause" else record for record in result.records)
        self._note(role, replace(result, records=tuple(passed)))

    def settle(self) -> None:
        """Recover until it says done, once again, and let the client send its command again."""
        if self.story.worst is Verdict.HUNG:
            return  # its disk says nothing about a crash, and a recovery would only hang again
        self._recover()
        if self.spec.retry is not None and self._expect.refuses is None:
            self.plain("retry", self.spec.retry)

    def plain(self, role: str, argv: list[str], plan: str = "") -> ProcessResult:
        """A process without a fault."""
        result: ProcessResult = self._start(role, argv, plan).wait()
        self._note(role, result)
        return result

    def _recover(self) -> None:
        for _ in range(self._recoveries_max):
            if self._has_recovered():
                break
            self.story.recoveries += 1
            if self.plain("recovery", self.spec.recover).timed_out:
                self.story.blame(Proof(False, Verdict.HUNG, "the recovery was still running when its time was up"))
                return
        self.plain("again", self.spec.recover)

    def _has_recovered(self) -> bool:
        """A recovery came last, and said done, or refused as it must."""
        last, refuses = self.story.moments[-1], self._expect.refuses
        if last.role != "recovery" or last.result is None:
            return False
        return last.result.exit_code == 0 or (refuses is not None and last.answer.code == refuses)

    def _with_fault(self, role: str, argv: list[str], step: Step) -> ProcessResult:
        fault = find_fault(step.fault)
        beside = self.spec.arm if role == "run" and self.spec.arm else ""
        plan = ",".join(filter(None, (beside, fault.arm(step))))
        result = fault.lead(self._start(role, argv, plan), Stage(self._run_rival, self._tamper))
        self._note(role, result)
        proof = fault.prove(step, result)
        self.story.steps.append(as_step_result(step, result, proof))
        self.story.blame(proof)
        return result

    def _note(self, role: str, result: ProcessResult) -> None:
        before, self._given = self._given, last_given()
        if any_given(self.story.pids, before, self._given) or result.pid in self.story.pids:
            raise RecycledPid("the number of a dead process of this story was given out again")
        self.story.pids.add(result.pid)
        last = self.story.moments[-1].tree
        tree = observe_tree(self.sandbox, last)
        self.story.moments.append(Moment(role, last if tree.entries == last.entries else tree, result))
        self.story.points.update(record.point for record in result.records)
        self.story.rows.update(self.story.moments[-1].answer.rows)

    def _run_rival(self, name: str) -> None:
        self.story.moments.append(Moment("paused", observe_tree(self.sandbox)))
        self.plain("rival", self.spec.rivals[name])

    def _tamper(self, name: str) -> Afterwards:
        self.story.moments.append(Moment("paused", observe_tree(self.sandbox)))
        afterwards = self._scenario.tamper(name, self.sandbox)
        self.story.moments.append(Moment("tampered", observe_tree(self.sandbox)))
        return afterwards
