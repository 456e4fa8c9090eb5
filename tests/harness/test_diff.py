"""What changed between two runs, which run is meant, and the list of them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.model import Run, Verdict
from harness.report.changes import Change, as_previous, changes_since, not_tried
from harness.report.json_result import write_json
from harness.store import open_store
from tests.harness import toy
from tests.harness.test_report_sample import make_result, make_run
from tests.harness.test_store import number_runs, record_run

PASS, FAIL, HUNG, UNREACHED = Verdict.PASS, Verdict.FAIL, Verdict.HUNG, Verdict.UNREACHED


@dataclass(frozen=True)
class Called:
    status: int
    out: str
    err: str


Call = Callable[..., Called]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """``killmatrix ARGUMENTS`` in a directory that has a matrix."""
    toy.write_toy(tmp_path, toy.small_matrix())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def call(*arguments: str) -> Called:
        monkeypatch.setattr(sys, "argv", ["killmatrix", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        assert isinstance(caught.value.code, int)
        return Called(caught.value.code, *capfd.readouterr())

    return call


def run_of(*verdicts: Verdict, run_id: str = "run", first_hit: int = 1) -> Run:
    results = [make_result(hit=hit, verdict=verdict) for hit, verdict in enumerate(verdicts, first_hit)]
    return make_run(results, run_id=run_id)


def diff_files(call: Call, old: Run, new: Run) -> Called:
    write_json(old, "old.json")
    write_json(new, "new.json")
    return call("diff", "old.json", "new.json")


# --- what is worse


@pytest.mark.parametrize(
    ("before", "after", "kind", "worse"),
    [
        ("PASS", "FAIL", "broken", True),
        ("PASS", "UNKNOWN", "broken", True),
        ("PASS", "UNREACHED", "broken", True),
        ("HUNG", "FAIL", "changed", True),
        ("FAIL", "HUNG", "changed", False),
        ("UNREACHED", "HUNG", "changed", False),
        ("FAIL", "PASS", "fixed", False),
        (None, "PASS", "added", False),
        (None, "FAIL", "added", True),
        (None, "UNKNOWN", "added", True),
        ("PASS", None, "gone", False),
        ("FAIL", None, "gone", False),
    ],
)
def test_what_is_worse(before: str | None, after: str | None, kind: str, worse: bool) -> None:
    change = Change("cell", before, after)
    assert (change.kind, change.is_worse) == (kind, worse)


def test_a_run_is_as_good_as_its_document_to_compare_with() -> None:
    old, new = run_of(PASS, FAIL, PASS), run_of(FAIL, FAIL, first_hit=2)
    assert [(change.cell[-6:], change.kind) for change in changes_since(as_previous(old), new)] == [
        ("3=kill", "broken"),
        ("1=kill", "gone"),
    ]
    assert not_tried(as_previous(old), new) == (str(old.results[0].cell),)


@pytest.mark.parametrize(
    ("old", "new", "status", "says"),
    [
        ((PASS, FAIL), (PASS, FAIL), 0, "nothing changed"),
        ((PASS, FAIL), (PASS, PASS), 0, "fixed    FAIL -> PASS"),
        ((PASS, FAIL), (FAIL, FAIL), 1, "broken   PASS -> FAIL"),
        ((PASS,), (PASS, FAIL), 1, "added    - -> FAIL"),
        ((PASS,), (PASS, PASS), 0, "added    - -> PASS"),
        ((PASS, PASS), (PASS,), 0, "gone     PASS -> -"),
        ((HUNG,), (FAIL,), 1, "changed  HUNG -> FAIL"),
        ((HUNG,), (UNREACHED,), 0, "changed  HUNG -> UNREACHED"),
    ],
)
def test_the_status_of_a_diff(
    call: Call, old: tuple[Verdict, ...], new: tuple[Verdict, ...], status: int, says: str
) -> None:
    called = diff_files(call, run_of(*old, run_id="a"), run_of(*new, run_id="b"))
    assert called.status == status and says in called.out and "a -> b" in called.out, called


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        ({"interrupted": True}, "it was interrupted"),
        ({"planned": 3}, "1 cells have no result"),
        ({"problems": ("shard 1 of 2 is missing",)}, "shard 1 of 2 is missing"),
    ],
)
def test_a_run_that_is_not_complete_did_not_stay_as_good(call: Call, spoil: dict[str, Any], why: str) -> None:
    """But what is worse in it is worse."""
    old, new = run_of(PASS, PASS), replace(run_of(PASS, PASS), **spoil)
    called = diff_files(call, old, new)
    assert called.status == 2 and why in called.out
    assert diff_files(call, old, replace(run_of(PASS, FAIL), **spoil)).status == 1


def test_what_a_part_of_the_matrix_did_not_try_is_counted(call: Call) -> None:
    called = diff_files(call, run_of(PASS, PASS, PASS), replace(run_of(PASS), whole=False))
    assert called.status == 0 and "2 cells of run were not tried in run" in called.out and "gone" not in called.out


# --- which run is meant


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / ".killmatrix" / "results.sqlite"
    with open_store(path) as store:
        for number, verdict in enumerate((FAIL, PASS, PASS)):
            record_run(store, run_of(verdict, run_id=f"2026010{number}-abc"))
    return path


def test_stored_runs_by_name(call: Call, stored: Path) -> None:
    for ref, verdict in (
        ("last", "PASS"),
        ("last~0", "PASS"),
        ("last~2", "FAIL"),
        ("20260100-abc", "FAIL"),
        ("20260100", "FAIL"),
    ):
        called = call("report", ref)
        assert called.out.splitlines()[-1].startswith(verdict), ref
    assert call("diff", "last~2", "last").status == 0
    assert call("diff", "last", "last~2").status == 1
    assert call("report", "last", "--html", "a.html", "--json", "a.json").status == 0
    assert call("diff", "last", "a.json").status == 0, "a result file, and a run of the store"


@pytest.mark.parametrize(
    ("ref", "says"),
    [
        ("last~3", "last~3: 3 runs are stored in "),
        ("2026", "2026: several runs begin so: 20260102-abc, 20260101-abc, 20260100-abc"),
        ("nobody", "nobody: no such file, and no stored run begins so; killmatrix runs lists them"),
        ("last~x", "last~x: no such file"),
        ("matrix.yaml", "matrix.yaml is not JSON"),
    ],
)
def test_a_name_that_means_no_run(call: Call, stored: Path, ref: str, says: str) -> None:
    for arguments in (("report", ref), ("diff", ref, "last"), ("diff", "last", ref)):
        called = call(*arguments)
        assert called.status == 64 and says in called.err and called.out == "", called


def test_the_list_of_runs(call: Call, stored: Path) -> None:
    lines = call("runs").out.splitlines()
    assert len(lines) == 4 and lines[0].split()[:3] == ["run", "started", "state"]
    assert lines[1].startswith("20260102-abc") and "complete" in lines[1] and "1 of 1 passed" in lines[1]
    assert "0 of 1 passed, 1 FAIL" in lines[3] and lines[3].endswith("everything")


def test_without_a_store_nothing_is_made(call: Call, tmp_path: Path) -> None:
    called = call("runs")
    assert called.status == 0 and "no run is stored in" in called.out
    assert call("report", "last").status == call("diff", "last", "last~1").status == 64
    assert not (tmp_path / ".killmatrix").exists()


def test_a_spoilt_store_is_refused_before_anything_runs(call: Call, stored: Path) -> None:
    stored.write_bytes(b"scribbled over" * 1000)
    for arguments in (("runs",), ("report", "last"), ("run",)):
        called = call(*arguments)
        assert called.status == 64 and "is damaged" in called.err and "move it away" in called.err
        assert "Traceback" not in called.err and called.out == ""
    assert stored.read_bytes().startswith(b"scribbled over")


def test_another_place_for_the_store(call: Call, tmp_path: Path) -> None:
    with open_store(tmp_path / "other.sqlite") as store:
        number_runs(store, 2)
    assert "run-1" in call("runs", "--store", "other.sqlite").out
    assert call("report", "last", "--store", "other.sqlite").status == 0
    for arguments, says in (
        (("--store", "other.sqlite", "--no-store"), "exclude each other"),
        (("--store", "none/other.sqlite"), "none/other.sqlite: unable to open database file"),
    ):
        called = call("run", *arguments)
        assert called.status == 64 and says in called.err and called.out == ""


# --- a run and the one before


@pytest.mark.skipif(sys.platform != "linux", reason="the little program and the warm servers need Linux")
@pytest.mark.usefixtures("toy_imports")
def test_a_run_tells_what_changed_since_the_last_of_the_same_cells(call: Call, tmp_path: Path) -> None:
    chosen = ("--scenario", toy.HEALTHY, "--point", "toy.appended")
    first = call("run", *chosen)
    assert first.status == 0 and "against run" not in first.out
    assert call("run", "--point", "toy.redone").status == 0, "of other cells"
    with open_store(tmp_path / ".killmatrix/results.sqlite") as store:
        _, before = store.runs()
    matrix = toy.small_matrix()
    matrix["scenarios"][toy.HEALTHY]["env"]["TOY"] = "duplicates"
    toy.write_toy(tmp_path, matrix)
    second = call("run", *chosen, "--html", "a.html", "--markdown", "a.md")
    assert second.status == 1 and f"against run {before.run_id}:" in second.out
    assert second.out.count("broken   PASS -> FAIL") == 2
    assert f"Against run {before.run_id}" in Path("a.html").read_text() and "2 broken" in Path("a.md").read_text()
    assert call("diff", before.run_id, "last").status == 1


@pytest.mark.skipif(sys.platform != "linux", reason="the little program and the warm servers need Linux")
@pytest.mark.usefixtures("toy_imports")
def test_a_run_that_is_not_to_be_stored(call: Call, tmp_path: Path) -> None:
    assert call("run", "--no-store", "--point", "toy.redone", "--html", "a.html").status == 0
    assert ".killmatrix" not in os.listdir(tmp_path)
    assert json.loads(Path("a.html").read_text().split('id="run-data">')[1].split("</script>")[0])["cells"]
