"""Checks of decoded JSON against exact shapes. Pure. Each raises ShapeError with the JSON pointer of what is wrong.

``type(x) is int`` throughout: ``True`` is an int to isinstance() and must never be a count, a pid or a version.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime
from enum import Enum
from typing import TypeVar

HEX64 = re.compile(r"[0-9a-f]{64}")
# a run's name is a directory's name, too: not one that Windows keeps for a device
NAME = re.compile(r"(?!(?i:con|prn|aux|nul|com[1-9]|lpt[1-9])\Z)[A-Za-z0-9][A-Za-z0-9-]{0,63}")
INSTANT = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z")
HOUR = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):00:00Z")

E = TypeVar("E", bound=Enum)


class ShapeError(Exception):
    """``pointer`` (RFC 6901) names the place, ``reason`` what was found there and what is due."""

    def __init__(self, pointer: str, reason: str) -> None:
        super().__init__(f"{pointer or '/'}: {reason}")
        self.pointer, self.reason = pointer, reason


def require_object(value: object, keys: Collection[str], pointer: str) -> dict[str, object]:
    """An object with exactly ``keys``."""
    if not isinstance(value, dict):
        raise ShapeError(pointer, f"an object is due, not {type(value).__name__}")
    if value.keys() != set(keys):
        missing, extra = sorted(set(keys) - value.keys()), sorted(value.keys() - set(keys))
        raise ShapeError(pointer, f"missing keys {missing}, unknown keys {extra}")
    return value


def require_integer(value: object, pointer: str, *, low: int = 0, high: int = 2**53) -> int:
    if type(value) is not int:
        raise ShapeError(pointer, f"an integer is due, not {type(value).__name__}")
    if not low <= value <= high:
        raise ShapeError(pointer, f"{value} is outside [{low}, {high}]")
    return value


def require_text(value: object, pointer: str, pattern: re.Pattern[str] | None = None, *, most: int = 4096) -> str:
    if not isinstance(value, str):
        raise ShapeError(pointer, f"a string is due, not {type(value).__name__}")
    if len(value) > most:
        raise ShapeError(pointer, f"a string of {len(value)} characters is over the limit of {most}")
    if pattern is not None and not pattern.fullmatch(value):
        raise ShapeError(pointer, f"{value[:80]!r} does not match {pattern.pattern}")
    return value


def require_time(value: object, pointer: str, pattern: re.Pattern[str]) -> str:
    """A text of INSTANT or HOUR that is on the calendar: 30 February matches the pattern and is no day."""
    text = require_text(value, pointer, pattern)
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise ShapeError(pointer, f"{text!r} is no day of the calendar") from None
    return text


def require_equal(value: object, due: object, pointer: str) -> None:
    if type(value) is not type(due) or value != due:
        raise ShapeError(pointer, f"{value!r:.120} found where {due!r:.120} is due")


def require_list(value: object, pointer: str, *, most: int = 10_000) -> list[object]:
    if not isinstance(value, list):
        raise ShapeError(pointer, f"an array is due, not {type(value).__name__}")
    if len(value) > most:
        raise ShapeError(pointer, f"{len(value)} items are over the limit of {most}")
    return value


def require_enum(kind: type[E], value: object, pointer: str) -> E:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(str(member.value) for member in kind)
        raise ShapeError(pointer, f"{value!r:.60} is none of {known}") from None
