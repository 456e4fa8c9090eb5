"""The list of wrong programs and the decorator that adds to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake. ``cells``: globs of the cells that should see it, tried first. ``excuse``: why none can, if so."""

    id: str
    says: str
    cells: tuple[str, ...]
    excuse: str | None
    apply: Callable[[], None]


MUTANTS: dict[str, Mutant] = {}


def mutant(
    says: str, *, cells: Sequence[str], excuse: str | None = None
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register the decorated patch under its own name, with '-' for '_'."""

    def register(apply: Callable[[], None]) -> Callable[[], None]:
        name = apply.__name__.replace("_", "-")
        if name in MUTANTS:
            raise ValueError(f"mutant {name} is there twice")
        MUTANTS[name] = Mutant(name, says, tuple(cells), excuse, apply)
        return apply

    return register
