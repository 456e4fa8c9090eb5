"""matrix.yaml: every refusal says where it is and names the nearest known name; the gate works both ways."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.matrix import MatrixError, check_gate, json_schema, load_matrix, read_catalogue, require_fault
from harness.model import DeclaredPoint, Expect
from tests.harness import toy

POINTS = ("toy.pending", "toy.appended", "toy.cleared", "toy.redone")
DECLARED = tuple(DeclaredPoint(name, "", "") for name in POINTS)
Change = Callable[[dict[str, Any]], object]


def loaded_with(tmp_path: Path, change: Change = lambda matrix: None) -> Any:
    matrix = copy.deepcopy(toy.toy_matrix())
    change(matrix)
    return load_matrix(toy.write_toy(tmp_path, matrix))


def refusal(tmp_path: Path, change: Change) -> str:
    with pytest.raises(MatrixError) as caught:
        loaded_with(tmp_path, change)
    assert all(str(tmp_path / "matrix.yaml") in problem for problem in caught.value.problems)
    return str(caught.value)


def gate_refusal(tmp_path: Path, change: Change, declared: tuple[DeclaredPoint, ...] = DECLARED) -> tuple[str, ...]:
    matrix = loaded_with(tmp_path, change)
    with pytest.raises(MatrixError) as caught:
        check_gate(matrix, declared)
    return caught.value.problems


def test_a_right_matrix(tmp_path: Path) -> None:
    matrix = loaded_with(tmp_path)
    check_gate(matrix, DECLARED)
    assert matrix.points["toy.appended"].expected(toy.HEALTHY, "kill") == Expect(row="R2")
    assert matrix.points["toy.appended"].expected(toy.HEALTHY, "term") == Expect()
    assert matrix.scenarios[toy.HEALTHY].env["TOY_HOME"] == "{sandbox}"


def put(*path: str) -> Callable[[Any], Change]:
    """put("points", "toy.pending", "hits")(0) is a change that sets that key."""

    def to(value: Any) -> Change:
        def change(matrix: dict[str, Any]) -> None:
            place: Any = matrix
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value

        return change

    return to


HEALTHY = ("scenarios", toy.HEALTHY)
PENDING = ("points", "toy.pending")


@pytest.mark.parametrize(
    ("change", "place", "says"),
    [
        (put("scenario")({}), "scenario", "nearest known: scenarios"),
        (put("schema")(2), "schema", "Input should be 1"),
        (put("catalogue")([]), "catalogue", "at least 1 item"),
        (put("defaults", "timeout")(3), "defaults.timeout", "nearest known: timeout_s"),
        (put("defaults", "timeout_s")(0), "defaults.timeout_s", "greater than 0"),
        (put("defaults", "recoveries_max")(0), "defaults.recoveries_max", "greater than or equal to 1"),
        (put(*HEALTHY, "recovers")(["x"]), f"scenarios.{toy.HEALTHY}.recovers", "nearest known: recover"),
        (put(*HEALTHY, "rivals")({"commit": []}), f"scenarios.{toy.HEALTHY}.rivals.commit", "at least 1 item"),
        (put(*HEALTHY, "judge")("toy_judge.Toy"), f"scenarios.{toy.HEALTHY}.judge", "should match pattern"),
        (put(*HEALTHY, "run")([]), f"scenarios.{toy.HEALTHY}.run", "at least 1 item"),
        (put(*HEALTHY, "run")("python -m toy"), f"scenarios.{toy.HEALTHY}.run", "valid list"),
        (put(*HEALTHY, "env")({"TOY": 1}), f"scenarios.{toy.HEALTHY}.env.TOY", "valid string"),
        (put(*HEALTHY, "arm")("toy.pending=explode"), f"scenarios.{toy.HEALTHY}.arm", "unknown action 'explode'"),
        (put(*HEALTHY, "says")(""), f"scenarios.{toy.HEALTHY}.says", "at least 1 character"),
        (put(*PENDING, "fault")(["kill"]), "points.toy.pending.fault", "nearest known: faults"),
        (put(*PENDING, "faults")(["kil"]), "points.toy.pending.faults", "unknown fault 'kil'; the nearest known: kill"),
        (put(*PENDING, "faults")(["pause"]), "points.toy.pending.faults", "unknown fault 'pause'"),
        (put(*PENDING, "faults")(["error"]), "points.toy.pending.faults", "nearest known: error:ERRNO"),
        (put(*PENDING, "faults")(["error:"]), "points.toy.pending.faults", "unknown errno ''"),
        (put(*PENDING, "faults")(["error:ENOPSC"]), "points.toy.pending.faults", "unknown errno 'ENOPSC'"),
        (put(*PENDING, "faults")(["tamper:"]), "points.toy.pending.faults", "nearest known: tamper:NAME"),
        (put(*PENDING, "faults")(["rival"]), "points.toy.pending.faults", "nearest known: rival:NAME"),
        (put(*PENDING, "faults")(["kill", "rival:commit", "kill"]), "points.toy.pending.faults", "listed twice"),
        (put(*PENDING, "faults")([]), "points.toy.pending.faults", "at least 1 item"),
        (put(*PENDING, "scenarios")([]), "points.toy.pending.scenarios", "at least 1 item"),
        (put(*PENDING, "hits")(0), "points.toy.pending.hits", "greater than or equal to 1"),
        (put(*PENDING, "hits")({"toy.helthy": 2}), "points.toy.pending", f"nearest known: {toy.HEALTHY}"),
        (put(*PENDING, "expect")({"rival:comit": {}}), "points.toy.pending", "the nearest known: rival:commit"),
        (put(*PENDING, "expect")({"tamper:*": {}}), "points.toy.pending", "unknown fault 'tamper:*'"),
        (put(*PENDING, "only_in")({"rivel:*": []}), "points.toy.pending", "the nearest known: rival:*"),
        (put(*PENDING, "only_in")({"kill": ["toy.helthy"]}), "points.toy.pending", f"nearest known: {toy.HEALTHY}"),
        (put(*PENDING, "expect")({"kill": {"rows": "R1"}}), "points.toy.pending.expect.kill.rows", "not permitted"),
        (put(*PENDING, "expect_in")({"toy.helthy": {}}), "points.toy.pending", f"nearest known: {toy.HEALTHY}"),
        (put(*PENDING, "expect_in")({toy.HEALTHY: {"kil": {}}}), "points.toy.pending", "the nearest known: kill"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, change: Change, place: str, says: str) -> None:
    words = refusal(tmp_path, change)
    assert f"matrix.yaml: {place}" in words and says in words, words


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("toy.redone#0=kill", "hits count from 1"),
        ("toy.redone kill", "write NAME#HIT=ACTION"),
        ("", "exactly one"),
        ("toy.pending=kill,toy.redone=kill", "exactly one"),
        ("toy.redone=pause", "kill, term or error:ERRNO"),
    ],
)
def test_a_set_up_dies_in_one_known_way(tmp_path: Path, fault: str, says: str) -> None:
    words = refusal(tmp_path, put(*HEALTHY, "prepare")([{"run": ["true"], "fault": fault}]))
    assert f"scenarios.{toy.HEALTHY}.prepare.0.fault" in words and says in words, words


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    def change(matrix: dict[str, Any]) -> None:
        matrix["defaults"]["timeout_s"] = -1
        matrix["points"]["toy.pending"]["faults"] = ["kil"]

    assert len(refusal(tmp_path, change).splitlines()) == 2


@pytest.mark.parametrize(
    "text",
    [
        "schema: 1\npoints: {}\npoints: {}\n",
        "schema: 1\npoints:\n  a: {spec: x, spec: y}\n",
        "schema: 1\nbase: &b {x: 1}\npoints:\n  a: 1\n  a: 2\n",
    ],
)
def test_a_key_that_is_there_twice(tmp_path: Path, text: str) -> None:
    """YAML would keep the second in silence."""
    path = tmp_path / "matrix.yaml"
    path.write_text(text)
    with pytest.raises(MatrixError, match=r"(?s)is there twice.*line \d"):
        load_matrix(path)


def test_anchors_and_merges_are_no_repeated_keys(tmp_path: Path) -> None:
    path = toy.write_toy(tmp_path, toy.toy_matrix())
    path.write_text(path.read_text() + "\n")
    text = "schema: 1\ncatalogue: [x]\nscenarios:\n  a: &a {says: s, judge: 'j:J', run: [x], recover: [y]}\n"
    text += "  b: {<<: *a, says: other}\npoints:\n  p: {spec: s, scenarios: [a, b], faults: [kill]}\n"
    path.write_text(text)
    assert load_matrix(path).scenarios["b"].says == "other"


@pytest.mark.parametrize(
    "text", ["", "[]", "schema: 1", "points: [", "\x00", "a: \xff\xfe", "? [a]\n: b\n", "? {a: b}\n: c\n"]
)
def test_what_is_no_matrix(tmp_path: Path, text: str) -> None:
    path = tmp_path / "matrix.yaml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(MatrixError, match=r"matrix\.yaml: "):
        load_matrix(path)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(MatrixError, match=r"none\.yaml: No such file"):
        load_matrix(tmp_path / "none.yaml")
    with pytest.raises(MatrixError, match="Is a directory"):
        load_matrix(tmp_path)


# --- faults and expectations


@pytest.mark.parametrize("fault", ["kill", "term", "rival:anybody", "error:ENOSPC", "tamper:anything"])
def test_faults_that_are_known(fault: str) -> None:
    require_fault(fault)
    from harness.faults import find_fault

    find_fault(fault)


def test_expectations_and_hits_by_scenario(tmp_path: Path) -> None:
    """The closest that is said counts: of this scenario before all, of this fault before its kind."""

    def change(matrix: dict[str, Any]) -> None:
        row = matrix["points"]["toy.pending"]
        row["hits"] = {toy.RECOVERING: 3}
        row["scenarios"] = [toy.HEALTHY, toy.RECOVERING]
        row["faults"] = ["kill", "error:EIO", "error:ENOSPC", "rival:commit"]
        row["expect"]["error:*"] = {"code": "ANY"}
        row["expect"]["error:EIO"] = {"code": "EIO"}
        row["expect_in"] = {toy.RECOVERING: {"kill": {"refuses": "E_NO"}, "error:*": {"code": "OTHER"}}}

    row = loaded_with(tmp_path, change).points["toy.pending"]
    assert (row.hits_in(toy.HEALTHY), row.hits_in(toy.RECOVERING)) == (1, 3)
    assert row.expected(toy.HEALTHY, "kill") == Expect(row="R1")
    assert row.expected(toy.RECOVERING, "kill") == Expect(refuses="E_NO")
    assert row.expected(toy.HEALTHY, "error:EIO") == Expect(code="EIO")
    assert row.expected(toy.HEALTHY, "error:ENOSPC") == Expect(code="ANY")
    assert row.expected(toy.RECOVERING, "error:ENOSPC") == Expect(code="OTHER")
    assert row.expected(toy.RECOVERING, "rival:commit") == Expect(code="BUSY")


def test_a_fault_that_is_tried_in_some_scenarios_only(tmp_path: Path) -> None:
    def change(matrix: dict[str, Any]) -> None:
        row = matrix["points"]["toy.pending"]
        row["scenarios"] = [toy.HEALTHY, toy.RECOVERING]
        row["only_in"] = {"rival:*": [toy.HEALTHY]}

    row = loaded_with(tmp_path, change).points["toy.pending"]
    assert row.scenarios_of("rival:commit") == [toy.HEALTHY]
    assert row.scenarios_of("kill") == [toy.HEALTHY, toy.RECOVERING]


# --- the gate


def test_a_point_that_only_the_code_has(tmp_path: Path) -> None:
    problems = gate_refusal(tmp_path, lambda matrix: matrix["points"].pop("toy.redone"))
    assert problems[0].startswith("point 'toy.redone' is declared in the code but matrix.yaml lists no row for it")
    misspelt = (*DECLARED, DeclaredPoint("toy.appendid", "", ""))
    assert gate_refusal(tmp_path, lambda matrix: None, misspelt)[0].endswith(
        "the nearest known: toy.appended, toy.pending, toy.redone"
    )


def test_a_point_that_only_the_matrix_has(tmp_path: Path) -> None:
    problems = gate_refusal(tmp_path, lambda matrix: None, DECLARED[1:])
    assert len(problems) == 2, "the set-up of one scenario dies there too"
    assert problems[0].startswith(
        "matrix.yaml lists the point 'toy.pending' that no code declares; the nearest known: toy."
    )


def test_a_scenario_that_nobody_uses(tmp_path: Path) -> None:
    problems = gate_refusal(tmp_path, lambda m: m["scenarios"].update({"toy.healthier": toy.scenario()}))
    assert len(problems) == 1
    assert problems[0].startswith(f"scenario 'toy.healthier' is used by no point; the nearest known: {toy.HEALTHY}")


def test_a_scenario_that_is_not_there(tmp_path: Path) -> None:
    problems = gate_refusal(tmp_path, lambda m: m["points"]["toy.pending"]["scenarios"].append("toy.helthy"))
    assert problems == (
        f"point 'toy.pending' names the scenario 'toy.helthy' that is not there; the nearest known: {toy.HEALTHY}",
    )


@pytest.mark.parametrize("key", ["prepare", "arm"])
def test_something_is_armed_at_a_point_that_no_code_declares(tmp_path: Path, key: str) -> None:
    plan = "toy.pendin#1=kill"
    value = [{"run": ["true"], "fault": plan}] if key == "prepare" else plan
    problems = gate_refusal(tmp_path, put(*HEALTHY, key)(value))
    assert len(problems) == 1 and f"scenario {toy.HEALTHY!r}" in problems[0] and "'toy.pendin'" in problems[0]
    assert "the nearest known: toy.pending" in problems[0]


def test_a_rival_that_the_scenario_does_not_have(tmp_path: Path) -> None:
    def change(matrix: dict[str, Any]) -> None:
        matrix["scenarios"][toy.HEALTHY]["rivals"] = {"comit": ["true"]}

    problems = gate_refusal(tmp_path, change)
    assert len(problems) == 3
    assert problems[0] == (
        f"point 'toy.pending' lists 'rival:commit', but {toy.HEALTHY!r} has no such rival; the nearest known: comit"
    )


def test_the_gate_tells_every_problem_at_once(tmp_path: Path) -> None:
    def change(matrix: dict[str, Any]) -> None:
        matrix["scenarios"]["toy.unused"] = toy.scenario()
        matrix["points"]["toy.other"] = matrix["points"].pop("toy.redone")

    assert len(gate_refusal(tmp_path, change)) == 3


# --- the catalogue and the schema


def test_the_catalogue_is_read_in_another_process(tmp_path: Path) -> None:
    toy.write_toy(tmp_path, toy.toy_matrix())
    (tmp_path / "loud_points.py").write_text("print('a module that talks\\u2028when imported')\nimport toy_points\n")
    declared = read_catalogue(["loud_points", "toy_points"], tmp_path)
    assert tuple(point.name for point in declared) == POINTS
    assert declared[0] == DeclaredPoint("toy.pending", "the record is in the pending file, not in the log", "toy 1")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import no_such_module", "No module named 'no_such_module'"),
        (
            "from killpoints import declare\ndeclare('toy.pending', 'x')\ndeclare('toy.pending', 'x')",
            "is declared twice",
        ),
        ("import os; os._exit(7)", "no message"),
        ("import os; os._exit(0)", "no catalogue"),
    ],
)
def test_a_catalogue_that_cannot_be_read(tmp_path: Path, source: str, says: str) -> None:
    (tmp_path / "broken_points.py").write_text(source)
    with pytest.raises(MatrixError, match=rf"catalogue broken_points: .*{says}"):
        read_catalogue(["broken_points"], tmp_path)


def test_the_json_schema_describes_what_is_loaded(tmp_path: Path) -> None:
    schema = json_schema()
    json.dumps(schema)
    assert set(schema["required"]) == {"schema", "catalogue", "scenarios", "points"}
    assert schema["additionalProperties"] is False
    assert set(toy.toy_matrix()) <= set(schema["properties"])
    point = schema["$defs"]["PointSpec"]
    assert set(point["required"]) == {"spec", "scenarios", "faults"} and point["additionalProperties"] is False
