"""Eleven small histories in each of which one thing is wrong: the generic invariants are shown that they still object.

A scenario's own canary (:func:`harness.judge.invariants.check_sight`) sees an invariant that is missing only where the
scenario has something for it to look at. These need no program: an invariant that was taken out, or that went blind,
is noticed by every run, before its first pass counts.
"""

from __future__ import annotations

import json
from typing import Any

from harness.judge.invariants import BlindJudge, judge_history
from harness.judge.scenario import Answer, History, Judgement, Moment, Scenario
from harness.judge.tree import Entry, Tree
from harness.model import Expect, ProcessResult


class _Shelf(Scenario):
    """One log, a note of somebody else's, a number that grows."""

    append_only = ("log",)
    foreign = ("note",)
    allowed = ("log", "number")
    busy_codes = frozenset({"BUSY"})

    def records(self, tree: Tree) -> list[str]:
        return (tree.file("log") or b"").decode().split()

    def acknowledged(self, answer: Answer) -> set[str]:
        return set(answer.fields.get("did", ()))

    def counters(self, tree: Tree) -> dict[str, int]:
        return {"number": int(tree.file("number") or b"0")}

    def judge(self, history: History) -> Judgement:
        return Judgement((), len(history.moments))


_BEFORE = {"log": "a\n", "note": "mine", "number": "7"}
_AFTER = _BEFORE | {"log": "a\nb\n"}


def _moment(role: str, files: dict[str, str], **answer: Any) -> Moment:
    tree = Tree({path: Entry("file", 0o644, text.encode()) for path, text in sorted(files.items())})
    if role in ("set-up", "tampered"):
        return Moment(role, tree)
    died = role == "run" and not answer
    said = json.dumps(answer or {"ok": True, "rows": ["R1"]}).encode()
    status = None if died else 0 if "code" not in answer else 1
    return Moment(
        role, tree, ProcessResult((), 1, status, 9 if died else None, b"" if died else said, b"", (), False, 0)
    )


def _story(*others: Moment) -> History:
    """Killed before b was written, recovered, recovered again, sent again; ``others`` take the place of their roles."""
    healthy = (
        _moment("set-up", _BEFORE), _moment("run", _BEFORE), _moment("recovery", _AFTER, ok=True, rows=["R1"], did=["b"]),
        _moment("again", _AFTER), _moment("retry", _AFTER),
    )  # fmt: skip
    swapped = {moment.role: moment for moment in others}
    moments = [swapped.pop(moment.role, moment) for moment in healthy]
    return History((*moments[:2], *swapped.values(), *moments[2:]))  # a role of its own comes after the run


PLANTED: dict[str, tuple[History, Expect]] = {
    "append_at_most_once": (_story(_moment("retry", _AFTER | {"log": "a\nb\nb\n"})), Expect()),
    "nothing_overwritten": (_story(_moment("retry", _AFTER | {"note": "yours"})), Expect()),
    "converges": (_story(_moment("again", _AFTER | {"log": "a\nb\nc\n"})), Expect()),
    "no_self_deadlock": (_story(_moment("retry", _AFTER, ok=False, code="BUSY")), Expect()),
    "live_owner_untouched": (_story(_moment("rival", _BEFORE | {"number": "8"}, ok=False, code="BUSY")), Expect(code="BUSY")),
    "refusal_changes_nothing": (_story(_moment("retry", _AFTER | {"number": "8"}, ok=False, code="E_NO")), Expect()),
    "monotonic": (_story(_moment("retry", _AFTER | {"number": "6"})), Expect()),
    "no_residue": (_story(_moment("retry", _AFTER | {"log.tmp": ""})), Expect()),
    "third_content_kept": (_story(_moment("tampered", _BEFORE | {"third": "a stranger's"})), Expect()),
    "answers": (_story(_moment("run", _BEFORE, ok=False, code="E_IO")), Expect(code="E_OTHER")),
    "row": (_story(), Expect(row="R2")),
}  # fmt: skip


def check_invariants() -> None:
    """Raise BlindJudge when an invariant does not object to what is planted for it, or one objects to what is right."""
    for name, (history, expect) in PLANTED.items():
        found = judge_history(_Shelf(), history, expect).violations
        if name not in {violation.invariant for violation in found}:
            raise BlindJudge(f"nothing objects to what breaks {name}: that invariant is missing or blind")
    if found := judge_history(_Shelf(), _story(), Expect(row="R1")).violations:
        raise BlindJudge(f"a history in which nothing is wrong is objected to: {found[0]}")
