"""The result file, schema 1 (harness.md, "Result file"): what CI reads, and what a report is made from again.

``cells`` is for programs. ``detail`` holds the rest of the run, in the order of ``cells``: every text and every list of
texts is there once and named by its index, because the trees of 2,000 cells are mostly the same lines.

It is written piece by piece: a run may have more stories than fit into memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from harness.model import CellResult, Run
from harness.report import codec
from harness.report.output import shorten, write_chunks
from harness.report.tally import Tally, not_covered, summarize

SCHEMA = 1

_SPOOL_BYTES = 1 << 20  # pools of a small run stay in memory
_CHUNK_CHARS = 1 << 16


class ResultFileError(ValueError):
    """A file is not a result file of schema 1; the message names the file and what is wrong."""


def document_chunks(run: Run, *, output_chars: int | None = None) -> Iterator[str]:
    """The run as the text of one JSON object of schema 1, in pieces that are short.

    ``output_chars`` shortens what each process printed. ASCII only: file names of a sandbox may hold bytes that are no
    text, and must come back as they were.
    """
    head = {"schema": SCHEMA, **codec.encode_head(run), "not_covered": list(not_covered(run)), "summary": _summary(run)}
    with _Spool() as lists, _Spool() as texts:
        pool = _Pool(lists, texts, output_chars)
        yield f"{_dump(head)[:-1]},"
        yield '"cells":['
        yield from _joined(_dump(codec.encode_cell(result)) for result in run.results)
        yield f'],"detail":{_dump(codec.encode_lists(run))[:-1]},"cells":['
        yield from _joined(_dump(_cell_detail(result, pool)) for result in run.results)
        yield '],"lists":['
        yield from lists.chunks()
        yield '],"texts":['
        yield from texts.chunks()
        yield "]}}"


def result_document(run: Run, *, output_chars: int | None = None) -> dict[str, Any]:
    """The whole JSON object of schema 1 in memory."""
    document: dict[str, Any] = json.loads("".join(document_chunks(run, output_chars=output_chars)))
    return document


def write_json(run: Run, path: str | os.PathLike[str]) -> None:
    """Write the result file, whole or not at all. Raises OSError."""

    def chunks() -> Iterator[str]:
        yield from document_chunks(run)
        yield "\n"

    write_chunks(path, chunks())


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _joined(items: Iterable[str]) -> Iterator[str]:
    for number, item in enumerate(items):
        yield f",{item}" if number else item


def _summary(run: Run) -> dict[str, Any]:
    summary = summarize(run)

    def counts(tallies: Mapping[str, Tally]) -> dict[str, dict[str, int]]:
        return {name: {"cells": tally.cells, "passed": tally.passed} for name, tally in tallies.items()}

    return {
        "cells": summary.cells,
        "passed": summary.passed,
        "failed": summary.failed,
        "unreached": summary.unreached,
        "unknown": summary.unknown,
        "by_fault": counts(summary.by_fault),
        "by_depth": counts(summary.by_depth),
        "points_declared": summary.points_declared,
        "points_reached": summary.points_reached,
        "rows_listed": summary.rows_listed,
        "rows_reached": summary.rows_reached,
        "verdict": summary.verdict.value,
        "exit_status": summary.exit_status,
        "reasons": list(summary.reasons),
    }


def _cell_detail(result: CellResult, pool: _Pool) -> dict[str, Any]:
    return {**codec.encode_more(result, pool), "story": codec.encode_story(result.story, pool)}


class _Spool:
    """The items of a JSON array that is written after others, outside of memory when it is long."""

    def __init__(self) -> None:
        self.count = 0
        # ASCII, for a text file counts characters on the way back
        self._file: IO[str] = tempfile.SpooledTemporaryFile(  # noqa: SIM115
            _SPOOL_BYTES, "w+", encoding="ascii", newline=""
        )

    def add(self, item: str) -> int:
        self._file.write(f",{item}" if self.count else item)
        self.count += 1
        return self.count - 1

    def chunks(self) -> Iterator[str]:
        self._file.seek(0)
        while chunk := self._file.read(_CHUNK_CHARS):
            yield chunk

    def __enter__(self) -> _Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class _Pool:
    """Every text, and every list of texts, once; both are named by index. What it holds of each is a hash."""

    def __init__(self, lists: _Spool, texts: _Spool, output_chars: int | None) -> None:
        self._lists, self._texts, self._output_chars = lists, texts, output_chars
        self._text_index: dict[bytes, int] = {}
        self._list_index: dict[bytes, int] = {}

    def text(self, text: str) -> int:
        written = _dump(text)
        key = _digest(written)
        index = self._text_index.get(key)
        if index is None:
            index = self._text_index[key] = self._texts.add(written)
        return index

    def output(self, text: str) -> int:
        return self.text(text if self._output_chars is None else shorten(text, self._output_chars))

    def list(self, items: Sequence[str]) -> int:
        key = _digest(_dump(items))
        index = self._list_index.get(key)
        if index is None:
            index = self._list_index[key] = self._lists.add(_dump([self.text(item) for item in items]))
        return index


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("ascii"), digest_size=16).digest()


class _Indexed:
    """Texts of a result file, by index."""

    def __init__(self, detail: Mapping[str, Any]) -> None:
        self._texts: list[str] = detail.get("texts", [])
        self._lists = [tuple(self._texts[index] for index in indexes) for indexes in detail.get("lists", ())]

    def text(self, place: int) -> str:
        return self._texts[place]

    def list(self, place: int) -> tuple[str, ...]:
        return self._lists[place]


def read_document(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The JSON object in a result file. Raises OSError, or ResultFileError where it is not schema 1."""
    try:
        document = json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise ResultFileError(f"{os.fspath(path)} is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA or "cells" not in document:
        raise ResultFileError(f"{os.fspath(path)} is no result file of schema {SCHEMA} (killmatrix run --json)")
    return document


def read_run(path: str | os.PathLike[str]) -> Run:
    """The run that :func:`write_json` wrote. Without ``detail`` it has no stories, and the points are those of its cells.

    Raises OSError, or ResultFileError.
    """
    document = read_document(path)
    try:
        return _run(document)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ResultFileError(f"{os.fspath(path)} is damaged: {type(error).__name__}: {error}") from error


def _run(document: Mapping[str, Any]) -> Run:
    cells, detail = document["cells"], document.get("detail", {})
    texts = _Indexed(detail)
    details = detail.get("cells", [{}] * len(cells))
    results = tuple(
        codec.decode_result(cell, more, texts, codec.decode_story(more.get("story", ()), texts))
        for cell, more in zip(cells, details, strict=True)
    )
    return codec.decode_run(document, detail, results)


def read_durations(path: str | os.PathLike[str]) -> dict[str, float]:
    """Cell id -> seconds, as a result file has them. Raises OSError, or ResultFileError."""
    document = read_document(path)
    try:
        return {str(cell["id"]): float(cell["duration_ms"]) / 1000 for cell in document["cells"]}
    except (KeyError, TypeError, ValueError) as error:
        raise ResultFileError(f"{os.fspath(path)} is damaged: {type(error).__name__}: {error}") from error
