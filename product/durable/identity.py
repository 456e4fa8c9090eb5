"""Who holds a lock, and does that process still live: one function, :func:`classify_holder`, gives every answer.

A process is named by its pid and one opaque token, ``SYSTEM:MACHINE:BOOT:PIDSPACE:START``, which no clock step and no
time zone changes. The rows below are the table of collector.md section 2 "Who is alive", in its order:

====  =====================================================  ========
row   what is known                                          answer
====  =====================================================  ========
H1    another boot, and not provably this machine            UNPROVEN
H2    an earlier boot of this machine                        DEAD
H3    this boot, another pid namespace                       DEAD
H4    this boot, our own pid, and the stamp is ours          SELF
H5    this boot, our own pid, another stamp                  DEAD
H6    the query says no such process, or a zombie            DEAD
H7    the query finds it, same stamp (stopped included)      ALIVE
H8    the query finds it, another stamp                      REUSED
H9    the query failed, or was not made                      UNPROVEN
====  =====================================================  ========

H3 rests on the caller holding the kernel lock that a live holder on this kernel would never let go. A malformed pid or
token is third content and no holder at all: ask :func:`is_wellformed` first. Age proves nothing, and no answer is kept:
each call asks again.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import Enum

from product.durable import processes
from product.durable.processes import UNKNOWN, Presence, Sighting, Stamp
from product.durable.table import ANY, Row, Table


class Holder(Enum):
    """What is proven about the process that a lock names."""

    SELF = "SELF"
    ALIVE = "ALIVE"
    DEAD = "DEAD"
    REUSED = "REUSED"
    UNPROVEN = "UNPROVEN"


class Boot(Enum):
    THIS = "this boot"
    EARLIER = "an earlier boot of this machine"
    OTHER = "another boot, and not provably this machine"


class PidSpace(Enum):
    OURS = "our pid namespace"
    OTHER = "another pid namespace"


class Pid(Enum):
    OURS = "our own pid and our stamp"
    OURS_BEFORE = "our own pid, another stamp"
    OTHER = "another pid"


class Query(Enum):
    GONE = "no such process, or a zombie"
    SAME_STAMP = "found, same stamp"
    OTHER_STAMP = "found, another stamp"
    FAILED = "denied or failed"
    NOT_MADE = "not made"


HOLDER_TABLE: Table[Holder] = Table(
    {"boot": Boot, "space": PidSpace, "pid": Pid, "query": Query},
    (
        Row("H1", {"boot": Boot.OTHER, "space": ANY, "pid": ANY, "query": ANY}, Holder.UNPROVEN),
        Row("H2", {"boot": Boot.EARLIER, "space": ANY, "pid": ANY, "query": ANY}, Holder.DEAD),
        Row("H3", {"boot": Boot.THIS, "space": PidSpace.OTHER, "pid": ANY, "query": ANY}, Holder.DEAD),
        Row("H4", {"boot": Boot.THIS, "space": PidSpace.OURS, "pid": Pid.OURS, "query": ANY}, Holder.SELF),
        # we occupy its pid, so it is gone: pid 1 of a restarted container, or the same small pid after a crash
        Row("H5", {"boot": Boot.THIS, "space": PidSpace.OURS, "pid": Pid.OURS_BEFORE, "query": ANY}, Holder.DEAD),
        Row(
            "H6",
            {"boot": Boot.THIS, "space": PidSpace.OURS, "pid": Pid.OTHER, "query": Query.GONE},
            Holder.DEAD,
        ),
        Row(
            "H7",
            {"boot": Boot.THIS, "space": PidSpace.OURS, "pid": Pid.OTHER, "query": Query.SAME_STAMP},
            Holder.ALIVE,
        ),
        Row(
            "H8",
            {"boot": Boot.THIS, "space": PidSpace.OURS, "pid": Pid.OTHER, "query": Query.OTHER_STAMP},
            Holder.REUSED,
        ),
        Row(
            "H9",
            {
                "boot": Boot.THIS,
                "space": PidSpace.OURS,
                "pid": Pid.OTHER,
                "query": frozenset({Query.FAILED, Query.NOT_MADE}),
            },
            Holder.UNPROVEN,
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process of one boot of one machine. ``created_at`` is the opaque token: compare it, never take it apart."""

    pid: int
    created_at: str


def own_identity() -> ProcessIdentity:
    """The identity of this process. Raises OSError where the system does not tell (no /proc).

    Asked anew each time: a forked child that kept its parent's answer would take the parent's lock for its own.
    """
    return ProcessIdentity(os.getpid(), _format(processes.own_stamp()))


def is_wellformed(pid: object, created_at: object) -> bool:
    """Whether both have the shape that own_identity() gives on some system. No call to the system is made."""
    stamp = _parse(created_at)
    if stamp is None or type(pid) is not int:  # a bool is an int, and True would be pid 1
        return False
    return 1 <= pid <= _PID_MAX[stamp.system]


def classify_holder(pid: int, created_at: str) -> Holder:
    """What is proven, now, about the process with this pid and token. Raises ValueError for a malformed pair.

    Call it right before each step that rests on the answer, with the kernel lock held.
    """
    stamp = _parse(created_at)
    if stamp is None or not is_wellformed(pid, created_at):
        raise ValueError(f"malformed holder: pid={pid!r}, created_at={created_at!r}")
    return decide_holder(pid, stamp)


def decide_holder(pid: int, stamp: Stamp) -> Holder:
    """Observe as far as the table needs, then take its row."""
    try:
        ours = processes.own_stamp()
    except (OSError, ValueError):
        return Holder.UNPROVEN  # nothing can be compared
    boot = compare_boots(stamp, ours)
    space = PidSpace.OURS if stamp.space == ours.space else PidSpace.OTHER
    whose = Pid.OTHER
    if pid == os.getpid():
        whose = Pid.OURS if stamp.start == ours.start else Pid.OURS_BEFORE
    query = Query.NOT_MADE
    if (boot, space, whose) == (Boot.THIS, PidSpace.OURS, Pid.OTHER):
        query = compare_sighting(processes.observe_process(pid), stamp)
    return HOLDER_TABLE.decide(boot=boot, space=space, pid=whose, query=query).action


def compare_boots(theirs: Stamp, ours: Stamp) -> Boot:
    """Which boot ``theirs`` comes from. The name of a boot is one kernel's own; that of a machine may be unknown."""
    same_machine = theirs.system == ours.system and theirs.machine == ours.machine != UNKNOWN
    if theirs.system == ours.system and theirs.boot == ours.boot != UNKNOWN:
        return Boot.THIS
    if same_machine and UNKNOWN in (theirs.boot, ours.boot):  # Windows: its stamps never come twice, so ask for it
        return Boot.THIS
    return Boot.EARLIER if same_machine else Boot.OTHER


def compare_sighting(sighting: Sighting, stamp: Stamp) -> Query:
    match sighting.presence:
        case Presence.ABSENT | Presence.ZOMBIE:
            return Query.GONE
        case Presence.PRESENT:
            return Query.SAME_STAMP if sighting.start == stamp.start else Query.OTHER_STAMP
        case Presence.FAILED:
            return Query.FAILED


_PID_MAX = {"linux": 2**22, "macos": 2**22, "windows": 2**32 - 1}  # Linux: PID_MAX_LIMIT; no call takes more
_NUMBER = r"(0|[1-9][0-9]{0,19})"
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_TOKEN = re.compile(
    rf"(linux):([0-9a-f]{{32}}|-):({_UUID}):{_NUMBER}:{_NUMBER}"
    rf"|(macos):([0-9a-f]{{32}}|-):({_UUID}):{_NUMBER}:{_NUMBER}"
    rf"|(windows):({_UUID}|-):(-):{_NUMBER}:{_NUMBER}"
)


def _format(stamp: Stamp) -> str:
    return f"{stamp.system}:{stamp.machine}:{stamp.boot}:{stamp.space}:{stamp.start}"


def _parse(token: object) -> Stamp | None:
    match = _TOKEN.fullmatch(token) if isinstance(token, str) else None
    if match is None:
        return None
    system, machine, boot, space, start = (part for part in match.groups() if part is not None)
    return Stamp(system, machine, boot, int(space), int(start))
