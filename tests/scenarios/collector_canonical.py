"""The collector's disk without what differs from one run to the next: the states of its closure (harness.md, "Closure").

What is forgotten is said in :data:`ABSTRACTION` and :data:`FOLDING`, which every exploration shows; nothing else is. Names
for what is told apart are given by order of appearance: pending first, then the other files.
"""

from __future__ import annotations

import functools
import json
import re
import sqlite3
from collections.abc import Iterable
from typing import Any

from harness.judge.tree import Entry, Tree
from tests.scenarios import forms
from tests.scenarios.collector_tamper import PENDING
from tests.scenarios.forms import Parts, name_parts, split_text

OWNER = "state/.collector.lock.owner"
ABSTRACTION = (
    forms.ABSTRACTION
    + " Recovery generations are relative to the claim's. The index counts by its rows, not by its pages."
)
FOLDING = (
    "Temporary files, candidates that pending does not know yet and the state lock's owner records (it is the kernel that "
    "holds that lock) are not told apart; of the quarantined formal locks that pending lists only how many are listed and "
    "how many of them are there, up to two; claim_attempt is forgotten."
)
FOLD = 2
_INDEX = "state/refresh/index.sqlite"


def canonical_form(tree: Tree, *, folded: bool) -> str:
    """One text, equal for two disks that differ only in what :data:`ABSTRACTION`, and folded :data:`FOLDING`, says."""
    pending = _read(tree.entries.get(PENDING))
    generation = _generation(pending)
    listed = [f"archive/{item['path']}" for item in (pending or {}).get("quarantined") or ()]
    forgotten = _forgotten(pending, listed) if folded else ()
    names: dict[str, str] = {}
    lines = []
    if pending is not None:
        lines.append(name_parts(_pending_parts(tree.entries[PENDING].data, generation, folded), names))
    for path in _in_order(tree):
        entry = tree.entries[path]
        if path.startswith(forgotten) or (folded and path.endswith(".tmp")):
            continue
        lines.append(name_parts(split_text(f"{path} {entry.kind} {entry.mode:o} "), names))
        if not (path == PENDING and pending is not None):
            lines.append(name_parts(_content_parts(path == _INDEX, entry.kind, entry.data, generation), names))
    if folded:
        there = sum(path in tree.entries for path in listed)
        lines.append(f"{min(FOLD, len(listed))} listed, {min(FOLD, there)} there")
    return "\n".join(lines)


def _forgotten(pending: Any, listed: list[str]) -> tuple[str, ...]:
    """How the paths begin that the folded form does not look at."""
    unfrozen = pending is None or pending["phase"] in ("BEGUN", "PREPARED")
    return (OWNER, *listed, *(("archive/.candidates/",) if unfrozen else ()))


def describe_state(tree: Tree) -> str:
    """Where a run stands, for people: phase, claim or takeover."""
    pending = _read(tree.entries.get(PENDING))
    if pending is None:
        return "nothing in flight"
    claim = pending.get("formal_lock_claim")
    takeover = pending["takeover"]["phase"]
    lock = takeover if takeover != "NONE" else claim["claim_state"] if claim else "no claim"
    return f"{pending['phase']} / {lock}"


def _in_order(tree: Tree) -> Iterable[str]:
    """By path; quarantined locks by generation and owner records by their time, not by the hash in their name."""
    return sorted(tree, key=lambda path: (*_place(path), _born(path, tree)))


def _born(path: str, tree: Tree) -> str:
    record = _read(tree.entries[path]) if path.startswith(OWNER) else None
    return str(record.get("acquired_at")) if record else ""


@functools.lru_cache(maxsize=8192)
def _place(path: str) -> tuple[str, int]:
    match = re.search(r"-g(\d+)-[0-9a-f]{64}", path)
    return re.sub(r"(-g\d+)?-?[0-9a-f]{64}", "*", path), int(match[1]) if match else 0


@functools.lru_cache(maxsize=1024)
def _pending_parts(data: bytes, generation: int, folded: bool) -> Parts:
    return split_text(json.dumps(_relative(json.loads(data), generation, folded), sort_keys=True))


@functools.lru_cache(maxsize=4096)
def _content_parts(is_index: bool, kind: str, data: bytes, generation: int) -> Parts:
    if kind != "file":
        return split_text(data.decode(errors="replace"))
    if is_index:
        return split_text("\n".join(_dump(data)))
    value = _parse(data)
    if value is None:
        return split_text(data.decode(errors="backslashreplace"))
    return split_text(json.dumps(_relative(value, generation, False), sort_keys=True))


def _dump(data: bytes) -> tuple[str, ...]:
    """The rows of a database, or its bytes where it is none."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(data)
        return tuple(connection.iterdump())
    except sqlite3.Error:
        return (data.hex(),)
    finally:
        connection.close()


def _read(entry: Entry | None) -> dict[str, Any] | None:
    return _parse(entry.data) if entry is not None and entry.kind == "file" else None


@functools.lru_cache(maxsize=4096)
def _parse(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _generation(pending: Any) -> int:
    claim = (pending or {}).get("formal_lock_claim")
    return int(claim["lock_record"]["recovery_generation"]) if claim else 0


def _relative(value: Any, generation: int, folded: bool) -> Any:
    if isinstance(value, dict):
        if ".quarantine/" in str(value.get("path")):
            value = {**value, "size": "as many bytes as its process number has digits"}
        return {key: _field(key, item, generation, folded) for key, item in value.items()}
    if isinstance(value, list):
        return [_relative(item, generation, folded) for item in value]
    if isinstance(value, str):
        return re.sub(r"-g(\d+)-", lambda match: f"-g{int(match[1]) - generation:+d}-", value)
    return value


def _field(key: str, item: Any, generation: int, folded: bool) -> Any:
    if key in ("recovery_generation", "next_generation"):
        return f"{item - generation:+d}"
    if folded and key in ("claim_attempt", "quarantined"):
        return "folded"
    if key.endswith("lock_bytes"):
        return _relative(json.loads(item), generation, folded)
    return _relative(item, generation, folded)
