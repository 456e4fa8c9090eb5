"""Where everything stands in the picture of an exploration (harness.md, "Closure"). Pure: the same graph, the same picture.

Columns are numbers of crashes. Rows are labels: a lane for each label, lanes whose labels begin alike (up to `` / ``)
together in a band, which has one colour. All lengths are whole pixels.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.exploration import Exploration, State

COLOURS = 10
LANES_MOST = 60
NUMBERED_MOST = 400  # of more states, the numbers would be too small to read
OTHER = "other labels"
_SEPARATOR = " / "
_LABEL_CHARS_MOST = 30
_CHAR, _MARGIN, _HEAD, _TITLE, _PAD, _GAP, _BETWEEN = 7, 12, 44, 20, 7, 4, 66


@dataclass(frozen=True, slots=True)
class Box:
    """One state. ``x``, ``y``: its upper left corner."""

    state: State
    column: int
    x: int
    y: int
    colour: int


@dataclass(frozen=True, slots=True)
class Lane:
    """All states of one label. ``name``: the label without what the band says already; empty if that is all of it."""

    name: str
    y: int
    height: int
    states: int


@dataclass(frozen=True, slots=True)
class Band:
    """Lanes whose labels begin alike. ``titled``: the name stands above the lanes instead of in the only one."""

    name: str
    colour: int
    y: int
    height: int
    states: int
    lanes: tuple[Lane, ...]
    titled: bool


@dataclass(frozen=True, slots=True)
class Column:
    """All states after ``depth`` crashes."""

    depth: int
    x: int
    width: int
    states: int
    exact: bool


@dataclass(frozen=True, slots=True)
class Edge:
    """All kills that lead from one state to another. ``curve``: the data of an SVG path."""

    source: int
    target: int
    kills: int
    colour: int
    curve: str


@dataclass(frozen=True, slots=True)
class Layout:
    width: int
    height: int
    box_width: int
    box_height: int
    columns: tuple[Column, ...]
    bands: tuple[Band, ...]
    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]


def lay_out(found: Exploration) -> Layout:
    """The picture of what was found."""
    width, height = (26, 16) if len(found.states) <= NUMBERED_MOST else (9, 9)
    labels = _labels_of(found.states)
    cells: dict[tuple[str, int], list[State]] = defaultdict(list)
    for state in found.states:
        cells[labels[state.number], state.depth].append(state)
    families = _families(labels.values())
    columns, per_row = _columns(found.states, cells, _gutter(families), width + _GAP)
    bands, tops = _bands(families, cells, per_row, height + _GAP)
    colour_of = {label: band.colour for band in bands for label in families[band.name]}
    boxes = {
        state.number: Box(
            state,
            depth,
            columns[depth].x + n % per_row[depth] * (width + _GAP),
            tops[label] + n // per_row[depth] * (height + _GAP),
            colour_of[label],
        )
        for (label, depth), states in cells.items()
        for n, state in enumerate(states)
    }
    last, low = columns[max(columns)] if columns else None, bands[-1] if bands else None
    return Layout(
        max(480, last.x + last.width if last else 0) + _MARGIN,
        (low.y + low.height if low else _HEAD) + _MARGIN,
        width,
        height,
        tuple(columns.values()),
        tuple(bands),
        tuple(boxes[number] for number in sorted(boxes)),
        tuple(_edges(found, boxes, width, height)),
    )


def _labels_of(states: Sequence[State]) -> Mapping[int, str]:
    """State -> its label, or :data:`OTHER` for the rarest ones where there are too many to give each a lane."""
    counts = Counter(state.label for state in states)
    kept = {label for label, _ in counts.most_common(LANES_MOST)}
    return {state.number: state.label if state.label in kept else OTHER for state in states}


def _families(labels: Iterable[str]) -> Mapping[str, list[str]]:
    """What labels begin with -> the labels, both in the order in which the search met them."""
    families: dict[str, list[str]] = defaultdict(list)
    for label in dict.fromkeys(labels):
        families[label.partition(_SEPARATOR)[0]].append(label)
    return families


def _rest(label: str) -> str:
    return label.partition(_SEPARATOR)[2]


def _gutter(families: Mapping[str, list[str]]) -> int:
    """Width of the names on the left."""
    names = [_rest(label) or label for labels in families.values() for label in labels]
    return _MARGIN + _CHAR * (4 + min(_LABEL_CHARS_MOST, max(map(len, names), default=0)))


def cut(name: str) -> str:
    """As much of a name as there is room for."""
    return name if len(name) <= _LABEL_CHARS_MOST else name[: _LABEL_CHARS_MOST - 1] + "…"


def _columns(
    states: Sequence[State], cells: Mapping[tuple[str, int], list[State]], x: int, pitch: int
) -> tuple[dict[int, Column], dict[int, int]]:
    """depth -> column, and depth -> how many boxes stand side by side in it."""
    columns, per_row = {}, {}
    for depth in sorted({state.depth for state in states}):
        most = max(len(found) for (_, at), found in cells.items() if at == depth)
        per_row[depth] = min(most, max(6, math.isqrt(2 * most)))
        here = [state for state in states if state.depth == depth]
        width = max(per_row[depth] * pitch, 96)  # there is a heading above it
        columns[depth] = Column(depth, x, width, len(here), all(state.exact for state in here))
        x += width + _BETWEEN
    return columns, per_row


def _bands(
    families: Mapping[str, list[str]],
    cells: Mapping[tuple[str, int], list[State]],
    per_row: Mapping[int, int],
    pitch: int,
) -> tuple[list[Band], dict[str, int]]:
    """The bands from above to below, and label -> where its boxes begin."""
    bands, tops, y = [], {}, _HEAD
    for number, (family, labels) in enumerate(families.items()):
        titled = any(_rest(label) for label in labels)
        top, lanes = y, []
        y += _TITLE if titled else 0
        for label in labels:
            counts = {depth: len(states) for (of, depth), states in cells.items() if of == label}
            rows = max(-(-count // per_row[depth]) for depth, count in counts.items())
            height = rows * pitch - _GAP + 2 * _PAD
            tops[label] = y + _PAD
            lanes.append(Lane(_rest(label), y, height, sum(counts.values())))
            y += height
        states = sum(lane.states for lane in lanes)
        bands.append(Band(family, number % COLOURS, top, y - top, states, tuple(lanes), titled))
        y += 4
    return bands, tops


def _edges(found: Exploration, boxes: Mapping[int, Box], width: int, height: int) -> Iterable[Edge]:
    kills = Counter((transition.source, transition.target) for transition in found.transitions)
    for (source, target), count in kills.items():
        curve = _curve(boxes[source], boxes[target], width, height)
        yield Edge(source, target, count, boxes[source].colour, curve)


def _curve(start: Box, end: Box, width: int, height: int) -> str:
    """From the side that faces ``end``; within a column by a bow: on the right downwards, on the left upwards, or above."""
    middle = width // 2
    if start is end:
        x, y = start.x + middle, start.y
        return f"M{x - 4} {y}C{x - 10} {y - 11} {x + 10} {y - 11} {x + 4} {y}"
    if start.column != end.column:
        forward = start.column < end.column
        x1, x2 = (start.x + width, end.x) if forward else (start.x, end.x + width)
        y1, y2 = start.y + height // 2, end.y + height // 2
        bend = (1 if forward else -1) * max(30, abs(x2 - x1) // 2)
        return f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"
    if start.y == end.y:
        x1, x2 = start.x + middle, end.x + middle
        top = start.y - min(34, 8 + abs(x2 - x1) // 8)
        return f"M{x1} {start.y}C{x1} {top} {x2} {top} {x2} {end.y}"
    down = start.y < end.y
    x1, x2 = (start.x + width, end.x + width) if down else (start.x, end.x)
    y1, y2 = start.y + height // 2, end.y + height // 2
    bend = (1 if down else -1) * (14 + abs(y2 - y1) // 9)
    return f"M{x1} {y1}C{x1 + bend} {y1} {x2 + bend} {y2} {x2} {y2}"
