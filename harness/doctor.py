"""What this machine can do, and what that means for a run. Only looks; changes nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from harness.sandbox import sandbox_base


def examine() -> Iterator[tuple[str, bool, str]]:
    """(what, whether it is there, what follows), one line each."""
    from harness.spawn import fork_is_supported

    posix = sys.platform != "win32"
    yield "Python 3.11 or later", sys.version_info >= (3, 11), sys.version.split()[0]
    yield "kill points", True, "SIGKILL to self" if posix else "TerminateProcess; never run by the authors"
    yield (
        "warm forks (spawn: fork)",
        fork_is_supported(),
        "Linux 5.4 or later; elsewhere every process is a fresh interpreter",
    )
    base = sandbox_base()
    yield "sandboxes on tmpfs", _is_tmpfs(base), f"{base}; set KILLMATRIX_TMP to choose"
    yield "swept after a killed run", posix, "leftover sandboxes of dead runs are removed at the next start"
    yield "no-overwrite rename", sys.platform in ("linux", "darwin", "win32"), "renameat2, renamex_np, MoveFile"
    yield (
        "exchange of two names",
        sys.platform == "linux",
        "elsewhere a manifest is compared right before it is replaced",
    )
    yield "pid namespaces", _may_unshare(), "tests of pid reuse need them, and skip with a reason"
    yield "processors", True, str(os.cpu_count())
    yield "power faults", False, "not part of this version: nothing here proves an fsync"


def _is_tmpfs(path: Path) -> bool:
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return False
    mounts = {fields[1]: fields[2] for fields in map(str.split, lines)}
    place = path.resolve()
    while str(place) not in mounts and place != place.parent:
        place = place.parent
    return mounts.get(str(place)) == "tmpfs"


def _may_unshare() -> bool:
    if sys.platform != "linux":
        return False
    limit = Path("/proc/sys/user/max_pid_namespaces")
    try:
        return os.geteuid() == 0 and int(limit.read_text()) > 0
    except (OSError, ValueError):
        return False
