"""Counting, and the exit status that follows from it (harness.md, "What is judged")."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.model import Run, Step, Verdict
from harness.report.changes import Change, changes_since
from harness.report.json_result import result_document
from harness.report.tally import (
    KILL_PROVES_NO_FSYNC,
    by_family,
    headline,
    not_covered,
    summarize,
    tally,
    unreached_points,
    unused_faults,
    worst,
)
from tests.harness.test_report_sample import make_big_run, make_point, make_result, make_run

PASS, FAIL, UNREACHED = Verdict.PASS, Verdict.FAIL, Verdict.UNREACHED
UNKNOWNS = (Verdict.HUNG, Verdict.FOREIGN_DEATH, Verdict.UNKNOWN)


def run_of(*verdicts: Verdict) -> Run:
    return make_run([make_result(hit=n + 1, verdict=verdict) for n, verdict in enumerate(verdicts)])


@pytest.mark.parametrize(
    ("verdicts", "verdict", "exit_status"),
    [
        ((PASS,), PASS, 0),
        ((PASS, PASS), PASS, 0),
        ((PASS, FAIL), FAIL, 1),
        ((FAIL, Verdict.HUNG, UNREACHED), FAIL, 1),
        ((PASS, UNREACHED), UNREACHED, 2),
        *(((PASS, unknown), Verdict.UNKNOWN, 2) for unknown in UNKNOWNS),
        *(((UNREACHED, unknown), Verdict.UNKNOWN, 2) for unknown in UNKNOWNS),
        *(((unknown, FAIL), FAIL, 1) for unknown in UNKNOWNS),
    ],
)
def test_fail_beats_the_unknowns_and_they_beat_pass(
    verdicts: tuple[Verdict, ...], verdict: Verdict, exit_status: int
) -> None:
    summary = summarize(run_of(*verdicts))
    assert (summary.verdict, summary.exit_status) == (verdict, exit_status)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"interrupted": True}, "the run was interrupted"),
        ({"planned": 4}, "1 of 4 planned cells have no result"),
        ({"results": (), "planned": 0}, "no cell ran"),
        ({"results": (), "planned": 3}, "3 of 3 planned cells have no result"),
    ],
)
def test_a_run_that_is_not_complete_is_no_pass(changes: dict[str, object], told: str) -> None:
    run = replace(run_of(PASS, PASS, PASS), **changes)  # type: ignore[arg-type]
    summary = summarize(run)
    assert (summary.verdict, summary.exit_status) == (Verdict.UNKNOWN, 2)
    assert told in summary.reasons
    assert "not complete" in headline(summary)


def test_a_result_that_came_twice_does_not_hide_one_that_was_dropped() -> None:
    first, second = run_of(PASS, PASS).results
    assert summarize(make_run([first, second], planned=2)).exit_status == 0
    assert summarize(make_run([first, first], planned=2)).exit_status == 2


def test_a_violation_beats_an_interrupted_run() -> None:
    assert summarize(replace(run_of(PASS, FAIL), interrupted=True)).exit_status == 1


def test_a_listed_point_that_no_cell_reached_fails_a_whole_run_only() -> None:
    run = run_of(PASS)
    listed = run.listed_points | {"shop.pay.late"}
    run = replace(run, points=(*run.points, make_point("shop.pay.late")), listed_points=listed)
    summary = summarize(run)
    assert (summary.verdict, summary.exit_status, summary.points_missing) == (UNREACHED, 2, 1)
    assert summary.reasons == ("shop.pay.late is listed and no cell reached it",)
    part = replace(run, whole=False)
    assert (summarize(part).exit_status, summarize(part).points_missing) == (0, 0)
    assert unreached_points(part) == ("shop.pay.late",)
    assert any("left cells out" in sentence for sentence in not_covered(part))


def test_a_declared_point_that_no_row_lists_fails_a_whole_run_only() -> None:
    """The gate lets none through; where it did, no cell ever had a fault there."""
    run = run_of(PASS)
    run = replace(run, points=(*run.points, make_point("shop.pay.late")))
    assert (summarize(run).verdict, summarize(run).exit_status) == (UNREACHED, 2)
    assert summarize(run).reasons == ("shop.pay.late is declared and no row lists it",)
    assert summarize(replace(run, whole=False)).exit_status == 0


def test_a_listed_row_that_no_process_took_fails_a_whole_run_only() -> None:
    run = make_run([make_result(rows_reached=frozenset({"T1", "not listed"}))], listed_rows=frozenset({"T1", "T2"}))
    summary = summarize(run)
    assert (summary.verdict, summary.exit_status) == (UNREACHED, 2)
    assert (summary.rows_listed, summary.rows_reached, summary.rows_missing) == (2, 1, 1)
    assert summary.reasons == ("row T2 is listed and no process took it",)
    assert headline(summary) == "No violation found, but no pass: listed rows not taken: 1."
    assert summarize(replace(run, whole=False)).exit_status == 0
    assert summarize(replace(run, listed_rows=frozenset({"T1"}))).exit_status == 0


def test_counts_by_kind_of_fault() -> None:
    faults = ("tamper:b", "tamper:a", "error:EIO", "kill")
    tallies = by_family(make_run([make_result(fault=fault) for fault in faults]))
    assert {family: tally.cells for family, tally in tallies.items()} == {"kill": 1, "error": 1, "tamper": 2}
    assert list(tallies) == ["kill", "error", "tamper"]


def test_unreached_points_come_in_catalogue_order_and_undeclared_ones_last() -> None:
    points = (make_point("z.last"), make_point("a.first"), make_point("m.middle"))
    run = make_run([], points=points, listed_points=frozenset({"m.middle", "z.last", "b.undeclared", "a.undeclared"}))
    assert unreached_points(run) == ("z.last", "m.middle", "a.undeclared", "b.undeclared")


def test_counts_by_fault_and_depth_sum_up() -> None:
    results = [
        make_result(fault="tamper:third"),
        make_result(fault="error:EIO", verdict=FAIL),
        make_result(fault="kill"),
        make_result(fault="kill", deeper=[Step("shop.pay.sent", 1, "error:EIO")], verdict=Verdict.HUNG),
    ]
    summary = summarize(make_run(results))
    assert list(summary.by_fault) == ["kill", "error:EIO", "tamper:third"]
    assert {fault: (t.cells, t.passed) for fault, t in summary.by_fault.items()} == {
        "kill": (2, 1),
        "error:EIO": (1, 0),
        "tamper:third": (1, 1),
    }
    assert {depth: (t.cells, t.passed) for depth, t in summary.by_depth.items()} == {"1": (3, 2), "2": (1, 0)}
    assert (summary.cells, summary.passed, summary.failed, summary.unreached, summary.unknown) == (4, 2, 1, 0, 1)
    assert summary.cells_per_s == 2.0
    assert unused_faults(make_run(results)) == ("rival", "term")


def test_every_verdict_is_counted_once() -> None:
    for verdict in Verdict:
        counts = tally([make_result(verdict=verdict)])
        assert counts.cells == counts.passed + counts.failed + counts.unreached + counts.unknown == 1


def test_the_worst_verdict_of_a_group() -> None:
    assert worst([PASS, UNREACHED, Verdict.HUNG]) is Verdict.HUNG
    assert worst([UNREACHED, PASS]) is UNREACHED
    assert worst([Verdict.UNKNOWN, FAIL]) is FAIL


def test_a_run_without_time_has_no_speed() -> None:
    assert summarize(replace(run_of(PASS), duration_s=0.0)).cells_per_s == 0.0


def test_what_is_not_covered_says_first_that_a_kill_proves_no_fsync() -> None:
    assert not_covered(run_of(PASS))[0] == KILL_PROVES_NO_FSYNC
    assert any("no fault happens" in sentence for sentence in not_covered(make_big_run(5)))


def test_changes_against_the_run_before() -> None:
    before = make_run([make_result(hit=hit, verdict=verdict) for hit, verdict in ((1, PASS), (2, FAIL), (3, PASS))])
    after = make_run(
        [make_result(hit=hit, verdict=verdict) for hit, verdict in ((1, FAIL), (2, PASS), (4, PASS))]
        + [make_result(hit=5, verdict=PASS)]
    )
    document = result_document(before)
    document["cells"].append({**document["cells"][0], "id": str(after.results[-1].cell), "verdict": "PASS"})
    cell = "shop.checkout/shop.pay.charged#{}=kill"
    found = changes_since(document, after)
    assert found == (
        Change(cell.format(1), "PASS", "FAIL"),
        Change(cell.format(2), "FAIL", "PASS"),
        Change(cell.format(4), None, "PASS"),
        Change(cell.format(3), "PASS", None),
    )
    assert [change.kind for change in found] == ["broken", "fixed", "added", "gone"]
