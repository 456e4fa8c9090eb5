"""A table that is not complete, or says two things of one state, cannot be built."""

from __future__ import annotations

from enum import Enum

import pytest

from product.durable.table import ANY, Row, Table, TableError


class Light(Enum):
    RED = "red"
    GREEN = "green"


class Road(Enum):
    FREE = "free"
    BLOCKED = "blocked"
    UNKNOWN = "unknown"


class Act(Enum):
    STOP = "stop"
    GO = "go"


COLUMNS: dict[str, type[Enum]] = {"light": Light, "road": Road}
STOP = Row("L1", {"light": Light.RED, "road": ANY}, Act.STOP)
GO = Row("L2", {"light": Light.GREEN, "road": Road.FREE}, Act.GO)
WAIT = Row("L3", {"light": Light.GREEN, "road": frozenset({Road.BLOCKED, Road.UNKNOWN})}, Act.STOP)
REST = Row("L9", None, Act.STOP)


def test_every_state_has_its_row() -> None:
    table = Table(COLUMNS, (STOP, GO, WAIT))
    assert table.rows == (STOP, GO, WAIT)
    for light in Light:
        for road in Road:
            expected = STOP if light is Light.RED else GO if road is Road.FREE else WAIT
            assert table.decide(light=light, road=road) is expected
            assert table.decide(road=road, light=light) is expected
    assert len(list(table.states())) == 6
    assert all(table.decide(**state) is row for state, row in table.states())


def test_a_refusing_row_takes_every_other_state() -> None:
    table = Table(COLUMNS, (GO, REST))
    assert table.decide(light=Light.RED, road=Road.FREE) is REST
    assert table.decide(light=Light.GREEN, road=Road.FREE) is GO


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ((STOP, GO), "2 states have no row, such as light=GREEN, road=BLOCKED"),
        ((STOP, GO, WAIT, REST), "L9 matches nothing"),
        ((STOP, REST, Row("L8", None, Act.GO)), "L9, L8 all stand for every other state"),
        ((STOP, GO, WAIT, Row("L4", {"light": ANY, "road": Road.FREE}, Act.GO)), "L1 and L4 both match"),
        ((STOP, GO, WAIT, Row("L1", {"light": ANY, "road": ANY}, Act.GO)), "two rows are labelled 'L1'"),
        ((STOP, GO, Row("L3", {"light": Light.GREEN, "road": frozenset()}, Act.STOP)), "L3 matches nothing"),
        ((STOP, Row("L2", {"light": Light.GREEN}, Act.GO)), "row L2 names"),
        ((STOP, Row("L2", {"light": Light.GREEN, "raod": ANY}, Act.GO)), "row L2 names"),
        ((STOP, Row("L2", {"light": Road.FREE, "road": ANY}, Act.GO)), "light=<Road.FREE: 'free'> is not a Light"),
    ],
)
def test_a_wrong_table_cannot_be_built(rows: tuple[Row[Act], ...], words: str) -> None:
    with pytest.raises(TableError, match=words):
        Table(COLUMNS, rows)


def test_an_unknown_state_is_an_error_not_a_guess() -> None:
    table = Table(COLUMNS, (STOP, GO, WAIT))
    for observed in ({"light": Light.RED}, {"light": Light.RED, "road": Road.FREE, "sky": Light.RED}):
        with pytest.raises(TableError, match="the columns are"):
            table.decide(**observed)
    with pytest.raises(TableError, match="is not a Road"):
        table.decide(light=Light.RED, road=Light.RED)
