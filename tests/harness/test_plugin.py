"""The pytest plugin: a cell is a node, so everything that pytest can do with tests it can do with cells.

pytest runs as a process of its own, in projects that are not this one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness import toy
from tests.harness.support import REPOSITORY, TIMEOUT_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the little program and the warm servers need Linux")

PENDING = "matrix.yaml::toy.healthy/toy.pending#1=kill"


@dataclass(frozen=True)
class Ended:
    status: int
    out: str

    def outcomes(self) -> dict[str, int]:
        """What the last line counts: {"passed": 7}."""
        last = self.out.strip().splitlines()[-1]
        return {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error|deselected)", last)}


def run_pytest(
    project: Path, *arguments: str, plugins: tuple[str, ...] = ("harness.plugin",), leaves: int = 0
) -> Ended:
    """``python -m pytest`` with these plugins only (with none named: with all that are installed).

    ``leaves``: how many workers die in it, whose directories the next run will sweep.
    """
    temp = project.parent / "temp"
    temp.mkdir(exist_ok=True)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environ |= {"KILLMATRIX_TMP": str(temp), "PYTHONPATH": str(REPOSITORY)}
    if plugins:
        environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    named = [word for plugin in plugins for word in ("-p", plugin)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *named, *arguments],
        cwd=project,
        env=environ,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert len(list(temp.iterdir())) <= leaves, "something is left behind"
    return Ended(done.returncode, done.stdout + done.stderr)


XDIST = ("harness.plugin", "xdist")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    toy.write_toy(tmp_path / "project", toy.small_matrix())
    return tmp_path / "project"


def with_failures(tmp_path: Path) -> Path:
    """Seven cells that pass, and two that fail with a record that is there twice."""
    matrix = toy.small_matrix()
    matrix["scenarios"]["toy.duplicates"] = toy.scenario("duplicates")
    row = matrix["points"]["toy.appended"]
    row["scenarios"].append("toy.duplicates")
    row["expect_in"] = {"toy.duplicates": {"kill": {"row": "R1"}}}
    toy.write_toy(tmp_path / "project", matrix)
    return tmp_path / "project"


FAILING = "matrix.yaml::toy.duplicates/toy.appended#1=kill"


# --- cells are nodes


def test_every_cell_is_a_node(project: Path) -> None:
    """In any project with a matrix.yaml, as the plugin is installed: beside other tests, with a JUnit file."""
    (project / "test_other.py").write_text("def test_other(): pass\n")
    ended = run_pytest(project, "-v", "-p", "no:cacheprovider", "--junitxml", "junit.xml", plugins=())
    assert ended.status == 0 and ended.outcomes() == {"passed": 8}, ended.out
    assert f"{PENDING} PASSED" in ended.out and "test_other.py::test_other PASSED" in ended.out
    cases = [case.get("name") for case in ET.parse(project / "junit.xml").getroot().iter("testcase")]
    assert len(cases) == 8 and "toy.recovering/toy.redone#1=kill" in cases


def test_a_cell_is_run_by_its_id(project: Path) -> None:
    ended = run_pytest(project, "-v", PENDING)
    assert ended.outcomes() == {"passed": 1} and f"{PENDING} PASSED" in ended.out


def test_cells_are_chosen_by_a_keyword(project: Path) -> None:
    ended = run_pytest(project, "-k", "cleared or redone", "--killmatrix-json", "a.json")
    assert ended.status == 0 and ended.outcomes() == {"passed": 3, "deselected": 4}
    document = json.loads((project / "a.json").read_text())
    assert document["summary"]["cells"] == document["summary"]["passed"] == 3


def test_a_matrix_below_the_root(tmp_path: Path) -> None:
    toy.write_toy(tmp_path / "root/shop", toy.small_matrix())
    (tmp_path / "root/pytest.ini").write_text("[pytest]\n")
    ended = run_pytest(tmp_path / "root", "-v", "-k", "cleared", "--killmatrix-json", "a.json")
    assert ended.status == 0 and f"shop/{PENDING.replace('pending', 'cleared')} PASSED" in ended.out, ended.out
    assert json.loads((tmp_path / "root/a.json").read_text())["summary"]["points_declared"] == 4


def test_the_matrix_may_be_left_out(project: Path) -> None:
    ended = run_pytest(project, "--no-killmatrix")
    assert ended.status == pytest.ExitCode.NO_TESTS_COLLECTED


def test_fresh_interpreters(project: Path) -> None:
    ended = run_pytest(project, "-k", "redone", "--killmatrix-spawn", "exec", "--killmatrix-json", "a.json")
    text = (project / "a.json").read_text()
    assert ended.status == 0 and json.loads(text)["spawn"] == "exec"
    assert '\\"warm\\": false' in text and '\\"warm\\": true' not in text
    assert run_pytest(project, "--killmatrix-spawn", "threads").status == pytest.ExitCode.USAGE_ERROR


# --- cells that do not pass


def test_a_cell_that_fails_tells_its_story(tmp_path: Path) -> None:
    """And ``--lf`` and ``-x`` work on cells."""
    project = with_failures(tmp_path)
    ended = run_pytest(project)
    assert ended.status == 1 and ended.outcomes() == {"failed": 2, "passed": 7}, ended.out
    assert "violation  append_at_most_once: b is there twice after recovery" in ended.out
    assert "killmatrix repro 'toy.duplicates/toy.appended#1=kill'" in ended.out
    assert "+ next  1 B" in ended.out and f"FAILED {FAILING}" in ended.out
    assert "___ cell toy.duplicates/toy.appended#1=kill ___" in ended.out
    assert "Traceback" not in ended.out and "plugin.py" not in ended.out, "not how the plugin says it"
    again = run_pytest(project, "--lf", "-x")
    assert again.outcomes() == {"failed": 1} and f"FAILED {FAILING}" in again.out


def test_what_is_unknown_fails_too(tmp_path: Path) -> None:
    toy.write_toy(tmp_path / "project", toy.small_matrix("Raises"))
    ended = run_pytest(tmp_path / "project", "-k", "Raises and cleared", "--killmatrix-json", "a.json")
    assert ended.status == 1 and "UNKNOWN  toy.Raises/toy.cleared#1=kill" in ended.out
    assert "the judge stumbled" in ended.out and "NOT FIRED" not in ended.out
    assert json.loads((tmp_path / "project/a.json").read_text())["summary"]["unknown"] == 2


def test_a_matrix_that_does_not_pass_its_gate_is_an_error(tmp_path: Path) -> None:
    """Not an empty collection, which would be green."""
    matrix = toy.small_matrix()
    del matrix["points"]["toy.cleared"]
    toy.write_toy(tmp_path / "project", matrix)
    ended = run_pytest(tmp_path / "project")
    assert ended.status == pytest.ExitCode.INTERRUPTED and ended.outcomes() == {"error": 1}
    assert "point 'toy.cleared' is declared in the code but matrix.yaml lists no row for it" in ended.out
    (tmp_path / "project/matrix.yaml").write_text("schema: [")
    broken = run_pytest(tmp_path / "project")
    assert broken.status == pytest.ExitCode.INTERRUPTED and "Traceback" not in broken.out


# --- reports, and many workers


def test_workers_results_are_one_report(tmp_path: Path) -> None:
    project = with_failures(tmp_path)
    files = ("--killmatrix-json", "a.json", "--killmatrix-html", "a.html")
    ended = run_pytest(project, "-n", "2", *files, plugins=XDIST)
    assert ended.status == 1 and ended.outcomes() == {"failed": 2, "passed": 7}, ended.out
    assert "killmatrix repro 'toy.duplicates/toy.appended#1=kill'" in ended.out
    document = json.loads((project / "a.json").read_text())
    assert document["jobs"] == 2 and len({cell["id"] for cell in document["cells"]}) == 9
    counts = {name: document["summary"][name] for name in ("cells", "passed", "failed", "unknown", "points_reached")}
    assert counts == {"cells": 9, "passed": 7, "failed": 2, "unknown": 0, "points_reached": 4}
    assert document["cells"][0]["steps"][0]["died_by"] == "SIGKILL"
    html = (project / "a.html").read_text()
    assert "toy.duplicates/toy.appended#1=kill" in html and "toy.recovering" in html


def test_without_workers_the_report_is_the_same(tmp_path: Path) -> None:
    project = with_failures(tmp_path)
    assert run_pytest(project, "--killmatrix-json", "a.json").status == 1
    document = json.loads((project / "a.json").read_text())
    assert [document["summary"][name] for name in ("cells", "passed", "failed")] == [9, 7, 2]
    assert document["jobs"] == 1 and not document["summary"].get("interrupted", False)


def test_a_worker_that_is_lost_does_not_pass(tmp_path: Path) -> None:
    """B195: the report is written, and the cells that have no result keep it from being a pass."""
    project = tmp_path / "project"
    toy.write_toy(project, toy.small_matrix("CrashesTheProcess"))
    files = ("--killmatrix-json", "a.json", "--killmatrix-html", "a.html")
    chosen = ("-k", "healthy or (CrashesTheProcess and cleared)")
    ended = run_pytest(project, "-n", "2", *chosen, *files, plugins=XDIST, leaves=2)
    assert ended.status == 1 and ended.outcomes() == {"failed": 2, "passed": 6}, ended.out
    assert "crashed while running" in ended.out
    document = json.loads((project / "a.json").read_text())
    assert {cell["scenario"] for cell in document["cells"]} == {toy.HEALTHY}
    saved = report_again(project / "a.json")
    assert saved.returncode == 2 and "2 of 8 planned cells have no result" in saved.stdout, saved.stdout + saved.stderr
    assert "2 of 8 planned cells have no result" in (project / "a.html").read_text()
    run_pytest(project, "-k", "redone")


def report_again(result: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "harness", "report", str(result)]
    return subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=False)


def test_reports_without_cells_are_refused(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/test_other.py").write_text("def test_other(): pass\n")
    ended = run_pytest(tmp_path / "project", "--killmatrix-json", "a.json")
    assert ended.status == pytest.ExitCode.USAGE_ERROR and "no matrix.yaml was collected" in ended.out
    assert "Traceback" not in ended.out
    assert not (tmp_path / "project/a.json").exists()


# --- what it costs who has no matrix


HEAVY = ("harness.engine", "harness.matrix", "pydantic", "yaml", "jinja2", "rich", "typer", "click", "sqlite3")


def test_the_plugin_imports_nothing_heavy_until_there_is_a_matrix(project: Path) -> None:
    code = f"import sys, pytest, harness.plugin\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    argv = [sys.executable, "-c", code]
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(argv, cwd=project, env=environ, capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stdout + done.stderr
    (project / "matrix.yaml").unlink()
    (project / "test_other.py").write_text(f"import sys\ndef test(): assert not {{*{HEAVY!r}}} & {{*sys.modules}}\n")
    assert run_pytest(project).status == 0
