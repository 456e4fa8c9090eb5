"""Text without what differs from one run to the next: times, processes, random ids. What judges make canonical forms of."""

from __future__ import annotations

import functools
import re

from harness.judge.tree import Tree

ABSTRACTION = (
    "No process named on the disk is alive. Process numbers, inode numbers and SHA-256 values and other 64 hex digits are "
    "names by order of appearance, creation stamps are forgotten, all times but whole hours are one time."
)
_TOKEN = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)"
    r"|(?P<stamp>(?:linux|darwin|windows):[0-9a-f:.-]+)"
    r"|(?P<hash>\b[0-9a-f]{64}\b)"
    r"|(?P<pid>(?<=pid\":)\s*\d+)"
    r"|(?P<inode>(?<=\"inode\":\")\d+)"
)
Parts = tuple[tuple[str, str], ...]


@functools.lru_cache(maxsize=2048)
def split_text(text: str) -> Parts:
    """The text in pieces: (kind of what is a name by order of appearance, or nothing; the piece)."""
    found, at = [], 0
    for match in _TOKEN.finditer(text):
        found.append(("", text[at : match.start()]))
        at = match.end()
        if match.lastgroup == "time":  # a whole hour is a slot's, anything else is a clock's
            found.append(("", match[0] if match[0].endswith(":00:00Z") else "<time>"))
        elif match.lastgroup == "stamp":
            found.append(("", "<stamp>"))  # the number beside it tells processes apart; two may have begun in one tick
        else:
            found.append((match.lastgroup or "", match[0]))
    return (*found, ("", text[at:]))


def name_parts(parts: Parts, names: dict[str, str]) -> str:
    """The text again, with every such piece replaced by its name; new ones get the next."""
    return "".join(text if not kind else names.setdefault(text, f"<{kind} {len(names)}>") for kind, text in parts)


def masked_form(tree: Tree) -> str:
    """The whole tree as one text, equal for two that differ in nothing but what :data:`ABSTRACTION` says."""
    names: dict[str, str] = {}
    lines = []
    for path, entry in tree.entries.items():
        lines.append(name_parts(split_text(f"{path} {entry.kind} {entry.mode:o}"), names))
        lines.append(name_parts(split_text(entry.data.decode(errors="backslashreplace")), names))
    # an inode number on the disk is that of a file that is there, or it is not
    lines += [f"{path} is {names[inode]}" for path, e in tree.entries.items() if (inode := str(e.inode[1])) in names]
    return "\n".join(lines)
