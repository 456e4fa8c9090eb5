"""A result as two small blobs: its facts, and its story.

The results of one scenario are nearly the same text, so the first one is the compression dictionary of the others, its
*sample*: that makes 14 KB of a collector's story 600 bytes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.model import CellResult, Chapter
from harness.report import codec

_DICTIONARY_BYTES = 32_768  # as far back as zlib looks
_LEVEL = 3  # as small as 6 but for a tenth, in half the time
_PLAIN = codec.Plain()


@dataclass(frozen=True, slots=True)
class Sample:
    """What results of one scenario are packed against. ``number`` names it in the store."""

    number: int
    facts: bytes
    story: bytes


@dataclass(frozen=True, slots=True)
class Unpacked:
    """The text of a result, which is packed against a sample, or becomes one."""

    facts: bytes
    story: bytes

    def as_sample(self) -> tuple[bytes, bytes]:
        return zlib.compress(self.facts[-_DICTIONARY_BYTES:]), zlib.compress(self.story[-_DICTIONARY_BYTES:])

    def pack(self, sample: Sample) -> tuple[bytes, bytes]:
        return _deflate(self.facts, sample.facts), _deflate(self.story, sample.story)


def as_text(result: CellResult) -> Unpacked:
    told = {"cell": codec.encode_cell(result), "more": codec.encode_more(result, _PLAIN)}
    return Unpacked(dump_json(told), dump_json(codec.encode_story(result.story, _PLAIN)))


def read_sample(number: int, facts: bytes, story: bytes) -> Sample:
    """Raises zlib.error."""
    return Sample(number, zlib.decompress(facts), zlib.decompress(story))


def unpack_facts(facts: bytes, sample: Sample, story: Sequence[Chapter]) -> CellResult:
    """Raises zlib.error, KeyError, TypeError, ValueError."""
    told = json.loads(_inflate(facts, sample.facts))
    return codec.decode_result(told["cell"], told["more"], _PLAIN, story)


def unpack_story(story: bytes, sample: Sample) -> tuple[Chapter, ...]:
    """Raises zlib.error, KeyError, TypeError, ValueError."""
    return codec.decode_story(json.loads(_inflate(story, sample.story)), _PLAIN)


def dump_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def _deflate(data: bytes, dictionary: bytes) -> bytes:
    machine = zlib.compressobj(_LEVEL, zdict=dictionary)
    return machine.compress(data) + machine.flush()


def _inflate(data: bytes, dictionary: bytes) -> bytes:
    machine = zlib.decompressobj(zdict=dictionary)
    return machine.decompress(data) + machine.flush()
