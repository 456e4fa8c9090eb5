"""Starting ``python -m harness`` and looking at what it leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

REPOSITORY = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120  # only ever waited for when a test fails


def start_harness(project: Path, temp: Path, *arguments: str, **more: Any) -> subprocess.Popen[str]:
    """``python -m harness ARGUMENTS`` in ``project``, its sandboxes below ``temp``. ``environ``: None takes a variable out."""
    temp.mkdir(exist_ok=True)
    wanted = {"KILLMATRIX_TMP": str(temp), "PYTHONPATH": str(REPOSITORY), **more.pop("environ", {})}
    environ = {name: value for name, value in {**os.environ, **wanted}.items() if value is not None}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    argv = [sys.executable, "-m", "harness", *arguments]
    return subprocess.Popen(argv, cwd=project, env=environ, text=True, **options)


def family_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Everything that it started and that still runs."""
    return psutil.Process(process.pid).children(recursive=True)


def still_running(family: list[psutil.Process]) -> list[psutil.Process]:
    """Those that do not end, however long one waits. A number that belongs to somebody else by now is not one of them."""
    _, alive = psutil.wait_procs(family, timeout=TIMEOUT_S)
    return alive
