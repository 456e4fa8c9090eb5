"""Histories made by hand for the tests of the judge: a shop with one log of orders, and what may happen to it."""

from __future__ import annotations

import json
from typing import Any

from harness.judge.invariants import judge_history
from harness.judge.scenario import Answer, History, Judgement, Moment, Scenario
from harness.judge.tree import Entry, Tree
from harness.model import Expect, ProcessResult


class Shop(Scenario):
    """One log of orders, one note that is somebody else's, a seal that never changes before it is expired."""

    append_only: tuple[str, ...] = ("orders",)
    immutable: tuple[str, ...] = ("seal", "seal/*")
    foreign: tuple[str, ...] = ("notes",)
    allowed: tuple[str, ...] = ("orders", "seal", "lock", "third")
    bookkeeping = ("lock",)
    busy_codes = frozenset({"BUSY"})

    def records(self, tree: Tree) -> list[str]:
        data = tree.file("orders") or b""
        if b"?" in data:
            raise ValueError("orders: not an order")
        return data.decode().splitlines()

    def acknowledged(self, answer: Answer) -> set[str]:
        return set(answer.fields.get("did", []))

    def due(self, start: Tree) -> set[str]:
        return {"two"}

    def counters(self, tree: Tree) -> dict[str, int]:
        data = tree.file("lock")
        return {"generation": int(data)} if data else {}

    def may_vanish(self, path: str, tree: Tree) -> bool:
        return "expired" in tree.entries

    def judge(self, history: History) -> Judgement:
        return Judgement((), len(history.moments))


FILES = {"orders": "one\n", "notes": "mine", "seal": "wax", "lock": "7"}
GROWN = FILES | {"orders": "one\ntwo\n"}


def tree(files: dict[str, str], **more: Entry) -> Tree:
    entries = {path: Entry("file", 0o644, text.encode()) for path, text in files.items()}
    return Tree(dict(sorted((entries | more).items())))


def result(answer: dict[str, Any] | None, exit_code: int | None = 0) -> ProcessResult:
    stdout = b"" if answer is None else json.dumps(answer).encode() + b"\n"
    signal_number = 9 if exit_code is None else None
    return ProcessResult(("shop",), 4711, exit_code, signal_number, stdout, b"", (), False, 0.1)


def moment(role: str, files: dict[str, str], answer: dict[str, Any] | None = None, exit_code: int | None = 0) -> Moment:
    return Moment(role, tree(files), None if role in ("set-up", "paused", "tampered") else result(answer, exit_code))


OK: dict[str, Any] = {"ok": True, "rows": ["T2", "B4"], "did": ["two"]}


def healthy(
    *,
    run: Moment | None = None,
    recovery: Moment | None = None,
    again: Moment | None = None,
    retry: Moment | None = None,
    between: tuple[Moment, ...] = (),
) -> History:
    """Killed before the order was written; the recovery writes it; nothing changes after that. Any part can be swapped."""
    return History(
        (
            moment("set-up", FILES),
            run or moment("run", FILES, None, None),
            *between,
            recovery or moment("recovery", GROWN, OK),
            again or moment("again", GROWN, {"ok": True}),
            retry or moment("retry", GROWN, {"ok": True}),
        )
    )


def judge(history: History, expect: Expect = Expect(), scenario: Scenario | None = None) -> set[tuple[str, str]]:
    found = judge_history(scenario or Shop(), history, expect).violations
    return {(violation.invariant, violation.path) for violation in found}


def details(history: History, expect: Expect = Expect()) -> str:
    return "\n".join(map(str, judge_history(Shop(), history, expect).violations))


def everywhere(files: dict[str, str], answer: dict[str, Any] = OK) -> History:
    """The recovery leaves ``files``, and nothing touches them after it."""
    return healthy(
        recovery=moment("recovery", files, answer),
        again=moment("again", files, {"ok": True}),
        retry=moment("retry", files, {"ok": True}),
    )


def healthy_but(role: str, other: Moment) -> History:
    """The healthy history with the moment of this role swapped."""
    moments = healthy().moments
    return History(tuple(other if moment.role == role else moment for moment in moments))
