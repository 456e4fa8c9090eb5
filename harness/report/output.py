"""What every report does with text: make it safe to show, shorten it, write it out whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path

# all that a terminal obeys or that XML forbids; tab and newline stay
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_ENTRY = re.compile(r"(?s)(.*)  (\d+ B  [0-9a-f]{8}|(?:symlink|other) .*)")


def printable(text: str, *, one_line: bool = False) -> str:
    """``text`` with control characters, direction marks and lone surrogates written as escapes.

    A program under test may print anything: an escape sequence must not repaint the report of its own failure.
    ``one_line`` writes newlines and tabs as escapes too.
    """
    shown = _UNPRINTABLE.sub(lambda match: _escape(match[0]), text)
    return shown.replace("\n", "\\n").replace("\t", "\\t") if one_line else shown


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def shorten(text: str, most_chars: int) -> str:
    """The beginning and the end of a long text, saying how much is left out between them."""
    if len(text) <= most_chars:
        return text
    head = most_chars * 2 // 3
    tail = most_chars - head
    return f"{text[:head]}\n[{len(text) - head - tail:,} characters left out]\n{text[len(text) - tail :]}"


def split_entry(line: str) -> tuple[str, str]:
    """A line of Tree.listing() -> (path, size and hash or link target; empty for a directory)."""
    match = _ENTRY.fullmatch(line)
    return (match[1], match[2]) if match else (line, "")


def difference_lines(before: tuple[str, ...], after: tuple[str, ...]) -> list[str]:
    """What changed between two listings, one line a path: ``+`` added, ``-`` removed, ``~`` changed (old -> new)."""
    old, new = dict(map(split_entry, before)), dict(map(split_entry, after))
    lines = []
    for path in sorted(old.keys() | new.keys()):
        if path not in old:
            lines.append(f"+ {path}  {new[path]}".rstrip())
        elif path not in new:
            lines.append(f"- {path}  {old[path]}".rstrip())
        elif old[path] != new[path]:
            lines.append(f"~ {path}  {old[path]} -> {new[path]}")
    return [printable(line, one_line=True) for line in lines]


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """:func:`write_chunks` of one piece."""
    write_chunks(path, [text])


def write_chunks(path: str | os.PathLike[str], chunks: Iterable[str]) -> None:
    """Write UTF-8 to ``path`` (its directories are made): the whole file appears, or the old one stays.

    Anything that is there and is no regular file (``/dev/stdout``, a pipe) is written to instead of being replaced.
    Raises OSError, and whatever making the pieces raises.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        _write_all(target, chunks)
        return
    target = target.resolve()  # a link to the report keeps pointing at it
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        _write_all(aside, chunks)
        aside.replace(target)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def _write_all(path: Path, chunks: Iterable[str]) -> None:
    with path.open("wb") as stream:
        for chunk in chunks:
            stream.write(chunk.encode("utf-8", "backslashreplace"))
