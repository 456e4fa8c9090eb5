"""What an exploration found: states, transitions, findings (harness.md, "Closure"). Nouns only, as in :mod:`harness.model`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.model import Step, Violation


@dataclass(frozen=True, slots=True)
class State:
    """One disk that ``depth`` crashes left, first reached by ``steps``. ``exact``: told apart without folding.

    ``rows``: what an undisturbed process did from here, as the labels of the table rows that it took; None where the
    search ended before one was started.
    """

    number: int
    depth: int
    exact: bool
    steps: tuple[Step, ...]
    label: str
    tree: Any  # a harness.judge.tree.Tree; reports, which read nouns only, do not look into it
    rows: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Transition:
    """A process that started on one state and was killed at ``step``, for real, leaving another."""

    source: int
    target: int
    step: Step


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong at the end of a path: violations, or what kept it from being judged (``unknown``)."""

    steps: tuple[Step, ...]
    violations: tuple[Violation, ...]
    unknown: str = ""


@dataclass(slots=True)
class Exploration:
    """``fixpoint``: nothing new appears any more. ``stopped``: why it ended before that."""

    scenario: str
    abstraction: str
    folding: str
    exact_depth: int
    states: list[State] = field(default_factory=list)
    transitions: list[Transition] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    fixpoint: bool = False
    stopped: str = ""
    processes: int = 0
    duration_s: float = 0.0

    @property
    def depth(self) -> int:
        """Crashes up to the last new state."""
        return max((state.depth for state in self.states), default=0)

    @property
    def rows(self) -> Mapping[str, int]:
        """How often each table row was taken by an undisturbed process."""
        return Counter(row for state in self.states for row in state.rows or ())

    @property
    def violations(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.violations]

    @property
    def exit_status(self) -> int:
        """0: a fixpoint and nothing wrong; 1: a violation; 2: something unknown, or stopped before the fixpoint."""
        return 1 if self.violations else 0 if self.fixpoint and not self.findings else 2
