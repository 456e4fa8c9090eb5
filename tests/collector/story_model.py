"""What may become of the archive, whatever dies, in a few lines: it knows phases and posts, no locks, no rows, no steps.

It shares no code with the collector and none with the judge of tests/scenarios: two that read the spec apart.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.judge.scenario import Moment
from harness.judge.tree import Tree

FINISHED = ("NEW_APPENDED", "NEW_APPENDED_PARTIAL", "NO_NEW", "INCOMPLETE")
QUIET = ("rival",)


class Phase(enum.Enum):
    """Where the run stands, as the disk says it."""

    NONE = "nothing of it is there"
    IN_FLIGHT = "it is begun and not over"
    DONE = "it is in the archive"


@dataclass(frozen=True)
class World:
    """All that the model remembers."""

    phase: Phase
    posts: tuple[str, ...]
    runs: tuple[str, ...]
    acknowledged: bool = False
    tampered: bool = False


class Model:
    """Of one run whose posts are those of its feed. ``follow`` goes through a story and says what must never happen."""

    def __init__(self, start: Tree, run: str) -> None:
        feed = json.loads(start.file(f"{run}.feed.json") or b"")
        self._run = run
        self._due = {item["id_str"] for item in feed["data"]["items"]}
        self._start = self._look(start)

    def follow(self, moments: Sequence[Moment]) -> list[str]:
        """One line for each thing that must not be. The first moment is the set-up."""
        world, wrong = self._start, list[str]()
        for number, moment in enumerate(moments[1:], 1):
            seen = replace(self._look(moment.tree), acknowledged=world.acknowledged, tampered=world.tampered)
            if moment.role == "tampered":
                world = replace(seen, tampered=True)
                continue
            world = replace(seen, acknowledged=world.acknowledged or self._is_acknowledged(moment))
            before = replace(self._look(moments[number - 1].tree), tampered=world.tampered)
            wrong += [f"{words} (moment {number}, {moment.role})" for words in self._step(before, world, moment)]
        if moments[-1].role == "retry" and moments[-1].answer.ok and world.phase is not Phase.DONE:
            wrong.append(f"the client was told that it is done, and {world.phase.value}")
        return wrong

    def _step(self, before: World, after: World, moment: Moment) -> Iterator[str]:
        old, new = len(before.posts), after.posts[len(before.posts) :]
        if after.posts[:old] != before.posts or after.runs[: len(before.runs)] != before.runs:
            yield "what was appended is no longer there in its order"
        if len(set(after.posts)) != len(after.posts) or len(set(after.runs)) != len(after.runs):
            yield "something was appended twice"
        if not set(new) <= self._due or not set(after.runs[len(before.runs) :]) <= {self._run}:
            yield "something was appended that nobody sent"
        if self._run in after.runs and not self._due <= set(after.posts):
            yield "the run is in the archive without all of its posts"
        undisturbed = moment.result is None or all(record.kind == "pass" for record in moment.result.records)
        said_no = moment.answer.code is not None and moment.role in ("recovery", "again", "retry") and undisturbed
        if (moment.role in QUIET or said_no) and (before.posts, before.runs) != (after.posts, after.runs):
            yield "something was appended by one that had no right to"
        if after.acknowledged and self._is_over(moment) and after.phase is not Phase.DONE:
            yield f"the run was acknowledged, and {after.phase.value}"
        if not after.tampered:
            yield from self._phases(before, after)

    def _phases(self, before: World, after: World) -> Iterator[str]:
        if after.phase is Phase.NONE and after.posts != self._start.posts:
            yield "posts of a run that nothing on the disk knows of"
        if before.phase is Phase.DONE and after.phase is not Phase.DONE:
            yield "a run that was done is not done any more"

    def _look(self, tree: Tree) -> World:
        posts = tuple(str(line["identifiers"]["dynamic_id"]) for line in _lines(tree, "cards"))
        runs = tuple(str(line["run_id"]) for line in _lines(tree, "runs"))
        pending = tree.file("state/refresh/pending.json") is not None
        phase = Phase.IN_FLIGHT if pending else Phase.DONE if self._run in runs else Phase.NONE
        return World(phase, posts, runs)

    def _is_acknowledged(self, moment: Moment) -> bool:
        fields = moment.answer.fields
        return fields.get("ok") is True and fields.get("run_id") == self._run and fields.get("state") in FINISHED

    def _is_over(self, moment: Moment) -> bool:
        return moment.result is not None and moment.result.exit_code == 0 and moment.role not in QUIET


def _lines(tree: Tree, manifest: str) -> Iterator[dict[str, Any]]:
    """The records of all segments; a line that is none stands for itself, as something that nobody sent."""
    names = sorted(path for path in tree if path.startswith(f"archive/{manifest}/") and path.endswith(".jsonl"))
    for raw in b"".join(tree.file(name) or b"" for name in names).splitlines():
        try:
            yield json.loads(raw)
        except ValueError:
            yield {"identifiers": {"dynamic_id": repr(raw)}, "run_id": repr(raw)}
