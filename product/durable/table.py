"""Decision tables that are proven complete when they are built: every state has exactly one row. Pure.

A recovery state machine is written as rows in the words and order of its spec. :class:`Table` expands them over the
full product of the columns' enums; a state with no row, a state with two rows, and a row that matches nothing raise
:class:`TableError`, at import, in every process. Rejected: first match wins. There the meaning of a row depends on all
the rows above it, and a row that can never match looks like one that protects something.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, TypeVar

A = TypeVar("A", bound=Enum)


class TableError(Exception):
    """The rows do not give every state exactly one answer, or a state was asked about that the columns do not have."""


class _Any:
    def __repr__(self) -> str:
        return "ANY"


ANY: Final = _Any()
"""In ``Row.when``: whatever the value. Written out, never implied: a column left out would look like one forgotten."""


@dataclass(frozen=True, slots=True)
class Row(Generic[A]):
    """One line of the spec. ``when`` names every column: a value, a set of values, or ANY.

    ``when=None`` stands for every state that no other row names; a table has at most one such row.
    """

    label: str
    when: Mapping[str, Enum | Set[Enum] | _Any] | None
    action: A


class Table(Generic[A]):
    """``columns`` maps a name to the enum of its values; ``rows`` cover their product. Raises TableError."""

    def __init__(self, columns: Mapping[str, type[Enum]], rows: tuple[Row[A], ...]) -> None:
        self.columns = dict(columns)
        self.rows = rows
        self._strides, size = self._lay_out()
        self._row_of: list[Row[A] | None] = [None] * size  # by the state's number: see _lay_out
        self._require_labels_differ()
        for row in rows:
            if row.when is not None:
                self._claim(row)
        self._claim_rest([row for row in rows if row.when is None])

    def decide(self, **observed: Enum) -> Row[A]:
        """The row of this state. Every column must be given. Raises TableError for anything else."""
        if observed.keys() != self.columns.keys():
            raise TableError(f"observed {sorted(observed)}, but the columns are {sorted(self.columns)}")
        number = 0
        for name, value in observed.items():
            if not isinstance(value, self.columns[name]):
                raise TableError(f"{name}={value!r} is not a {self.columns[name].__name__}")
            number += self._strides[name][value]
        row = self._row_of[number]
        assert row is not None, "a built table has a row for every state"
        return row

    def states(self) -> Iterator[tuple[dict[str, Enum], Row[A]]]:
        """Every state with its row, for tests and for printing."""
        for number in range(len(self._row_of)):
            state = self._name(number)
            yield state, self.decide(**state)

    def _lay_out(self) -> tuple[dict[str, dict[Enum, int]], int]:
        """Number the states: what each value adds to the number, by column, and how many states there are.

        Numbers and not tuples of enums: thousands of states are expanded at the start of every process.
        """
        size = 1
        strides = {}
        for name, column in self.columns.items():
            members = list(column)
            strides[name] = {member: index * size for index, member in enumerate(members)}
            size *= len(members)
        return strides, size

    def _name(self, number: int) -> dict[str, Enum]:
        state: dict[str, Enum] = {}
        for name, column in self.columns.items():
            number, index = divmod(number, len(column))
            state[name] = list(column)[index]
        return state

    def _require_labels_differ(self) -> None:
        labels = [row.label for row in self.rows]
        for label in labels:
            if labels.count(label) > 1:
                raise TableError(f"two rows are labelled {label!r}")

    def _claim(self, row: Row[A]) -> None:
        for number in self._numbers(row):
            other = self._row_of[number]
            if other is not None:
                raise TableError(f"rows {other.label} and {row.label} both match {self._describe(number)}")
            self._row_of[number] = row

    def _numbers(self, row: Row[A]) -> list[int]:
        when: Mapping[str, Any] = row.when or {}
        if when.keys() != self.columns.keys():
            raise TableError(f"row {row.label} names {sorted(when)}, but the columns are {sorted(self.columns)}")
        numbers = [0]
        for name, wanted in when.items():
            strides = self._strides[name]
            values = strides if wanted is ANY else {wanted} if isinstance(wanted, Enum) else wanted
            for value in values:
                if not isinstance(value, self.columns[name]):
                    raise TableError(f"row {row.label}: {name}={value!r} is not a {self.columns[name].__name__}")
            added = [strides[value] for value in values]
            numbers = [number + stride for number in numbers for stride in added]
        if not numbers:
            raise TableError(f"row {row.label} matches nothing: a column has an empty set")
        return numbers

    def _claim_rest(self, refusals: list[Row[A]]) -> None:
        free = [number for number, row in enumerate(self._row_of) if row is None]
        if len(refusals) > 1:
            raise TableError(f"rows {', '.join(row.label for row in refusals)} all stand for every other state")
        if not refusals:
            if free:
                raise TableError(f"{len(free)} states have no row, such as {self._describe(free[0])}")
            return
        if not free:
            raise TableError(f"row {refusals[0].label} matches nothing: every state has a row of its own")
        for number in free:
            self._row_of[number] = refusals[0]

    def _describe(self, number: int) -> str:
        return ", ".join(f"{name}={value.name}" for name, value in self._name(number).items())
