"""The result file, schema 1 (harness.md, "Result file"): what CI reads, and what a report is made from again.

``cells`` is for programs. ``detail`` holds the rest of the run, in the order of ``cells``: every text and every list of
texts is there once and named by its index, because the trees of 2,000 cells are mostly the same lines.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from pathlib import Path
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
from harness.report.output import shorten, write_text
from harness.report.tally import Tally, not_covered, summarize

SCHEMA = 1


class ResultFileError(ValueError):
    """A file is not a result file of schema 1; the message names the file and what is wrong."""


def result_document(run: Run, *, output_chars: int | None = None) -> dict[str, Any]:
    """The run as the JSON object of schema 1. ``output_chars`` shortens what each process printed."""
    pool = _Pool(output_chars)
    return {
        "schema": SCHEMA,
        "run_id": run.run_id,
        "started_at": run.started_at,
        "duration_s": round(run.duration_s, 3),
        "jobs": run.jobs,
        "spawn": run.spawn,
        "host": dict(run.host),
        "planned": run.planned,
        "interrupted": run.interrupted,
        "notes": list(run.notes),
        "not_covered": list(not_covered(run)),
        "summary": _summary(run),
        "cells": [_cell(result) for result in run.results],
        "detail": {
            "whole": run.whole,
            "points": [{"name": p.name, "says": p.says, "spec": p.spec} for p in run.points],
            "listed_points": sorted(run.listed_points),
            "listed_rows": sorted(run.listed_rows),
            "cells": [_cell_detail(result, pool) for result in run.results],
            "lists": pool.lists,
            "texts": pool.texts,
        },
    }


def write_json(run: Run, path: str | os.PathLike[str]) -> None:
    """Write the result file, whole or not at all. Raises OSError."""
    # ASCII only: file names of a sandbox may hold bytes that are no text, and must come back as they were
    write_text(path, json.dumps(result_document(run), separators=(",", ":")) + "\n")


def _summary(run: Run) -> dict[str, Any]:
    summary = summarize(run)

    def counts(tallies: Mapping[str, Tally]) -> dict[str, dict[str, int]]:
        return {name: {"cells": tally.cells, "passed": tally.passed} for name, tally in tallies.items()}

    return {
        "cells": summary.cells,
        "passed": summary.passed,
        "failed": summary.failed,
        "unreached": summary.unreached,
        "unknown": summary.unknown,
        "by_fault": counts(summary.by_fault),
        "by_depth": counts(summary.by_depth),
        "points_declared": summary.points_declared,
        "points_reached": summary.points_reached,
        "rows_listed": summary.rows_listed,
        "rows_reached": summary.rows_reached,
        "verdict": summary.verdict.value,
        "exit_status": summary.exit_status,
        "reasons": list(summary.reasons),
    }


def _cell(result: CellResult) -> dict[str, Any]:
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


class _Pool:
    """Every text, and every list of texts, once; both are named by index."""

    def __init__(self, output_chars: int | None) -> None:
        self.texts: list[str] = []
        self.lists: list[list[int]] = []
        self._text_index: dict[str, int] = {}
        self._list_index: dict[tuple[str, ...], int] = {}
        self._output_chars = output_chars

    def text(self, text: str) -> int:
        index = self._text_index.get(text)
        if index is None:
            index = self._text_index[text] = len(self.texts)
            self.texts.append(text)
        return index

    def output(self, text: str) -> int:
        return self.text(text if self._output_chars is None else shorten(text, self._output_chars))

    def list(self, items: Iterable[str]) -> int:
        key = tuple(items)
        index = self._list_index.get(key)
        if index is None:
            index = self._list_index[key] = len(self.lists)
            self.lists.append([self.text(item) for item in key])
        return index


def _cell_detail(result: CellResult, pool: _Pool) -> dict[str, Any]:
    expect = result.cell.expect
    return {
        "expect": {"row": expect.row, "resumes": expect.resumes, "code": expect.code},
        "points_reached": pool.list(sorted(result.points_reached)),
        "rows_reached": pool.list(sorted(result.rows_reached)),
        "kept_at": result.kept_at,
        "story": [
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
            for chapter in result.story
        ],
    }


def read_document(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The JSON object in a result file. Raises OSError, or ResultFileError where it is not schema 1."""
    try:
        document = json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise ResultFileError(f"{os.fspath(path)} is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA or "cells" not in document:
        raise ResultFileError(f"{os.fspath(path)} is no result file of schema {SCHEMA} (killmatrix run --json)")
    return document


def read_run(path: str | os.PathLike[str]) -> Run:
    """The run that :func:`write_json` wrote. Without ``detail`` it has no stories, and the points are those of its cells.

    Raises OSError, or ResultFileError.
    """
    document = read_document(path)
    try:
        return _run(document)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ResultFileError(f"{os.fspath(path)} is damaged: {type(error).__name__}: {error}") from error


def _run(document: Mapping[str, Any]) -> Run:
    cells, detail = document["cells"], document.get("detail", {})
    lists = [tuple(detail["texts"][index] for index in indexes) for indexes in detail.get("lists", ())]
    details = detail.get("cells", [{}] * len(cells))
    names = dict.fromkeys(step["point"] for cell in cells for step in cell["steps"])
    points = detail.get("points", [{"name": name, "says": "", "spec": ""} for name in names])
    return Run(
        run_id=document["run_id"],
        started_at=document["started_at"],
        duration_s=document["duration_s"],
        jobs=document["jobs"],
        spawn=document["spawn"],
        host=document["host"],
        planned=document.get("planned", len(cells)),
        results=tuple(_result(cell, more, detail, lists) for cell, more in zip(cells, details, strict=True)),
        points=tuple(DeclaredPoint(p["name"], p["says"], p["spec"]) for p in points),
        listed_points=frozenset(detail.get("listed_points", names)),
        listed_rows=frozenset(detail.get("listed_rows", ())),
        whole=detail.get("whole", True),
        interrupted=document.get("interrupted", False),
        notes=tuple(document.get("notes", ())),
    )


def _result(
    cell: Mapping[str, Any], more: Mapping[str, Any], detail: Mapping[str, Any], lists: list[tuple[str, ...]]
) -> CellResult:
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
        points_reached=frozenset(lists[more["points_reached"]]) if "points_reached" in more else fired,
        story=tuple(_chapter(chapter, detail["texts"], lists) for chapter in more.get("story", ())),
        duration_s=cell["duration_ms"] / 1000,
        kept_at=more.get("kept_at"),
        rows_reached=frozenset(lists[more["rows_reached"]]) if "rows_reached" in more else frozenset(),
    )


def _chapter(chapter: Mapping[str, Any], texts: list[str], lists: list[tuple[str, ...]]) -> Chapter:
    return Chapter(
        title=texts[chapter["title"]],
        argv=lists[chapter["argv"]],
        pid=chapter["pid"],
        ended=texts[chapter["ended"]],
        points=lists[chapter["points"]],
        tree=lists[chapter["tree"]],
        stdout=texts[chapter["stdout"]],
        stderr=texts[chapter["stderr"]],
        duration_ms=chapter["duration_ms"],
    )
