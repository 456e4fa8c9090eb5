"""What a project tells the harness about one scenario: how to set it up, and how to read its disk.

Subclass :class:`Scenario` beside your tests and name it in matrix.yaml (``judge: tests.scenarios.shop:Checkout``). A
judge reads the disk with code of its own; one that imports the program it judges repeats the program's mistakes.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.judge.tree import Tree
from harness.model import ProcessResult, Violation


@dataclass(frozen=True)
class Answer:
    """What a program said on stdout: its last line, if that is a JSON object. Empty where it died or said nothing."""

    fields: Mapping[str, Any]

    @property
    def ok(self) -> bool:
        return self.fields.get("ok") is True

    @property
    def code(self) -> str | None:
        value = self.fields.get("code")
        return value if isinstance(value, str) else None

    @property
    def rows(self) -> tuple[str, ...]:
        """Labels of the table rows taken, in order (``rows``: a list; or ``row``: one)."""
        rows = self.fields.get("rows")
        if isinstance(rows, list):
            return tuple(row for row in rows if isinstance(row, str))
        row = self.fields.get("row")
        return (row,) if isinstance(row, str) else ()


def read_answer(result: ProcessResult) -> Answer:
    """The JSON object in the last whole line of stdout, or an empty answer.

    What a process said before it was killed was said: a client has read it, and rests on it.
    """
    died = result.signal_number is not None
    said = result.stdout.rpartition(b"\n")[0] if died else result.stdout
    lines = said.strip().splitlines()
    if not lines:
        return Answer({})
    try:
        value = json.loads(lines[-1])
    except (ValueError, RecursionError):
        return Answer({})
    return Answer(value if isinstance(value, dict) else {})


@dataclass(frozen=True)
class Moment:
    """The sandbox right after one process ended (``result``), or after the set-up (None). ``role`` says which process.

    Roles: ``set-up``, ``run`` (with the fault), ``recovery`` (may carry the next fault), ``again`` (a recovery of what is
    recovered), ``retry`` (the client sends the same command again); and while the first is held at its point: ``paused``,
    ``rival`` (another command ran), ``tampered`` (the scenario changed something; only what comes after it is judged).
    """

    role: str
    tree: Tree
    result: ProcessResult | None = None

    @cached_property
    def answer(self) -> Answer:
        return read_answer(self.result) if self.result is not None else Answer({})


@dataclass(frozen=True)
class History:
    """Every moment of one cell, in order; the first is the set-up."""

    moments: tuple[Moment, ...]

    @property
    def start(self) -> Tree:
        return self.moments[0].tree

    @property
    def end(self) -> Tree:
        return self.moments[-1].tree


@dataclass(frozen=True)
class Judgement:
    """What a judge found, and how many facts it looked at: a judge that looked at nothing proves nothing (UNKNOWN)."""

    violations: tuple[Violation, ...]
    checks: int


class Afterwards(enum.Enum):
    """What becomes of the process that was held while the scenario tampered."""

    GO_ON = "go on"
    KILL = "kill"


class Scenario:
    """Base of every scenario. Paths are relative to the sandbox; globs are :func:`fnmatch.fnmatchcase` patterns.

    append_only:  files that only grow by whole records, or are exchanged for one that starts with their bytes
    immutable:    files that never change, and never vanish before :meth:`may_vanish` says so
    foreign:      files put there by set-up that are not the program's: they stay byte for byte
    allowed:      every path that may exist in the end; anything else is residue
    own_state:    the program's own files that it may rewrite even where somebody tampered with them
    bookkeeping:  paths that even a refusal may touch (the program's own lock metadata), compared nowhere else
    busy_codes:   error codes that mean busy or locked
    knows_inodes: the program remembers inode numbers, so that a copy of its disk is another disk to it: stories that
                  share a beginning are each told from the set-up then
    """

    append_only: tuple[str, ...] = ()
    immutable: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ("*",)
    own_state: tuple[str, ...] = ()
    bookkeeping: tuple[str, ...] = ()
    busy_codes: frozenset[str] = frozenset()
    busy_exit_codes: frozenset[int] = frozenset({75})
    knows_inodes: bool = False

    def set_up(self, sandbox: Path) -> None:
        """Put the first files into the empty sandbox. The ``prepare`` commands of matrix.yaml come after it."""

    def finish_set_up(self, sandbox: Path) -> None:
        """Change what the ``prepare`` commands left, once, after the last of them has ended."""

    def tamper(self, name: str, sandbox: Path) -> Afterwards:
        """Do ``tamper:NAME`` of matrix.yaml to the sandbox while the process is held. Raise ValueError for another name."""
        raise ValueError(f"{type(self).__name__} has no tamper {name!r}")

    def records(self, tree: Tree) -> list[str]:
        """The id of every record in the tree, in order, repeated where it is there twice.

        Raise ValueError with the path for bytes that are no whole record: that is reported as a violation.
        """
        return []

    def acknowledged(self, answer: Answer) -> set[str]:
        """Ids of records that this answer says are durable (an acknowledgement, or a recovery that says done)."""
        return set()

    def due(self, start: Tree) -> set[str]:
        """Ids of records that must be there once when a recovery, or a retry, has said that the command is done."""
        return set()

    def counters(self, tree: Tree) -> dict[str, int]:
        """Numbers that never fall from one moment to the next."""
        return {}

    def may_vanish(self, path: str, tree: Tree) -> bool:
        """Whether an immutable file may be gone in ``tree`` (its term is over)."""
        return False

    def is_own(self, path: str, tree: Tree) -> bool:
        """Whether what tampering left at ``path`` is the program's own all the same, for it to change or remove."""
        return False

    # --- for explorations (harness.md, "Closure"): which disks are one state

    #: what :meth:`canonical` forgets, in words for the report
    abstraction: str = "None: two disks are one state only where every path, mode and byte is the same."
    #: what it forgets beyond that when ``folded``; empty where that is nothing
    folding: str = ""

    def canonical(self, tree: Tree, *, folded: bool) -> str:
        """A text that is equal for two disks exactly when they are one state of an exploration."""
        return "\n".join(f"{path} {e.kind} {e.mode:o} {e.sha256}" for path, e in tree.entries.items())

    def describe(self, tree: Tree) -> str:
        """A few words for a state: where the program stands."""
        return ""

    def judge(self, history: History) -> Judgement:
        """What only this scenario knows. Say how many facts were looked at."""
        return Judgement((), 1)
