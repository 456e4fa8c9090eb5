"""``kill``: SIGKILL to self at the point. Loses nothing that the kernel has, and so never proves an fsync."""

from __future__ import annotations

from harness.faults.base import Proof, Running, Stage, died_by_kill, how_it_ended, prove_fired
from harness.model import ProcessResult, Step, Verdict


class Kill:
    def arm(self, step: Step) -> str:
        return f"{step.point}#{step.hit}=kill"

    def lead(self, running: Running, stage: Stage) -> ProcessResult:
        return running.wait()

    def prove(self, step: Step, result: ProcessResult) -> Proof:
        wrong = prove_fired(step, "kill", result)
        if wrong is not None:
            return wrong
        if not died_by_kill(result):
            return Proof(False, Verdict.FOREIGN_DEATH, f"the kill did not end it: it {how_it_ended(result)}")
        return Proof(True, None, "")
