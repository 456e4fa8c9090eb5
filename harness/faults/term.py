"""``term``: SIGTERM to self at the point; the program may clean up before it ends, but must end."""

from __future__ import annotations

from harness.faults.base import Proof, Running, Stage, prove_fired
from harness.model import ProcessResult, Step, Verdict


class Term:
    def arm(self, step: Step) -> str:
        return f"{step.point}#{step.hit}=term"

    def lead(self, running: Running, stage: Stage) -> ProcessResult:
        return running.wait()

    def prove(self, step: Step, result: ProcessResult) -> Proof:
        wrong = prove_fired(step, "term", result)
        if wrong is not None:
            return wrong
        if result.died_by not in (None, "SIGTERM"):
            return Proof(False, Verdict.FOREIGN_DEATH, f"SIGTERM was sent, it died by {result.died_by}")
        return Proof(True, None, "")
