"""The model itself: a story that may be, and one for each thing that must not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.judge.scenario import Moment
from harness.judge.tree import Entry, Tree
from harness.model import ProcessResult, Record
from tests.collector.story_model import Model

PENDING = "state/refresh/pending.json"
ACK = {"ok": True, "run_id": "second", "state": "NEW_APPENDED"}
REFUSAL = {"ok": False, "code": "E_NO"}


def tree(posts: str, runs: str = "", pending: bool = False, raw: bytes = b"") -> Tree:
    """One post a letter, one run a word; c and d are due, b is known already."""
    cards = b"".join(json.dumps({"identifiers": {"dynamic_id": post}}).encode() + b"\n" for post in posts) + raw
    lines = b"".join(json.dumps({"run_id": run}).encode() + b"\n" for run in runs.split())
    feed = json.dumps({"data": {"items": [{"id_str": post} for post in "bcd"]}}).encode()
    files = {"archive/cards/000001.jsonl": cards, "archive/runs/000001.jsonl": lines, "second.feed.json": feed}
    return Tree(
        {path: Entry("file", 0o644, data) for path, data in (files | ({PENDING: b"{}"} if pending else {})).items()}
    )


def moment(role: str, disk: Tree, answer: dict[str, Any] | None = None, kind: str = "pass") -> Moment:
    """Killed without an answer; with one it ended, well or not."""
    status = None if answer is None else 0 if answer["ok"] else 1
    out = b"" if answer is None else json.dumps(answer).encode()
    record = Record(kind, "collector.x", 1, 1)
    return Moment(
        role, disk, ProcessResult((), 1, status, 9 if answer is None else None, out, b"", (record,), False, 0.1)
    )


START, MIDDLE, DONE = tree("ab", "first"), tree("abc", "first", True), tree("abcd", "first second")
SETUP = Moment("set-up", START)


def wrong(*moments: Moment) -> str:
    return "\n".join(Model(START, "second").follow([SETUP, *moments]))


def test_a_story_that_may_be() -> None:
    killed, recovered = moment("run", MIDDLE, kind="kill"), moment("recovery", DONE, {"ok": True})
    assert wrong(killed, recovered, moment("again", DONE, {"ok": True}), moment("retry", DONE, ACK)) == ""
    assert wrong(moment("run", START), moment("recovery", START, {"ok": True}), moment("retry", DONE, ACK)) == ""
    assert wrong(killed, moment("recovery", DONE, REFUSAL, kind="error"), moment("recovery", DONE, {"ok": True})) == ""
    lost = Moment("tampered", tree("abc", "first"))
    assert wrong(lost, moment("run", tree("abc", "first")), moment("recovery", tree("abc", "first"), REFUSAL)) == ""


@pytest.mark.parametrize(
    ("says", "moments"),
    [
        ("no longer there in its order", [moment("run", MIDDLE), moment("recovery", tree("ab", "first", True), {"ok": True})]),
        ("no longer there in its order", [moment("run", tree("ab", "", True))]),
        ("appended twice", [moment("run", tree("abccd", "first", True))]),
        ("appended twice", [moment("run", tree("abcd", "first second second", True))]),
        ("that nobody sent", [moment("run", tree("abx", "first", True))]),
        ("that nobody sent", [moment("run", tree("ab", "first", True, b'{"iden'))]),
        ("that nobody sent", [moment("run", tree("abcd", "first third", True))]),
        ("without all of its posts", [moment("run", tree("abc", "first second", True))]),
        ("had no right to", [moment("run", MIDDLE), moment("recovery", tree("abcd", "first", True), REFUSAL)]),
        ("had no right to", [moment("rival", MIDDLE, {"ok": True})]),
        ("acknowledged, and it is begun and not over", [moment("run", MIDDLE, ACK), moment("recovery", MIDDLE, {"ok": True})]),
        ("acknowledged, and nothing of it is there", [moment("run", START, ACK)]),
        ("that nothing on the disk knows of", [moment("run", tree("abc", "first"))]),
        ("is not done any more", [moment("run", DONE), moment("recovery", tree("abcd", "first second", True), {"ok": True})]),
        ("the client was told that it is done", [moment("run", START), moment("retry", START, {"ok": True})]),
    ],
)  # fmt: skip
def test_a_story_that_must_not_be(says: str, moments: list[Moment]) -> None:
    assert says in wrong(*moments)
