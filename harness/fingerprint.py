"""What a run was made of, as hashes: results of two runs belong together only where these are equal."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from harness.matrix import Matrix
from harness.model import DeclaredPoint

# what each hash is over, for people
MEANINGS: Mapping[str, str] = {
    "matrix": "matrix.yaml",
    "catalogue": "the declared points",
    "sources": "the project's Python sources",
    "harness": "killmatrix itself",
}
_NOT_SOURCES = frozenset({"__pycache__", "node_modules", "build", "dist"})


def fingerprint_project(root: Path, matrix: Matrix, points: Iterable[DeclaredPoint]) -> dict[str, str]:
    """Hashes by the names of :data:`MEANINGS`.

    ``sources`` is every ``*.py`` below the project's directory, but for hidden directories, virtual environments and
    build output. Code that a project imports from elsewhere is not seen. A comment in matrix.yaml changes nothing.
    """
    ours = Path(__file__).resolve().parents[1]
    return {
        "matrix": _hash([matrix.model_dump_json(by_alias=True).encode()]),
        "catalogue": _hash(f"{point.name}\0{point.says}\0{point.spec}".encode() for point in points),
        "sources": _hash(_sources(root, "")),
        "harness": _hash(part for package in ("harness", "killpoints") for part in _sources(ours / package, "")),
    }


def differing(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """What is not the same, in words; what only one of them knows counts as other."""
    return tuple(MEANINGS.get(name, name) for name in {**before, **after} if before.get(name) != after.get(name))


def _hash(parts: Iterable[bytes]) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(b"%d:" % len(part))
        total.update(part)
    return total.hexdigest()


def _sources(directory: Path, prefix: str) -> Iterator[bytes]:
    with os.scandir(directory) as found:
        items = sorted(found, key=lambda item: item.name)
    if any(item.name == "pyvenv.cfg" for item in items):
        return
    for item in items:
        if item.is_dir(follow_symlinks=False):
            if not (item.name.startswith(".") or item.name in _NOT_SOURCES or item.name.endswith(".egg-info")):
                yield from _sources(Path(item.path), f"{prefix}{item.name}/")
        elif item.name.endswith(".py") and item.is_file():
            yield os.fsencode(prefix + item.name)
            yield Path(item.path).read_bytes()
