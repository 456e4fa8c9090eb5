"""A red cell against a wrong program counts only where it was judged and where the right program passes it.

Real processes of the little program (tests/harness/toy.py), with a catalogue of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.matrix import MatrixError
from harness.mutants import MutantResult, read_mutants, run_mutants, with_mutant
from harness.plan import plan_cells
from harness.runner import Project, open_project
from tests.harness import toy

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the little program and the warm servers need Linux"),
    pytest.mark.usefixtures("toy_imports"),
]

CATALOGUE = """
import json, os, runpy, sys

EXCUSES = {
    "tells-its-pid": None, "duplicates": None, "rewrites": None,
    "loses": "an excuse that is not true", "intrudes": "only a rival sees it",
}

if sys.argv[1:] == ["--list"]:
    print(json.dumps([{"id": i, "says": f"it {i}", "cells": ["*.appended#1=kill"], "excuse": e} for i, e in EXCUSES.items()]))
else:
    os.environ["TOY"] = sys.argv[1]
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__")
"""
JUDGES = """

class ReadsBytes(Toy):
    def judge(self, history):
        if len(self.records(history.end)) > 3:
            raise OSError("more than a judge can read")
        return super().judge(history)


class WantsADeath(Toy):
    def judge(self, history):
        assert history.moments[1].result.exit_code is None
        return super().judge(history)
"""


def open_toy(place: Path, scenario: dict[str, object]) -> Project:
    matrix = toy.toy_matrix({"toy.one": scenario}) | {"mutants": "toy_wrong"}
    path = toy.write_toy(place, matrix)
    (place / "toy_wrong.py").write_text(CATALOGUE)
    with (place / "toy_judge.py").open("a") as judges:
        judges.write(JUDGES)
    return open_project(path)


def try_one(project: Project, mutant: str) -> MutantResult:
    """What became of it under the kills of the one scenario."""
    chosen = [spec for spec in read_mutants(project) if spec.id == mutant]
    cells = [
        cell for cell in plan_cells(project.matrix) if cell.steps[0].fault == "kill" and cell.scenario == "toy.one"
    ]
    (result,) = run_mutants(project, chosen, cells, jobs=1, spawn="fork")
    return result


def test_a_mistake_is_seen_by_the_cell_named_for_it(tmp_path: Path) -> None:
    result = try_one(open_toy(tmp_path, toy.scenario()), "duplicates")
    assert (str(result.killed_by), result.cells_run) == ("toy.one/toy.appended#1=kill", 1)
    assert not result.survived and result.unproven is None
    assert result.invariant == "append_at_most_once"
    assert result.seen_unharmed is False, "the command is right as long as nothing happens to it"


def test_what_any_test_of_the_command_would_have_seen_is_told_apart(tmp_path: Path) -> None:
    assert try_one(open_toy(tmp_path / "right", toy.scenario()), "rewrites").seen_unharmed is True
    result = try_one(open_toy(tmp_path / "dead", toy.scenario(judge="WantsADeath")), "duplicates")
    assert result.killed_by is not None and result.seen_unharmed is None, "that is so of the right program too"


def test_what_no_cell_sees_has_survived(tmp_path: Path) -> None:
    result = try_one(open_toy(tmp_path, toy.scenario()), "tells-its-pid")
    assert result.killed_by is None and result.survived and result.unproven is None and result.cells_run == 6


def test_an_excuse_holds_only_until_a_cell_sees_it(tmp_path: Path) -> None:
    project = open_toy(tmp_path, toy.scenario())
    assert try_one(project, "loses").killed_by is not None
    assert not try_one(project, "intrudes").survived


def test_a_cell_that_the_right_program_fails_shows_no_mistake(tmp_path: Path) -> None:
    result = try_one(open_toy(tmp_path, toy.scenario("duplicates")), "duplicates")
    assert result.killed_by is None and result.survived
    assert "the right program does not pass it either: append_at_most_once" in str(result.unproven)


def test_a_cell_that_nobody_could_judge_shows_no_mistake(tmp_path: Path) -> None:
    result = try_one(open_toy(tmp_path, toy.scenario(judge="ReadsBytes")), "duplicates")
    assert result.killed_by is None and result.survived
    assert "it could not be judged" in str(result.unproven) and "more than a judge can read" in str(result.unproven)


def test_a_mutant_that_the_catalogue_has_not(tmp_path: Path) -> None:
    project = open_toy(tmp_path, toy.scenario())
    assert with_mutant(project, None) is project
    with pytest.raises(MatrixError, match="no wrong program is called 'lose'"):
        with_mutant(project, "lose")


def test_a_catalogue_that_cannot_be_read(tmp_path: Path) -> None:
    project = open_toy(tmp_path, toy.scenario())
    (tmp_path / "toy_wrong.py").write_text("raise ValueError('no catalogue today')")
    with pytest.raises(MatrixError, match="no catalogue today"):
        read_mutants(project)
