"""What happens at an armed point. The record ``name, hit, pid`` goes to the control pipe before anything is done.

A record is one line ``KIND<tab>NAME<tab>HIT<tab>PID<newline>``, shorter than PIPE_BUF and so never torn. KIND is the
action, or ``pass`` for a point that was only passed (sent when tracing). A kill without its record proves nothing.

Before a process is ended or held, ``before_end`` is called, if somebody asked for that: what is in memory only, such as
what was measured of this process, is lost otherwise. It comes before the record, so that who reads ``pause`` may end
the process at once; and whatever it raises, the act happens.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from killpoints.plan import Action, Plan
from killpoints.registry import require_constant, require_declared

SIGKILL = getattr(signal, "SIGKILL", 9)  # Windows: os.kill(pid, 9) is TerminateProcess with exit code 9


class Armed:
    """A plan in force in this process, with its count of hits. A forked child starts to count anew."""

    def __init__(
        self,
        plan: Plan,
        control_fd: int | None,
        resume_fd: int | None,
        trace: bool,
        before_end: Callable[[], object] | None = None,
    ) -> None:
        self.plan = plan
        self._before_end = before_end
        self._actions = {(arming.name, arming.hit): arming.action for arming in plan.armings}
        self._otherwise = Action("pause") if plan.holds_everywhere else None
        self._control_fd = control_fd
        self._resume_fd = resume_fd
        self._trace = trace
        self._verified = False
        self._hits: dict[str, int] = {}
        self._pid = os.getpid()
        self._lock = _thread.allocate_lock()

    def require_known(self) -> None:
        """Raise PointError for a name in the plan that nothing declares."""
        for arming in self.plan.armings:
            require_declared(arming.name)
        self._verified = True

    @property
    def verified(self) -> bool:
        return self._verified

    def reach(self, point: str) -> None:
        action, hit = self._count(point)
        if action is not None:
            self._perform(action, point, hit)

    def attempt(self, point: str, act: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        action, hit = self._count(point)
        if action is None:
            return act(*args)
        if action.kind == "error":
            self._perform(action, point, hit)
        result = act(*args)
        self._perform(action, point, hit)
        return result

    def _count(self, point: str) -> tuple[Action | None, int]:
        if not self._verified:
            self.require_known()
        require_constant(point)
        pid = os.getpid()
        with self._lock:
            if pid != self._pid:
                self._pid, self._hits = pid, {}
            hit = self._hits[point] = self._hits.get(point, 0) + 1
        action = self._actions.get((point, hit), self._otherwise)
        if action is None and self._trace:
            self._record("pass", point, hit)
        return action, hit

    def _record(self, kind: str, point: str, hit: int) -> None:
        if self._control_fd is None:
            return
        try:
            os.write(self._control_fd, f"{kind}\t{point}\t{hit}\t{self._pid}\n".encode())
        except OSError:
            pass  # nobody listens any more: the act still happens, the controller has no proof and says so

    def _perform(self, action: Action, point: str, hit: int) -> None:
        if self._before_end is not None and action.kind != "error":
            _call_whatever_it_raises(self._before_end)
        self._record(action.kind, point, hit)
        match action.kind:
            case "kill":
                _end_self(SIGKILL)
            case "term":
                os.kill(self._pid, signal.SIGTERM)
            case "pause":
                self._wait(point, hit)
            case "error":
                raise OSError(action.errno_value, f"{os.strerror(action.errno_value)} (injected at {point}#{hit})")

    def _wait(self, point: str, hit: int) -> None:
        if self._resume_fd is None:  # armed by hand in a shell: stop, and let a person go on
            print(f"paused at {point}#{hit}; go on with: kill -CONT {self._pid}", file=sys.stderr, flush=True)
            os.kill(self._pid, getattr(signal, "SIGSTOP", SIGKILL))
            return
        if os.read(self._resume_fd, 1) == b"":
            _end_self(SIGKILL)  # the controller is gone; running on unobserved would be worse


def _call_whatever_it_raises(act: Callable[[], object]) -> None:
    try:
        act()
    except BaseException as error:  # SystemExit too: it must not keep the process from its end
        try:
            if sys.stderr is not None:  # print() would take stdout
                print(f"killpoints: before the end: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        except BaseException:
            pass  # stderr is closed, or the error has no text


def _end_self(number: int) -> NoReturn:
    os.kill(os.getpid(), number)
    while True:  # the signal is on its way
        time.sleep(1)
