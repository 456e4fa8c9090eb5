"""Runs and results as JSON values, and back: one spelling for the result file and for the store.

A result has two parts: what programs and tables read (:func:`encode_cell`, :func:`encode_more`), and its story, which is
much longer and read by few. Texts go through a :class:`Pool`, which may keep each once and put an index in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Protocol

from harness.model import (
    Cell,
    CellResult,
    Chapter,
    DeclaredPoint,
    Expect,
    Run,
    Shard,
    Step,
    StepResult,
    Verdict,
    Violation,
)
from harness.report.coverage import decode_coverage, encode_coverage


class Pool(Protocol):
    """What stands in the place of a text, of a list of texts, and of what a process printed."""

    def text(self, text: str) -> Any: ...

    def list(self, items: Sequence[str]) -> Any: ...

    def output(self, text: str) -> Any: ...


class Texts(Protocol):
    """The way back: from what stands there to the text."""

    def text(self, place: Any) -> str: ...

    def list(self, place: Any) -> tuple[str, ...]: ...


class Plain:
    """Every text stands for itself, both ways."""

    def text(self, text: str) -> str:
        return text

    output = text

    def list(self, items: Iterable[str]) -> tuple[str, ...]:
        return tuple(items)


# --- a run without its results


def encode_head(run: Run) -> dict[str, Any]:
    """What the first level of a result file says about the run."""
    return {
        "run_id": run.run_id,
        "started_at": run.started_at,
        "duration_s": round(run.duration_s, 3),
        "jobs": run.jobs,
        "spawn": run.spawn,
        "host": dict(run.host),
        "selection": run.selection,
        "fingerprints": dict(run.fingerprints),
        "shard": None if run.shard is None else encode_shard(run.shard),
        "planned": run.planned,
        "left_out": run.left_out,
        "interrupted": run.interrupted,
        "problems": list(run.problems),
        "notes": list(run.notes),
        **({} if run.coverage is None else {"coverage": encode_coverage(run.coverage)}),
    }


def encode_lists(run: Run) -> dict[str, Any]:
    """What the matrix and the catalogue list, which is long."""
    return {
        "whole": run.whole,
        "points": [{"name": p.name, "says": p.says, "spec": p.spec} for p in run.points],
        "listed_points": sorted(run.listed_points),
        "listed_rows": sorted(run.listed_rows),
    }


def encode_shard(shard: Shard) -> dict[str, Any]:
    return {
        "index": shard.index,
        "count": shard.count,
        "plan": shard.plan,
        "cells": shard.cells,
        "whole": shard.whole,
    }


def decode_run(head: Mapping[str, Any], lists: Mapping[str, Any], results: Sequence[CellResult]) -> Run:
    """The run. Where ``lists`` says nothing, the points are those of the cells. Raises KeyError, TypeError, ValueError."""
    names = dict.fromkeys(step.point for result in results for step in result.cell.steps)
    points = lists.get("points", [{"name": name, "says": "", "spec": ""} for name in names])
    shard, coverage = head.get("shard"), head.get("coverage")
    return Run(
        run_id=head["run_id"],
        started_at=head["started_at"],
        duration_s=head["duration_s"],
        jobs=head["jobs"],
        spawn=head["spawn"],
        host=head["host"],
        planned=head.get("planned", len(results)),
        results=results,
        points=tuple(DeclaredPoint(p["name"], p["says"], p["spec"]) for p in points),
        listed_points=frozenset(lists.get("listed_points", names)),
        listed_rows=frozenset(lists.get("listed_rows", ())),
        whole=lists.get("whole", True),
        interrupted=head.get("interrupted", False),
        notes=tuple(head.get("notes", ())),
        selection=head.get("selection", ""),
        fingerprints=head.get("fingerprints", {}),
        shard=None if shard is None else Shard(**shard),
        left_out=head.get("left_out", 0),
        problems=tuple(head.get("problems", ())),
        coverage=None if coverage is None else decode_coverage(coverage),
    )


# --- a result


def encode_cell(result: CellResult) -> dict[str, Any]:
    """An item of ``cells`` in a result file."""
    cell = result.cell
    return {
        "id": str(cell),
        "scenario": cell.scenario,
        "depth": cell.depth,
        "steps": [_step(step, proof) for step, proof in zip_longest(cell.steps, result.steps) if step is not None],
        "verdict": result.verdict.value,
        "row": result.row,
        "rows": list(result.rows),
        "code": result.code,
        "recoveries": result.recoveries,
        "violations": [{"invariant": v.invariant, "path": v.path, "detail": v.detail} for v in result.violations],
        "why": result.why,
        "duration_ms": round(result.duration_s * 1000, 1),
        "repro": result.repro,
    }


def _step(step: Step, proof: StepResult | None) -> dict[str, Any]:
    return {
        "point": step.point,
        "hit": step.hit,
        "fault": step.fault,
        "fired": proof is not None and proof.fired,
        "pid": proof.pid if proof is not None else None,
        "died_by": proof.died_by if proof is not None else None,
    }


def encode_more(result: CellResult, pool: Pool) -> dict[str, Any]:
    """What :func:`encode_cell` leaves out, but for the story."""
    expect = result.cell.expect
    return {
        "expect": {"row": expect.row, "resumes": expect.resumes, "code": expect.code, "refuses": expect.refuses},
        "points_reached": pool.list(sorted(result.points_reached)),
        "rows_reached": pool.list(sorted(result.rows_reached)),
        "kept_at": result.kept_at,
    }


def encode_story(story: Iterable[Chapter], pool: Pool) -> list[dict[str, Any]]:
    return [
        {
            "title": pool.text(chapter.title),
            "argv": pool.list(chapter.argv),
            "pid": chapter.pid,
            "ended": pool.text(chapter.ended),
            "points": pool.list(chapter.points),
            "tree": pool.list(chapter.tree),
            "stdout": pool.output(chapter.stdout),
            "stderr": pool.output(chapter.stderr),
            "duration_ms": round(chapter.duration_ms, 1),
        }
        for chapter in story
    ]


def decode_result(
    cell: Mapping[str, Any], more: Mapping[str, Any], texts: Texts, story: Sequence[Chapter]
) -> CellResult:
    """The result. ``more`` may be empty. Raises KeyError, IndexError, TypeError, ValueError."""
    steps = tuple(Step(step["point"], step["hit"], step["fault"]) for step in cell["steps"])
    fired = frozenset(step["point"] for step in cell["steps"] if step["fired"])
    return CellResult(
        cell=Cell(cell["scenario"], steps, Expect(**more.get("expect", {}))),
        verdict=Verdict(cell["verdict"]),
        steps=tuple(
            StepResult(step, told["fired"], told["pid"], told["died_by"])
            for step, told in zip(steps, cell["steps"], strict=True)
        ),
        row=cell["row"],
        rows=tuple(cell.get("rows", ())),
        code=cell["code"],
        recoveries=cell["recoveries"],
        violations=tuple(Violation(v["invariant"], v["path"], v["detail"]) for v in cell["violations"]),
        why=cell.get("why", ""),
        points_reached=frozenset(texts.list(more["points_reached"])) if "points_reached" in more else fired,
        story=story,
        duration_s=cell["duration_ms"] / 1000,
        kept_at=more.get("kept_at"),
        rows_reached=frozenset(texts.list(more["rows_reached"])) if "rows_reached" in more else frozenset(),
    )


def decode_story(chapters: Iterable[Mapping[str, Any]], texts: Texts) -> tuple[Chapter, ...]:
    return tuple(
        Chapter(
            title=texts.text(chapter["title"]),
            argv=texts.list(chapter["argv"]),
            pid=chapter["pid"],
            ended=texts.text(chapter["ended"]),
            points=texts.list(chapter["points"]),
            tree=texts.list(chapter["tree"]),
            stdout=texts.text(chapter["stdout"]),
            stderr=texts.text(chapter["stderr"]),
            duration_ms=chapter["duration_ms"],
        )
        for chapter in chapters
    )
