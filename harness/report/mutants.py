"""What became of the wrong programs: a line each, the score, and the result file. Reads what it is given only."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, Protocol

from harness.report.output import write_text


class _Spec(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def says(self) -> str: ...
    @property
    def excuse(self) -> str | None: ...


class MutantOutcome(Protocol):
    """harness.mutants.MutantResult, seen from here."""

    @property
    def mutant(self) -> _Spec: ...
    @property
    def killed_by(self) -> object | None: ...
    @property
    def invariant(self) -> str | None: ...
    @property
    def cells_run(self) -> int: ...
    @property
    def duration_s(self) -> float: ...
    @property
    def survived(self) -> bool: ...


def print_mutant(result: MutantOutcome) -> None:
    """One line: killed by which cell and invariant, excused why, or SURVIVED."""
    name = f"{result.mutant.id}: {result.mutant.says}"
    if result.killed_by is not None:
        end = f"{result.invariant}  {result.killed_by}  ({result.cells_run} cells, {result.duration_s:.1f} s)"
        print(f"killed    {name}\n          {end}", flush=True)
    elif result.survived:
        print(f"SURVIVED  {name}\n          none of {result.cells_run} cells saw it", flush=True)
    else:
        print(f"excused   {name}\n          {result.mutant.excuse}", flush=True)


def score(results: Sequence[MutantOutcome]) -> float:
    """Killed of those that can be."""
    able = [result for result in results if result.mutant.excuse is None]
    return sum(result.killed_by is not None for result in able) / len(able) if able else 0.0


def exit_status(results: Sequence[MutantOutcome]) -> int:
    """1 for a survivor, and for an excuse that is not true: a cell saw it after all."""
    untrue = [result for result in results if result.mutant.excuse is not None and result.killed_by is not None]
    return 1 if untrue or any(result.survived for result in results) else 0


def print_score(results: Sequence[MutantOutcome]) -> None:
    excused = sum(result.mutant.excuse is not None for result in results)
    survivors = [result.mutant.id for result in results if result.survived]
    print(f"\n{len(results)} wrong programs, {excused} excused; score {score(results):.0%}")
    if survivors:
        print(f"survived: {', '.join(survivors)}")


def write_json(results: Sequence[MutantOutcome], path: str | os.PathLike[str]) -> None:
    """The shape of harness.md: schema, mutants, score. Raises OSError."""
    mutants: list[dict[str, Any]] = [
        {
            "id": result.mutant.id,
            "says": result.mutant.says,
            "killed_by": None if result.killed_by is None else str(result.killed_by),
            "invariant": result.invariant,
            "excuse": result.mutant.excuse,
            "duration_ms": round(result.duration_s * 1000, 1),
        }
        for result in results
    ]
    write_text(path, json.dumps({"schema": 1, "mutants": mutants, "score": score(results)}, indent=1) + "\n")
