"""The command line: what each command prints, its exit status, and that every refusal is words and nothing has run."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from tests.harness import toy
from tests.harness.support import TIMEOUT_S, start_harness

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the little program and the warm servers need Linux"),
    pytest.mark.usefixtures("toy_imports"),
]

COMMANDS = ("run", "list", "points", "repro", "schema", "report", "doctor", "mutants", "runs", "diff", "judge")
CELL = "toy.healthy/toy.pending#1=kill"


@dataclass(frozen=True)
class Called:
    status: int
    out: str
    err: str


Call = Callable[..., Called]


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    temp = tmp_path / "temp"
    temp.mkdir()
    monkeypatch.setenv("KILLMATRIX_TMP", str(temp))
    return temp


@pytest.fixture
def call(tmp_path: Path, temp: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """``killmatrix ARGUMENTS`` in the project directory, in this process, with real processes under test."""
    project = tmp_path / "project"
    toy.write_toy(project, toy.small_matrix())
    monkeypatch.chdir(project)
    monkeypatch.setenv("COLUMNS", "120")

    def call(*arguments: str) -> Called:
        monkeypatch.setattr(sys, "argv", ["killmatrix", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        captured = capfd.readouterr()
        assert list(temp.iterdir()) == [], "nothing is left behind"
        status = caught.value.code
        assert isinstance(status, int)
        return Called(status, captured.out, captured.err)

    return call


def project_with(tmp_path: Path, **scenarios: Any) -> None:
    """Another matrix in the project directory: one healthy scenario and these."""
    matrix = toy.toy_matrix({toy.HEALTHY: toy.scenario(), **{f"toy.{name}": spec for name, spec in scenarios.items()}})
    toy.write_toy(tmp_path / "project", matrix)


# --- help


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(call: Call, command: str) -> None:
    for flag in ("--help", "-h"):
        called = call(command, flag)
        assert called.status == 0 and f"killmatrix {command}" in called.out and called.err == ""


def test_the_command_explains_itself(call: Call) -> None:
    called = call("--help")
    assert called.status == 0 and all(command in called.out for command in COMMANDS)
    words = " ".join(called.out.split())
    assert "Exit status: 0 all passed, 1 a violation, 2 something unknown or unreached, 64 usage." in words
    nothing = call()
    assert nothing.status == 64 and "Usage" in nothing.out + nothing.err


# --- exit statuses of a run


def test_a_run_that_passes(call: Call) -> None:
    called = call("run")
    assert called.status == 0, called.err
    assert "PASS: All 7 cells passed." in called.out and "points reached 4 of 4" in called.out
    assert "A kill never proves an fsync" in called.out, "every report says what it does not prove"


def test_a_violation_is_status_1(call: Call, tmp_path: Path) -> None:
    project_with(tmp_path, duplicates=toy.scenario("duplicates"))
    called = call("run", "--scenario", "toy.duplicates", "--point", "toy.appended", "--fault", "kill")
    assert called.status == 1
    assert "FAIL  toy.duplicates/toy.appended#1=kill" in called.out
    assert "append_at_most_once: b is there twice after recovery" in called.out
    assert "killmatrix repro 'toy.duplicates/toy.appended#1=kill'" in called.out


def test_what_is_unknown_or_unreached_is_status_2(call: Call, tmp_path: Path) -> None:
    project_with(tmp_path, exits=toy.scenario("exits"), raises=toy.scenario(judge="Raises"))
    unreached = call("run", "--scenario", "toy.exits", "--fault", "kill")
    assert unreached.status == 2 and "kill point not reached: toy.pending#1" in unreached.out
    unknown = call("run", "--scenario", "toy.raises", "--fault", "kill", "--json", "unknown.json")
    assert unknown.status == 2 and "the judge stumbled" in unknown.out
    cells = json.loads(Path("unknown.json").read_text())["cells"]
    assert all(step["fired"] for cell in cells for step in cell["steps"]), "it was unknown for another reason"


def test_a_violation_beats_the_unknown(call: Call, tmp_path: Path) -> None:
    project_with(tmp_path, exits=toy.scenario("exits"), loses=toy.scenario("loses"))
    assert call("run", "--point", "toy.pending", "--fault", "kill").status == 1


def test_a_listed_point_that_is_not_reached_is_status_2(call: Call, tmp_path: Path) -> None:
    """But not where a filter leaves points out on purpose."""
    matrix = toy.small_matrix()
    matrix["points"]["toy.redone"]["scenarios"] = [toy.HEALTHY]
    del matrix["scenarios"][toy.RECOVERING]
    matrix["points"]["toy.redone"]["faults"] = ["kill"]
    toy.write_toy(tmp_path / "project", matrix)
    whole = call("run", "--fail-fast")
    assert whole.status == 2 and "kill point not reached: toy.redone#1" in whole.out
    part = call("run", "--point", "toy.cleared")
    assert part.status == 0 and "1 listed points were not reached (not counted" in part.out


# --- refusals: 64, words, and nothing has run


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("frobnicate",), "No such command 'frobnicate'"),
        (("run", "--frobnicate"), "No such option"),
        (("run", "extra"), "unexpected extra argument"),
        (("run", "--matrix", "none.yaml"), "none.yaml: No such file"),
        (("run", "--scenario", "nobody"), "no cell matches the filter"),
        (("run", "--jobs", "0"), "--jobs"),
        (("run", "--jobs", "many"), "--jobs"),
        (("run", "--spawn", "threads"), "--spawn 'threads': write fork or exec"),
        (("run", "--shard", "2"), "--shard '2': write I/N"),
        (("run", "--shard", "a/b"), "--shard 'a/b': write I/N"),
        (("run", "--shard", "-1/2"), "--shard '-1/2': write I/N"),
        (("run", "--shard", "0/2"), "shard 0/2: write I/N with 1 <= I <= N"),
        (("run", "--shard", "3/2"), "shard 3/2"),
        (("run", "--shard", "1/0"), "shard 1/0"),
        (("run", "--json", "none/result.json"), "none/result.json: cannot be written"),
        (("run", "--html", "none/report.html"), "none/report.html: cannot be written"),
        (("run", "--junit", "none/junit.xml"), "none/junit.xml: cannot be written"),
        (("run", "--markdown", "none/report.md"), "none/report.md: cannot be written"),
        (("run", "--json", "."), "cannot be written: it is a directory"),
        (("run", "--previous", "none.json"), "none.json: "),
        (("run", "--keep", "."), "the directory is not empty; nothing there is overwritten"),
        (("run", "--keep", "matrix.yaml"), "--keep matrix.yaml: "),
        (("list", "--point", "nobody"), "no cell matches the filter"),
        (("repro",), "Missing argument 'CELL'"),
        (("repro", "toy.helthy/toy.pending#1=kill"), "the nearest known: toy.healthy"),
        (("repro", "toy.healthy/toy.pendin#1=kill"), "the nearest known: toy.pending"),
        (("repro", "toy.healthy/toy.pending#1=kil"), "unknown fault 'kil'"),
        (("repro", CELL, "--spawn", "x"), "write fork or exec"),
        (("repro", CELL, "--json", "none/result.json"), "none/result.json: cannot be written"),
        (("report", "none.json"), "none.json: "),
        (("report", "matrix.yaml"), "matrix.yaml: "),
    ],
)
def test_a_call_that_cannot_be_done(call: Call, arguments: tuple[str, ...], says: str) -> None:
    called = call(*arguments)
    assert called.status == 64 and says in called.err, called.err
    assert "Traceback" not in called.err and called.out == ""
    assert (
        sorted(os.listdir()) == ["matrix.yaml", "toy.py", "toy_judge.py", "toy_points.py"]
        or "__pycache__" in os.listdir()
    )


@pytest.mark.parametrize("command", ["run", "list", "points", "repro"])
def test_a_matrix_that_does_not_pass_its_gate(call: Call, tmp_path: Path, command: str) -> None:
    matrix = toy.small_matrix()
    del matrix["points"]["toy.cleared"]
    matrix["scenarios"]["toy.unused"] = toy.scenario()
    toy.write_toy(tmp_path / "project", matrix)
    called = call(command, *([CELL] if command == "repro" else []))
    assert called.status == 64 and called.out == ""
    assert "point 'toy.cleared' is declared in the code but matrix.yaml lists no row" in called.err
    assert "scenario 'toy.unused' is used by no point" in called.err, "every problem at once"


def test_a_place_for_sandboxes_that_is_not_there(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KILLMATRIX_TMP", str(tmp_path / "none"))
    called = call("run", "--point", "toy.pending")
    assert called.status == 2 and str(tmp_path / "none") in called.err and "Traceback" not in called.err


# --- what is chosen, and what is written


def test_filters_and_shards_choose_cells(call: Call) -> None:
    listed = call("list").out.splitlines()
    assert len(listed) == 7 and listed[0] == CELL
    assert call("list", "--point", "toy.cleared").out.splitlines() == listed[4:6]
    assert call("list", "--scenario", "recovering", "--fault", "ki*").out.splitlines() == listed[6:]
    ran: list[str] = []
    for part in ("1/3", "2/3", "3/3"):
        assert call("run", "--shard", part, "--json", "part.json").status == 0
        document = json.loads(Path("part.json").read_text())
        ran += [cell["id"] for cell in document["cells"]]
    assert sorted(ran) == sorted(listed)


def test_the_reports_are_written(call: Call) -> None:
    files = ("--json", "a.json", "--html", "a.html", "--junit", "a.xml", "--markdown", "a.md")
    assert call("run", "--point", "toy.appended", *files).status == 0
    document = json.loads(Path("a.json").read_text())
    assert document["schema"] == 1 and document["summary"]["passed"] == 2 and document["spawn"] == "fork"
    for name, says in (("a.html", "toy.appended"), ("a.xml", "toy.appended"), ("a.md", "All 2 cells passed.")):
        assert says in Path(name).read_text()


def test_a_saved_run_is_reported_again(call: Call, tmp_path: Path) -> None:
    """With the status that it had."""
    project_with(tmp_path, duplicates=toy.scenario("duplicates"))
    chosen = ("--scenario", "toy.duplicates", "--point", "toy.appended", "--fault", "kill")
    assert call("run", *chosen, "--json", "saved.json").status == 1
    called = call("report", "saved.json", "--html", "again.html")
    assert called.status == 1 and "FAIL  toy.duplicates/toy.appended#1=kill" in called.out
    assert "toy.duplicates" in Path("again.html").read_text()
    refused = call("report", "saved.json", "--html", "none/again.html")
    assert refused.status == 64 and refused.out == ""


def test_a_run_says_what_changed_since_another(call: Call, tmp_path: Path) -> None:
    project_with(tmp_path, other=toy.scenario())
    chosen = ("--scenario", "toy.other", "--point", "toy.appended", "--fault", "kill")
    assert call("run", *chosen, "--json", "before.json").status == 0
    project_with(tmp_path, other=toy.scenario("duplicates"))
    called = call("run", *chosen, "--previous", "before.json")
    assert called.status == 1 and "PASS -> FAIL  toy.other/toy.appended#1=kill" in called.out


def test_kept_sandboxes(call: Call) -> None:
    assert call("run", "--point", "toy.appended", "--keep", "kept", "-j", "2").status == 0
    kept = list(Path("kept").glob("worker-*"))
    assert len(kept) == 2 and all((path / "log").is_file() for path in kept)
    again = call("run", "--keep", "kept")
    assert again.status == 64 and "not empty" in again.err


def test_fresh_interpreters(call: Call) -> None:
    for kind, warm in (("exec", "false"), ("fork", "true")):
        called = call("repro", CELL, "--spawn", kind, "--json", "a.json")
        assert called.status == 0 and json.loads(Path("a.json").read_text())["spawn"] == kind
        assert f'"warm": {warm}' in called.out


# --- the other commands


def test_repro_tells_the_story(call: Call) -> None:
    called = call("repro", CELL, "--keep", "kept", "--json", "cell.json")
    assert called.status == 0
    lines = called.out.splitlines()
    assert lines[0] == f"PASS  {CELL}" and lines[-1] == f"  killmatrix repro '{CELL}'"
    assert "  rows taken by the first recovery: R1" in lines
    for part in (
        "  fired  toy.pending#1=kill  pid ",
        "set-up",
        "run  pid ",
        "recovery  pid ",
        "again  pid ",
        "retry  pid ",
    ):
        assert part in called.out
    assert "died by SIGKILL" in called.out and "+ next  1 B" in called.out and "kept at kept/" in called.out
    assert json.loads(Path("cell.json").read_text())["cells"][0]["id"] == CELL


def test_repro_of_a_cell_that_fails(call: Call, tmp_path: Path) -> None:
    project_with(tmp_path, duplicates=toy.scenario("duplicates"))
    called = call("repro", "toy.duplicates/toy.appended#2=kill")
    assert called.status == 1 and called.out.startswith("FAIL  toy.duplicates/toy.appended#2=kill\n")
    assert "  violation  append_at_most_once: c is there twice after recovery" in called.out


def test_repro_of_two_crashes_in_a_row(call: Call) -> None:
    """What matrix.yaml does not list, but has the parts of."""
    called = call("repro", f"{CELL}>toy.redone#1=kill")
    assert called.status == 0 and called.out.count("died by SIGKILL") == 2


def test_repro_with_a_shell(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = tmp_path / "shell"
    shell.write_text("#!/bin/sh\ncat log > $OUT\n")
    shell.chmod(0o700)
    monkeypatch.setenv("SHELL", str(shell))
    monkeypatch.setenv("OUT", str(tmp_path / "out"))
    assert call("repro", CELL, "--shell").status == 0
    assert (tmp_path / "out").read_text() == "a\nb\nc\n"


def test_points(call: Call) -> None:
    called = call("points")
    assert called.status == 0 and len(called.out.splitlines()) == 4
    assert called.out.splitlines()[0] == "toy.pending   the record is in the pending file, not in the log  [toy 1]"
    as_json = json.loads(call("points", "--json").out)
    assert [point["name"] for point in as_json] == ["toy.pending", "toy.appended", "toy.cleared", "toy.redone"]
    assert set(as_json[0]) == {"name", "says", "spec"}


def test_schema(call: Call) -> None:
    called = call("schema")
    assert called.status == 0 and "PointSpec" in json.loads(called.out)["$defs"]


def test_doctor(call: Call, temp: Path) -> None:
    called = call("doctor")
    lines = called.out.splitlines()
    assert called.status == 0 and all(line[:4] in ("yes ", "no  ") for line in lines)
    assert any(line.startswith("yes  warm forks") for line in lines)
    assert str(temp) in called.out and "nothing here proves an fsync" in called.out


# --- as a process


def test_python_m_harness_is_the_same_command(tmp_path: Path) -> None:
    toy.write_toy(tmp_path / "project", toy.small_matrix())
    process = start_harness(tmp_path / "project", tmp_path / "temp", "list")
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0 and len(out.splitlines()) == 7 and err == ""


@pytest.mark.parametrize("arguments", [("list",), ("schema",), ("run", "--json", "result.json"), ("--help",)])
def test_output_to_a_closed_pipe(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """As with ``| head -0``: neither a traceback, nor the status of a pass or of a violation, and no result is lost."""
    toy.write_toy(tmp_path / "project", toy.small_matrix())
    reader, writer = os.pipe()
    os.close(reader)
    process = start_harness(
        tmp_path / "project", tmp_path / "temp", *arguments, stdout=writer, environ={"PYTHONUNBUFFERED": ""}
    )
    os.close(writer)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 2 and "Traceback" not in err and "Exception ignored" not in err, err
    assert list((tmp_path / "temp").iterdir()) == []
    if "--json" in arguments:
        assert json.loads((tmp_path / "project/result.json").read_text())["summary"]["passed"] == 7


COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7]|4[0-7]|10[0-7]|[34]8;)")


@pytest.mark.parametrize("no_color", [None, "1"])
def test_no_color(tmp_path: Path, no_color: str | None) -> None:
    """On a terminal there is colour, unless the user does not want any."""
    toy.write_toy(tmp_path / "project", toy.small_matrix())
    master, terminal = pty.openpty()
    environ = {"TERM": "xterm-256color", "NO_COLOR": no_color, "FORCE_COLOR": None, "COLORTERM": None}
    arguments = ("run", "--scenario", "recovering")
    process = start_harness(
        tmp_path / "project", tmp_path / "temp", *arguments, stdout=terminal, stderr=terminal, environ=environ
    )
    os.close(terminal)
    shown = read_terminal(master)
    assert process.wait(TIMEOUT_S) == 0 and "All 1 cells passed." in shown
    assert bool(COLOUR.search(shown)) == (no_color is None)


def read_terminal(master: int) -> str:
    """Everything until the last writer has closed it."""
    shown = b""
    try:
        while chunk := os.read(master, 4096):
            shown += chunk
    except OSError:  # EIO: how Linux says that the other side is closed
        pass
    os.close(master)
    return shown.decode()


def test_the_installed_command_is_there() -> None:
    command = Path(sys.executable).with_name("killmatrix")
    if not command.exists():
        pytest.skip("the package is not installed with its command")
    done = subprocess.run([command, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "matrix.yaml" in done.stdout
