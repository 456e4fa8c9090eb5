"""``rival``, ``rival:NAME``: the first is held at the point, alive; another command runs to its end; the first goes on."""

from __future__ import annotations

from harness.faults.base import Proof, Running, Stage, how_it_ended, prove_fired
from harness.model import ProcessResult, Step, Verdict


class Rival:
    def __init__(self, name: str) -> None:
        self._name = name

    def arm(self, step: Step) -> str:
        return f"{step.point}#{step.hit}=pause"

    def lead(self, running: Running, stage: Stage) -> ProcessResult:
        if running.wait_for_pause() is not None:
            stage.run_rival(self._name)
            running.resume()
        return running.wait()

    def prove(self, step: Step, result: ProcessResult) -> Proof:
        wrong = prove_fired(step, "pause", result)
        if wrong is not None:
            return wrong
        if result.exit_code != 0:
            return Proof(True, Verdict.FOREIGN_DEATH, f"held and let go on, it {how_it_ended(result)}")
        return Proof(True, None, "")
