"""A made-up run for the tests of the reports: every verdict, several depths, and the shape of a real one."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from harness.model import (
    Cell,
    CellResult,
    Chapter,
    DeclaredPoint,
    Expect,
    Run,
    Step,
    StepResult,
    Verdict,
    Violation,
)

HOSTILE = (
    "</script><script>document.title='owned'</script><!--",
    "<img src=x onerror=\"document.title='owned'\">",
    "{{ 7 * 7 }} {% raw %} \" ' & ]]> | ` ``` [red]markup[/red] [/] é日本🎈",
    "\x1b[2J\x1b]0;owned\x07 \x00 \u202e backwards \ud800 \ufffe \r\n\tend",
)

_AREAS: dict[str, tuple[str, ...]] = {
    "collector.begin": ("evidence_stored", "pending_prepared"),
    "collector.claim": ("lock_created", "held"),
    "collector.takeover": ("planned", "rename", "quarantined", "CREATE_PLANNED", "new_lock", "NEW_LOCK_HELD"),
    "collector.commit": ("intent", "cards_in_place", "runs_in_place", "BUSINESS_COMMITTED"),
    "collector.release": ("terminal", "cleanup", "lock_removed", "pending_removed"),
}
_STEPS = ("tmp-written", "tmp-synced", "renamed", "dir-synced")
_SAYS = "the record says so, and what it names has not moved yet"
_TREE = (
    ".collector.lock  1 B  6e340b9c",
    "archive/",
    "archive/cards/",
    "archive/cards/000001.jsonl  4096 B  9f86d081",
    "archive/runs/",
    "archive/runs/000001.jsonl  512 B  2c26b46b",
    "foreign.txt  11 B  b94d27b9",
    "latest  symlink slots/004.json",
    "refresh/",
)


def make_point(name: str, says: str = "", spec: str = "") -> DeclaredPoint:
    return DeclaredPoint(name, says, spec)


def make_result(
    point: str = "shop.pay.charged",
    verdict: Verdict = Verdict.PASS,
    *,
    scenario: str = "shop.checkout",
    hit: int = 1,
    fault: str = "kill",
    deeper: Sequence[Step] = (),
    **changes: Any,
) -> CellResult:
    """One result with the least that its verdict needs."""
    steps = (Step(point, hit, fault), *deeper)
    fired = verdict is not Verdict.UNREACHED
    result = CellResult(
        cell=Cell(scenario, steps),
        verdict=verdict,
        steps=tuple(StepResult(step, fired, 4711 + n if fired else None, "SIGKILL") for n, step in enumerate(steps)),
        row=None,
        rows=(),
        code=None,
        recoveries=1,
        violations=(Violation("nothing_overwritten", "a.txt", "3 B became 0 B"),) if verdict is Verdict.FAIL else (),
        why="" if verdict in (Verdict.PASS, Verdict.FAIL) else "the fault did not fire",
        points_reached=frozenset(step.point for step in steps) if fired else frozenset(),
        story=(),
        duration_s=0.25,
    )
    return replace(result, **changes)


def make_run(results: Sequence[CellResult] = (), **changes: Any) -> Run:
    """A whole run of exactly these results, whose points are all declared and listed."""
    names = dict.fromkeys(step.point for result in results for step in result.cell.steps)
    run = Run(
        run_id="20260102-0304-7f3a",
        started_at="2026-01-02T03:04:05+00:00",
        duration_s=2.0,
        jobs=2,
        spawn="fork",
        host={"python": "3.11.7", "os": "linux", "cpus": 2},
        planned=len(results),
        results=tuple(results),
        points=tuple(make_point(name) for name in names),
        listed_points=frozenset(names),
    )
    return replace(run, **changes)


def make_points() -> tuple[DeclaredPoint, ...]:
    points = []
    for area, names in _AREAS.items():
        for number, name in enumerate(names):
            full = f"{area}.{name}"
            points.append(make_point(full, _SAYS, f"V004 {number + 1}"))
            if name in ("pending_prepared", "planned", "CREATE_PLANNED", "intent", "terminal"):
                points += [make_point(f"{full}/{step}", f"{_SAYS}: {step}", f"V004 {number + 1}") for step in _STEPS]
    return tuple(points)


def make_big_run(cells: int = 300, seed: int = 7) -> Run:
    """About ``cells`` cells over every made-up point, with a few of every verdict; the same for the same seed."""
    chance = random.Random(seed)
    points = make_points()
    names = [point.name for point in points]
    # the last point is listed, and no cell ever reaches it
    results = [_big_result(cell, names, chance) for cell in _cells(names[:-1], cells)]
    reached = frozenset(names[:-1])
    results = [replace(result, points_reached=result.points_reached & reached) for result in results]
    return replace(
        make_run(results, points=points, listed_points=frozenset(names), duration_s=len(results) / 148),
        notes=("no loop device: the power faults were not run",),
    )


def _cells(names: Sequence[str], most: int) -> Iterator[Cell]:
    made = 0
    for depth in (1, 2, 3):
        for name in names:
            scenarios = ["collector.commit", "collector.recover"]
            if "takeover" in name or "release" in name:
                scenarios.append("collector.takeover")
            for scenario in scenarios:
                faults = ["kill", "error:EIO"] + (["rival", "tamper:main-lock"] if "/" not in name else [])
                for fault in faults if depth == 1 else ["kill"]:
                    for other in names[:: 7 - depth] if depth > 1 else [""]:
                        if made == most:
                            return
                        made += 1
                        deeper = (Step(other, 1, "kill"),) * (depth - 1)
                        yield Cell(scenario, (Step(name, 1, fault), *deeper), Expect(row=f"T{len(name) % 11 + 1}"))


def _big_result(cell: Cell, names: Sequence[str], chance: random.Random) -> CellResult:
    others = (Verdict.FAIL, Verdict.FAIL, Verdict.UNREACHED, Verdict.HUNG, Verdict.FOREIGN_DEATH, Verdict.UNKNOWN)
    verdict = Verdict.PASS if chance.random() > 0.035 else chance.choice(others)
    whys = {
        Verdict.UNREACHED: "the process ended with exit status 0 and never reached the point",
        Verdict.HUNG: "recovery 2 did not end within 20 s; it was killed",
        Verdict.FOREIGN_DEATH: "the process died by SIGSEGV at another place",
        Verdict.UNKNOWN: "the judge crashed: KeyError: 'segment'",
    }
    broken = (
        Violation(
            "append_at_most_once", "archive/cards/000001.jsonl", "record dynamic:901 is there twice: seq 17 and 18"
        ),
        Violation("no_residue", "archive/.candidates/cards.jsonl", "not declared by the scenario"),
    )
    row = cell.expect.row if verdict is not Verdict.FAIL else "T4"
    fired = verdict is not Verdict.UNREACHED
    pid = chance.randrange(2000, 60000)
    end = names.index(cell.steps[0].point) + 1
    return CellResult(
        cell=cell,
        verdict=verdict,
        steps=tuple(
            StepResult(step, fired, pid + n if fired else None, "SIGKILL" if step.fault == "kill" and fired else None)
            for n, step in enumerate(cell.steps)
        ),
        row=row,
        rows=(row or "", "X2", "X3", "X4"),
        code="E_FORMAL_LOCK_BUSY" if cell.steps[0].fault == "rival" else None,
        recoveries=cell.depth,
        violations=broken[: chance.randrange(1, 3)] if verdict is Verdict.FAIL else (),
        why=whys.get(verdict, ""),
        points_reached=frozenset(names[:end]),
        rows_reached=frozenset({row or "", "X2", "X3", "X4"}),
        story=tuple(_story(cell, verdict, pid, names[:end], chance)),
        duration_s=chance.uniform(0.004, 0.02),
        kept_at="/tmp/killmatrix/kept/17" if verdict is Verdict.FAIL else None,
    )


def _story(cell: Cell, verdict: Verdict, pid: int, names: Sequence[str], chance: random.Random) -> Iterator[Chapter]:
    def digest() -> str:
        return hashlib.sha256(chance.randbytes(8)).hexdigest()[:8]

    tree = list(_TREE)
    yield Chapter("set-up", (), None, "done", (), tuple(tree), "", "", 1.2)
    argv = ("python", "-m", "product.collector")
    tree += [f"refresh/pending.json  1822 B  {digest()}", f"archive/.manifest.lock  402 B  {digest()}"]
    passed = tuple(f"{name}#1" for name in names)
    for number, step in enumerate(cell.steps):
        tree[-2] = f"refresh/pending.json  {1800 + number} B  {digest()}"
        title, command = ("run", "commit") if number == 0 else (f"recovery {number}", "recover")
        ended = "killed by SIGKILL" if step.fault == "kill" else f"exit 70 after {step.fault}"
        yield Chapter(title, (*argv, command), pid + number, ended, passed, tuple(sorted(tree)), "", "", 5.4)
    tree[3] = f"archive/cards/000001.jsonl  4406 B  {digest()}"
    tree = [line for line in tree if not line.startswith(("refresh/pending", "archive/.manifest"))]
    tree.append("refresh/slots/004.json  611 B  " + digest())
    if verdict is Verdict.FAIL:
        tree.append("archive/.candidates/cards.jsonl  4406 B  " + digest())
    answer = f'{{"ok":true,"rows":["{cell.expect.row}","X2","X3","X4"],"state":"NEW_APPENDED"}}\n'
    words = f"recovering run {digest()}: took row {cell.expect.row}\n"
    last = f"recovery {cell.depth}"
    yield Chapter(last, (*argv, "recover"), pid + 9, "exit 0", passed[-3:], tuple(sorted(tree)), answer, words, 6.1)
    yield Chapter("again", (*argv, "recover"), pid + 10, "exit 0", (), tuple(sorted(tree)), answer, "", 3.3)


def test_the_made_up_run_has_every_verdict() -> None:
    run = make_big_run()
    assert {result.verdict for result in run.results} == set(Verdict)
    assert len({str(result.cell) for result in run.results}) == len(run.results) == 300
    assert {result.cell.depth for result in run.results} >= {1, 2}
