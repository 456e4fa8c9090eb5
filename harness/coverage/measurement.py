"""One run's measurement: opened before anything runs, handed to every worker, finished into the run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from harness.coverage.gaps import examine
from harness.coverage.gather import Gathered, MeasuringSpawner
from harness.coverage.sources import as_patterns, find_sources, list_files
from harness.matrix import Matrix, MatrixError
from harness.model import Run

DATA_FILE = Path(".killmatrix", "coverage")  # below the project


class Measurement:
    """Measures the packages of ``matrix``. Raises MatrixError where one is not there, or coverage.py is not."""

    def __init__(self, matrix: Matrix, project: Path, data_file: Path | None = None) -> None:
        try:
            import coverage  # noqa: F401
        except ImportError as error:
            raise MatrixError(["--coverage needs coverage.py; pip install 'killmatrix[coverage]'"]) from error
        self._spec, self._project = matrix.coverage, project
        self._data_file = (data_file or project / DATA_FILE).absolute()
        self._sources = find_sources(matrix, project)
        self._gathered = Gathered()

    def open_spawner(self, kind: Literal["fork", "exec"], directory: Path) -> MeasuringSpawner:
        """A spawner for one worker; ``directory`` is made for what its processes save."""
        return MeasuringSpawner(kind, self._project, directory, as_patterns(self._sources), self._gathered)

    def finish(self, run: Run, *, partly: bool = False) -> Run:
        """Write the data file, which coverage.py reads, and put what it says into the run. Raises OSError.

        ``partly``: some of the run's cells ran where nothing was measured. What is missing is then no problem.
        """
        self._data_file.parent.mkdir(parents=True, exist_ok=True)
        self._gathered.write(self._data_file, [str(path) for path in list_files(self._sources)])
        whole = run.whole and not run.interrupted and not partly
        measured = examine(self._gathered, self._spec, self._project, self._data_file, whole=whole)
        return replace(run, coverage=measured, problems=(*run.problems, *measured.problems))
