"""Which source files are measured: packages that matrix.yaml names, or those of the points and the programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path

from harness.matrix import Matrix, MatrixError


def find_sources(matrix: Matrix, project: Path) -> tuple[Path, ...]:
    """Files and directories. Without ``coverage.packages``: the top-level packages of the catalogue and of ``python -m``.

    Nothing is imported. Raises MatrixError for a package that is not there.
    """
    if matrix.coverage.packages:
        found = {name: _find(name, project) for name in matrix.coverage.packages}
        if missing := [name for name, path in found.items() if path is None]:
            raise MatrixError(
                f"coverage.packages: no package or module {name!r} is found from {project}" for name in missing
            )
    else:
        found = {name: _find(name, project) for name in dict.fromkeys(_names_by_default(matrix))}
    return tuple(path for path in found.values() if path is not None)


def list_files(sources: Iterable[Path]) -> Iterator[Path]:
    """Every Python file that they hold."""
    for source in sources:
        yield from sorted(source.rglob("*.py")) if source.is_dir() else (source,)


def as_patterns(sources: Iterable[Path]) -> list[str]:
    """What coverage.py takes as ``include``. A name with a wildcard in it would be a pattern: those become ``?``."""
    plain = ((str(path).translate({ord(c): "?" for c in "*?[]"}), path) for path in sources)
    return [f"{text}/*" if path.is_dir() else text for text, path in plain]


def _names_by_default(matrix: Matrix) -> Iterator[str]:
    for module in matrix.catalogue:
        yield module.partition(".")[0]
    for scenario in matrix.scenarios.values():
        for argv in (scenario.run, scenario.recover):
            if argv[:2] == ["python", "-m"] and len(argv) > 2:
                yield argv[2].partition(".")[0]


def _find(name: str, project: Path) -> Path | None:
    top, *rest = name.split(".")
    spec = PathFinder.find_spec(top, [str(project), *(path for path in sys.path if path)])
    if spec is None:
        return None
    places = spec.submodule_search_locations
    path = Path(next(iter(places))) if places else Path(spec.origin or "")
    for part in rest:
        path = path / part if (path / part).is_dir() else path / f"{part}.py"
    return path.resolve() if path.exists() else None
