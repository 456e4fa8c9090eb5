"""Which tests reach a line, and pytest plugins that look on and that run some tests only."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from coverage import Coverage, CoverageData

MEASURED = ("killpoints", "product", "harness")
CONFIG = """
[run]
data_file = {file}
parallel = true
context = ${{{context}-}}
source = {packages}
disable_warnings = no-data-collected, module-not-imported
"""
CONTEXT = "MUTATION_TEST"


class WhoReaches:
    """Measures each test by itself, the processes that it starts included, and how long it takes; into ``file``.

    A process that is killed tells nothing: what it alone reached, nobody is known to reach.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._durations_s = file, dict[str, float]()
        starts = file.with_suffix(".starts")
        starts.mkdir(exist_ok=True)
        (starts / "sitecustomize.py").write_text("import coverage\n\ncoverage.process_startup()\n")
        packages = ", ".join(name for name in MEASURED if Path(name).is_dir()) or "."
        config = starts / "coveragerc"
        config.write_text(CONFIG.format(file=file, context=CONTEXT, packages=packages))
        os.environ["COVERAGE_PROCESS_START"] = str(config)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(starts), os.environ.get("PYTHONPATH"))))
        self._config = str(config)
        self._coverage = Coverage(config_file=self._config)

    def pytest_sessionstart(self) -> None:
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        os.environ[CONTEXT] = item.nodeid
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._durations_s[report.nodeid] = self._durations_s.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        everybody = Coverage(config_file=self._config)
        everybody.combine()
        everybody.save()
        self._file.with_suffix(".durations").write_text(json.dumps(self._durations_s))


@dataclass(frozen=True)
class Reached:
    """What WhoReaches wrote."""

    data: CoverageData
    durations_s: dict[str, float]

    @classmethod
    def load(cls, file: Path) -> Reached:
        data = CoverageData(str(file))
        data.read()
        return cls(data, json.loads(file.with_suffix(".durations").read_text()))

    def tests_of(self, module: Path, first: int, last: int) -> list[str]:
        """The node ids of the tests that reach one of these lines; none for what an import runs.

        Who reaches most of them comes first (into the ``if``, and not past it), and of those the fastest.
        """
        contexts = self.data.contexts_by_lineno(str(module))
        lines = Counter(test for line in range(first, last + 1) for test in contexts.get(line, ()))
        if "" in lines:
            return []
        return sorted(lines, key=lambda test: (-lines[test], self.durations_s.get(test, 0.0), test))

    def duration_s(self, tests: Collection[str]) -> float:
        """All of them one after the other, measured while they were looked on."""
        return sum(self.durations_s.get(test, 0.0) for test in tests)


class SomeTests:
    """Runs the tests of these node ids in their order; with ``others`` all but them. ``failed`` gets the id of one."""

    def __init__(self, tests: Collection[str], failed: Path, *, others: bool = False) -> None:
        self._places, self._failed, self._others = {test: place for place, test in enumerate(tests)}, failed, others

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._others:
            items[:] = [item for item in items if item.nodeid not in self._places]
        else:
            items[:] = sorted(
                (item for item in items if item.nodeid in self._places), key=lambda item: self._places[item.nodeid]
            )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.write_text(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:  # all of them have run before
            session.exitstatus = pytest.ExitCode.OK
