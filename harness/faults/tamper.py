"""``tamper:NAME``: the process is held at the point while the scenario changes something; then it goes on, or dies."""

from __future__ import annotations

from harness.faults.base import Proof, Running, Stage, died_by_kill, how_it_ended, prove_fired
from harness.judge.scenario import Afterwards
from harness.model import ProcessResult, Step, Verdict


class Tamper:
    def __init__(self, name: str) -> None:
        self._name = name
        self._afterwards = Afterwards.GO_ON

    def arm(self, step: Step) -> str:
        return f"{step.point}#{step.hit}=pause"

    def lead(self, running: Running, stage: Stage) -> ProcessResult:
        if running.wait_for_pause() is not None:
            self._afterwards = stage.tamper(self._name)
            running.resume() if self._afterwards is Afterwards.GO_ON else running.kill()
        return running.wait()

    def prove(self, step: Step, result: ProcessResult) -> Proof:
        wrong = prove_fired(step, "pause", result)
        if wrong is not None:
            return wrong
        if self._afterwards is Afterwards.KILL:
            fired = died_by_kill(result)
            return Proof(fired, None if fired else Verdict.FOREIGN_DEATH, "" if fired else how_it_ended(result))
        if result.died_by is not None:
            return Proof(True, Verdict.FOREIGN_DEATH, f"held, tampered with and let go on, it {how_it_ended(result)}")
        return Proof(True, None, "")
