"""commit killed from outside at random times, at no point at all: the same judge finds nothing that the points did not.

COLLECTOR_KILLS says how many (300 for the whole experiment); a failure prints the seed and the time of its kill.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

from harness.engine import Engine
from harness.judge.invariants import judge_history
from harness.judge.scenario import History, Moment
from harness.judge.tree import observe_tree, restore_tree
from harness.model import Command, Expect
from harness.runner import open_engine, open_project
from harness.sandbox import remove_tree, session_directory

MATRIX = Path(__file__).resolve().parents[2] / "matrix.yaml"
KILLS = int(os.environ.get("COLLECTOR_KILLS", "40"))
SCENARIOS = ("collector.first-commit", "collector.second-commit", "collector.takeover-held", "collector.exchange-died")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs warm forks: a fresh interpreter dies starting")


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_kill_at_any_time_leaves_nothing_that_the_points_do_not(name: str) -> None:
    seed = int(os.environ.get("COLLECTOR_SEED", str(random.randrange(2**32))))
    chance, project = random.Random(seed), open_project(MATRIX)
    died = 0
    with session_directory() as root, open_engine(project, "fork", root / "cells") as engine:
        longest = whole_run_s(engine, name, root / "dry")
        for number in range(max(1, KILLS // len(SCENARIOS))):
            after_s = chance.uniform(0, longest * 1.1)
            history, killed = one_round(engine, name, root / f"{number}", after_s)
            died += killed
            found = judge_history(engine.scenario(name), history, Expect()).violations
            assert not found, f"seed {seed}, round {number}, killed after {after_s:.6f} s: {[*map(str, found)]}"
    assert died, f"seed {seed}: no kill came before its process had ended; nothing was tried"


def whole_run_s(engine: Engine, name: str, sandbox: Path) -> float:
    """How long the command takes when nobody kills it."""
    spec = engine._matrix.scenarios[name]
    sandbox.mkdir()
    restore_tree(engine._prepare(name, engine.scenario(name), spec).tree, sandbox)
    result = engine._spawner.start(engine._command(spec.run, sandbox, spec, "")).wait()
    assert result.exit_code == 0
    return float(result.duration_s)


def one_round(engine: Engine, name: str, sandbox: Path, after_s: float) -> tuple[History, bool]:
    """Set up, run and kill after that time, recover, recover again, let the client retry."""
    spec, scenario = engine._matrix.scenarios[name], engine.scenario(name)
    tree = engine._prepare(name, scenario, spec).tree
    sandbox.mkdir()
    restore_tree(tree, sandbox)
    moments = [Moment("set-up", tree)]
    for role, argv in (("run", spec.run), ("recovery", spec.recover), ("again", spec.recover), ("retry", spec.retry)):
        assert argv is not None
        command = engine._command(argv, sandbox, spec, "")
        if role == "run":
            command = Command(command.argv, command.cwd, command.env, "", timeout_s=after_s)
        moments.append(Moment(role, tree, engine._spawner.start(command).wait()))
        tree = observe_tree(sandbox)
        moments[-1] = Moment(role, tree, moments[-1].result)
    remove_tree(sandbox)
    run = moments[1].result
    assert run is not None
    return History(tuple(moments)), run.timed_out
