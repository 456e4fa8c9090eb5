"""In a process under test: measures the lines and branches that it runs, and saves them before it ends.

Nothing of this happens without the variable ``KILLMATRIX_COVERAGE``, a JSON object: ``file``, the beginning of the name
of a file to save to, and ``include``, patterns of files to measure. Saved is ``FILE.PID``: a marshalled dict, path of a
source file: set of (from line, to line). Forked children and other Pythons that the program starts save their own.

Saved before a kill point ends or holds the process, at os._exit and at a normal end. Lost is what no code of the process
precedes: a signal from outside, one that the program sends to itself, and exec.

Standard library and coverage.py only: a fresh interpreter loads this file by its path.
"""

from __future__ import annotations

import atexit
import json
import marshal
import os
import sys
from types import SimpleNamespace
from typing import Any, NoReturn

VARIABLE = "KILLMATRIX_COVERAGE"
_HANDLE = "killmatrix_measure"  # a module in name only: what killpoints looks up and calls
_QUIET = [
    "no-data-collected",
    "module-not-imported",
    "module-not-measured",
    "trace-changed",
    "already-imported",
    "no-ctracer",
]


class _Measuring:
    """A measurement that can be stopped, and started again in a forked child, where it is that process's own."""

    def __init__(self, include: list[str]) -> None:
        import coverage

        # in memory, and without the project's settings: what is left out is the report's to decide, not each process's
        self._coverage: Any = coverage.Coverage(data_file=None, branch=True, include=include, config_file=False)
        self._coverage.set_option("run:disable_warnings", _QUIET)
        self._coverage.set_option(
            "run:core", "ctrace"
        )  # sys.monitoring, the default of 3.14, was never tried over a fork
        self._file = ""
        self._exit = os._exit
        atexit.register(self.end)  # before the program registers any: it is the last that runs

    def start(self, file: str) -> None:
        self._file = file
        os._exit = self._save_and_exit
        self._coverage.start()

    def save(self) -> None:
        """Write what was measured so far, whole or not at all. May be called again. Raises OSError."""
        data = self._coverage.get_data()
        arcs = {name: set(data.arcs(name) or ()) for name in data.measured_files()}
        path = f"{self._file}.{os.getpid()}"
        with open(f"{path}.new", "wb") as file:
            marshal.dump(arcs, file)
        os.replace(f"{path}.new", path)

    def end(self) -> None:
        """Stop and save; the process is as it was. (Coverage.py notices a fork, and forgets there what was before it.)"""
        if not self._file:
            return
        self._coverage.stop()
        os._exit = self._exit
        self.save()
        self._file = ""

    def _save_and_exit(self, status: int) -> NoReturn:
        try:
            self.save()
        except BaseException as error:  # the program has decided to end
            print(f"killmatrix: coverage is not saved: {error}", file=sys.stderr, flush=True)
        finally:
            self._exit(status)


_measuring: _Measuring | None = None


def begin(order: str) -> dict[str, str]:
    """Measure this process from here on; returns what :mod:`killpoints` has to find in its environment.

    ``order`` is the text of :data:`VARIABLE`. In a forked child of a process that was measured, what to include is as it
    was there: to start anew is much dearer than to go on. Raises ImportError without coverage.py.
    """
    global _measuring
    wanted = json.loads(order)
    if _measuring is None:
        _measuring = _Measuring(wanted["include"])
    _measuring.start(wanted["file"])
    sys.modules[_HANDLE] = SimpleNamespace(save=_measuring.save)  # type: ignore[assignment]
    return {"KILLPOINTS_BEFORE_END": f"{_HANDLE}:save"}


def end() -> None:
    """Stop measuring this process, and save. Raises OSError."""
    if _measuring is not None:
        _measuring.end()
