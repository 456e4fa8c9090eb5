"""The run's side of a cluster: connects, lets every worker check what it would run, and is the crew of the run.

Dask sends a batch again whose worker is lost, to another worker. One on which several workers were lost (its setting
``distributed.scheduler.allowed-failures``) is taken apart by the ledger, so that the cell that ends them is found and the
others have their results.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import logging
import pickle
import re
import secrets
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

from harness.cluster import pool
from harness.cluster.ledger import Ledger
from harness.cluster.seat import make_order
from harness.model import Cell, CellResult
from harness.runner import Crew, Project, SpawnKind, Supply, lost_cell

CONNECT_S = 5.0


class ClusterError(Exception):
    """There is no cluster there, or it cannot run these cells; nothing was run."""


class Cluster:
    """A connection for one run. ``threads``: how many cells the cluster's workers run at a time, at the moment."""

    def __init__(self, client: Any, project: Project, spawn: SpawnKind) -> None:
        self.client = client
        self.session = f"killmatrix-{secrets.token_hex(8)}"
        self._root, self._order = str(project.root), make_order(project, spawn)

    @property
    def threads(self) -> int:
        """Raises OSError when the scheduler is lost."""
        if self.client.status != "running":
            raise ConnectionError(f"the scheduler {self.client.scheduler.address} was lost")
        return sum(self.client.nthreads().values())

    def greet(self) -> None:
        """Have every worker open an engine. Raises ClusterError with each that has something else than the run."""
        answers = self.client.run(pool.greet, self.session, self._root, self._order, on_error="return")
        refusals = [
            f"worker {worker}: {_told(answer)}"
            for worker, answer in sorted(answers.items())
            if answer and not isinstance(answer, OSError)  # it was lost meanwhile, as others may be later
        ]
        if refusals:
            raise ClusterError("\n".join(refusals))

    def send(self, name: str, cells: tuple[Cell, ...]) -> Any:
        """A future of what :func:`harness.cluster.pool.run_batch` returns, with the key ``SESSION-NAME``."""
        packed = tuple(map(pickle.dumps, cells))
        key = f"{self.session}-{name}"
        return self.client.submit(pool.run_batch, self.session, self._root, self._order, packed, key=key, pure=False)

    def hire(self, supply: Supply, _place: Path) -> Crew:
        """See :data:`harness.runner.Hire`; sandboxes are where the workers are."""
        return DaskCrew(self, supply)

    def dismiss(self) -> None:
        """End the run's engines on every worker that can be reached; those on others end by themselves."""
        if self.client.status == "running":
            with contextlib.suppress(OSError):
                self.client.run(pool.dismiss, self.session, on_error="ignore")


@contextlib.contextmanager
def open_cluster(address: str, project: Project, spawn: SpawnKind) -> Iterator[Cluster]:
    """The cluster of a scheduler: ``tcp://HOST:PORT``, or the scheduler's file. For one run. Raises ClusterError."""
    client = _connect(address)
    try:
        cluster = Cluster(client, project, spawn)
        try:
            cluster.greet()
            yield cluster
        finally:
            cluster.dismiss()
    finally:
        client.close()


def _connect(address: str) -> Any:
    by_file = "://" not in address and not re.fullmatch(r"[^/]+:\d+", address)
    if by_file and not Path(address).is_file():
        raise ClusterError(f"{address}: no scheduler file is there; write tcp://HOST:PORT, or the path of such a file")
    dask = _load_dask()
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # what it says of a lost scheduler is said here
    place = {"scheduler_file": address} if by_file else {"address": address}
    try:
        return dask.Client(**place, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TypeError, KeyError, ImportError) as error:
        raise ClusterError(f"{address}: no Dask scheduler can be reached there: {_told(error)}") from error


def _load_dask() -> Any:
    """Raises ClusterError."""
    try:
        return importlib.import_module("distributed")
    except ImportError as error:
        raise ClusterError(f"this needs Dask ({error}); pip install 'killmatrix[dask]'") from error


class DaskCrew:
    """See :class:`harness.runner.Crew`."""

    def __init__(self, cluster: Cluster, supply: Supply) -> None:
        self._cluster = cluster
        self._dask = _load_dask()
        self._ledger = Ledger(supply)
        self._sent: dict[Any, str] = {}  # future -> its batch; one that nobody holds is dropped by the cluster
        self._completed = self._dask.as_completed(loop=cluster.client.loop)
        self._broke = ""

    def results(self) -> Iterator[CellResult]:
        """A batch's results when it is done. What no cluster is left for is UNKNOWN."""
        while self._keep_busy():
            yield from self._settle(next(self._completed))
        if self._broke:
            yield from (lost_cell(cell, self._broke) for cell in self._ledger.rest())

    def stop(self) -> None:
        """See :meth:`harness.runner.Crew.stop`."""
        with contextlib.suppress(OSError, CancelledError):
            self._cluster.client.cancel(list(self._sent), force=True)
        self._cluster.dismiss()

    def _keep_busy(self) -> bool:
        """Send until each thread of the cluster has a batch and one that waits for it. False when all has come."""
        try:
            while not self._broke and len(self._ledger) < 2 * max(1, threads := self._cluster.threads):
                if (batch := self._ledger.take(threads)) is None:
                    break
                future = self._cluster.send(*batch)
                self._sent[future] = batch[0]
                self._completed.add(future)
        except OSError as error:
            self._broke = _told(error)
        return len(self._ledger) > 0

    def _settle(self, future: Any) -> Iterator[CellResult]:
        """Results of a batch that is done, whatever became of it."""
        batch = self._sent.pop(future)
        answers: Iterable[pool.Answer]
        try:
            answers = future.result()
        except self._dask.KilledWorker as error:
            why = f"it ends the Dask workers that run it: {error}"
            return (lost_cell(cell, why) for cell in self._ledger.suspect(batch))
        except CancelledError as error:
            self._broke = f"the cluster gave it up: {error}"
            answers = itertools.repeat((None, self._broke))
        except Exception as error:  # whatever a cluster raises, its cells have a result
            answers = itertools.repeat((None, f"the cluster could not run it: {_told(error)}"))
        return self._ledger.settle(batch, answers)


def _told(what: object) -> str:
    return f"{type(what).__name__}: {what}" if isinstance(what, BaseException) else str(what)
