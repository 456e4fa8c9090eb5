"""Code coverage in every report: what is said about it in words, and as JSON (harness.md, "Result file"). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harness.model import Coverage, FileCoverage, Gap

SAYS = (
    "What the processes of this run ran of the code under test, those included that were killed. "
    "A process that was ended from outside, by its timeout for example, left nothing to count."
)


def total(coverage: Coverage) -> FileCoverage:
    """All files as one, without its lines and gaps."""
    sums = {
        name: sum(getattr(file, name) for file in coverage.files)
        for name in ("lines", "lines_run", "branches", "branches_run")
    }
    return FileCoverage("total", only_killed=(), gaps=(), **sums)


def percent(file: FileCoverage) -> float:
    """Of lines and branches together, as coverage.py counts; 100 only where everything was run."""
    all_of_it, run = file.lines + file.branches, file.lines_run + file.branches_run
    return 100.0 if run == all_of_it else min(round(100 * run / all_of_it, 1), 99.9)


def by_unexplained(coverage: Coverage) -> list[FileCoverage]:
    """Files with gaps that nobody explains, the most of them first."""
    return sorted((file for file in coverage.files if file.unexplained), key=lambda file: -len(file.unexplained))


def place(gap: Gap) -> str:
    """``12``, ``12-15``, or for a way ``12 to 20`` (``12 to the end``)."""
    if gap.to is not None:
        return f"{gap.line} to {gap.to or 'the end'}"
    return str(gap.line) if gap.line == gap.last else f"{gap.line}-{gap.last}"


def ranges(lines: Iterable[int]) -> str:
    """Sorted numbers of lines as ``3-5, 9``."""
    spans: list[list[int]] = []
    for line in lines:
        if spans and line == spans[-1][1] + 1:
            spans[-1][1] = line
        else:
            spans.append([line, line])
    return ", ".join(f"{first}-{last}" if first != last else str(first) for first, last in spans)


def summary_line(coverage: Coverage) -> str:
    """One line for people."""
    whole = total(coverage)
    gaps = [gap for file in coverage.files for gap in file.gaps]
    explained = sum(gap.why is not None for gap in gaps)
    return (
        f"coverage {percent(whole):.1f}%: {whole.lines_run:,} of {whole.lines:,} lines, "
        f"{whole.branches_run:,} of {whole.branches:,} branches; "
        f"{sum(len(file.only_killed) for file in coverage.files):,} lines ran only in processes that were killed; "
        f"{len(gaps):,} gaps, {explained:,} of them explained; "
        f"{coverage.silent:,} of {coverage.processes:,} processes left nothing"
    )


def encode_coverage(coverage: Coverage) -> dict[str, Any]:
    whole = total(coverage)
    return {
        "processes": coverage.processes,
        "silent": coverage.silent,
        "data_file": coverage.data_file,
        "problems": list(coverage.problems),
        "percent": percent(whole),
        **{name: getattr(whole, name) for name in ("lines", "lines_run", "branches", "branches_run")},
        "files": [_encode_file(file) for file in coverage.files],
    }


def _encode_file(file: FileCoverage) -> dict[str, Any]:
    return {
        "path": file.path,
        "percent": percent(file),
        "lines": file.lines,
        "lines_run": file.lines_run,
        "branches": file.branches,
        "branches_run": file.branches_run,
        "only_killed": list(file.only_killed),
        "gaps": [{"line": g.line, "last": g.last, "to": g.to, "name": g.name, "why": g.why} for g in file.gaps],
    }


def decode_coverage(document: Mapping[str, Any]) -> Coverage:
    """Raises KeyError or TypeError."""
    return Coverage(
        files=tuple(map(_decode_file, document["files"])),
        processes=document["processes"],
        silent=document["silent"],
        data_file=document["data_file"],
        problems=tuple(document["problems"]),
    )


def _decode_file(item: Mapping[str, Any]) -> FileCoverage:
    return FileCoverage(
        path=item["path"],
        lines=item["lines"],
        lines_run=item["lines_run"],
        branches=item["branches"],
        branches_run=item["branches_run"],
        only_killed=tuple(item["only_killed"]),
        gaps=tuple(Gap(g["line"], g["last"], g["to"], g["name"], g["why"]) for g in item["gaps"]),
    )
