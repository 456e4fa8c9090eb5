"""reach(), attempt(), arm() and disarm(): the hook itself. Disarmed, reaching a point is one test of one global.

Environment, read once at import so that any program can be armed from outside:

- ``KILLPOINTS``          the plan in its text form
- ``KILLPOINTS_CONTROL``  file descriptor (Windows: handle) that records are written to
- ``KILLPOINTS_RESUME``   file descriptor that a paused process reads one byte from to go on
- ``KILLPOINTS_TRACE``    ``1``: also record every point that is only passed
- ``KILLPOINTS_BEFORE_END``  ``MODULE:FUNCTION``, called without arguments before the plan ends or holds the process

The variables are taken out of the environment when read: they are for this process, and a descriptor number means
something else, or another file, in a program that it starts.

A name in the environment that no code declares is an error at the first reach, and at the latest when the process
ends: it exits with status 64 and names the nearest known point. A program that calls ``arm()`` after its imports says
so before it does anything.
"""

from __future__ import annotations

import atexit
import importlib
import os
import sys
from collections.abc import Callable, Mapping, MutableMapping
from typing import TypeVar

from killpoints.actions import Armed
from killpoints.plan import Plan, PlanError
from killpoints.registry import PointError

T = TypeVar("T")

EXIT_USAGE = 64
PLAN, CONTROL, RESUME, TRACE = "KILLPOINTS", "KILLPOINTS_CONTROL", "KILLPOINTS_RESUME", "KILLPOINTS_TRACE"
BEFORE_END = "KILLPOINTS_BEFORE_END"

_armed: Armed | None = None


def reach(point: str) -> None:
    """Mark that this place is reached. Disarmed: nothing. Armed: what the plan says for this hit.

    Raises PointError for a name that is not declared or was computed, and OSError where an error is armed.
    """
    if _armed is not None:
        _armed.reach(point)


def attempt(point: str, act: Callable[..., T], *args: object) -> T:
    """Call ``act(*args)`` as the step ``point``: an armed error is raised instead, everything else comes after it."""
    if _armed is None:
        return act(*args)
    return _armed.attempt(point, act, args)  # type: ignore[no-any-return]


def arm(
    plan: Plan | str | None = None,
    *,
    control_fd: int | None = None,
    resume_fd: int | None = None,
    trace: bool = False,
    before_end: Callable[[], object] | None = None,
) -> None:
    """Put ``plan`` in force, and check its names now. Without a plan: what the environment says, if anything.

    ``before_end`` is called before the plan ends or holds this process; what it raises changes nothing about that.
    Raises PlanError for a text that cannot be read and PointError for a name that is not declared.
    """
    global _armed
    if plan is None:
        if _armed is None:
            _armed = _from_environment(os.environ)
        if _armed is not None:
            _armed.require_known()
        return
    armed = Armed(Plan.parse(plan) if isinstance(plan, str) else plan, control_fd, resume_fd, trace, before_end)
    armed.require_known()
    _armed = armed


def disarm() -> None:
    """Put nothing in force: every point is passed again at no cost."""
    global _armed
    _armed = None


def _descriptor(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name)
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise PlanError(f"{name}={text!r} is not a file descriptor number")
    if sys.platform == "win32":  # a handle is inherited, not a descriptor; never run here, see ARCHITECTURE.md
        import msvcrt

        return msvcrt.open_osfhandle(int(text), os.O_APPEND if name == CONTROL else os.O_RDONLY)
    return int(text)


def _from_environment(environ: MutableMapping[str, str]) -> Armed | None:
    text, trace = environ.get(PLAN, ""), environ.get(TRACE) == "1"
    control_fd, resume_fd = _descriptor(environ, CONTROL), _descriptor(environ, RESUME)
    before_end = environ.get(BEFORE_END)
    for name in (PLAN, CONTROL, RESUME, TRACE, BEFORE_END):
        environ.pop(name, None)
    if not text.strip() and not trace:
        return None
    return Armed(Plan.parse(text), control_fd, resume_fd, trace, _named(before_end) if before_end else None)


def _named(text: str) -> Callable[[], object]:
    """The function ``MODULE:FUNCTION``, looked for only when it is called: its module may not be there yet."""
    module, _, name = text.partition(":")
    return lambda: getattr(importlib.import_module(module), name)()


def _complain_at_exit() -> None:
    if _armed is None or _armed.verified:
        return
    try:
        _armed.require_known()
    except PointError as error:
        _refuse(error)


def _refuse(error: Exception) -> None:
    print(f"killpoints: {PLAN}: {error}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(EXIT_USAGE)


def arm_from_environment(environ: MutableMapping[str, str] = os.environ) -> None:
    """What the import does: for a process that was forked after the import and is to be a program of its own."""
    global _armed
    try:
        _armed = _from_environment(environ)
    except PlanError as error:
        _refuse(error)
    if _armed is not None:
        atexit.register(_complain_at_exit)


arm_from_environment()
