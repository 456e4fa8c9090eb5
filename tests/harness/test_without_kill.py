"""``pytest -p tests.without_kill``: red for a test that passes without the kill that it rests on, and for nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.harness import toy
from tests.harness.test_plugin import run_pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the little program and the warm servers need Linux")

PLUGINS = ("harness.plugin", "tests.without_kill")
TESTS = """
import os, subprocess, sys

def commit(home):
    home.mkdir()
    (home / "log").touch()
    environ = os.environ | {"KILLPOINTS": "toy.pending#1=kill", "TOY_HOME": str(home)}
    return subprocess.run([sys.executable, "toy.py", "commit", "b"], env=environ)

def test_careless(tmp_path):
    commit(tmp_path / "home")

def test_careful(tmp_path):
    assert commit(tmp_path / "home").returncode == -9

def test_of_something_else():
    pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    toy.write_toy(tmp_path / "project", toy.small_matrix())
    (tmp_path / "project/test_shop.py").write_text(TESTS)
    return tmp_path / "project"


def test_what_rests_on_a_kill_must_not_pass(project: Path) -> None:
    """Cells do not: each of them is red; nor does a test that asks how the process ended."""
    ended = run_pytest(project, "-k", "not careless", plugins=PLUGINS)
    assert ended.outcomes() == {"failed": 8, "passed": 1, "deselected": 1}, ended.out
    assert ended.status == 0 and "a kill was due in 8 tests and cells" in ended.out


def test_a_test_that_never_asks_whether_it_happened_is_named(project: Path) -> None:
    """In workers as well: the processes of each write to a file of its own."""
    ended = run_pytest(project, "-n", "2", "-k", "care", plugins=(*PLUGINS, "xdist"))
    assert ended.status == 1 and ended.outcomes() == {"failed": 1, "passed": 1}, ended.out
    assert "passes without its kill: test_shop.py::test_careless" in ended.out
    assert "passes without its kill: test_shop.py::test_careful" not in ended.out


def test_where_no_kill_was_due_nothing_was_shown(project: Path) -> None:
    ended = run_pytest(project, "-k", "something_else", plugins=PLUGINS)
    assert ended.status == 1 and "no kill was due in any test" in ended.out


def test_with_the_kill_in_place_all_of_it_passes(project: Path) -> None:
    ended = run_pytest(project, plugins=PLUGINS[:1])
    assert ended.status == 0 and ended.outcomes() == {"passed": 10}, ended.out
