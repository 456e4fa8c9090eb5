"""What a process under test left behind: ended and reaped by the server, whose children they have become.

Members of the process's group were sent SIGKILL already. Others left the group (``setsid``): those are found as
children of the server that it never started. While another process under test runs, they may be that one's, and are
left alone until it has ended too.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Mapping

PATIENCE_MS = 5_000  # for a process that SIGKILL does not end at once: uninterruptible sleep
_BLIND_MAX = 3


_stuck: set[int] = set()  # would not end (set-user-id program, hung device): waited for only once


def end_strays(leader: int, others: Mapping[int, tuple[int, int]]) -> None:
    """End and reap what the reaped process ``leader`` left, while ``others`` (pidfd: run, pid) still run."""
    blind = 0
    while _has_children(leader if others else None) and blind < _BLIND_MAX:
        known = {pid for _, pid in others.values()} | _stuck
        found = [pid for pid in _children() - known if not others or _is_member(pid, leader)]
        _stuck.update(pid for pid in found if not _end(pid))
        blind = 0 if found else blind + 1  # adopted while we looked; or not to be seen in this /proc


def _has_children(group: int | None) -> bool:
    try:
        if group is None:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        else:
            os.waitid(os.P_PGID, group, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _children() -> set[int]:
    """Pids of all children of this process. (/proc/self/task/*/children is not in every kernel.)"""
    me = str(os.getpid()).encode()
    return {int(name) for name in os.listdir("/proc") if name.isdecimal() and _parent_of(name) == me}


def _parent_of(name: str) -> bytes | None:
    try:
        fd = os.open(f"/proc/{name}/stat", os.O_RDONLY)
    except OSError:
        return None
    try:
        return os.read(fd, 4096).rpartition(b")")[2].split()[1]  # the name in parentheses may hold anything
    except (OSError, IndexError):
        return None
    finally:
        os.close(fd)


def _is_member(pid: int, group: int) -> bool:
    try:
        return os.getpgid(pid) == group
    except ProcessLookupError:
        return False


def _end(pid: int) -> bool:
    """SIGKILL to a child of ours, which nobody else reaps, so the number is its own. False: it would not end."""
    pidfd = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except PermissionError:
        return False
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        if not poll.poll(PATIENCE_MS):
            return False
    finally:
        os.close(pidfd)
    os.waitpid(pid, 0)
    return True
