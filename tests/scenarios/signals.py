"""Set-ups and the judge of the signal counter. It counts with code of its own and imports nothing of the product."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.judge.scenario import Afterwards, Answer, History, Judgement, Moment, Scenario
from harness.judge.tree import Tree
from harness.model import Violation
from tests.scenarios import forms

FILE, COUNTS, CURSOR = "signals.jsonl", "state/counts.json", "state/cursor.json"
LINE_MAX_BYTES = 1024 * 1024


def padded(key: str, size: int = 40) -> bytes:
    """A signal of exactly ``size`` bytes, its end of line included."""
    bare = json.dumps({"key": key, "pad": ""}, separators=(",", ":")).encode()
    return bare[:-2] + b"x" * (size - len(bare) - 1) + b'"}\n'


TWO = padded("K") * 2
ODD = b"".join(
    [
        padded("K"),
        '{"key":"Schlüssel €","note":"\u2028 is no end of a line"}\n'.encode(),
        b'{"key":"K"}\r\n',
        b"not a signal\n",
        b'{"key":"nul \x00 in it"}\n',
        b'{"key":7}\n{"key":"K","also":[1,2.5e400,null]}\n',
        b"\xff\xfe{}\n[]\n",
        padded("L"),
        padded("K"),
    ]
)
TORN = b'{"key":"half'
BEFORE = padded("K") + padded("old") * 2
OTHER = b'{"key":"K","of":"another history"}\n' * 4 + b"150 bytes, more than were counted of the old one\n"


class SignalsScenario(Scenario):
    """What every scenario shares: the file of signals, which is somebody else's, and the state that grows from it."""

    content = TWO
    foreign: tuple[str, ...] = (FILE, "notes.txt", "state/notes.txt")
    allowed = (FILE, "notes.txt", "state", "state/.signals.lock", COUNTS, CURSOR, "state/notes.txt")
    immutable = ("state/.signals.lock",)
    busy_codes = frozenset({"E_STATE_LOCKED"})
    adopts = False

    knows_inodes = True  # a file is known by its device and inode
    abstraction = forms.ABSTRACTION

    def canonical(self, tree: Tree, *, folded: bool) -> str:
        return forms.masked_form(tree)

    def set_up(self, sandbox: Path) -> None:
        (sandbox / FILE).write_bytes(self.content)
        (sandbox / "notes.txt").write_bytes(b"somebody else's notes\n")

    def tamper(self, name: str, sandbox: Path) -> Afterwards:
        """What somebody else does to the file, or to the state, in the middle of a scan."""
        file, counts, cursor = (sandbox / path for path in (FILE, COUNTS, CURSOR))
        match name:
            case "appended":
                with file.open("ab") as stream:
                    stream.write(padded("K") + TORN)
            case "other-file":
                (sandbox / "next").write_bytes(OTHER)
                os.replace(sandbox / "next", file)
            case "shorter":
                os.truncate(file, len(self.content) // 2)
            case "rewritten":
                file.write_bytes(OTHER)
            case "cut-counts" | "cut-cursor":
                path = counts if name == "cut-counts" else cursor
                path.write_bytes(path.read_bytes()[:-5])
            case "nul-counts" | "nul-cursor":
                (counts if name == "nul-counts" else cursor).write_bytes(b"\0" * 200)
            case "no-counts" | "no-cursor":
                (counts if name == "no-counts" else cursor).unlink()
            case "cursor-ahead":
                cursor.write_bytes(b'{"epoch":1,"offset":%d,"schema":1}' % (len(self.content) + 1))
            case _:
                return super().tamper(name, sandbox)
        return Afterwards.GO_ON

    def records(self, tree: Tree) -> list[str]:
        """``K#1``, ``K#2``, ...: one for each time that a key is counted. Raises ValueError for a torn document."""
        state = read_json(tree, COUNTS)
        return numbered(state["counts"]) if state else []

    def acknowledged(self, answer: Answer) -> set[str]:
        """Every signal up to where a scan says that it has counted."""
        if not answer.ok or "applied" not in answer.fields:
            return set()
        return set(numbered(recount(self.content[: answer.fields["applied"]])[0]))

    def due(self, start: Tree) -> set[str]:
        return set(numbered(recount(self.content)[0]))

    def counters(self, tree: Tree) -> dict[str, int]:
        """Offsets fall when an epoch begins, so they count within it; counts never fall."""
        state, cursor = parse(tree, COUNTS, True), parse(tree, CURSOR, True)
        found = {f"count of {key}": count for key, count in (state or {"counts": {}})["counts"].items()}
        if state:
            found |= {"epoch": state["epoch"], f"applied in epoch {state['epoch']}": state["applied"]}
        if cursor:
            found |= {"cursor epoch": cursor["epoch"], f"offset in epoch {cursor['epoch']}": cursor["offset"]}
        return found

    def judge(self, history: History) -> Judgement:
        found: list[Violation] = []
        checks, tampered = 0, False
        for before, moment in zip((None, *history.moments), history.moments, strict=False):
            tampered = tampered or moment.role == "tampered"
            facts = [] if tampered and moment.answer.code else list(self._look(moment.tree, tampered))
            if before is not None and moment.role in ("recovery", "again"):
                facts += list(self._look_at_row(before.tree, moment))
            checks += len(facts)
            found += [Violation("signals", "", f"{words} (after {moment.role})") for ok, words in facts if not ok]
        if history.moments[-1].role in ("again", "retry") and history.moments[-1].answer.ok:
            facts = list(self._look_at_end(history.end))
            checks += len(facts)
            found += [Violation("signals", "", words) for ok, words in facts if not ok]
        return Judgement(tuple(found), checks)

    def _look(self, tree: Tree, tampered: bool) -> Iterator[tuple[bool, str]]:
        """True in every snapshot, in the middle of everything: the counts are exactly those of the bytes up to A."""
        state, cursor = parse(tree, COUNTS, tampered), parse(tree, CURSOR, tampered)
        yield tampered or state is not None or cursor is None, "a cursor is there, and no counts"
        if state is None:
            return
        counted = is_counted_file(tree, state)
        yield counted or tampered or self.adopts, "what is said about the file is not true of it"
        if counted:
            data = (tree.file(FILE) or b"")[: state["applied"]]
            counts, rejected = recount(data)
            yield len(data) == state["applied"], "A is beyond the end of the file"
            yield data.endswith(b"\n") or not data, "A is not the end of a line"
            due = counts + Counter(state["carried"])
            yield due == state["counts"], f"counted {state['counts']}, the file up to A has {dict(due)}"
            said = {reason: entry["count"] for reason, entry in state["rejected"].items()}
            yield said == rejected, f"rejected {said}, the file up to A has {dict(rejected)}"
        if cursor is not None and not tampered:
            place, applied = (cursor["epoch"], cursor["offset"]), (state["epoch"], state["applied"])
            yield place <= applied, f"the cursor {place} is ahead of A {applied}"

    def _look_at_row(self, before: Tree, moment: Moment) -> Iterator[tuple[bool, str]]:
        """The row that a scan took is the one of what it found."""
        if moment.answer.ok and moment.answer.fields.get("command") == "scan":
            due = row_of(before)
            yield moment.answer.rows == (due,), f"took {' '.join(moment.answer.rows)}, due is {due}"

    def _look_at_end(self, tree: Tree) -> Iterator[tuple[bool, str]]:
        """True once a scan has said done: everything up to the last whole line is counted once, and the cursor is there."""
        state, cursor, data = read_json(tree, COUNTS), read_json(tree, CURSOR), tree.file(FILE) or b""
        end = data.rfind(b"\n") + 1
        yield cursor is not None and cursor["offset"] == end, "the cursor is not at the end"
        yield state is not None and state["applied"] == end, "not everything is counted"
        if state is not None:
            due = recount(data)[0] + Counter(state["carried"])
            yield due == state["counts"], f"counted {state['counts']}, due is {dict(due)}"


class FirstScan(SignalsScenario):
    """Two signals of one key, 40 bytes each; no state."""


class Batches(SignalsScenario):
    """Lines of every kind, more than one batch of them, a torn last line; a state directory with a foreign file in it."""

    content = ODD + TORN

    def set_up(self, sandbox: Path) -> None:
        super().set_up(sandbox)
        (sandbox / "state").mkdir()
        (sandbox / "state/notes.txt").write_bytes(b"notes about the state\n")


class BrokenCounts(FirstScan):
    """Somebody spoils counts.json: no number in it can be held against anything, only what a scan says about it."""

    def records(self, tree: Tree) -> list[str]:
        return []

    def acknowledged(self, answer: Answer) -> set[str]:
        return set()

    def due(self, start: Tree) -> set[str]:
        return set()


class AnotherFile(SignalsScenario):
    """Signals were counted; then a longer file of another history came in its place."""

    content = BEFORE
    adopts = True

    def finish_set_up(self, sandbox: Path) -> None:
        set_device(sandbox)
        (sandbox / FILE).write_bytes(OTHER)

    def acknowledged(self, answer: Answer) -> set[str]:
        return set(numbered(recount(BEFORE)[0])) if answer.ok else set()

    def due(self, start: Tree) -> set[str]:
        return set(numbered(recount(BEFORE)[0] + recount(OTHER)[0]))


class MovedFile(SignalsScenario):
    """Signals were counted; then the file came to lie on another device."""

    content = BEFORE
    adopts = True

    def finish_set_up(self, sandbox: Path) -> None:
        set_device(sandbox)


def set_device(sandbox: Path) -> None:
    """Make the state say that another device was counted: an inode may be the same by chance, in a copy too."""
    path = sandbox / COUNTS
    state = json.loads(path.read_bytes())
    state["file"]["device"] = "1"
    path.write_bytes(json.dumps(state, sort_keys=True, separators=(",", ":")).encode())


def recount(data: bytes) -> tuple[Counter[str], Counter[str]]:
    """How often each key is in these bytes, and how many lines are rejected for what. A last line without end is none."""
    counts, rejected = Counter[str](), Counter[str]()
    for line in data.split(b"\n")[:-1]:
        if len(line) > LINE_MAX_BYTES:
            rejected["too-long"] += 1
            continue
        try:
            value = json.loads(line.decode("utf-8"), parse_constant=_no_constant, parse_int=float)
        except UnicodeDecodeError:
            rejected["not-utf8"] += 1
        except (ValueError, RecursionError):
            rejected["not-json"] += 1
        else:
            if not isinstance(value, dict):
                rejected["not-object"] += 1
            elif not isinstance(value.get("key"), str) or any("\ud800" <= c <= "\udfff" for c in value["key"]):
                rejected["no-key"] += 1
            else:
                counts[value["key"]] += 1
    return counts, rejected


def _no_constant(text: str) -> None:
    raise ValueError(text)


def numbered(counts: dict[str, int]) -> list[str]:
    return [f"{key}#{number}" for key, count in counts.items() for number in range(1, count + 1)]


def read_json(tree: Tree, path: str) -> dict[str, Any] | None:
    data = tree.file(path)
    if data is None:
        return None
    value = json.loads(data)
    assert isinstance(value, dict)
    return value


def parse(tree: Tree, path: str, tampered: bool) -> dict[str, Any] | None:
    """A document of the state, always whole; once somebody has tampered, None where it is not."""
    try:
        return read_json(tree, path)
    except ValueError:
        if tampered:
            return None
        raise


def is_counted_file(tree: Tree, state: dict[str, Any]) -> bool:
    """Whether the file that lies there is the one that was counted, by its numbers in the system and its first bytes."""
    entry, said = tree.entries[FILE], state["file"]
    head = entry.data[: min(state["applied"], 4096)]
    found = (str(entry.inode[0]), str(entry.inode[1]), hashlib.sha256(head).hexdigest())
    return found == (said["device"], said["inode"], said["head"]["sha256"])


def row_of(tree: Tree) -> str:
    """The row of SPEC.md's Resume for a file that has not changed."""
    try:
        state, cursor = read_json(tree, COUNTS), read_json(tree, CURSOR)
    except ValueError:
        return "R-UNSOUND"
    if state is None:
        return "R1" if cursor is None else "R-AHEAD"
    if cursor is None:
        return "R2"
    if cursor["epoch"] < state["epoch"]:
        return "R3"
    if (cursor["epoch"], cursor["offset"]) > (state["epoch"], state["applied"]):
        return "R-AHEAD"
    return "R4" if cursor["offset"] < state["applied"] else "R5"
