"""Goes through a manifest and names everything that is wrong with it, not only the first. Pure.

:func:`product.collector.manifests.read_lines` stops at the first line that does not follow, which is right for who appends.
Here the reading goes on behind it: what is due next is taken from the line that was found, so that one fault is told
once. The rules are the same: seq, prev, keys, and canonical bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from product.collector import shape
from product.collector.keys import Identifiers
from product.collector.layout import segment_name
from product.collector.manifests import GENESIS, KEYS, names_of
from product.collector.places import Unreadable
from product.collector.shape import HEX64, HOUR, NAME, ShapeError
from product.collector.slots import STATES
from product.durable import canonical
from product.durable.errors import JsonRejected
from product.durable.files import Digest


@dataclass(frozen=True, slots=True)
class Finding:
    """``code`` is stable, ``file`` relative to its root, ``line`` counts from 1 or is None for the file as a whole."""

    code: str
    file: str
    line: int | None
    message: str

    def __str__(self) -> str:
        line = "" if self.line is None else f" line {self.line}"
        return f"{self.code}: {self.file}{line}: {self.message}"

    def as_json(self) -> dict[str, object]:
        return {"code": self.code, "file": self.file, "line": self.line, "message": self.message}


Report = Callable[[Finding], None]


@dataclass(frozen=True, slots=True)
class ChainLine:
    """A line and where it stands. ``chained`` is False for one of schema 1, whose other fields are not judged."""

    file: str
    number: int
    seq: int
    fields: dict[str, object]
    chained: bool


@dataclass(frozen=True, slots=True)
class End:
    """What a slot wrote down of a segment: its first ``size`` bytes have this hash and end with line ``last_seq``."""

    slot: str
    size: int
    sha256: str
    last_seq: int


class Walk:
    """One manifest, read once: iterate over it, then ``tip`` and ``contents`` say where it ended and what was read."""

    def __init__(
        self,
        manifest: str,
        segments: Iterable[tuple[int, bytes | Unreadable]],
        ends: dict[int, list[End]],
        report: Report,
    ) -> None:
        self.contents: dict[str, Digest] = {}
        self.seq: int | None = 0  # None: the lines before are lost, the next line says where it stands
        self.sha256: str | None = GENESIS
        self.lines = 0
        self._manifest, self._segments, self._ends, self._report = manifest, segments, dict(ends), report
        self._chained = False

    def __iter__(self) -> Iterator[ChainLine]:
        due = 1
        for number, data in self._segments:
            if number != due:
                last = f" to {segment_name(number - 1)}" if number - 1 > due else ""
                self._find("K_SEGMENT_MISSING", due, None, f"{segment_name(due)}{last}: not there, later ones are")
                self._lose()
            due = number + 1
            ends = self._ends.pop(number, [])
            if isinstance(data, Unreadable):
                self._lose()  # the walk over the names has told about it
                continue
            self.contents[self._name(number)] = Digest.of(data)
            yield from self._read(number, data)
            self._compare_ends(number, data, ends)
        for number, ends in sorted(self._ends.items()):
            self._find("K_SLOT_TIP", number, None, f"not there, but {ends[0].slot} says it has {ends[0].size} bytes")

    def _read(self, number: int, data: bytes) -> Iterator[ChainLine]:
        if not data:
            self._find("K_SEGMENT_EMPTY", number, None, "a segment has at least one line")
        *whole, rest = data.split(b"\n")
        for index, raw in enumerate(whole, 1):
            self.lines += 1
            line = self._follow(number, index, raw)
            if line is not None:
                yield line
        if rest:
            self._find("K_LINE_TORN", number, len(whole) + 1, "no newline at the end")
            self._lose()

    def _follow(self, number: int, index: int, raw: bytes) -> ChainLine | None:
        """The line against what is due; None where it cannot be used."""
        fields, why = _decode(raw)
        if fields is not None and fields.get("schema_version") == 1 and "seq" not in fields:
            return self._follow_old(number, index, raw, fields)
        if fields is not None:
            why = why or find_fault(self._manifest, fields)
        if why:
            self._find("K_LINE_FOREIGN", number, index, f"not a line of ours: {why}")
        seq = fields.get("seq") if fields is not None else None
        if fields is None or type(seq) is not int:
            self.seq = None if self.seq is None else self.seq + 1
            self.sha256 = None
            return None
        if self.seq is not None and seq <= self.seq:
            self._find("K_LINE_REPEATED", number, index, f"seq {seq} again, where {self.seq + 1} is due")
            return None
        if self.seq is not None and seq > self.seq + 1:
            self._find("K_LINE_MISSING", number, index, f"seq {seq}, where {self.seq + 1} is due")
        elif self.sha256 is not None and fields.get("prev") != self.sha256:
            self._find(
                "K_LINE_CHANGED", number, index, "prev is not the hash of the line before: one of the two changed"
            )
        self.seq, self.sha256, self._chained = seq, _unless(why, raw), True
        return None if why else ChainLine(self._name(number), index, seq, fields, True)

    def _follow_old(self, number: int, index: int, raw: bytes, fields: dict[str, object]) -> ChainLine:
        if self._chained:
            self._find("K_LINE_FOREIGN", number, index, "a line of schema 1 after one of schema 2")
        self.seq = None if self.seq is None else self.seq + 1
        self.sha256 = hashlib.sha256(raw).hexdigest()
        return ChainLine(self._name(number), index, self.seq or 0, fields, False)

    def _lose(self) -> None:
        self.seq = self.sha256 = None

    def _compare_ends(self, number: int, data: bytes, ends: Sequence[End]) -> None:
        """The first that does not agree is told; those after it follow from it."""
        for end in sorted(ends, key=lambda end: end.size):
            head = data[: end.size]
            last, _ = _decode(head[head.rfind(b"\n", 0, -1) + 1 : -1])
            if Digest.of(head) != Digest(end.size, end.sha256):
                what = f"its first {end.size} bytes are not what {end.slot} says"
            elif last is None or last.get("seq", end.last_seq) != end.last_seq:
                what = f"{end.slot} says that its first {end.size} bytes end with seq {end.last_seq}"
            else:
                continue
            self._find("K_SLOT_TIP", number, None, what)
            return

    def _name(self, number: int) -> str:
        return f"{self._manifest}/{segment_name(number)}"

    def _find(self, code: str, number: int, line: int | None, message: str) -> None:
        self._report(Finding(code, self._name(number), line, message))


def _unless(why: str, raw: bytes) -> str | None:
    """The hash that the next line must name; of a line that is told already, nothing is asked."""
    return None if why else hashlib.sha256(raw).hexdigest()


def _decode(raw: bytes) -> tuple[dict[str, object] | None, str]:
    """The object and what is wrong with its bytes; None where nothing can be read at all."""
    try:
        value, why = canonical.decode_canonical(raw), ""
    except JsonRejected as error:
        why = error.message
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError):
            return None, why
    return (value, why) if isinstance(value, dict) else (None, "not an object")


def find_fault(manifest: str, fields: dict[str, object]) -> str:
    """Why these are not the fields of a line of schema 2, or nothing."""
    try:
        shape.require_object(fields, KEYS[manifest], "")
        shape.require_equal(fields["schema_version"], 2, "/schema_version")
        shape.require_integer(fields["seq"], "/seq", low=1)
        shape.require_text(fields["prev"], "/prev", HEX64)
        shape.require_text(fields["run_id"], "/run_id", NAME)
        _require_card(fields) if manifest == "cards" else _require_run(fields)
    except ShapeError as error:
        return str(error)
    return ""


def _require_card(fields: dict[str, object]) -> None:
    try:
        keys, identifiers = names_of(fields)
    except ValueError as error:
        raise ShapeError("/identifiers", str(error)) from None
    shape.require_object(fields["identifiers"], Identifiers().as_json(), "/identifiers")
    shape.require_equal(list(keys), sorted(identifiers.keys), "/stable_keys")
    for key in ("published_at", "content_type", "source_url"):
        shape.require_text(fields[key], f"/{key}")


def _require_run(fields: dict[str, object]) -> None:
    shape.require_text(fields["task_id"], "/task_id", NAME)
    shape.require_time(fields["hour"], "/hour", HOUR)
    for key in ("transaction_id", "evidence_sha256", "coverage_proof_sha256"):
        shape.require_text(fields[key], f"/{key}", HEX64)
    if fields["state"] not in STATES:
        raise ShapeError("/state", f"{fields['state']!r} is none of {', '.join(STATES)}")
    shape.require_integer(fields["cards_appended"], "/cards_appended")
    if fields["first_card_seq"] is not None:
        shape.require_integer(fields["first_card_seq"], "/first_card_seq", low=1)
