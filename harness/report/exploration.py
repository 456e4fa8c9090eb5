"""What an exploration found, as JSON and as words (harness.md, "Closure", "Result file"). Reads what it is given only."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

from harness.exploration import Exploration, Finding, State
from harness.model import Step
from harness.report.output import write_text
from harness.report.tally import KILL_PROVES_NO_FSYNC

SCHEMA = 1
_TOLD_MOST = 5
LIMITS = (
    KILL_PROVES_NO_FSYNC,
    "Only kills: no error, no rival and nobody who tampers. After the first process, every process is a recovery.",
)


def exploration_document(found: Exploration) -> dict[str, Any]:
    """The JSON object of schema 1. ``states`` and ``edges`` are counts; ``graph`` has each of them."""
    return {
        "schema": SCHEMA,
        "scenario": found.scenario,
        "states": len(found.states),
        "edges": len(found.transitions),
        "depth": found.depth,
        "fixpoint": found.fixpoint,
        "stopped": found.stopped,
        "abstraction": found.abstraction,
        "folding": found.folding,
        "exact_depth": found.exact_depth,
        "rows": dict(sorted(found.rows.items())),
        "violations": [_finding(found, finding) for finding in found.violations],
        "unknown": [_finding(found, finding) for finding in found.findings if finding.unknown],
        "processes": found.processes,
        "duration_s": round(found.duration_s, 3),
        "not_covered": list(not_covered(found)),
        "graph": {
            "states": [_state(state) for state in found.states],
            "edges": [{"from": t.source, "to": t.target, "step": str(t.step)} for t in found.transitions],
        },
    }


def _state(state: State) -> dict[str, Any]:
    return {
        "number": state.number,
        "depth": state.depth,
        "exact": state.exact,
        "label": state.label,
        "path": [str(step) for step in state.steps],
        "rows": None if state.rows is None else list(state.rows),
    }


def _finding(found: Exploration, finding: Finding) -> dict[str, Any]:
    return {
        "path": [str(step) for step in finding.steps],
        "violations": [{"invariant": v.invariant, "path": v.path, "detail": v.detail} for v in finding.violations],
        "unknown": finding.unknown,
        "repro": repro(found, finding),
    }


def repro(found: Exploration, finding: Finding) -> str:
    """The command that leads there again; empty for a path without a crash."""
    return repro_steps(found.scenario, finding.steps) if finding.steps else ""


def repro_steps(scenario: str, steps: Iterable[Step | str]) -> str:
    """The command that kills at each of ``steps`` again."""
    return f"killmatrix repro '{scenario}/{'>'.join(map(str, steps))}'"


def not_covered(found: Exploration) -> tuple[str, ...]:
    """What this exploration says nothing about, one sentence each."""
    apart, *folded = told_apart(found)
    return (*LIMITS, f"Disks are told apart up to this: {apart}", *(f"Folded: {sentence}" for sentence in folded))


def told_apart(found: Exploration) -> tuple[str, ...]:
    """What one state stands for: the abstraction and, where there is one, the folding and up to where it is not used."""
    if not found.folding:
        return (found.abstraction,)
    exact = f" After up to {crashes(found.exact_depth)} they are told apart." if found.exact_depth else ""
    return (found.abstraction, f"{found.folding}{exact}")


def write_exploration(found: Exploration, path: str | os.PathLike[str]) -> None:
    """Write the JSON file, whole or not at all. Raises OSError."""
    write_text(path, json.dumps(exploration_document(found), indent=1) + "\n")


def crashes(count: int) -> str:
    return "no crash" if count == 0 else f"{count} crash{'' if count == 1 else 'es'}"


def headline(found: Exploration) -> str:
    """One sentence: whether this holds for any number of crashes."""
    if found.violations:
        return f"A violation after {crashes(len(found.violations[0].steps))}."
    if found.findings:
        return "No violation found, but something is unknown: this proves nothing yet."
    if not found.fixpoint:
        return f"No violation found, but no fixpoint: {found.stopped}."
    return "Fixpoint: whatever the number of crashes, no other state appears, and every state recovers."


def exploration_lines(found: Exploration) -> Iterator[str]:
    """What a person reads at the end."""
    yield f"{found.scenario}: {headline(found)}"
    yield (
        f"{len(found.states):,} states, {len(found.transitions):,} edges, depth {found.depth}, "
        f"{found.processes:,} processes, {found.duration_s:.1f} s"
    )
    if found.rows:
        yield "rows taken: " + " ".join(f"{row}:{count}" for row, count in sorted(found.rows.items()))
    for finding in found.findings[:_TOLD_MOST]:
        yield ""
        yield f"after {' > '.join(map(str, finding.steps)) or 'no crash'}"
        yield from (f"  {violation}" for violation in finding.violations)
        if finding.unknown:
            yield f"  unknown: {finding.unknown}"
        if command := repro(found, finding):
            yield f"  {command}"
    if len(found.findings) > _TOLD_MOST:
        yield f"and {len(found.findings) - _TOLD_MOST} more findings; --json has them all"
    yield ""
    yield from (f"- {sentence}" for sentence in not_covered(found))
