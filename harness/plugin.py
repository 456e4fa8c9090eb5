"""The pytest plugin: every cell of a matrix.yaml is one node, ``matrix.yaml::SCENARIO/POINT#HIT=FAULT``.

``-k``, ``--lf``, ``-x``, JUnit and ``pytest -n auto`` work on cells. Each worker has one warm server, opened with its
first cell; what the cells found travels to the controller, which writes one report. Until a matrix.yaml is collected
nothing of the harness is imported.
"""

from __future__ import annotations

import contextlib
import pickle
from base64 import b64decode, b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.engine import Engine
    from harness.model import Cell, CellResult, Run
    from harness.runner import Project

_SECTION = "killmatrix"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("killmatrix", "kill matrix")
    group.addoption("--killmatrix-html", metavar="FILE", help="write the report of all cells to FILE")
    group.addoption("--killmatrix-json", metavar="FILE", help="write the result file of all cells to FILE")
    group.addoption("--killmatrix-spawn", choices=("fork", "exec"), help="warm forks, or fresh interpreters")
    group.addoption("--no-killmatrix", action="store_true", help="do not collect matrix.yaml")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Collected(config), "killmatrix-collected")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.name == "matrix.yaml" and not parent.config.getoption("no_killmatrix"):
        return MatrixFile.from_parent(parent, path=file_path)
    return None


class MatrixFile(pytest.File):
    """One matrix.yaml. The gate is checked while collecting: a matrix that does not pass it is an error, not empty."""

    project: Project | None = None
    _engine: Engine | None = None
    _stack: contextlib.ExitStack | None = None

    def collect(self) -> Iterator[pytest.Item]:
        from harness.matrix import MatrixError
        from harness.plan import plan_cells
        from harness.runner import open_project

        try:
            self.project = open_project(self.path)
        except MatrixError as error:
            raise self.CollectError(str(error)) from error
        for cell in plan_cells(self.project.matrix):
            yield CellItem.from_parent(self, name=str(cell), cell=cell)

    def engine(self) -> Engine:
        """This worker's engine, opened with its first cell."""
        if self._engine is None:
            from harness.runner import default_spawn, open_engine
            from harness.sandbox import session_directory

            assert self.project is not None
            self._stack = contextlib.ExitStack()
            root = self._stack.enter_context(session_directory())
            spawn = self.config.getoption("killmatrix_spawn") or default_spawn()
            self._engine = self._stack.enter_context(open_engine(self.project, spawn, root / "cells"))
            self.session.addfinalizer(self.close)
        return self._engine

    def close(self) -> None:
        if self._stack is not None:
            self._stack.close()
            self._stack = self._engine = None


class CellItem(pytest.Item):
    """One cell."""

    def __init__(self, *, cell: Cell, **rest: Any) -> None:
        super().__init__(**rest)
        self.cell = cell
        self.result: CellResult | None = None

    def runtest(self) -> None:
        from harness.model import Verdict

        assert isinstance(self.parent, MatrixFile)
        self.result = self.parent.engine().run_cell(self.cell)
        # strings only: this is what xdist carries to the controller
        self.user_properties.append((_SECTION, b64encode(pickle.dumps(self.result)).decode()))
        if self.result.verdict is not Verdict.PASS:
            raise CellFailed(self.result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, CellFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        # not the bare name: pytest would print the dots of that as ::, and nobody could run what it prints
        return self.path, None, f"cell {self.name}"


class CellFailed(Exception):
    """A cell that did not pass; its text is what a developer needs to go on."""

    def __init__(self, result: CellResult) -> None:
        from harness.report.story import story_lines

        super().__init__("\n".join(story_lines(result)))


class _Collected:
    """In the controller, or in a run without workers: gathers the results of all cells and writes the reports."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._is_worker = hasattr(config, "workerinput")
        self._results: dict[str, CellResult] = {}
        self._planned: set[str] = set()
        self._matrix: Path | None = None
        self._started: float | None = None
        self._complaints: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        import time

        self._started = time.time()
        for item in session.items:
            if isinstance(item, CellItem):
                self._planned.add(item.nodeid)
                self._matrix = item.path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._is_worker or report.when != "call":
            return
        for name, value in report.user_properties:
            if name == _SECTION:
                self._results[report.nodeid] = pickle.loads(b64decode(str(value)))
        report.user_properties[:] = [item for item in report.user_properties if item[0] != _SECTION]

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        found = [name for name in ids if "matrix.yaml::" in name]
        self._planned.update(found)
        if found and self._matrix is None:
            self._matrix = Path(self._config.rootpath, found[0].partition("::")[0])

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        html, json_file = self._config.getoption("killmatrix_html"), self._config.getoption("killmatrix_json")
        if self._is_worker or not (html or json_file):
            return
        if self._matrix is None:
            raise pytest.UsageError("--killmatrix-html and --killmatrix-json need cells; no matrix.yaml was collected")
        from harness.report import html as html_report
        from harness.report import json_result

        run = self._as_run(self._matrix)
        if html:
            html_report.write_html(run, html)
        if json_file:
            json_result.write_json(run, json_file)
        self._hold_against(run, session)

    def _hold_against(self, run: Run, session: pytest.Session) -> None:
        """Nodes that passed and a run that is no pass: something got lost on its way here."""
        from harness.report.tally import headline, summarize

        summary = summarize(run)
        if summary.exit_status and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            self._complaints = [headline(summary), *summary.reasons]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for line in self._complaints:
            terminalreporter.line(f"killmatrix: {line}", red=True)

    def _as_run(self, matrix: Path) -> Run:
        import time
        from datetime import UTC, datetime

        from harness.model import Run
        from harness.runner import default_spawn, describe_host, open_project

        project = open_project(matrix)
        started = self._started or time.time()
        # a worker that was lost has no result for its cell: planned tells, and the run does not pass
        return Run(
            run_id=f"{datetime.fromtimestamp(started, UTC):%Y%m%dT%H%M%SZ}-pytest",
            started_at=datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds"),
            duration_s=time.time() - started,
            jobs=int(getattr(self._config.option, "numprocesses", None) or 1),
            spawn=self._config.getoption("killmatrix_spawn") or default_spawn(),
            host=describe_host(),
            planned=len(self._planned),
            results=tuple(self._results[name] for name in sorted(self._results)),
            points=project.points,
            listed_points=frozenset(project.matrix.points),
            listed_rows=frozenset(project.matrix.rows),
            whole=False,
        )
