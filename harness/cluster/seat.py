"""One engine in a process of its own: ``python -m harness.cluster.seat``, talked to by :mod:`harness.cluster.pool`.

It lives as long as its standard input is open, so no longer than the Dask worker that started it. First comes an order:
what to run, and what that was made of on the side of the run. Where this is something else here, nothing is run.
"""

from __future__ import annotations

import os
import pickle
import platform
import queue
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

from harness.fingerprint import differing, fingerprint_project
from harness.matrix import Matrix, MatrixError, read_catalogue
from harness.model import DeclaredPoint
from harness.runner import Project, SpawnKind, open_engine
from harness.sandbox import remove_tree, session_directory

GRACE_S = 5.0


def make_order(project: Project, spawn: SpawnKind) -> bytes:
    """What :mod:`harness.cluster.pool` hands to a new engine before any cell."""
    fingerprints = _describe(project.root, project.matrix, project.points)
    return pickle.dumps((fingerprints, pickle.dumps((project, spawn))))


def accept_order(order: bytes) -> tuple[Project, SpawnKind]:
    """Raises MatrixError where a cell would not be the same cell here as there."""
    theirs, packed = pickle.loads(order)
    try:
        project, spawn = pickle.loads(packed)
        points = read_catalogue(project.matrix.catalogue, project.root)
        ours = _describe(project.root, project.matrix, points)
    except MatrixError:
        raise
    except Exception as error:  # whatever comes of bytes that another version of the code has written
        raise MatrixError([f"the run's killmatrix is not the one here: {type(error).__name__}: {error}"]) from error
    if other := differing(theirs, ours):
        raise MatrixError([f"not the same here as in the run: {', '.join(other)} ({project.root}, {sys.executable})"])
    return project, spawn


def _describe(root: Path, matrix: Matrix, points: tuple[DeclaredPoint, ...]) -> dict[str, str]:
    """As of a run, and what one machine's runs have in common anyway; a name without a meaning is one in words."""
    machine = {"Python's version": platform.python_version(), "the operating system": sys.platform}
    return {**fingerprint_project(root, matrix, points), **machine}


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer each request until they end, which may be in the middle of a cell: its processes are ended then."""
    try:
        project, spawn = accept_order(pickle.load(requests))
    except MatrixError as error:
        _send(answers, str(error).encode())
        return
    due: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    with session_directory() as place, open_engine(project, spawn, place / "worker-0") as engine:

        def end(*_: object) -> None:
            engine.abandon()
            due.put(None)

        signal.signal(signal.SIGTERM, end)
        threading.Thread(target=_listen, args=(requests, due.put, end, place), daemon=True).start()
        _send(answers, b"")
        while (request := due.get()) is not None:
            _send(answers, pickle.dumps(engine.run_cell(pickle.loads(request))))


def _listen(requests: IO[bytes], put: Callable[[bytes], None], end: Callable[[], None], place: Path) -> None:
    try:
        while True:
            put(pickle.load(requests))
    except (EOFError, OSError, pickle.UnpicklingError):
        end()
    threading.main_thread().join(GRACE_S)
    remove_tree(place)  # still here: a judge that does not come back, and nobody is left who could end it
    os._exit(1)


def _send(answers: IO[bytes], answer: bytes) -> None:
    try:
        pickle.dump(answer, answers)
        answers.flush()
    except BrokenPipeError:  # nobody is there any more; the end of the requests tells it too
        pass


def main() -> None:
    """Judges neither read requests nor print into answers: stdin and stdout are something else for them."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    serve(requests, answers)


if __name__ == "__main__":
    main()
