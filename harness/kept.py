"""What ``--keep DIR`` keeps of each cell beside its sandbox: its whole history, to be judged again without running anything.

    DIR/result.json             the result file of the run: which cells there are, and what was found
    DIR/history/cells/<id>      one cell: the SHA-256 of all that follows the first line, then JSON
    DIR/history/blobs/ab/<id>   bytes by their SHA-256: files, what processes printed, and trees, whose JSON names files

Many cells share nearly all of their files and trees; each is there once. Nothing that is read is trusted unhashed.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from harness.judge.scenario import Moment
from harness.judge.tree import Entry, Tree
from harness.model import ProcessResult, Record, Verdict

RESULT_FILE = "result.json"


class KeptError(ValueError):
    """What was kept of a cell is missing or damaged; the message says what."""


@dataclass(frozen=True, slots=True)
class KeptStory:
    """``worst``, ``why``: what kept it from being a pass before anything was judged (see :class:`harness.conduct.Story`)."""

    moments: tuple[Moment, ...]
    worst: Verdict | None
    why: str


def keep_history(directory: Path, cell: str, moments: Sequence[Moment], worst: Verdict | None, why: str) -> None:
    """Write the history of a cell. Any number of threads may keep cells in one directory. Raises OSError."""
    blobs = _Blobs(directory / "history" / "blobs")
    told = {
        "cell": cell,
        "worst": None if worst is None else worst.value,
        "why": why,
        "moments": [
            {"role": moment.role, "tree": blobs.put_tree(moment.tree), "result": _put_result(moment.result, blobs)}
            for moment in moments
        ],
    }
    data = json.dumps(told).encode("ascii")
    _write(_cell_file(directory, cell), f"{_sha256(data)}\n".encode() + data)


def read_history(directory: Path, cell: str) -> KeptStory:
    """Raises KeptError."""
    path = _cell_file(directory, cell)
    blobs = _Blobs(directory / "history" / "blobs")
    try:
        digest, _, data = path.read_bytes().partition(b"\n")
        if _sha256(data) != digest.decode("ascii", "replace"):
            raise KeptError(f"the kept history is damaged: {path}")
        told = json.loads(data)
        if told["cell"] != cell:
            raise KeptError(f"the kept history is that of another cell: {path}")
        return KeptStory(
            tuple(
                Moment(moment["role"], blobs.tree(moment["tree"]), _result(moment["result"], blobs))
                for moment in told["moments"]
            ),
            None if told["worst"] is None else Verdict(told["worst"]),
            told["why"],
        )
    except FileNotFoundError as error:
        raise KeptError(f"kept history: there is no {error.filename}") from error
    except OSError as error:
        raise KeptError(f"kept history: {error.filename}: {error.strerror}") from error


def _cell_file(directory: Path, cell: str) -> Path:
    return directory / "history" / "cells" / _sha256(os.fsencode(cell))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    aside.write_bytes(data)
    aside.replace(path)


class _Blobs:
    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, data: bytes) -> str:
        digest = _sha256(data)
        path = self._path(digest)
        if not path.exists():
            _write(path, data)
        return digest

    def get(self, digest: str) -> bytes:
        """Raises KeptError, OSError."""
        return _read_blob(self._path(digest))

    def put_tree(self, tree: Tree) -> str:
        index = [
            [path, entry.kind, entry.mode, self.put(entry.data), *entry.inode, entry.links]
            for path, entry in tree.entries.items()
        ]
        return self.put(json.dumps(index).encode("ascii"))

    def tree(self, digest: str) -> Tree:
        """Raises KeptError, OSError."""
        return _read_tree(self, digest)

    def _path(self, digest: str) -> Path:
        return self._root / digest[:2] / digest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Blobs) and self._root == other._root

    def __hash__(self) -> int:
        return hash(self._root)


@lru_cache(maxsize=256)
def _read_blob(path: Path) -> bytes:
    data = path.read_bytes()
    if _sha256(data) != path.name:
        raise KeptError(f"the kept history is damaged: {path}")
    return data


@lru_cache(maxsize=64)
def _read_tree(blobs: _Blobs, digest: str) -> Tree:
    return Tree(
        {
            path: Entry(kind, mode, blobs.get(data), (device, inode), links)
            for path, kind, mode, data, device, inode, links in json.loads(blobs.get(digest))
        }
    )


def _put_result(result: ProcessResult | None, blobs: _Blobs) -> dict[str, Any] | None:
    if result is None:
        return None
    return {
        "argv": result.argv,
        "pid": result.pid,
        "exit_code": result.exit_code,
        "signal_number": result.signal_number,
        "stdout": blobs.put(result.stdout),
        "stderr": blobs.put(result.stderr),
        "records": [[record.kind, record.point, record.hit, record.pid] for record in result.records],
        "timed_out": result.timed_out,
        "duration_s": result.duration_s,
    }


def _result(told: dict[str, Any] | None, blobs: _Blobs) -> ProcessResult | None:
    if told is None:
        return None
    return ProcessResult(
        argv=tuple(told["argv"]),
        pid=told["pid"],
        exit_code=told["exit_code"],
        signal_number=told["signal_number"],
        stdout=blobs.get(told["stdout"]),
        stderr=blobs.get(told["stderr"]),
        records=tuple(Record(*record) for record in told["records"]),
        timed_out=told["timed_out"],
        duration_s=told["duration_s"],
    )
