"""targets.toml and survivors.toml: what is changed, what must notice, and which changes need not be noticed."""

from __future__ import annotations

import argparse
import fnmatch
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]


@dataclass(frozen=True)
class Target:
    """One module, and the tests that are meant to cover it. Paths are relative to the repository.

    deletions_only:  statements are taken out, nothing else is changed
    cells:           a glob of scenarios of matrix.yaml; their cells may notice what the tests do not
    """

    module: str
    tests: tuple[str, ...]
    leave_out: str = ""
    deletions_only: bool = False
    cells: str = ""

    @property
    def pytest_arguments(self) -> tuple[str, ...]:
        return (*self.tests, "-k", f"not ({self.leave_out})") if self.leave_out else self.tests


@dataclass(frozen=True)
class Change:
    """One mutant as a person reads it: the line before and after, stripped; ``line`` is where it stands."""

    module: str
    line: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}\n    - {self.before}\n    + {self.after}"


@dataclass(frozen=True)
class Reason:
    """Why no test has to notice a change. ``module`` may be a glob; the lines are exact, a line taken out is empty."""

    module: str
    before: str
    after: tuple[str, ...]
    reason: str

    def excuses(self, change: Change) -> bool:
        same_line = self.before == change.before and change.after in self.after
        return same_line and fnmatch.fnmatchcase(change.module, self.module)


def load_targets() -> tuple[Target, ...]:
    tables = tomllib.loads((HERE / "targets.toml").read_text())["target"]
    return tuple(Target(**table | {"tests": tuple(table["tests"])}) for table in tables)


def load_reasons() -> tuple[Reason, ...]:
    tables = tomllib.loads((HERE / "survivors.toml").read_text())["survivor"]
    return tuple(Reason(**table | {"after": tuple(table["after"])}) for table in tables)


def choose_targets(parts: Sequence[str]) -> tuple[Target, ...]:
    """The targets whose module has one of ``parts`` in its path; every target when none is given."""
    return tuple(target for target in load_targets() if not parts or any(part in target.module for part in parts))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(64, f"{self.format_usage()}{self.prog}: {message}\n")


def parse_arguments() -> argparse.Namespace:
    """``parts``, ``sample``, ``seed`` of the command line. Exits with status 64 for what cannot be meant."""
    parser = _Parser(prog="python -m tests.mutation", description="small changes that a test or a cell must notice")
    parser.add_argument("parts", nargs="*", metavar="PART", help="a piece of a module's path; none: every module")
    parser.add_argument("--sample", type=int, metavar="N", help="at most N changes a module, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    if asked.sample is not None and asked.sample < 1:
        parser.error("--sample: at least 1")
    if not choose_targets(asked.parts):
        parser.error(f"no module of tests/mutation/targets.toml has {' or '.join(asked.parts)} in its path")
    return asked
