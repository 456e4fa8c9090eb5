"""From lines to counts. Pure: bytes in, numbers out.

A line is one JSON object with a string ``key``. Whatever else a line is, it is rejected by one reason and passed: no
line ever stops the scan.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import NoReturn

from product.durable.lines import Block

NOT_UTF8, NOT_JSON, NOT_OBJECT, NO_KEY, TOO_LONG = REASONS = (
    "not-utf8",
    "not-json",
    "not-object",
    "no-key",
    "too-long",
)
FIRST_MAX = 10


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


# Numbers become doubles: nobody looks at them, and an integer of 5,000 digits is not converted (quadratic, refused).
decode_line = json.JSONDecoder(parse_int=float, parse_constant=_no_constant).decode


@dataclass(slots=True)
class Rejected:
    """Lines of one reason: how many, and the offsets where the first FIRST_MAX of them begin."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, offset: int) -> None:
        self.count += 1
        if len(self.first) < FIRST_MAX:
            self.first.append(offset)


@dataclass(slots=True)
class Tally:
    """``counts``: how often each key was seen, in all epochs; ``carried``: in the earlier ones. ``rejected``: in this one."""

    counts: dict[str, int] = field(default_factory=dict)
    carried: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, Rejected] = field(default_factory=dict)

    def apply(self, block: Block) -> None:
        """Count these lines."""
        if block.data is None:
            self._reject(TOO_LONG, block.start)
            return
        counts, offset = self.counts, block.start
        for line in block.lines():
            try:
                key = decode_line(line.decode())["key"]
                if key in counts:
                    counts[key] += 1
                elif is_key(key):
                    counts[key] = 1
                else:
                    self._reject(NO_KEY, offset)
            except (ValueError, LookupError, TypeError, RecursionError):
                self._reject(reason_of(line), offset)
            offset += len(line) + 1

    def _reject(self, reason: str, offset: int) -> None:
        self.rejected.setdefault(reason, Rejected()).add(offset)

    @property
    def lines_rejected(self) -> int:
        return sum(entry.count for entry in self.rejected.values())

    def next_epoch(self) -> Tally:
        """The same counts at the start of another file."""
        return Tally(dict(self.counts), dict(self.counts), {})

    def of_this_epoch(self) -> dict[str, int]:
        """What the lines of this epoch alone have counted; no key with 0."""
        own = {key: count - self.carried.get(key, 0) for key, count in self.counts.items()}
        return {key: count for key, count in own.items() if count}


def is_key(value: object) -> bool:
    """A string of Unicode text: a lone surrogate can be written in JSON, and in no file."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def reason_of(line: bytes) -> str:
    """Why a line has no key. Slow: for rejected lines only."""
    try:
        value = decode_line(line.decode())
    except UnicodeDecodeError:
        return NOT_UTF8
    except (ValueError, RecursionError):
        return NOT_JSON
    return NO_KEY if isinstance(value, dict) else NOT_OBJECT
