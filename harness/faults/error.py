"""``error:ERRNO``: the step raises that OSError instead of acting; the program must end by itself and say so."""

from __future__ import annotations

from harness.faults.base import Proof, Running, Stage, prove_fired
from harness.model import ProcessResult, Step, Verdict


class Error:
    def __init__(self, text: str) -> None:
        self._text = text

    def arm(self, step: Step) -> str:
        return f"{step.point}#{step.hit}={self._text}"

    def lead(self, running: Running, stage: Stage) -> ProcessResult:
        return running.wait()

    def prove(self, step: Step, result: ProcessResult) -> Proof:
        wrong = prove_fired(step, "error", result)
        if wrong is not None:
            return wrong
        if result.died_by is not None:
            return Proof(True, Verdict.FOREIGN_DEATH, f"an error was injected, it died by {result.died_by}")
        return Proof(True, None, "")
