"""What no process ran, by file and function, and whether the project explains it."""

from __future__ import annotations

import ast
import fnmatch
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.coverage.gather import Gathered
from harness.matrix import CoverageSpec
from harness.model import Coverage, FileCoverage, Gap


def examine(gathered: Gathered, spec: CoverageSpec, project: Path, data_file: Path, *, whole: bool) -> Coverage:
    """Read ``data_file``, which ``gathered`` wrote. Problems are looked for only where the run was ``whole``."""
    found = [
        _examine_file(path, document, spec.explained, project, gathered.only_killed(path))
        for path, document in _read(data_file).items()
    ]
    files = tuple(sorted((file for file in found if file.lines), key=lambda file: file.path))
    problems = tuple(_problems(files, spec)) if whole else ()
    return Coverage(files, gathered.processes, gathered.silent, str(data_file), problems)


def _read(data_file: Path) -> Mapping[str, Any]:
    """Path of a source file -> what coverage.py says about it in its JSON report."""
    import coverage

    reader = coverage.Coverage(data_file=str(data_file), branch=True, config_file=False)
    reader.load()
    with tempfile.TemporaryDirectory(prefix="killmatrix-coverage-") as scratch:
        report = Path(scratch, "report.json")
        try:
            reader.json_report(outfile=str(report), ignore_errors=True)
        except coverage.exceptions.NoDataError:
            return {}
        files: Mapping[str, Any] = json.loads(report.read_bytes())["files"]
    return {str(Path(path).absolute()): document for path, document in files.items()}


def _examine_file(
    path: str, document: Mapping[str, Any], explained: Mapping[str, Mapping[str, str]], project: Path, killed: set[int]
) -> FileCoverage:
    summary = document["summary"]
    name = Path(path).relative_to(project).as_posix() if Path(path).is_relative_to(project) else path
    reasons = explained.get(name, {})
    gaps = sorted(_gaps(Path(path).read_bytes(), document, reasons), key=lambda gap: (gap.line, gap.to or 0))
    return FileCoverage(
        path=name,
        lines=summary["num_statements"],
        lines_run=summary["covered_lines"],
        branches=summary["num_branches"],
        branches_run=summary["covered_branches"],
        only_killed=tuple(sorted(killed.intersection(document["executed_lines"]))),
        gaps=tuple(gaps),
    )


def _gaps(source: bytes, document: Mapping[str, Any], reasons: Mapping[str, str]) -> Iterator[Gap]:
    """A gap for each run of lines of one function that nobody ran, and for each way between lines that were run."""
    text, scopes = source.decode(errors="replace").splitlines(), list(_scopes(ast.parse(source)))

    def scope(line: int) -> str:
        """The innermost function or class that has the line in its body."""
        return next((name for first, last, name in reversed(scopes) if first <= line <= last), "module")

    def gap(line: int, last: int, to: int | None) -> Gap:
        name = f"{scope(line)}: {text[line - 1].strip()}"
        if to is not None:
            name += f" -> {text[to - 1].strip() if to else 'end'}"
        return Gap(line, last, to, name, next((why for key, why in reasons.items() if _is_about(key, name)), None))

    missing = set(document["missing_lines"])
    group: list[int] = []
    for line in sorted(missing.union(document["executed_lines"])):
        if group and (line not in missing or scope(line) != scope(group[0])):
            yield gap(group[0], group[-1], None)
            group = []
        if line in missing:
            group.append(line)
    if group:
        yield gap(group[0], group[-1], None)
    for start, to in document["missing_branches"]:
        if start not in missing and to not in missing:
            yield gap(start, start, max(to, 0))


def _scopes(tree: ast.AST, prefix: str = "") -> Iterator[tuple[int, int, str]]:
    """(first line of the body, last line, qualified name) of every function and class, outer ones first."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.body[0].lineno, node.end_lineno or node.lineno, f"{prefix}{node.name}"
            yield from _scopes(node, f"{prefix}{node.name}.")
        else:
            yield from _scopes(node, prefix)


def _is_about(key: str, name: str) -> bool:
    """``key`` is the gap's name, or a glob that matches it: names hold brackets and stars of their own."""
    return key == name or fnmatch.fnmatchcase(name, key)


def _problems(files: Sequence[FileCoverage], spec: CoverageSpec) -> Iterator[str]:
    """Gaps without a reason where everything is to be reached, and reasons for what is no gap (any more)."""
    if not files:
        yield "coverage: nothing was measured; name the packages in coverage.packages of matrix.yaml"
    for file in files:
        if any(fnmatch.fnmatchcase(file.path, glob) for glob in spec.complete):
            for gap in file.unexplained:
                yield f"coverage: no process reached {file.path}:{gap.line} ({gap.name}), and matrix.yaml gives no reason"
    gaps = {file.path: [gap.name for gap in file.gaps] for file in files}
    for path, reasons in spec.explained.items():
        for key in reasons:
            if not any(_is_about(key, name) for name in gaps.get(path, ())):
                yield f"coverage: {path} ({key}) is explained in matrix.yaml as not reached, and it is, or is not there"
    for glob in spec.complete:
        if not any(fnmatch.fnmatchcase(file.path, glob) for file in files):
            yield f"coverage.complete: {glob} matches no file that was measured"
