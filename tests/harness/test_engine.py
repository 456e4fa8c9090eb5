"""Every way in which a program, a set-up, a judge or the harness itself can go wrong in a cell, told apart by its verdict.

Real processes run a real little program (tests/harness/toy.py) through the real engine.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.engine import Engine
from harness.faults import find_fault
from harness.matrix import load_matrix
from harness.model import CellResult, Expect, ProcessResult, Record, Step, Verdict
from harness.plan import parse_cell
from harness.spawn import open_spawner
from tests.harness import toy

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the little program and the warm servers need Linux"),
    pytest.mark.usefixtures("toy_imports"),
]

HANG_S = 3.0  # really waited for, by each program that hangs on purpose
WRONG = """
    hangs raises exits imports shot child-dies server-shot grandchild kill-does-nothing kill-is-another-signal
    tells-its-pid leaves-a-pipe duplicates loses rewrites overwrites restless refuses residue recovery-hangs confused
    never-ends busy intrudes
""".split()
JUDGES = """
    LooksAtNothing CountsNothing ProtectsNothing Raises EndsTheProcess CannotSetUp NoScenario Missing
""".split()
RECOVER = ["python", "-m", "toy", "recover"]
SPECIAL = {
    "set-up-exits": toy.scenario(prepare=[{"run": ["sh", "-c", "echo no disk >&2; exit 3"]}]),
    "set-up-survives": toy.scenario(prepare=[{"run": RECOVER, "fault": "toy.redone#1=kill"}]),
    "no-module": toy.scenario() | {"judge": "no_such_judge:Toy"},
}


@pytest.fixture(scope="module")
def matrix_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scenarios: dict[str, Any] = {toy.HEALTHY: toy.scenario()}
    for wrong in WRONG:
        scenarios[f"toy.{wrong}"] = toy.scenario(wrong, timeout_s=HANG_S if "hangs" in wrong else None)
    scenarios |= {f"toy.{judge}": toy.scenario(judge=judge) for judge in JUDGES}
    scenarios |= {f"toy.{name}": spec for name, spec in SPECIAL.items()}
    return toy.write_toy(tmp_path_factory.mktemp("project"), toy.toy_matrix(scenarios))


@pytest.fixture(scope="module")
def engine(matrix_file: Path, tmp_path_factory: pytest.TempPathFactory, toy_imports: None) -> Iterator[Engine]:
    """Its server is warm: the time of a cell that hangs does not go into imports."""
    with open_spawner("fork", project=matrix_file.parent) as spawner:
        engine = Engine(matrix_file.parent, load_matrix(matrix_file), spawner, tmp_path_factory.mktemp("cells"))
        assert run(engine, "toy.healthy/toy.pending#1=rival:commit").verdict is Verdict.PASS
        yield engine


def run(engine: Engine, text: str, expect: Expect | None = None) -> CellResult:
    cell = parse_cell(text, engine._matrix)
    return engine.run_cell(cell if expect is None else dataclasses.replace(cell, expect=expect))


def run_wrong(engine: Engine, wrong: str, step: str = "toy.pending#1=kill", expect: Expect | None = None) -> CellResult:
    return run(engine, f"toy.{wrong}/{step}", expect)


def invariants(result: CellResult) -> set[str]:
    return {violation.invariant for violation in result.violations}


# --- a right program passes


@pytest.mark.parametrize("hit", [1, 2])
@pytest.mark.parametrize("point", toy.KILL_ROWS)
@pytest.mark.parametrize("fault", ["kill", "rival:commit"])
def test_a_right_program_passes(engine: Engine, point: str, hit: int, fault: str) -> None:
    result = run_wrong(engine, "healthy", f"{point}#{hit}={fault}")
    assert result.verdict is Verdict.PASS, (result.why, result.violations)
    assert [(str(step.step), step.fired) for step in result.steps] == [(f"{point}#{hit}={fault}", True)]
    assert result.steps[0].died_by == ("SIGKILL" if fault == "kill" else None)
    assert result.steps[0].pid == result.story[-4 if result.story[-1].title == "retry" else -3].pid
    assert point in result.points_reached


@pytest.mark.parametrize(
    ("fault", "died_by", "code"),
    [
        ("error:ENOSPC", None, "ENOSPC"),
        ("term", "SIGTERM", None),
        ("tamper:stranger", None, None),
        ("tamper:stranger-then-kill", "SIGKILL", None),
    ],
)
def test_every_fault_does_what_it_says(engine: Engine, fault: str, died_by: str | None, code: str | None) -> None:
    result = run_wrong(engine, "healthy", f"toy.appended#1={fault}")
    assert result.verdict is Verdict.PASS, (result.why, result.violations)
    assert result.steps[0].fired and result.steps[0].died_by == died_by
    assert result.code == code
    assert (any("stranger" in line for line in result.story[-1].tree)) == fault.startswith("tamper")


def test_the_story_tells_every_process_in_order(engine: Engine) -> None:
    result = run_wrong(engine, "healthy", "toy.pending#2=kill")
    assert [chapter.title for chapter in result.story] == ["set-up", "run", "recovery", "again", "retry"]
    assert [chapter.ended for chapter in result.story[1:]] == ["died by SIGKILL", "exit 0", "exit 0", "exit 0"]
    assert result.story[1].points[-1] == "toy.pending#2 kill"
    assert (result.row, result.rows, result.recoveries) == ("R1", ("R1",), 1)
    assert result.rows_reached == {"R1"}
    held = run_wrong(engine, "healthy", "toy.pending#2=rival:commit")
    assert [chapter.title for chapter in held.story][1:4] == ["paused", "rival", "run"]


def test_a_crash_in_a_recovery(engine: Engine) -> None:
    """Depth 2: the recovery dies too, and the second one takes the next row."""
    result = run_wrong(engine, "healthy", "toy.pending#1=kill>toy.redone#1=kill")
    assert result.verdict is Verdict.PASS, (result.why, result.violations)
    assert [(step.fired, step.died_by) for step in result.steps] == [(True, "SIGKILL")] * 2
    assert result.recoveries == 2 and result.story[3].title == "recovery"


def test_a_fault_in_a_recovery_that_is_under_test(engine: Engine) -> None:
    """The set-up dies at its own point, and every cell starts from a copy of what that left."""
    result = run(engine, "toy.recovering/toy.redone#1=kill")
    assert result.verdict is Verdict.PASS and result.row == "R2", (result.why, result.violations)
    assert any(line.startswith("next ") for line in result.story[0].tree)


# --- what is not the planned fault is no pass, and says what it was


def test_a_point_that_is_not_reached(engine: Engine) -> None:
    """B174."""
    result = run_wrong(engine, "healthy", "toy.pending#3=kill")
    assert result.verdict is Verdict.UNREACHED and not result.steps[0].fired
    assert "kill point not reached: toy.pending#3" in result.why and "exited with 0" in result.why
    assert run_wrong(engine, "healthy", "toy.redone#1=kill").verdict is Verdict.UNREACHED
    assert run_wrong(engine, "healthy", "toy.pending#3=rival:commit").verdict is Verdict.UNREACHED


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("raises", "exited with 1: ValueError: no luck"),
        ("exits", "exited with 1"),
        ("imports", "exited with 1: ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_ends_before_the_point_are_told_apart(engine: Engine, wrong: str, says: str) -> None:
    """B176."""
    result = run_wrong(engine, wrong)
    assert result.verdict is Verdict.UNREACHED
    assert result.why == f"kill point not reached: toy.pending#1; {says}"


def test_a_death_by_somebody_else(engine: Engine) -> None:
    result = run_wrong(engine, "shot")
    assert result.verdict is Verdict.FOREIGN_DEATH and not result.steps[0].fired
    assert result.why == "died by SIGKILL without reaching toy.pending#1"


def test_a_death_of_a_child_in_its_place(engine: Engine) -> None:
    """The record is there, and SIGKILL too: but of two processes."""
    result = run_wrong(engine, "child-dies")
    assert result.verdict is Verdict.FOREIGN_DEATH and not result.steps[0].fired
    assert result.story[1].points == ("toy.pending#1 kill",)


def test_a_death_by_somebody_else_while_it_is_held(engine: Engine) -> None:
    """There is a record of the point, and still it was not this cell that ended it."""
    result = run_wrong(engine, "tells-its-pid", "toy.appended#1=tamper:shoot")
    assert result.verdict is Verdict.FOREIGN_DEATH and "died by SIGKILL" in result.why


@pytest.mark.parametrize("point", toy.KILL_ROWS)
def test_a_kill_that_does_nothing_turns_every_cell_red(engine: Engine, point: str) -> None:
    """B175: the record is there, the process lives on."""
    result = run_wrong(engine, "kill-does-nothing", f"{point}#1=kill", Expect())
    assert result.verdict is Verdict.FOREIGN_DEATH and not result.steps[0].fired
    assert "the kill did not end it: it exited with 0" in result.why


def test_a_death_by_another_signal_than_the_kill(engine: Engine) -> None:
    result = run_wrong(engine, "kill-is-another-signal")
    assert result.verdict is Verdict.FOREIGN_DEATH and "died by SIGTERM" in result.why


def test_a_program_that_hangs(engine: Engine) -> None:
    """What it said until then is in the story, and no recovery is tried on a disk that says nothing about a crash."""
    result = run_wrong(engine, "hangs")
    assert result.verdict is Verdict.HUNG and "no point was reached" in result.why
    assert [(chapter.title, chapter.stdout) for chapter in result.story[1:]] == [("run", "here\n")]
    assert result.story[1].ended == "timed out"


def test_a_recovery_that_hangs(engine: Engine) -> None:
    """It does not converge; and the story says that it was its time that ended it."""
    result = run_wrong(engine, "recovery-hangs")
    assert result.verdict is Verdict.FAIL and "converges" in invariants(result)
    assert "the recovery was still running when its time was up" in result.why
    assert result.recoveries == 1


def test_a_grandchild_that_keeps_the_pipes_open(engine: Engine) -> None:
    """B180: the cell returns although something still holds stdout and the control pipe."""
    assert run_wrong(engine, "grandchild").verdict is Verdict.PASS
    assert run_wrong(engine, "grandchild", "toy.pending#1=rival:commit").verdict is Verdict.PASS


def test_a_server_that_is_shot_costs_one_cell(engine: Engine) -> None:
    """Nothing is known about that cell; the next one is run by a new server."""
    for _ in range(2):
        lost = run_wrong(engine, "server-shot")
        assert lost.verdict is Verdict.UNKNOWN and "SpawnError" in lost.why and "killed by signal 9" in lost.why
        assert run_wrong(engine, "healthy").verdict is Verdict.PASS


# --- proof of fire

ENDS = {
    "killed": (None, 9, False),
    "by term": (None, 15, False),
    "by abort": (None, 6, False),
    "exit 0": (0, None, False),
    "exit 1": (1, None, False),
    "hung": (None, 9, True),
}
PROVEN = {
    "kill": {"killed"},
    "term": {"by term", "exit 0", "exit 1"},
    "error:EIO": {"exit 0", "exit 1"},
    "rival:commit": {"exit 0"},
}
UNPROVEN = [Verdict.FOREIGN_DEATH, Verdict.UNREACHED, Verdict.HUNG]


def ended(how: str, *records: Record) -> ProcessResult:
    exit_code, signal_number, timed_out = ENDS[how]
    return ProcessResult(("toy",), 4711, exit_code, signal_number, b"", b"words\n", records, timed_out, 0.1)


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("fault", PROVEN)
def test_a_fault_is_proven_by_its_record_and_by_the_end_it_means(fault: str, how: str) -> None:
    step = Step("toy.pending", 2, fault)
    kind = {"rival": "pause"}.get(fault.partition(":")[0], fault.partition(":")[0])
    record = Record(kind, "toy.pending", 2, 4711)
    proof = find_fault(fault).prove(step, ended(how, record))
    assert (proof.verdict is None) == (how in PROVEN[fault])
    assert proof.verdict is None or (proof.verdict in UNPROVEN and proof.why)
    for other in (
        Record("pass", "toy.pending", 2, 4711),
        Record(kind, "toy.cleared", 2, 4711),
        Record(kind, "toy.pending", 1, 4711),
        Record(kind, "toy.pending", 2, 4712),
    ):
        nothing = find_fault(fault).prove(step, ended(how, other))
        assert nothing.verdict in UNPROVEN and not nothing.fired, "a record of something else proves nothing"
        assert find_fault(fault).prove(step, ended(how)).verdict in UNPROVEN


def test_a_fault_that_the_harness_does_not_have() -> None:
    with pytest.raises(ValueError, match="unknown fault 'pause'"):
        find_fault("pause")


# --- judges and set-ups that break


def test_a_judge_that_raises_is_unknown(engine: Engine) -> None:
    result = run_wrong(engine, "Raises")
    assert result.steps[0].fired
    assert result.verdict is Verdict.UNKNOWN and "the judge stumbled" in result.why and "toy_judge.py" in result.why


def test_a_judge_that_leaves_is_unknown(engine: Engine) -> None:
    result = run_wrong(engine, "EndsTheProcess")
    assert result.steps[0].fired
    assert result.verdict is Verdict.UNKNOWN and "the judge left" in result.why


@pytest.mark.parametrize(
    ("judge", "says"),
    [
        ("LooksAtNothing", "looked at nothing"),
        ("CountsNothing", "did not see a repeated record in log"),
        ("ProtectsNothing", "declares nothing protected"),
    ],
)
def test_a_judge_that_is_blind_is_unknown(engine: Engine, judge: str, says: str) -> None:
    result = run_wrong(engine, judge)
    assert result.verdict is Verdict.UNKNOWN and says in result.why and result.steps[0].fired


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("set-up-exits", "exited with 3: no disk"),
        ("set-up-survives", "kill point not reached: toy.redone#1"),
        ("CannotSetUp", "no place to set up"),
        ("NoScenario", "is no harness.judge.scenario.Scenario"),
        ("Missing", "has no attribute 'Missing'"),
        ("no-module", "No module named 'no_such_judge'"),
    ],
)
def test_a_set_up_that_fails_is_unknown(engine: Engine, name: str, says: str) -> None:
    result = run_wrong(engine, name)
    assert result.verdict is Verdict.UNKNOWN and says in result.why
    assert result.steps == () and result.recoveries == 0


def test_a_tamper_that_the_scenario_does_not_have_is_unknown(engine: Engine) -> None:
    result = run_wrong(engine, "healthy", "toy.appended#1=tamper:nothing")
    assert result.verdict is Verdict.UNKNOWN and "no tamper 'nothing'" in result.why


# --- wrong programs fail, and the invariant is named


@pytest.mark.parametrize(
    ("wrong", "step", "expect", "invariant"),
    [
        ("duplicates", "toy.appended#1=kill", Expect(), "append_at_most_once"),
        ("loses", "toy.pending#1=kill", Expect(), "append_at_most_once"),
        ("rewrites", "toy.pending#1=kill", None, "nothing_overwritten"),
        ("overwrites", "toy.pending#1=kill", None, "nothing_overwritten"),
        ("restless", "toy.pending#1=kill", None, "converges"),
        ("never-ends", "toy.pending#1=kill", None, "converges"),
        ("busy", "toy.pending#1=kill", None, "no_self_deadlock"),
        ("intrudes", "toy.pending#1=rival:commit", None, "live_owner_untouched"),
        ("refuses", "toy.pending#1=kill", Expect(refuses="E_NO"), "refusal_changes_nothing"),
        ("residue", "toy.pending#1=kill", None, "no_residue"),
        ("confused", "toy.pending#1=kill", None, "row"),
        ("healthy", "toy.pending#1=kill", Expect(row="R2"), "row"),
        ("healthy", "toy.appended#1=error:ENOSPC", Expect(code="EXDEV"), "answers"),
        ("healthy", "toy.pending#1=rival:commit", Expect(code="E_OTHER"), "live_owner_untouched"),
    ],
)
def test_a_wrong_program_fails(engine: Engine, wrong: str, step: str, expect: Expect | None, invariant: str) -> None:
    result = run_wrong(engine, wrong, step, expect)
    assert result.verdict is Verdict.FAIL and result.steps[0].fired, (result.verdict, result.why)
    assert invariant in invariants(result), result.violations


def test_recovery_is_tried_so_many_times(engine: Engine) -> None:
    result = run_wrong(engine, "never-ends")
    assert result.recoveries == 3 and result.steps[0].fired


def test_a_violation_beats_what_is_unknown(engine: Engine) -> None:
    """The fault was not proven, and an invariant is broken: that is what matters."""
    result = run_wrong(engine, "overwrites", "toy.pending#3=kill")
    assert result.verdict is Verdict.FAIL and "kill point not reached" in result.why


# --- set-ups and sandboxes


def test_a_set_up_is_made_once_and_again_when_a_number_of_its_dead_is_taken(engine: Engine) -> None:
    """A copy must not turn a dead holder into a living one."""
    cell = "toy.recovering/toy.redone#1=kill"
    run(engine, cell)
    first = engine._prepared[toy.RECOVERING]
    run(engine, cell)
    assert engine._prepared[toy.RECOVERING] is first and len(first.pids) == 1
    engine._prepared[toy.RECOVERING] = dataclasses.replace(first, pids=frozenset({os.getpid()}))
    assert run(engine, cell).verdict is Verdict.PASS
    assert os.getpid() not in engine._prepared[toy.RECOVERING].pids


def test_nothing_is_left_of_a_cell(engine: Engine) -> None:
    for wrong in ("healthy", "residue", "Raises", "CannotSetUp", "set-up-exits", "server-shot"):
        assert run_wrong(engine, wrong).kept_at is None
    assert list(engine._root.iterdir()) == []


def test_what_is_kept_is_told(matrix_file: Path, tmp_path: Path) -> None:
    """Whatever the verdict, with the tree as the last process left it. Two engines keep theirs apart."""
    keep = tmp_path / "keep"
    keep.mkdir()
    for number in range(2):
        root = tmp_path / f"worker-{number}"
        root.mkdir()
        with open_spawner("fork", project=matrix_file.parent) as spawner:
            engine = Engine(matrix_file.parent, load_matrix(matrix_file), spawner, root, keep=keep)
            for wrong in ("healthy", "residue", "Raises"):
                result = run_wrong(engine, wrong)
                assert result.kept_at is not None and Path(result.kept_at).parent == keep and result.steps[0].fired
                assert Path(result.kept_at, "log").read_text() == "a\nb\nc\n"
                assert Path(result.kept_at, "next.tmp").exists() == (wrong == "residue")
        assert list(root.iterdir()) == []
    assert len(list(keep.glob("worker-*"))) == 6


def test_a_sandbox_that_cannot_be_copied_whole_is_kept_as_far_as_it_can(matrix_file: Path, tmp_path: Path) -> None:
    keep, root = tmp_path / "keep", tmp_path / "cells"
    keep.mkdir()
    root.mkdir()
    with open_spawner("fork", project=matrix_file.parent) as spawner:
        engine = Engine(matrix_file.parent, load_matrix(matrix_file), spawner, root, keep=keep)
        result = run_wrong(engine, "leaves-a-pipe")
    assert result.kept_at is not None and Path(result.kept_at, "log").exists() and result.steps[0].fired
    assert "no_residue" in invariants(result) and list(root.iterdir()) == []


def test_fresh_interpreters_give_the_same_verdicts(engine: Engine, matrix_file: Path, tmp_path: Path) -> None:
    with open_spawner("exec", project=matrix_file.parent) as spawner:
        fresh = Engine(matrix_file.parent, load_matrix(matrix_file), spawner, tmp_path)
        for wrong in ("healthy", "duplicates"):
            step = "toy.appended#2=kill"
            one, other = run_wrong(engine, wrong, step), run_wrong(fresh, wrong, step)
            assert one.steps[0].fired and other.steps[0].fired
            assert (one.verdict, one.rows, one.violations) == (other.verdict, other.rows, other.violations)
            assert one.points_reached == other.points_reached and one.story[-1].tree == other.story[-1].tree
