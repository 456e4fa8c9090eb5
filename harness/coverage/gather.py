"""Collects what each process under test saved of itself, as soon as it has ended, and writes one file of it in the end.

Bounded by the size of the source, not by the number of processes: of each way from line to line it keeps who took it
first, up to a number of processes that were killed and as many that were not.
"""

from __future__ import annotations

import json
import marshal
import threading
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Literal

from harness.model import Command, ProcessResult, Record
from harness.spawn import RunningProcess, Spawner, open_spawner
from harness.spawn.measure import VARIABLE

CONTEXTS_MAX = 8  # for each way: processes that were killed, and again as many of all others
WARM_UP = "warm-up"  # what was imported once, by the servers that processes are forked from

Arc = tuple[int, int]  # from line to line; a negative number enters or leaves a function


@dataclass(slots=True)
class _Share:
    """What processes of one kind ran. ``full``: file -> the ways that have contexts enough."""

    contexts: dict[str, dict[Arc, list[str]]]
    full: dict[str, set[Arc]]

    def add(self, file: str, arcs: Set[Arc], context: str) -> None:
        known, full = self.contexts.setdefault(file, {}), self.full.setdefault(file, set())
        for arc in arcs - full:
            takers = known.setdefault(arc, [])
            takers.append(context)
            if len(takers) == CONTEXTS_MAX:
                full.add(arc)

    def lines(self, file: str) -> set[int]:
        return {line for arc in self.contexts.get(file, ()) for line in arc if line > 0}


class Gathered:
    """What all processes of a run ran. For any number of threads."""

    def __init__(self) -> None:
        self.processes = self.silent = 0
        self._killed, self._ended = _Share({}, {}), _Share({}, {})
        self._lock = threading.Lock()

    def count(self, left_something: bool) -> None:
        with self._lock:
            self.processes += 1
            self.silent += not left_something

    def add(self, arcs: Mapping[str, Set[Arc]], context: str, *, killed: bool) -> None:
        share = self._killed if killed else self._ended
        with self._lock:
            for file, ways in arcs.items():
                share.add(file, ways, context)

    def only_killed(self, file: str) -> set[int]:
        """Lines of ``file`` that processes ran which were killed, and no others."""
        return self._killed.lines(file) - self._ended.lines(file)

    def write(self, data_file: Path, files: Sequence[str]) -> None:
        """Write it as coverage.py does, in place of what was there; all of ``files`` are in it. Raises OSError."""
        from coverage import CoverageData

        aside = data_file.with_name(f"{data_file.name}.new")
        data = CoverageData(basename=str(aside))
        data.erase()
        by_context: dict[str, dict[str, list[Arc]]] = {}
        for file, arc, context in self._all():
            by_context.setdefault(context, {}).setdefault(file, []).append(arc)
        for context, arcs in by_context.items():
            data.set_context(context)
            data.add_arcs(arcs)
        if by_context:
            data.touch_files(sorted(set(files) - data.measured_files()))
        data.write()
        data.close(force=True)
        if aside.exists():
            aside.replace(data_file)

    def _all(self) -> Iterator[tuple[str, Arc, str]]:
        for share in (self._killed, self._ended):
            for file, known in share.contexts.items():
                for arc, contexts in known.items():
                    for context in contexts:
                        yield file, arc, context


class MeasuringSpawner:
    """A :class:`harness.spawn.Spawner` whose processes save what they ran in ``directory``, which it empties."""

    def __init__(
        self, kind: Literal["fork", "exec"], project: Path, directory: Path, include: Sequence[str], gathered: Gathered
    ) -> None:
        directory.mkdir()
        self._directory, self._include, self._gathered = directory, list(include), gathered
        self._count = 0
        self._spawner: Spawner = open_spawner(kind, project=project, measuring=self._order(WARM_UP))

    def start(self, command: Command) -> RunningProcess:
        self._count += 1
        name = str(self._count)
        env = {**command.env, VARIABLE: self._order(name)}
        running = self._spawner.start(replace(command, env=env))
        return _MeasuredProcess(self, running, name, command.context)

    def collect(self, name: str, context: str, result: ProcessResult | None) -> None:
        """Take in what the process left, and what its children left."""
        found = [arcs for path in self._directory.glob(f"{name}.*") if (arcs := _take(path)) is not None]
        killed = result is not None and result.signal_number is not None
        ended = f"|{result.died_by}" if result is not None and killed else ""
        for arcs in found:
            self._gathered.add(arcs, f"{context}{ended}", killed=killed)
        if result is not None:
            self._gathered.count(bool(found))

    def abandon(self) -> None:
        self._spawner.abandon()

    def close(self) -> None:
        self._spawner.close()
        self.collect(WARM_UP, WARM_UP, None)

    def _order(self, name: str) -> str:
        return json.dumps({"file": str(self._directory / name), "include": self._include})

    def __enter__(self) -> MeasuringSpawner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _MeasuredProcess:
    """See :class:`harness.spawn.RunningProcess`."""

    def __init__(self, spawner: MeasuringSpawner, running: RunningProcess, name: str, context: str) -> None:
        self._spawner, self._running, self._name, self._context = spawner, running, name, context
        self._collected = False

    @property
    def pid(self) -> int:
        return self._running.pid

    def wait_for_pause(self) -> Record | None:
        return self._running.wait_for_pause()

    def resume(self) -> None:
        self._running.resume()

    def kill(self) -> None:
        self._running.kill()

    def wait(self) -> ProcessResult:
        result = self._running.wait()
        if not self._collected:
            self._collected = True
            self._spawner.collect(self._name, self._context, result)
        return result


def _take(path: Path) -> dict[str, set[Arc]] | None:
    """Read and remove the file. None for one that is not whole: its process was ended from outside while it wrote."""
    try:
        arcs: dict[str, set[Arc]] = marshal.loads(path.read_bytes())
        return arcs
    except (ValueError, EOFError, TypeError):
        return None
    finally:
        path.unlink()
