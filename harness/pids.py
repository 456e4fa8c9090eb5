"""Process numbers come again: whether one that belonged to a dead process may belong to somebody else by now.

A program that asks whether the owner of a lock lives is told yes when a stranger has its number. That is right of it, and
spoils a story about a dead owner. Linux gives numbers out in a circle and tells the last one, so it can be known afterwards
whether the circle passed a number while a process ran; elsewhere only who has it now is known.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

_LAST_GIVEN = "/proc/loadavg"


def is_in_use(pid: int) -> bool:
    """Whether some process has this number now. Asking sends nothing."""
    if sys.platform == "win32":
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def last_given() -> int | None:
    """The number that was given out last, in this process's namespace; None where nobody tells."""
    try:
        with open(_LAST_GIVEN, "rb") as file:
            return int(file.read().split()[-1])
    except (OSError, ValueError, IndexError):
        return None


def any_given(pids: Iterable[int], before: int | None, after: int | None) -> bool:
    """Whether the circle passed one of ``pids`` on its way from ``before`` to ``after``. False where nobody told."""
    if before is None or after is None:
        return False
    if before <= after:
        return any(before < pid <= after for pid in pids)
    return any(pid > before or pid <= after for pid in pids)
