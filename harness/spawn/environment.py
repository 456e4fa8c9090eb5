"""What every started process is given, and what a shell would answer for one that cannot be started."""

from __future__ import annotations

import errno
import os
from pathlib import Path

NOT_FOUND, NOT_STARTED = 127, 126
_AFRESH = str(Path(__file__).resolve().parent / "afresh")
_ARMING = ("KILLPOINTS", "KILLPOINTS_CONTROL", "KILLPOINTS_RESUME", "KILLPOINTS_TRACE")


def clean_environment(project: Path, *, measurable: bool = False) -> dict[str, str]:
    """The harness's environment for other programs: nothing armed, ``project`` importable.

    ``measurable``: every Python started with it looks for :data:`harness.spawn.measure.VARIABLE`.
    """
    environ = {name: value for name, value in os.environ.items() if name not in _ARMING}
    first = [_AFRESH] if measurable else []
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, (*first, str(project), environ.get("PYTHONPATH"))))
    return environ


def arming_environment(plan: str, control: int, resume: int) -> dict[str, str]:
    """The variables that :mod:`killpoints.hook` reads: ``plan``, and descriptors (Windows: handles) to talk through."""
    return dict(zip(_ARMING, (plan, str(control), str(resume), "1"), strict=True))


def refusal(name: str, error: Exception) -> tuple[int, bytes]:
    """Exit status and message for a command that cannot be started."""
    found = not isinstance(error, OSError) or error.errno not in (errno.ENOENT, errno.ENOTDIR)
    message = f"killmatrix: cannot start {name}: {error}\n".encode(errors="backslashreplace")
    return NOT_STARTED if found else NOT_FOUND, message
