"""The catalogue of kill points: every name is declared once, as a literal, before anything reaches it.

Rejected: names made up where they are reached. A misspelt point would then be a test that never kills anything.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable, Sequence

_NAME = re.compile(r"[a-z][A-Za-z0-9_-]*(\.[A-Za-z][A-Za-z0-9_-]*)*")
_STEP = re.compile(r"[a-z][a-z0-9-]*")


class PointError(LookupError):
    """A kill point is unknown, declared twice, or its name was computed; the message names the nearest known ones."""


class Point(str):
    """A declared kill point: its full name, with what it means (``says``), its place in the spec and its steps."""

    __slots__ = ("_steps", "says", "spec")

    says: str
    spec: str
    _steps: dict[str, Point]

    def at(self, step: str) -> Point:
        """The inner step ``NAME/step`` that the primitive declared. Raises PointError for one it did not."""
        try:
            return self._steps[step]
        except KeyError:
            raise PointError(_unknown(f"{self}/{step}")) from None

    @property
    def steps(self) -> tuple[Point, ...]:
        return tuple(self._steps.values())


_points: dict[str, Point] = {}


def _unknown(name: str) -> str:
    nearest = nearest_names(name, _points)
    hint = f"; the nearest known: {', '.join(nearest)}" if nearest else "; no point is declared that looks like it"
    return f"unknown kill point {name!r}{hint}"


def nearest_names(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The known names that look most like ``name``, best first."""
    return difflib.get_close_matches(name, list(known), n=most, cutoff=0.6)


def _register(name: str, says: str, spec: str) -> Point:
    if name in _points:
        raise PointError(f"kill point {name!r} is declared twice; it already says: {_points[name].says!r}")
    point = Point(name)
    point.says, point.spec, point._steps = says, spec, {}
    _points[name] = point
    return point


def declare(name: str, says: str, spec: str = "", *, steps: Sequence[str] = ()) -> Point:
    """Declare a kill point once and return the constant to reach it by.

    ``name`` must be a literal in the code that calls (a reader finds it by searching), ``says`` is one line of
    meaning, ``spec`` the place in the spec, ``steps`` the inner steps of the primitive that will be given the point.
    Raises PointError for a name that is malformed, computed, or declared before.
    """
    caller = sys._getframe(1).f_code
    if name not in caller.co_consts:
        raise PointError(f"kill point {name!r} is computed; write it as a literal in {caller.co_filename}{_near(name)}")
    if not _NAME.fullmatch(name):
        raise PointError(f"kill point {name!r} is malformed; write PRODUCT.AREA.NAME, letters, digits, '-' and '_'")
    if not says.strip() or "\n" in says:
        raise PointError(f"kill point {name!r} needs one line of meaning, got {says!r}")
    for step in steps:
        if not _STEP.fullmatch(step):
            raise PointError(f"step {step!r} of kill point {name!r} is malformed; write lower-case words with '-'")
    point = _register(name, says, spec)
    point._steps = {step: _register(f"{name}/{step}", f"{says}: {step}", spec) for step in steps}
    return point


def _near(name: str) -> str:
    nearest = nearest_names(name, _points)
    return f"; the nearest known: {', '.join(nearest)}" if nearest else ""


def require_declared(name: str) -> None:
    """Raise PointError, naming the nearest known names, unless ``name`` is declared."""
    if name not in _points:
        raise PointError(_unknown(name))


def require_constant(point: str) -> None:
    """Raise PointError unless ``point`` is the very object that declare() returned (a computed equal string is not)."""
    known = _points.get(point)
    if known is None:
        raise PointError(_unknown(point))
    if known is not point:
        raise PointError(f"kill point {point!r} was computed; pass the constant that declare() returned for it")


def catalogue() -> tuple[Point, ...]:
    """Every declared point, steps included, in the order of declaration."""
    return tuple(_points.values())
