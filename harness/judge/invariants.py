"""The invariants that hold for every program that writes files (harness.md, "What is judged").

Each is a function from the history of a cell to what it found and how many facts it looked at. They know a program only
through its :class:`Scenario`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from hashlib import sha256

from harness.judge.scenario import History, Judgement, Moment, Scenario
from harness.judge.tree import Entry, Tree
from harness.model import Expect, Violation

RECOVERING = ("recovery", "again", "retry")
Invariant = Callable[[Scenario, History, Expect], Judgement]


def _matches(path: str, globs: Sequence[str]) -> bool:
    return _matches_any(path, tuple(globs))


@lru_cache(maxsize=1 << 14)  # the same paths in every cell of a scenario
def _matches_any(path: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(path, glob) for glob in globs)


def append_at_most_once(scenario: Scenario, history: History, _expect: Expect) -> Judgement:
    """A record id is never there twice; what was acknowledged is there whenever a recovery has said done (a program may
    acknowledge what its log holds and its recovery applies); what is due is there at the end."""
    found: list[Violation] = []
    checks, acknowledged = 0, set[str]()
    records: list[str] = []
    for moment in history.moments:
        try:
            records = scenario.records(moment.tree)
        except ValueError as error:
            found.append(Violation("append_at_most_once", "", f"after {moment.role}: {error}"))
            continue
        checks += 1
        twice = sorted({record for record in records if records.count(record) > 1}) if _repeats(records) else []
        found += [
            Violation("append_at_most_once", "", f"{record} is there twice after {moment.role}") for record in twice
        ]
        acknowledged |= scenario.acknowledged(moment.answer)
        missing = sorted(acknowledged - set(records)) if _is_settled(moment) else []
        found += [
            Violation("append_at_most_once", "", f"{record} was acknowledged and is not there after {moment.role}")
            for record in missing
        ]
    if any(moment.role == "retry" and moment.answer.ok for moment in history.moments):
        checks += 1
        missing = sorted(scenario.due(history.start) - set(records))
        found += [
            Violation("append_at_most_once", "", f"{record} is due and is not there at the end") for record in missing
        ]
    return Judgement(tuple(found), checks)


def _is_settled(moment: Moment) -> bool:
    """After a recovery or a retry that said done, and after a command that ended well and was not disturbed."""
    return moment.result is not None and moment.result.exit_code == 0 and moment.role != "rival"


def _repeats(records: list[str]) -> bool:
    return len(set(records)) != len(records)


def nothing_overwritten(scenario: Scenario, history: History, _expect: Expect) -> Judgement:
    """Protected files only grow by whole records, immutable ones never change, foreign ones stay byte for byte."""
    found: list[Violation] = []
    checks = 0
    for before, after in _pairs(history):
        if before.tree is after.tree or after.role == "tampered":
            continue
        for path, entry in before.tree.entries.items():
            if entry.kind == "directory":
                continue
            later = after.tree.entries.get(path)
            if _matches(path, scenario.foreign):
                problem = None if entry.same_content(later) else _changed("a foreign file", entry, later)
            elif _matches(path, scenario.append_only):
                # what was exchanged in while somebody tampered may be taken back: third_content_kept looks at that
                problem = None if before.role == "tampered" else _grown(entry, later)
            elif _matches(path, scenario.immutable):
                gone = later is None and scenario.may_vanish(path, after.tree)
                problem = None if gone or entry.same_content(later) else _changed("an immutable file", entry, later)
            else:
                continue
            checks += 1
            if problem:
                found.append(Violation("nothing_overwritten", path, f"{problem} ({before.role} -> {after.role})"))
        for path in after.tree.entries.keys() - before.tree.entries.keys():
            if _matches(path, scenario.append_only):
                checks += 1
                if problem := _torn(after.tree.entries[path]):
                    found.append(Violation("nothing_overwritten", path, f"{problem} (after {after.role})"))
    return Judgement(tuple(found), checks)


def _pairs(history: History) -> Iterable[tuple[Moment, Moment]]:
    return zip(history.moments, history.moments[1:], strict=False)


def _changed(what: str, before: Entry, after: Entry | None) -> str:
    if after is None:
        return f"{what} vanished ({len(before.data)} B, sha256 {before.sha256[:8]})"
    return f"{what} changed: {first_difference(before.data, after.data)}"


def _grown(before: Entry, after: Entry | None) -> str | None:
    if after is None or after.kind != "file":
        return _changed("a protected file", before, after)
    if not after.data.startswith(before.data):
        return f"a protected file was rewritten: {first_difference(before.data, after.data)}"
    return _torn(after)


def _torn(entry: Entry) -> str | None:
    if entry.kind == "file" and entry.data and not entry.data.endswith(b"\n"):
        return "a protected file ends in a torn record"
    return None


def first_difference(before: bytes, after: bytes) -> str:
    """Lengths, hashes' heads and the first differing offset with a short context: large states stay readable."""
    offset = next(
        (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
    )
    context = slice(max(0, offset - 16), offset + 16)
    hashes = f"sha256 {sha256(before).hexdigest()[:8]} -> {sha256(after).hexdigest()[:8]}"
    return (
        f"{len(before)} B -> {len(after)} B, {hashes}, first difference at byte {offset}: "
        f"{before[context]!r} -> {after[context]!r}"
    )


def converges(scenario: Scenario, history: History, expect: Expect) -> Judgement:
    """Recovery ends within its bound, refuses where it must, repeating it changes not one byte, and the client gets on."""
    recoveries = [moment for moment in history.moments if moment.role == "recovery"]
    found: list[Violation] = []
    if recoveries and not _ended(recoveries[-1], expect):
        result = recoveries[-1].result
        said = recoveries[-1].answer.code or (result.died_by or f"exit {result.exit_code}" if result else "nothing")
        found.append(Violation("converges", "", f"{len(recoveries)} recoveries did not end; the last said {said}"))
    for moment in history.moments:
        refuses = expect.refuses if moment.role in ("recovery", "again") and not _met_a_fault(moment) else None
        if refuses is not None and moment.answer.code != refuses:
            said = moment.answer.code or ("ok" if moment.answer.ok else "nothing")
            found.append(Violation("converges", "", f"the {moment.role} said {said}, due is {refuses}"))
        if moment.role == "retry" and moment.result is not None and moment.result.exit_code != 0:
            found.append(Violation("converges", "", f"the client's retry failed with {moment.answer.code}"))
    for before, after in _pairs(history):
        if after.role == "again":
            found += [Violation("converges", path, f"{what} by a repeated recovery")
                      for path, what in before.tree.differences(after.tree)]  # fmt: skip
            if not _ended(after, expect):
                found.append(Violation("converges", "", f"a repeated recovery failed: {after.answer.code}"))
    return Judgement(tuple(found), len(recoveries))


def _ended(moment: Moment, expect: Expect) -> bool:
    if moment.result is None:
        return False
    refused_as_expected = expect.refuses is not None and moment.answer.code == expect.refuses
    return moment.result.exit_code == 0 or refused_as_expected


def no_self_deadlock(scenario: Scenario, history: History, expect: Expect) -> Judgement:
    """With no process alive, nothing answers busy or locked (a cell about a living owner expects that code)."""
    asked = [moment for moment in history.moments if moment.role in RECOVERING and moment.result is not None]
    found = tuple(
        Violation("no_self_deadlock", "", f"{moment.role} answered {moment.answer.code or moment.result.exit_code}")
        for moment in asked
        if moment.result is not None
        and (moment.answer.code in scenario.busy_codes or moment.result.exit_code in scenario.busy_exit_codes)
        and (expect.refuses is None or moment.answer.code != expect.refuses)
    )
    return Judgement(found, len(asked))


def live_owner_untouched(scenario: Scenario, history: History, expect: Expect) -> Judgement:
    """While the owner lives, a rival refuses with the expected code and changes not one byte."""
    found: list[Violation] = []
    checks = 0
    for before, after in _pairs(history):
        if after.role != "rival":
            continue
        checks += 1
        found += [Violation("live_owner_untouched", path, f"{what} by the rival")
                  for path, what in before.tree.differences(after.tree)]  # fmt: skip
        if after.answer.code != expect.code:
            said = after.answer.code or ("ok" if after.answer.ok else "nothing")
            found.append(Violation("live_owner_untouched", "", f"the rival said {said}, due is {expect.code}"))
    return Judgement(tuple(found), checks)


def refusal_changes_nothing(scenario: Scenario, history: History, _expect: Expect) -> Judgement:
    """A refusal leaves the tree as it was (but for the program's own lock bookkeeping).

    A recovery that met a fault of its own does not refuse: it fails in the middle, and another finishes it.
    """
    found: list[Violation] = []
    checks = 0
    for before, after in _pairs(history):
        if after.role not in RECOVERING or after.answer.code is None or _met_a_fault(after):
            continue
        checks += 1
        found += [
            Violation(
                "refusal_changes_nothing", path, f"{what} by a {after.role} that refused with {after.answer.code}"
            )
            for path, what in before.tree.differences(after.tree)
            if not _matches(path, scenario.bookkeeping)
        ]
    return Judgement(tuple(found), checks)


def _met_a_fault(moment: Moment) -> bool:
    """In a chain of crashes a recovery is what the next fault happens to; what it answers then says little."""
    return moment.result is not None and any(record.kind != "pass" for record in moment.result.records)


def monotonic(scenario: Scenario, history: History, _expect: Expect) -> Judgement:
    """Declared counters never fall while they are there."""
    found: list[Violation] = []
    checks, highest = 0, dict[str, int]()
    for before, moment in zip((None, *history.moments), history.moments, strict=False):
        if moment.role == "tampered" or (before is not None and before.role == "tampered"):
            highest = {}  # not the program's doing; and an exchange may be taken back when somebody wrote in between
        for name, value in scenario.counters(moment.tree).items():
            checks += 1
            if value < highest.get(name, value):
                found.append(Violation("monotonic", name, f"fell from {highest[name]} to {value} after {moment.role}"))
            highest[name] = max(value, highest.get(name, value))
    return Judgement(tuple(found), checks)


def no_residue(scenario: Scenario, history: History, _expect: Expect) -> Judgement:
    """After a terminal state only declared paths exist."""
    last = history.moments[-1]
    if last.result is None or last.result.exit_code != 0:
        return Judgement((), 0)
    planted = {
        path
        for before, after in _pairs(history)
        if after.role == "tampered"
        for path in after.tree.entries.keys() - before.tree.entries.keys()
    }
    found = tuple(
        Violation("no_residue", path, "is left over")
        for path in last.tree
        if not _matches(path, (*scenario.allowed, *scenario.foreign)) and path not in planted
    )
    return Judgement(found, len(last.tree.entries))


def third_content_kept(scenario: Scenario, history: History, _expect: Expect) -> Judgement:
    """What tampering put there is somebody's: its bytes are still in the tree, under some name, ever after."""
    found: list[Violation] = []
    checks, planted = 0, dict[bytes, str]()
    for before, after in _pairs(history):
        if after.role == "tampered":
            for path, what in before.tree.differences(after.tree):
                entry = after.tree.entries.get(path)
                own = _matches(path, scenario.own_state) or scenario.is_own(path, after.tree)
                if what != "removed" and entry is not None and entry.kind != "directory" and not own:
                    planted[entry.data] = path
            continue
        if planted:
            checks += 1
            there = {entry.data for entry in after.tree.entries.values() if entry.kind != "directory"}
            found += [
                Violation("third_content_kept", path, f"what somebody else put there is gone after {after.role}")
                for data, path in planted.items()
                if data not in there
            ]
    return Judgement(tuple(found), checks)


def answers(_scenario: Scenario, history: History, expect: Expect) -> Judgement:
    """The process under an error, or the one that was tampered with, answers the code that matrix.yaml expects."""
    if expect.code is None or any(moment.role == "rival" for moment in history.moments):
        return Judgement((), 0)
    run = next((moment for moment in history.moments if moment.role == "run"), None)
    if run is None or run.answer.code == expect.code:
        return Judgement((), 1)
    said = run.answer.code or ("ok" if run.answer.ok else "nothing")
    return Judgement((Violation("answers", "", f"the process said {said}, due is {expect.code}"),), 1)


def row(_scenario: Scenario, history: History, expect: Expect) -> Judgement:
    """The first recovery took the row that matrix.yaml expects, and resumed at the one it expects."""
    first = next((moment for moment in history.moments if moment.role == "recovery"), None)
    if first is None or (expect.row is None and expect.resumes is None):
        return Judgement((), 0)
    rows, found = first.answer.rows, []
    due = None if expect.row == "none" else expect.row
    taken = rows[0] if rows else None
    if expect.row is not None and taken != due:
        found.append(
            Violation("row", "", f"the reopen took row {taken}, due is {due}; all: {' '.join(rows) or 'none'}")
        )
    if expect.resumes is not None:
        kind = re.match(r"[A-Za-z]*", expect.resumes)
        prefix = kind[0] if kind else ""
        resumed = next((label for label in rows if re.fullmatch(rf"{prefix}[0-9].*", label)), None)
        if resumed != expect.resumes:
            found.append(Violation("row", "", f"the reopen resumed at {resumed}, due is {expect.resumes}"))
    return Judgement(tuple(found), 1)


INVARIANTS: tuple[Invariant, ...] = (
    append_at_most_once,
    nothing_overwritten,
    converges,
    no_self_deadlock,
    live_owner_untouched,
    refusal_changes_nothing,
    monotonic,
    no_residue,
    third_content_kept,
    answers,
    row,
)


PASSAGE: tuple[Invariant, ...] = (append_at_most_once, nothing_overwritten, refusal_changes_nothing, monotonic)


def judge_history(scenario: Scenario, history: History, expect: Expect) -> Judgement:
    """Everything: the generic invariants, then the scenario's own judge. Raises whatever a judge raises."""
    judgements = [invariant(scenario, history, expect) for invariant in INVARIANTS]
    own = scenario.judge(history)
    if not isinstance(own, Judgement) or own.checks < 1:
        raise BlindJudge(f"the judge of {type(scenario).__name__} looked at nothing")
    judgements.append(own)
    return Judgement(
        tuple(violation for judgement in judgements for violation in judgement.violations),
        sum(judgement.checks for judgement in judgements),
    )


def judge_passage(scenario: Scenario, history: History) -> tuple[Violation, ...]:
    """What is wrong with a story that stops at a crash: everything but what is due when a recovery has ended."""
    found = [v for invariant in PASSAGE for v in invariant(scenario, history, Expect()).violations]
    return (*found, *scenario.judge(history).violations)


class BlindJudge(Exception):
    """A judge looked at nothing, or did not see what was planted for it to see: its silence proves nothing."""


def check_sight(scenario: Scenario, history: History, expect: Expect) -> None:
    """The canary: plant a lost, a repeated and a rewritten record, and a changed foreign file, into the last snapshot.

    Raises BlindJudge when nothing objects to one of them. A checker that cannot fail is worth nothing.
    """
    end = history.moments[-1]
    if not end.tree.entries:
        raise BlindJudge("the snapshot is empty")

    def judge_ending(tree: Tree) -> frozenset[Violation]:
        # not as "again": that any change is one by a repeated recovery would hide that nobody saw which
        ending = Moment("retry", tree, end.result)
        return frozenset(judge_history(scenario, History((*history.moments, ending)), expect).violations)

    unspoilt = judge_ending(end.tree)
    spoilt = list(_spoilt(scenario, end.tree))
    if not spoilt:
        raise BlindJudge(f"{type(scenario).__name__} declares nothing protected that is there in the end")
    for what, tree in spoilt:
        if judge_ending(tree) <= unspoilt:
            raise BlindJudge(f"the judge of {type(scenario).__name__} did not see {what}")


def _spoilt(scenario: Scenario, tree: Tree) -> Iterable[tuple[str, Tree]]:
    for path, entry in tree.entries.items():
        if entry.kind != "file" or not entry.data:
            continue
        if _matches(path, scenario.append_only):
            last = entry.data.splitlines(keepends=True)[-1]
            yield f"a repeated record in {path}", _with(tree, path, entry.data + last)
            yield f"a lost record in {path}", _with(tree, path, entry.data[: -len(last)])
            yield f"a rewritten byte in {path}", _with(tree, path, bytes([entry.data[0] ^ 1]) + entry.data[1:])
        elif _matches(path, (*scenario.foreign, *scenario.immutable)):
            yield f"a changed file {path}", _with(tree, path, entry.data + b"x")


def _with(tree: Tree, path: str, data: bytes) -> Tree:
    entry = tree.entries[path]
    return Tree({**tree.entries, path: Entry(entry.kind, entry.mode, data, entry.inode, entry.links)})
