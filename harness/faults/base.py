"""The shape of a fault, and the proof of fire that all of them share (harness.md, "A cell, step by step" 3)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from harness.judge.scenario import Afterwards
from harness.model import ProcessResult, Record, Step, StepResult, Verdict


class Running(Protocol):
    """A started process, as harness.spawn hands it out."""

    @property
    def pid(self) -> int: ...
    def wait_for_pause(self) -> Record | None: ...
    def resume(self) -> None: ...
    def kill(self) -> None: ...
    def wait(self) -> ProcessResult: ...


@dataclass(frozen=True, slots=True)
class Stage:
    """What a fault may do while the process is paused: run the rival to its end, let the scenario tamper."""

    run_rival: Callable[[str], None]
    tamper: Callable[[str], Afterwards]


@dataclass(frozen=True, slots=True)
class Proof:
    """``verdict`` is None where the fault is proven to have happened as meant."""

    fired: bool
    verdict: Verdict | None
    why: str


class Fault(Protocol):
    def arm(self, step: Step) -> str:
        """The plan's text for the process."""

    def lead(self, running: Running, stage: Stage) -> ProcessResult:
        """Take the process through the fault to its end."""

    def prove(self, step: Step, result: ProcessResult) -> Proof:
        """Whether exactly this fault ended, failed or held exactly this process."""


def find_fault(text: str) -> Fault:
    """The fault that matrix.yaml calls ``text``. Raises ValueError for one the harness does not have."""
    from harness.faults import error, kill, rival, tamper, term

    kind, _, name = text.partition(":")
    match kind:
        case "kill":
            return kill.Kill()
        case "term":
            return term.Term()
        case "error":
            return error.Error(text)
        case "rival":
            return rival.Rival(name)
        case "tamper":
            return tamper.Tamper(name)
    raise ValueError(f"unknown fault {text!r}; known: kill, term, error:ERRNO, rival, tamper:NAME")


def fire_record(step: Step, kind: str, result: ProcessResult) -> Record | None:
    """The record that names this point, this hit and this very process."""
    return next(
        (r for r in result.records if (r.kind, r.point, r.hit, r.pid) == (kind, step.point, step.hit, result.pid)),
        None,
    )


def prove_fired(step: Step, kind: str, result: ProcessResult) -> Proof | None:
    """The proof that it did not happen, or None where the record is there and nothing is wrong yet."""
    record = fire_record(step, kind, result)
    if result.timed_out:
        last = next((r for r in reversed(result.records)), None)
        where = f"; the last point passed was {last.point}#{last.hit}" if last else "; no point was reached"
        return Proof(record is not None, Verdict.HUNG, f"still running when its time was up{where}")
    if record is not None:
        return None
    if result.died_by is not None:
        return Proof(False, Verdict.FOREIGN_DEATH, f"died by {result.died_by} without reaching {step.point}#{step.hit}")
    return Proof(False, Verdict.UNREACHED, f"kill point not reached: {step.point}#{step.hit}; {how_it_ended(result)}")


def how_it_ended(result: ProcessResult) -> str:
    """For people: the exit status and the last line of stderr."""
    ended = f"died by {result.died_by}" if result.died_by else f"exited with {result.exit_code}"
    lines = result.stderr.decode(errors="replace").strip().splitlines()
    return f"{ended}: {lines[-1][:200]}" if lines else ended


def died_by_kill(result: ProcessResult) -> bool:
    """SIGKILL, or on Windows TerminateProcess with the exit code that only the hook uses."""
    return result.died_by == "SIGKILL" or (sys.platform == "win32" and result.exit_code == 9)


def as_step_result(step: Step, result: ProcessResult, proof: Proof) -> StepResult:
    return StepResult(step, proof.fired, result.pid, result.died_by)
