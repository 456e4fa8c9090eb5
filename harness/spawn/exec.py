"""Spawn kind ``exec``: every process is a fresh interpreter, or whatever program the command names."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.spawn import Spawner, fork_is_supported


def open_exec_spawner(project: Path, measuring: str = "") -> Spawner:
    """On Linux a process server starts the programs, so that watching, ending and reaping exist once."""
    if sys.platform == "linux" and fork_is_supported():
        from harness.spawn.client import ServerSpawner

        return ServerSpawner(project, measuring)
    from harness.spawn.portable import PortableSpawner

    return PortableSpawner(project, measuring)
