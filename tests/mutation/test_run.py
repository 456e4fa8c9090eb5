"""The run itself, on a module of two lines: what a test notices is noticed, and what none does survives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.targets import REPOSITORY

pytest.importorskip("cosmic_ray")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, and waits by pidfd")

MODULE = "LIMIT = 3\n\n\ndef add(one, other):\n    return one + other\n"
TEST = "import pair\n\n\ndef test_add():\n    assert pair.add(2, 1) == {total}\n"
PROGRAM = """
from pathlib import Path
from tests.mutation.run import Trial, list_mutants, try_target
from tests.mutation.targets import Target

target = Target("pair.py", ("test_pair.py",))
trial = Trial(target, Path("tests.log").resolve())
specs = list_mutants(target, None, 0)
for change in try_target(target, specs, trial):
    print(change.line, change.before, "->", change.after)
print(len(specs))
"""


def run(home: Path, total: int) -> subprocess.CompletedProcess[str]:
    (home / "pair.py").write_text(MODULE)
    (home / "test_pair.py").write_text(TEST.format(total=total))
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=home, env=environ, capture_output=True, text=True, check=False, timeout=300
    )


def test_what_no_test_notices_survives(tmp_path: Path) -> None:
    done = run(tmp_path, 3)
    assert done.stdout.splitlines() == ["1 LIMIT = 3 -> LIMIT = 4", "1 LIMIT = 3 -> LIMIT = 2", "3"], done.stderr
    assert (tmp_path / "pair.py").read_text() == MODULE, "put back"


def test_nothing_is_changed_while_a_test_fails(tmp_path: Path) -> None:
    done = run(tmp_path, 4)
    assert done.returncode == 1 and "its tests fail before anything is changed" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("arguments", [["none-such"], ["--sample", "0"], ["--sample", "x"], ["--more"]])
def test_what_cannot_be_meant(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutation", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 64 and "usage: python -m tests.mutation" in done.stderr and not done.stdout


def test_nothing_of_ours_is_imported_before_the_fork() -> None:
    """Or a change to it would never be seen by any test."""
    program = "import sys, tests.mutation.run; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert not {"killpoints", "product", "harness"} & {*done.stdout.split()}


def test_statements_are_taken_out(tmp_path: Path) -> None:
    """The examples of the operator, and what is none: an ``if`` that decides between two, a name, a string."""
    from cosmic_ray.mutating import mutate_code

    from tests.mutation.deletion import StatementDeletion

    operator = StatementDeletion()
    for example in StatementDeletion.examples():
        assert mutate_code(example.pre_mutation_code, operator, 0) == example.post_mutation_code
    for text in ("if a:\n    b = 1\nelse:\n    b = 2\n", "x = f()\n", "'words'\n", "x: int = f()\n"):
        assert mutate_code(text, operator, 0) is None, text
    program = "def f(one):\n    # why\n    if one:\n        one.go()\n    return one\n"
    assert mutate_code(program, operator, 0) == "def f(one):\n    # why\n    pass\n    return one\n"
    assert mutate_code(program, operator, 1) == "def f(one):\n    # why\n    if one:\n        pass\n    return one\n"
