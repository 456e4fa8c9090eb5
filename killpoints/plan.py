"""What is armed, and its text form: ``NAME#HIT=ACTION[,NAME#HIT=ACTION ...]``. Pure; parse and format round-trip.

ACTION is ``kill`` (SIGKILL to self), ``term`` (SIGTERM to self), ``pause`` (tell the controller and wait) or
``error:ERRNO`` (raise that OSError instead of acting). HIT counts from 1 and may be left out for the first.
``*=pause`` holds the process wherever nothing else is armed: for who wants to see the disk at every point.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

EVERY = "*=pause"
KINDS = ("kill", "term", "pause", "error")
_ITEM = re.compile(r"(?P<name>[^#=,\s]+)(?:#(?P<hit>[0-9]{1,9}))?=(?P<action>[^=,\s]+)")


class PlanError(ValueError):
    """The text of a plan is wrong: the message says where and what was expected."""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do at a point. ``errno_name`` (``ENOSPC``) only with kind ``error``."""

    kind: str
    errno_name: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise PlanError(f"unknown action {self.kind!r}; known: {', '.join(KINDS[:-1])}, error:ERRNO")
        if (self.kind == "error") != (self.errno_name is not None):
            raise PlanError("an error action names its errno (error:ENOSPC); no other action does")
        if self.errno_name is not None and not isinstance(getattr(errno, self.errno_name, None), int):
            raise PlanError(f"unknown errno {self.errno_name!r}; use a name of the errno module, such as ENOSPC")

    @classmethod
    def parse(cls, text: str) -> Action:
        kind, colon, name = text.partition(":")
        return cls(kind, name if colon else None)

    @property
    def errno_value(self) -> int:
        return int(getattr(errno, self.errno_name or "", 0))

    def __str__(self) -> str:
        return self.kind if self.errno_name is None else f"{self.kind}:{self.errno_name}"


@dataclass(frozen=True, slots=True)
class Arming:
    """``action`` when one process reaches the point ``name`` for the ``hit``-th time (from 1)."""

    name: str
    hit: int
    action: Action

    def __post_init__(self) -> None:
        if self.name == "*":
            raise PlanError(f"{self}: only {EVERY} is armed at every point")
        if self.hit < 1:
            raise PlanError(f"hit {self.hit} of {self.name}: hits count from 1")

    def __str__(self) -> str:
        return f"{self.name}#{self.hit}={self.action}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything armed in one process. Raises PlanError when one hit of one point is armed twice.

    ``holds_everywhere``: it is held at every hit of every point that is not armed otherwise.
    """

    armings: tuple[Arming, ...] = ()
    holds_everywhere: bool = False

    def __post_init__(self) -> None:
        keys = [(arming.name, arming.hit) for arming in self.armings]
        for key in keys:
            if keys.count(key) > 1:
                raise PlanError(f"{key[0]}#{key[1]} is armed twice in one plan")

    @classmethod
    def parse(cls, text: str) -> Plan:
        """Read the text form. Raises PlanError with the offending item."""
        items = [item.strip() for item in text.split(",")] if text.strip() else []
        named = [item for item in items if item != EVERY]
        if len(items) - len(named) > 1:
            raise PlanError(f"{EVERY} is there twice")
        return cls(tuple(cls._read(named)), holds_everywhere=len(named) < len(items))

    @staticmethod
    def _read(items: Iterable[str]) -> Iterator[Arming]:
        for item in items:
            match = _ITEM.fullmatch(item)
            if match is None:
                raise PlanError(f"cannot read {item!r}; write NAME#HIT=ACTION, for example shop.saved#1=kill")
            yield Arming(match["name"], int(match["hit"] or 1), Action.parse(match["action"]))

    def __str__(self) -> str:
        return ",".join([*map(str, self.armings), *([EVERY] if self.holds_everywhere else [])])
