"""What ``killmatrix run --dask`` adds to the command line."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli_shared import Usage

if TYPE_CHECKING:
    from harness.runner import Hire, Project, SpawnKind

Dask = Annotated[
    str | None,
    typer.Option(
        "--dask",
        metavar="ADDRESS",
        help="Run the cells on the Dask cluster of this scheduler: tcp://10.0.0.7:8786, or a scheduler file. The project "
        "lies at the same path on every worker; a worker runs a cell a thread, and --jobs is for dry runs only.",
    ),
]


def require_distributable(dask: str | None, *, keep: Path | None, coverage: bool) -> None:
    """Raises Usage for what cannot leave the machine that a cell ran on."""
    if dask is not None and keep is not None:
        raise Usage(
            "--dask: --keep would leave sandboxes on the workers' machines; "
            "run without it, then see one cell here: killmatrix repro CELL --keep DIR"
        )
    if dask is not None and coverage:
        raise Usage("--dask: --coverage measures on this machine only; run it without --dask")


@contextlib.contextmanager
def hire_cluster(dask: str | None, project: Project, spawn: SpawnKind, jobs: int) -> Iterator[tuple[int, Hire | None]]:
    """How many cells run at a time, and who runs them: this machine, for no address. Raises Usage."""
    if dask is None:
        yield jobs, None
        return
    from harness.cluster.crew import ClusterError, open_cluster

    with contextlib.ExitStack() as stack:
        try:
            cluster = stack.enter_context(open_cluster(dask, project, spawn))
            threads = cluster.threads
        except (ClusterError, OSError) as error:
            raise Usage(f"--dask: {error}") from error
        if not threads:
            print(f"{dask} has no worker now: waiting for one", file=sys.stderr)
        yield max(1, threads), cluster.hire
