"""matrix.yaml -> a validated model, and the two-way gate between it and the code's catalogue (harness.md).

Unknown keys are refused; the JSON Schema of :class:`Matrix` is what ``killmatrix schema`` prints for editors.
"""

from __future__ import annotations

import difflib
import json
import subprocess
import sys
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from harness.model import DeclaredPoint, Expect
from killpoints import Action, Plan, PlanError

FAULT_KINDS = ("kill", "term")
Argv = Annotated[list[str], Field(min_length=1)]
Hits = Annotated[int, Field(ge=1, le=100)]


class MatrixError(Exception):
    """The matrix, or the gate, refuses: every problem on its own line, each naming the nearest known name."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=False)


class Defaults(_Strict):
    timeout_s: float = Field(20.0, gt=0, le=3600)
    recoveries_max: int = Field(4, ge=1, le=100)
    depth: int = Field(1, ge=1, le=9)


class Prepare(_Strict):
    """A process of the set-up. With ``fault`` (``NAME#HIT=kill``) it must die exactly there."""

    run: Argv
    fault: str | None = None

    @field_validator("fault")
    @classmethod
    def _one_end(cls, text: str | None) -> str | None:
        if text is not None:
            armings = _parse_plan(text).armings
            if len(armings) != 1 or armings[0].action.kind == "pause":
                raise ValueError(f"{text!r}: a set-up ends in exactly one way: kill, term or error:ERRNO")
        return text


class ScenarioSpec(_Strict):
    """One set-up, one command under test, one command that recovers, one judge.

    ``arm``: what is armed in the command beside the fault of each cell (an error that this scenario is about).
    """

    says: str = Field(min_length=1)
    judge: str = Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
    env: dict[str, str] = {}
    prepare: list[Prepare] = []
    run: Argv
    recover: Argv
    retry: Argv | None = None
    rivals: dict[str, Argv] = {}
    arm: str | None = None
    timeout_s: float | None = Field(None, gt=0, le=3600)

    @field_validator("arm")
    @classmethod
    def _readable(cls, text: str | None) -> str | None:
        if text is not None:
            _parse_plan(text)
        return text


class ExpectSpec(_Strict):
    """What the reopen must show; ``row: none``: it takes no row at all; ``refuses``: it answers this error code.

    ``code``: the error code that the process under the fault answers (its rival, while it is held).
    """

    row: str | None = None
    resumes: str | None = None
    code: str | None = None
    refuses: str | None = None

    def as_expect(self) -> Expect:
        return Expect(self.row, self.resumes, self.code, self.refuses)


class PointSpec(_Strict):
    """One point: the scenarios that reach it, the faults tried there, what each must lead to.

    ``only_in`` names the scenarios in which a fault is tried, where it is not all of them. Both ``only_in`` and the
    expectations take ``KIND:*`` for every fault of a kind (``error:*``).

    ``hits``: how many hits of one process are tried, in every scenario or by scenario (1 where it is not named).
    ``expect_in`` overrides ``expect`` for one scenario.
    """

    spec: str = Field(min_length=1)
    scenarios: list[str] = Field(min_length=1)
    faults: list[str] = Field(min_length=1)
    only_in: dict[str, list[str]] = {}
    hits: Hits | dict[str, Hits] = 1
    expect: dict[str, ExpectSpec] = {}
    expect_in: dict[str, dict[str, ExpectSpec]] = {}

    @field_validator("faults")
    @classmethod
    def _known_faults(cls, faults: list[str]) -> list[str]:
        for fault in faults:
            require_fault(fault)
        if len(set(faults)) != len(faults):
            raise ValueError("a fault is listed twice")
        return faults

    @model_validator(mode="after")
    def _expectations_belong(self) -> PointSpec:
        for fault in (*self.expect, *self.only_in):
            _require_name("fault", fault, self._fault_names())
        for scenarios in self.only_in.values():
            for scenario in scenarios:
                _require_name("scenario", scenario, self.scenarios)
        for scenario in self.hits if isinstance(self.hits, dict) else ():
            _require_name("scenario", scenario, self.scenarios)
        for scenario, faults in self.expect_in.items():
            _require_name("scenario", scenario, self.scenarios)
            for fault in faults:
                _require_name("fault", fault, self._fault_names())
        return self

    def _fault_names(self) -> list[str]:
        kinds = {f"{fault.partition(':')[0]}:*" for fault in self.faults if ":" in fault}
        return [*self.faults, *sorted(kinds)]

    def scenarios_of(self, fault: str) -> list[str]:
        return self.only_in.get(fault) or self.only_in.get(_any_of(fault)) or self.scenarios

    def hits_in(self, scenario: str) -> int:
        return self.hits if isinstance(self.hits, int) else self.hits.get(scenario, 1)

    def expected(self, scenario: str, fault: str) -> Expect:
        """The closest that is said: of this scenario before all, of this fault before ``KIND:*``."""
        for said in (self.expect_in.get(scenario, {}), self.expect):
            if spec := said.get(fault) or said.get(_any_of(fault)):
                return spec.as_expect()
        return Expect()

    def all_expected(self, fault: str) -> list[Expect]:
        """What is said of this fault, one item a scenario in which it is tried."""
        return [self.expected(scenario, fault) for scenario in self.scenarios_of(fault)]


class CoverageSpec(_Strict):
    """What ``run --coverage`` measures, and what it asks for.

    ``packages``: what is measured; without it the top-level packages of the catalogue and of ``python -m`` in scenarios.
    ``complete``: globs of files below the project in which every line and branch is reached or explained.
    ``explained``: file -> name of a gap as reports write it, or a glob of names -> why no process reaches it. A reason for
    what is reached is refused.
    """

    packages: list[str] = []
    complete: list[str] = []
    explained: dict[str, dict[str, Annotated[str, Field(min_length=1)]]] = {}


class Matrix(_Strict):
    """The whole file.

    ``catalogue``: the modules whose import declares every point. ``mutants``: the module that runs a command with a
    mistake in it (harness/mutants.py). ``rows``: labels of the table rows that some recovery must take or refuse by.
    """

    schema_: Literal[1] = Field(alias="schema")
    catalogue: list[str] = Field(min_length=1)
    mutants: str | None = None
    rows: list[str] = []
    defaults: Defaults = Defaults()
    scenarios: dict[str, ScenarioSpec] = Field(min_length=1)
    points: dict[str, PointSpec] = Field(min_length=1)
    coverage: CoverageSpec = CoverageSpec()


def _any_of(fault: str) -> str:
    return f"{fault.partition(':')[0]}:*"


def require_fault(fault: str) -> None:
    """Raise ValueError, naming the nearest known fault, for one that the harness cannot do."""
    kind, colon, rest = fault.partition(":")
    if kind == "error" and colon:
        try:
            Action.parse(fault)
        except PlanError as error:
            raise ValueError(str(error)) from error
        return
    if kind in ("tamper", "rival") and rest:
        return
    _require_name("fault", fault, (*FAULT_KINDS, "error:ERRNO", "rival:NAME", "tamper:NAME"))


def _parse_plan(text: str) -> Plan:
    try:
        return Plan.parse(text)
    except PlanError as error:
        raise ValueError(str(error)) from error


def _require_name(what: str, name: str, known: Iterable[str]) -> None:
    known = list(known)
    if name not in known:
        raise ValueError(f"unknown {what} {name!r}{_nearest(name, known)}")


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"; the nearest known: {', '.join(close)}" if close else ""


class _UniqueKeys(yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader):  # type: ignore[misc]
    """YAML keeps the last of two equal keys in silence; a point listed twice would lose its first row."""


def _mapping(loader: Any, node: Any) -> dict[Any, Any]:
    keys = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, Hashable):
            raise yaml.MarkedYAMLError(problem=f"the key {key!r} is no plain text", problem_mark=key_node.start_mark)
        if key in keys:
            raise yaml.MarkedYAMLError(problem=f"the key {key!r} is there twice", problem_mark=key_node.start_mark)
        keys.add(key)
    loader.flatten_mapping(node)  # what is merged in (<<) comes first, so that a key of the mapping's own overrides it
    return {
        loader.construct_object(key_node, deep=True): loader.construct_object(value_node, deep=True)
        for key_node, value_node in node.value
    }


_UniqueKeys.add_constructor("tag:yaml.org,2002:map", _mapping)


def load_matrix(path: Path) -> Matrix:
    """Read and validate the file. Raises MatrixError with every problem and its place."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise MatrixError([f"{path}: {error.strerror}; write one with: killmatrix schema"]) from error
    try:
        document = yaml.load(text, Loader=_UniqueKeys)
    except yaml.YAMLError as error:
        raise MatrixError([f"{path}: {error}"]) from error
    try:
        return Matrix.model_validate(document)
    except ValidationError as error:
        problems = []
        for item in error.errors():
            place = ".".join(map(str, item["loc"])) or "(top level)"
            problems.append(f"{path}: {place}: {item['msg']}{_hint(item)}")
        raise MatrixError(problems) from error


_KEYS = sorted({*Matrix.model_fields, *ScenarioSpec.model_fields, *PointSpec.model_fields, *Defaults.model_fields})


def _hint(item: Any) -> str:
    return _nearest(str(item["loc"][-1]), _KEYS) if item["type"] == "extra_forbidden" else ""


def read_catalogue(modules: Iterable[str], project: Path) -> tuple[DeclaredPoint, ...]:
    """Import the modules in a process of their own and return the points they declare.

    The harness itself never imports the program under test. Raises MatrixError with what the import said.
    """
    command = [sys.executable, "-m", "killpoints", *modules]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise MatrixError([f"catalogue {', '.join(modules)}: {last[0]}"])
    try:
        found = json.loads(done.stdout.strip().rpartition("\n")[2])  # the last line; a module may talk when imported
    except ValueError:
        raise MatrixError([f"catalogue {', '.join(modules)}: no catalogue: the import ended the process"]) from None
    return tuple(DeclaredPoint(item["name"], item["says"], item["spec"]) for item in found)


def check_gate(matrix: Matrix, declared: Iterable[DeclaredPoint]) -> None:
    """The two-way gate, before anything runs. Raises MatrixError naming every point or scenario that is on one side only."""
    names = [point.name for point in declared]
    problems = [
        f"point {name!r} is declared in the code but matrix.yaml lists no row for it{_nearest(name, matrix.points)}"
        for name in names
        if name not in matrix.points
    ]
    problems += [
        f"matrix.yaml lists the point {name!r} that no code declares{_nearest(name, names)}"
        for name in matrix.points
        if name not in names
    ]
    used = {scenario for point in matrix.points.values() for scenario in point.scenarios}
    problems += [
        f"scenario {name!r} is used by no point{_nearest(name, used - {name})}"
        for name in matrix.scenarios
        if name not in used
    ]
    problems += [
        f"point {point!r} names the scenario {name!r} that is not there{_nearest(name, matrix.scenarios)}"
        for point, row in matrix.points.items()
        for name in row.scenarios
        if name not in matrix.scenarios
    ]
    problems += [
        f"scenario {scenario!r} arms {arming.name!r}, a point that no code declares{_nearest(arming.name, names)}"
        for scenario, row in matrix.scenarios.items()
        for plan in (row.arm, *(step.fault for step in row.prepare))
        if plan is not None
        for arming in Plan.parse(plan).armings
        if arming.name not in names
    ]
    problems += [
        f"point {point!r} lists {fault!r}, but {name!r} has no such rival{_nearest(fault[6:], matrix.scenarios[name].rivals)}"
        for point, row in matrix.points.items()
        for fault in row.faults
        if fault.startswith("rival:")
        for name in row.scenarios_of(fault)
        if name in matrix.scenarios and fault[6:] not in matrix.scenarios[name].rivals
    ]
    if problems:
        raise MatrixError(problems)


def json_schema() -> dict[str, Any]:
    """For editors."""
    return Matrix.model_json_schema(by_alias=True)
