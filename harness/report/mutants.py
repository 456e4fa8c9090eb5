"""What became of the wrong programs: a line each, the score, the result file and the table that reports show of it.

Reads what it is given only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from harness.report.output import write_text

SCHEMA = 1


class MutantsFileError(ValueError):
    """A file is not what ``killmatrix mutants --json`` writes; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class MutantRow:
    """One wrong program in a report.

    ``unproven``: why its red cell shows nothing. ``seen_unharmed``: it is wrong, too, with nothing done to it.
    """

    id: str
    says: str
    killed_by: str | None
    invariant: str | None
    excuse: str | None
    duration_ms: float
    unproven: str | None = None
    seen_unharmed: bool | None = None

    @property
    def state(self) -> str:
        """``survived``, ``killed``, ``excused``, or ``untrue``: a cell saw what its excuse says that none can see."""
        if self.killed_by is not None:
            return "killed" if self.excuse is None else "untrue"
        return "excused" if self.excuse is not None and self.unproven is None else "survived"


@dataclass(frozen=True, slots=True)
class MutantTable:
    """A file of ``killmatrix mutants --json``, what went wrong first. ``score``: killed of those that can be."""

    rows: tuple[MutantRow, ...]
    score: float

    def count(self, *states: str) -> int:
        return sum(row.state in states for row in self.rows)

    @property
    def says(self) -> str:
        """One line for people."""
        parts = [
            f"{len(self.rows)} wrong programs",
            f"{self.count('killed')} killed",
            f"{self.count('excused')} excused",
        ]
        parts += [f"{n} {word}" for word in ("survived", "untrue") if (n := self.count(word))]
        return f"{', '.join(parts)}; score {self.score:.0%}; {say_unharmed(self.rows)}"


class _Killed(Protocol):
    @property
    def killed_by(self) -> object | None: ...
    @property
    def seen_unharmed(self) -> bool | None: ...


def say_unharmed(outcomes: Iterable[_Killed]) -> str:
    """How many of those that were killed anybody would have seen, and how many only where something went wrong."""
    unharmed = [outcome.seen_unharmed for outcome in outcomes if outcome.killed_by is not None]
    return f"{unharmed.count(False)} are right until something happens to them, {unharmed.count(True)} are not"


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
    def unproven(self) -> str | None: ...
    @property
    def seen_unharmed(self) -> bool | None: ...
    @property
    def survived(self) -> bool: ...


def print_mutant(result: MutantOutcome) -> None:
    """One line: killed by which cell and invariant, excused why, or SURVIVED."""
    name = f"{result.mutant.id}: {result.mutant.says}"
    if result.killed_by is not None:
        also = ", unharmed too" if result.seen_unharmed else ""
        end = f"{result.invariant}  {result.killed_by}  ({result.cells_run} cells, {result.duration_s:.1f} s{also})"
        print(f"killed    {name}\n          {end}", flush=True)
    elif result.survived:
        print(
            f"SURVIVED  {name}\n          {result.unproven or f'none of {result.cells_run} cells saw it'}", flush=True
        )
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
    print(say_unharmed(results))
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
            "unproven": result.unproven,
            "seen_unharmed": result.seen_unharmed,
            "duration_ms": round(result.duration_s * 1000, 1),
        }
        for result in results
    ]
    write_text(path, json.dumps({"schema": SCHEMA, "mutants": mutants, "score": score(results)}, indent=1) + "\n")


def read_table(path: str | os.PathLike[str]) -> MutantTable:
    """What :func:`write_json` wrote. Raises OSError, or MutantsFileError."""
    try:
        document = json.loads(Path(path).read_bytes())
        if document["schema"] != SCHEMA:
            raise ValueError(f"schema {document['schema']!r}")
        rows = [MutantRow(**item) for item in document["mutants"]]
        rows.sort(key=lambda row: ("survived", "untrue", "killed", "excused").index(row.state))
        return MutantTable(tuple(rows), float(document["score"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MutantsFileError(
            f"{os.fspath(path)} is no file of killmatrix mutants --json (schema {SCHEMA}): {error}"
        ) from error
