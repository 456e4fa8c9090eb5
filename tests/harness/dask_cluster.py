"""A real Dask cluster on the loopback: one scheduler, and worker processes that a test starts and kills."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil

from tests.harness.support import REPOSITORY, TIMEOUT_S, family_of, still_running

_LOCAL = ("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0")


class LocalCluster:
    """A context manager; what it started is gone afterwards. Workers make sandboxes in ``temp``."""

    def __init__(self, directory: Path, **environ: str) -> None:
        self.temp = directory / "temp"
        self.temp.mkdir(parents=True)
        self.workers: list[subprocess.Popen[str]] = []
        self._starting: list[subprocess.Popen[str]] = []
        self._directory = directory
        self._environ = {"PYTHONPATH": str(REPOSITORY), "KILLMATRIX_TMP": str(self.temp), **environ}
        self.scheduler = self._start("scheduler", "--port", "0", *_LOCAL)
        self.address = self._listen(self.scheduler, r"Scheduler at:\s+(\S+)")

    def add_worker(self, threads: int = 1, **environ: str) -> subprocess.Popen[str]:
        """One more; the scheduler knows it after :meth:`settle`."""
        place = self._directory / f"worker-{len(self.workers)}"
        options = ("--no-nanny", "--nthreads", str(threads), "--memory-limit", "0", "--local-directory", str(place))
        worker = self._start("worker", self.address, *options, *_LOCAL, **environ)
        self.workers.append(worker)
        self._starting.append(worker)
        return worker

    def settle(self) -> None:
        """Wait until every worker that has just been added is registered."""
        while self._starting:
            self._listen(self._starting.pop(), r"(Registered to:)")

    def worker_of(self, pid: int) -> subprocess.Popen[str]:
        """The worker that has this process among its descendants."""
        family = {process.pid for process in psutil.Process(pid).parents()}
        (found,) = (worker for worker in self.workers if worker.pid in family)
        return found

    def _start(self, what: str, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.dask_{what}", *arguments],
            cwd=self._directory,
            env={**os.environ, **self._environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    @staticmethod
    def _listen(process: subprocess.Popen[str], pattern: str) -> str:
        """What the process says about itself. Fails with all it said when it ends instead."""
        said = []
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            if match := re.search(pattern, line):
                return match[1]
        raise AssertionError("".join(said))

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, *_: object) -> None:
        processes = [*self.workers, self.scheduler]
        running = [process for process in processes if process.poll() is None]
        family = [child for process in running for child in family_of(process)]
        for process in processes:
            process.kill()
            process.communicate(timeout=TIMEOUT_S)
        assert still_running(family) == [], "an engine ends with its worker"
