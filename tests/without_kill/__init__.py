"""The suite with the kill removed: ``make test-without-kill``, or ``pytest -p tests.without_kill``.

A test that rests on a kill and passes without it would pass whatever the program does. So in every process of the suite
killpoints' kill writes "due" to a file and does nothing else (site/sitecustomize.py), and this plugin holds each test
against it: one in which a kill was due, and each cell whose set-up or fault is a kill, must not pass. What may, is in
:data:`REASONS`. Kills that a test does by other means (``Popen.kill``) stay.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import tempfile
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
from hypothesis import Phase, settings

from tests.without_kill.site import sitecustomize

_PROPERTY = "without-kill"
REASONS = {  # glob of node ids -> why it passes all the same
    "tests/harness/test_runner.py::test_ctrl_c_in_the_middle": "what ends is the harness, whatever its cells found",
    "tests/harness/test_cluster.py::test_ctrl_c": "what ends is the run, whatever its cells found",
    "tests/harness/test_cluster.py::test_the_scheduler_is_lost_in_the_middle": "what ends is the scheduler, by our hand",
    "tests/harness/test_engine.py::test_nothing_is_left_of_a_cell": "it looks for what is left, whatever was found",
    "tests/harness/test_resume.py::test_processes_of_another_kind_do_not_go_on": "it is refused before any cell runs",
    "tests/harness/test_store.py::test_ten_thousand_results_do_not_fill_the_memory": "one result, whatever it says, is "
    "handed in many times",
    "tests/harness/test_spawn_lifetime.py::test_nothing_outlives_a_harness_that_is_killed[[]*": "a process that is held "
    "would end itself when nobody is there to let it go on; its server ends it as well, and may come first",
}


class WithoutKill:
    """Collects what was due in each test; the controller (or the only process) judges at the end."""

    def __init__(self, config: pytest.Config, notes_fd: int) -> None:
        self._is_worker, self._notes_fd, self._read = hasattr(config, "workerinput"), notes_fd, 0
        self._rests: dict[str, set[str]] = {}
        self._outcomes: dict[str, set[str]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        words = self._new_notes() | ({"due"} if rests_on_kill(item) else set())
        report.user_properties = [*report.user_properties, *((_PROPERTY, word) for word in sorted(words))]
        return report

    def _new_notes(self, read: Callable[[int, int, int], bytes] = os.pread) -> set[str]:
        """Read by the real call: the test may have a fake file system in place of ours."""
        data = read(self._notes_fd, 1 << 20, self._read)
        self._read += len(data)
        return set(data.decode().split())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        words = {str(value) for name, value in report.user_properties if name == _PROPERTY}
        self._rests.setdefault(report.nodeid, set()).update(words)
        self._outcomes.setdefault(report.nodeid, set()).add(f"{report.when} {report.outcome}")

    def complaints(self) -> Iterator[str]:
        """One line for each thing that is not as it must be."""
        due = {node for node, words in self._rests.items() if "due" in words}
        if not due:
            yield "no kill was due in any test: nothing was shown"
        excused = {node for node in due if any(fnmatch.fnmatchcase(node, glob) for glob in REASONS)}
        passed = {node for node in due if self._has_passed(node)}
        yield from (f"passes without its kill: {node}" for node in sorted(passed - excused))
        for glob in REASONS:
            named = {node for node in self._outcomes if fnmatch.fnmatchcase(node, glob)}
            if named and not named & passed:
                yield f"has a reason to pass without its kill, and does not: {glob}"

    def _has_passed(self, node: str) -> bool:
        return "call passed" in self._outcomes[node] and not any("failed" in o for o in self._outcomes[node])

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        ended = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if ended and not self._is_worker:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED if [*self.complaints()] else pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        due = [node for node, words in self._rests.items() if "due" in words]
        armed = [n for n, words in self._rests.items() if words == {"armed"} and self._has_passed(n)]
        terminalreporter.section("without the kill")
        for node in armed:
            terminalreporter.line(f"armed and never due: {node}")
        for line in self.complaints():
            terminalreporter.line(line)
        terminalreporter.line(f"a kill was due in {len(due)} tests and cells; excused: {len(REASONS)}")


def rests_on_kill(item: pytest.Item) -> bool:
    """A cell with a kill in one of its steps, or in the set-up that it starts from."""
    from harness.plugin import CellItem, MatrixFile

    if not isinstance(item, CellItem) or not isinstance(item.parent, MatrixFile) or item.parent.project is None:
        return False
    prepare = item.parent.project.matrix.scenarios[item.cell.scenario].prepare
    faults = [step.fault for step in item.cell.steps] + [step.fault for step in prepare if step.fault]
    return any(fault == "kill" or fault.endswith("=kill") for fault in faults)


def pytest_configure(config: pytest.Config) -> None:
    settings.register_profile(
        "without-kill", phases=(Phase.explicit, Phase.generate)
    )  # no time for the smallest failure
    settings.load_profile("without-kill")
    stack = contextlib.ExitStack()
    directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="without-kill-"))
    os.environ[sitecustomize.NOTES] = notes = os.path.join(directory, "notes")
    notes_fd = os.open(notes, os.O_RDONLY | os.O_CREAT)
    stack.callback(os.close, notes_fd)
    sitecustomize.install()
    config.pluginmanager.register(WithoutKill(config, notes_fd), "without-kill")
    config.add_cleanup(stack.close)
