"""The store: what a run found is there, whatever became of the run, and whoever else was writing."""

from __future__ import annotations

import json
import pickle
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.model import Run, Verdict
from harness.report.json_result import result_document
from harness.store import Store, StoredRun, StoreError, default_path, open_store, temporary_store
from tests.harness import toy
from tests.harness.support import REPOSITORY, TIMEOUT_S
from tests.harness.test_report_sample import HOSTILE, make_big_run, make_result, make_run


def record_run(store: Store, run: Run) -> Run:
    """As the runner does; the run as the store has it."""
    head = replace(run, results=())
    with store.begin(head) as recording:
        for place, result in enumerate(run.results):
            recording.record(result, place)
        recording.finish(head)
    return store.read_run(run.run_id)


def number_runs(store: Store, count: int) -> None:
    for number in range(count):
        record_run(store, make_run([make_result()], run_id=f"run-{number}"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.sqlite"


# --- what goes in comes out


def test_a_run_comes_back_as_it_was(path: Path) -> None:
    run = make_big_run(120)
    hostile = make_result(HOSTILE[0], Verdict.FAIL, why="".join(HOSTILE))
    run = replace(run, results=(*run.results, hostile), notes=HOSTILE, selection="--point x", left_out=3)
    with open_store(path) as store:
        record_run(store, run)
    with open_store(path) as store:
        again = store.read_run(run.run_id)
        assert result_document(again) == result_document(run)
        assert [str(result.cell) for result in again.results] == [str(result.cell) for result in run.results]


def test_a_temporary_store_is_one_too() -> None:
    run = make_big_run(20)
    assert result_document(record_run(temporary_store(), run)) == result_document(run)


def test_stories_are_read_when_they_are_looked_at(path: Path) -> None:
    run = make_big_run(20)
    with open_store(path) as store:
        light = record_run(store, run).results[3]
        assert light.story == run.results[3].story and run.results[3].story == light.story
        assert len(light.story) == len(run.results[3].story) and light.story[-1] == run.results[3].story[-1]
        assert not isinstance(light.story, tuple)
        carried = pickle.loads(pickle.dumps(light))  # to another process, which does not have the store
    assert carried.story == run.results[3].story and isinstance(carried.story, tuple)


def test_the_results_of_a_scenario_are_packed_against_each_other(path: Path) -> None:
    run = make_big_run(400)
    run = replace(run, results=[replace(result, cell=replace(result.cell, scenario="one")) for result in run.results])
    with open_store(path) as store:
        record_run(store, run)
    plain = sum(len(json.dumps([repr(result)])) for result in run.results)
    assert path.stat().st_size < plain / 3


def test_points_of_many_cells_are_there_once(path: Path) -> None:
    results = [make_result(hit=hit, points_reached=frozenset({"a", "b"})) for hit in range(1, 50)]
    with open_store(path) as store:
        again = record_run(store, make_run(results)).results
    assert len({id(result.points_reached) for result in again}) == 1


def test_a_second_result_for_a_cell_is_not_looked_at(path: Path) -> None:
    """A batch of cells that is sent twice is not counted twice."""
    head = make_run([], run_id="twice", planned=1)
    with open_store(path) as store:
        with store.begin(head) as recording:
            assert recording.record(make_result(), 0)
            assert not recording.record(make_result(verdict=Verdict.FAIL), 0)
            recording.finish(head)
        (result,) = store.read_run("twice").results
        assert result.verdict is Verdict.PASS and store.seen()[str(result.cell)].verdict is Verdict.PASS


def test_results_are_in_the_order_of_the_run(path: Path) -> None:
    results = [make_result(hit=hit) for hit in range(1, 6)]
    head = make_run([], run_id="order", planned=5)
    with open_store(path) as store:
        with store.begin(head) as recording:
            for place in (3, 0, 4, 1, 2):
                recording.record(results[place], place)
        assert [result.cell for result in store.read_run("order").results] == [result.cell for result in results]


# --- the list of runs, and what is known of a cell


def states(store: Store) -> list[tuple[str, str]]:
    return [(run.run_id, run.state) for run in store.runs()]


def test_the_list_of_runs(path: Path) -> None:
    with open_store(path) as store:
        record_run(
            store, make_run([make_result(), make_result(hit=2, verdict=Verdict.FAIL)], run_id="a", selection="x")
        )
        record_run(store, make_run([make_result()], run_id="b", interrupted=True, planned=2))
        record_run(store, make_run([make_result()], run_id="c", left_out=4, planned=5))
        with store.begin(make_run([], run_id="d")) as recording:
            recording.record(make_result(), 0)
            assert store.runs()[0].state == "running"
        assert states(store) == [("d", "killed"), ("c", "cut by its budget"), ("b", "interrupted"), ("a", "complete")]
        oldest: StoredRun = store.runs()[-1]
        assert (oldest.verdicts, oldest.selection, oldest.cells) == ({"PASS": 1, "FAIL": 1}, "x", 2)
        assert store.read_run("d").interrupted, "a run that did not end is never a whole one"


def test_what_was_last_known_of_a_cell_outlives_its_run(path: Path) -> None:
    cell = str(make_result().cell)
    with open_store(path, kept_runs=2) as store:
        record_run(store, make_run([make_result(verdict=Verdict.FAIL, duration_s=3.0)], run_id="a"))
        first = store.seen()[cell]
        assert (first.verdict, first.duration_s) == (Verdict.FAIL, 3.0)
        record_run(store, make_run([make_result(duration_s=5.0)], run_id="b"))
        last = store.seen()[cell]
        assert (last.verdict, last.duration_s) == (Verdict.PASS, 5.0) and last.seen_at >= first.seen_at
        for number in range(3):
            record_run(store, make_run([make_result(hit=2)], run_id=f"other-{number}"))
        assert store.seen()[cell] == last


def test_old_runs_go_and_live_ones_stay(path: Path) -> None:
    with open_store(path, kept_runs=3) as store, open_store(path) as other:
        with other.begin(make_run([], run_id="live")) as recording:
            number_runs(store, 4)
            assert [run.run_id for run in store.runs()] == ["run-3", "run-2", "run-1", "live"]
            recording.record(make_result(), 0)
        number_of_results = sqlite3.connect(path).execute("SELECT count(*) FROM result").fetchone()[0]
        assert number_of_results == 4, "their results go with them"
        record_run(store, make_run([make_result()], run_id="last"))
        assert [run.run_id for run in store.runs()] == ["last", "run-3", "run-2"]
    assert list(path.parent.glob("*.live")) == []


def test_a_story_whose_run_is_gone_says_so(path: Path) -> None:
    with open_store(path, kept_runs=1) as store:
        run = record_run(store, make_big_run(3))
        number_runs(store, 1)
        with pytest.raises(StoreError, match="the run that is being read is gone"):
            run.results[0].story[0]


# --- a store that cannot be used


def truncate(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def scribble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for at in range(4096, len(data), 4096):  # every page but the first
        data[at : at + 64] = b"\xff" * 64
    path.write_bytes(bytes(data))


def set_schema(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")


def replace_by_another(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE photos (name)")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (truncate, "is damaged .*move it away"),
        (scribble, "is damaged .*move it away"),
        (lambda path: path.write_bytes(b"not a database at all" * 100), "is damaged .*move it away"),
        (set_schema, "is of schema 99, and this killmatrix writes schema 1.*--store"),
        (replace_by_another, "is a database of another program.*--store"),
    ],
)
def test_a_store_that_is_spoilt_is_told_and_left(path: Path, spoil: Callable[[Path], None], says: str) -> None:
    with open_store(path) as store:
        number_runs(store, 3)
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=says) as caught:
        open_store(path)
    assert str(path) in str(caught.value) and path.read_bytes() == before


def test_a_place_where_no_store_can_be(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none" / "results.sqlite"):
        with pytest.raises(StoreError, match="--store"):
            open_store(place)
    assert list(tmp_path.iterdir()) == []


def test_the_default_store_has_a_directory_of_its_own_that_git_ignores(tmp_path: Path) -> None:
    path = default_path(tmp_path / "matrix.yaml")
    open_store(path).close()
    assert path.parent.name == ".killmatrix" and (path.parent / ".gitignore").read_text() == "*\n"


# --- processes


WRITER = """
import sys
from pathlib import Path
from harness.store import open_store
from tests.harness.test_report_sample import make_result, make_run

name, count = sys.argv[2], int(sys.argv[3])
sys.stdin.readline()
with open_store(Path(sys.argv[1])) as store:
    head = make_run([], run_id=name, planned=count)
    with store.begin(head) as recording:
        for hit in range(1, count + 1):
            recording.record(make_result(hit=hit, scenario=name), hit)
            print(hit, flush=True)
        recording.finish(head)
"""


def start_writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(argv, cwd=REPOSITORY, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def let_go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_a_harness_that_is_killed_loses_nothing_that_it_recorded(path: Path) -> None:
    process = start_writer(path, "killed", 1_000_000)
    let_go(process)
    assert process.stdout is not None
    for _ in range(200):
        last = int(process.stdout.readline())
    process.kill()
    rest = process.communicate(timeout=TIMEOUT_S)[0].split()
    acknowledged = int(rest[-1]) if rest else last
    with open_store(path) as store:
        assert states(store) == [("killed", "killed")]
        hits = [result.cell.steps[0].hit for result in store.read_run("killed").results]
        assert hits[:acknowledged] == list(range(1, acknowledged + 1)) and len(hits) <= acknowledged + 1
        number_runs(store, 1)
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_runs_at_the_same_time_in_one_store(path: Path) -> None:
    """From its making on: all of them open it at once."""
    names = [f"run-{number}" for number in range(4)]
    writers = [start_writer(path, name, 150) for name in names]
    for process in writers:
        let_go(process)
    for process in writers:
        process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0
    with open_store(path) as store:
        assert sorted(states(store)) == [(name, "complete") for name in names]
        assert all(len(store.read_run(name).results) == 150 for name in names)
        assert len(store.seen()) == 600


@pytest.mark.skipif(sys.platform != "linux", reason="the little program needs Linux")
def test_ten_thousand_results_do_not_fill_the_memory(tmp_path: Path) -> None:
    """One real cell, its result handed in 10,000 times under other ids: see :mod:`tests.harness.synthetic`."""
    matrix = toy.write_toy(tmp_path / "project", toy.small_matrix())
    cell, out = "toy.healthy/toy.appended#1=kill", tmp_path / "out"
    out.mkdir()
    argv = [sys.executable, "-m", "tests.harness.synthetic", str(matrix), cell, "10000", str(out)]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    told = json.loads(done.stdout)
    assert told["results"] == 10_000
    assert max(told["run"], told["json"], told["html"]) < 200, told
    assert len(json.loads((out / "result.json").read_bytes())["cells"]) == 10_000
