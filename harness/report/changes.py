"""What changed against the run before: cell by cell, by id. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.model import Run


@dataclass(frozen=True, slots=True)
class Change:
    """One cell whose verdict differs. ``before`` is None for a new cell, ``after`` for one that was not run."""

    cell: str
    before: str | None
    after: str | None

    @property
    def kind(self) -> str:
        """``broken`` (was PASS), ``fixed`` (is PASS), ``changed``, ``added`` or ``gone``."""
        if self.before is None:
            return "added"
        if self.after is None:
            return "gone"
        return "broken" if self.before == "PASS" else "fixed" if self.after == "PASS" else "changed"

    @property
    def is_worse(self) -> bool:
        """It passed and does not any more, became a violation, or is new and does not pass."""
        return (
            self.kind == "broken"
            or (self.kind == "changed" and self.after == "FAIL")
            or (self.kind == "added" and self.after != "PASS")
        )


KINDS = ("broken", "changed", "fixed", "added", "gone")


def changes_since(previous: Mapping[str, Any], run: Run) -> tuple[Change, ...]:
    """Every cell whose verdict differs from the result document ``previous``: worst kind first, then by id.

    Cells that a filter or a shard left out of this run are not told as gone.
    """
    before: dict[str, str] = {cell["id"]: cell["verdict"] for cell in previous["cells"]}
    after = {str(result.cell): result.verdict.value for result in run.results}
    found = [
        Change(cell, before.get(cell), after.get(cell))
        for cell in (before.keys() | after.keys() if run.whole else after.keys())
        if before.get(cell) != after.get(cell)
    ]
    return tuple(sorted(found, key=lambda change: (KINDS.index(change.kind), change.cell)))


def as_previous(run: Run) -> dict[str, Any]:
    """As much of the result document of ``run`` as a comparison needs."""
    return {
        "run_id": run.run_id,
        "cells": [{"id": str(result.cell), "verdict": result.verdict.value} for result in run.results],
    }


def not_tried(previous: Mapping[str, Any], run: Run) -> tuple[str, ...]:
    """The cells of the result document ``previous`` that have no result in this run, by id."""
    after = {str(result.cell) for result in run.results}
    return tuple(sorted({str(cell["id"]) for cell in previous["cells"]} - after))
