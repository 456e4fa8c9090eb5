"""Set-ups and the judge of the sites. It folds the journal with code of its own and imports nothing of the product."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.judge.scenario import Afterwards, Answer, History, Judgement, Scenario
from harness.judge.tree import Tree
from harness.model import Violation
from tests.scenarios import forms

JOURNAL, STATE, CURSOR = "state/journal.jsonl", "state/state.json", "state/cursor.json"
HOUR, DAY = 3600, 86_400
TERM = {"FRIENDLY": 90 * DAY, "SUSPECT": HOUR, "ANTIBOT_SOFT": 6 * HOUR, "ANTIBOT_HARD": 7 * DAY, "DEAD": DAY}
PAGE_TERM = {"found": 7 * DAY, "empty": 30 * DAY, "gone": 30 * DAY, "refused": DAY}
ANSWERS = {"gone", "transient", "challenge", "found", "empty", "refused"}


def signal_lines(*rows: tuple[Any, ...]) -> bytes:
    """Signals ``(at, outcome, url)``, with more fields in a dict behind; the id is the number of the line and its time."""
    lines = []
    for number, (at, outcome, url, *more) in enumerate(rows, 1):
        fields = {"id": f"{at}-{number}", "at": at, "outcome": outcome, "url": url} | (more[0] if more else {})
        lines.append(json.dumps(fields).encode() + b"\n")
    return b"".join(lines)


FIRST = signal_lines(
    (10_000, "found", "https://good.example/"),
    (10_010, "network-failure", "https://good.example/a"),
    (10_020, "network-failure", "https://www.good.example/b"),  # the third would make it dead
    (10_030, "network-failure", "https://new.example/"),  # never good: the second would
    *((10_040 + n, "empty", f"https://many.example/{n}") for n in range(5)),
    *((10_050 + n, "gone", f"https://pages.example/{n}") for n in range(3)),
    *((10_060 + n, "refused", f"https://caller.example/{n}", {"why": "422"}) for n in range(3)),
    (10_070, "gone", "https://half.example/x", {"root": "alive", "final_url": "https://half.example/"}),
    (10_071, "gone", "https://lost.example/x", {"root": "fails"}),
    (10_080, "challenge", "https://guarded.example/"),
    (10_081, "challenge", "https://guarded.example/"),
    (10_082, "transient", "https://busy.example/", {"retry_after_s": 120}),
    (10_083, "row", "https://busy.example/"),
    (10_084, "pool-hit", "https://many.example/1"),
    *((10_100 + n, "network-failure", f"https://outage{n % 6}.example/") for n in range(14)),  # everybody at once
    (10_200, "found", "https://outage0.example/"),
    (10_201, "network-failure", "https://dead.example/"),
    (10_202, "network-failure", "https://dead.example/"),
    (10_203, "network-failure", "https://dead.example/"),  # no longer dead for that
    (900_000, "network-failure", "https://clock.example/"),
    (900_001, "network-failure", "https://clock.example/"),  # dead, in a far future
    (10_300, "transient", "https://clock.example/"),  # that was the clock
    *((10_400 + n, "found", f"https://friend.example/{n}") for n in range(3)),
)
SECOND = signal_lines(
    (11_000, "network-failure", "https://good.example/c"),
    (11_001, "network-failure", "https://new.example/"),
    (11_002, "challenge", "https://friend.example/9"),
    (11_003, "empty", "https://many.example/6"),
    (11_004, "network-failure", "https://friend.example/9"),
    (11_005, "found", "https://dead.example/"),
    (11_006, "network-failure", "https://busy.example/"),
)


class SitesScenario(Scenario):
    """What every scenario shares: signals of somebody else's, and the state that grows from them."""

    signals: tuple[bytes, ...] = (FIRST,)
    foreign: tuple[str, ...] = ("first.jsonl", "second.jsonl", "notes.txt")
    append_only = (JOURNAL,)
    immutable = ("state/.sites.lock",)
    own_state = (JOURNAL,)  # a torn last line is cut off
    allowed = (*foreign, "state", "state/.sites.lock", JOURNAL, STATE, CURSOR)
    busy_codes = frozenset({"E_STATE_LOCKED"})

    knows_inodes = True  # the log is known by its device and inode
    abstraction = forms.ABSTRACTION

    def canonical(self, tree: Tree, *, folded: bool) -> str:
        return forms.masked_form(tree)

    def set_up(self, sandbox: Path) -> None:
        (sandbox / "first.jsonl").write_bytes(FIRST)
        (sandbox / "second.jsonl").write_bytes(SECOND)
        (sandbox / "notes.txt").write_bytes(b"somebody else's notes\n")

    def tamper(self, name: str, sandbox: Path) -> Afterwards:
        """What a torn write leaves, or what somebody else does to the state."""
        journal, state, cursor = (sandbox / path for path in (JOURNAL, STATE, CURSOR))
        match name:
            case "torn-journal":
                journal.write_bytes(journal.read_bytes()[:-9])
                return Afterwards.KILL
            case "cut-state" | "cut-cursor":
                path = state if name == "cut-state" else cursor
                path.write_bytes(path.read_bytes()[:-5])
            case "no-state" | "no-cursor":
                (state if name == "no-state" else cursor).unlink()
            case "cursor-ahead":
                cursor.write_bytes(b'{"epoch":1,"offset":99999999,"schema":1}')
            case "other-journal":
                journal.write_bytes(journal.read_bytes().replace(b'"at":10000', b'"at":10009', 1))
            case _:
                return super().tamper(name, sandbox)
        return Afterwards.GO_ON

    def records(self, tree: Tree) -> list[str]:
        """The id of every entry of the journal; a last line without its end is none (and a violation elsewhere)."""
        return [json.loads(line)["id"] for line in (tree.file(JOURNAL) or b"").split(b"\n")[:-1]]

    def acknowledged(self, answer: Answer) -> set[str]:
        return self.due(Tree({})) if answer.ok else set()

    def due(self, start: Tree) -> set[str]:
        return {json.loads(line)["id"] for data in self.signals for line in data.splitlines()}

    def counters(self, tree: Tree) -> dict[str, int]:
        state, cursor = parse(tree, STATE, True), parse(tree, CURSOR, True)
        found: dict[str, int] = {}
        if state:
            found |= {"applied": state["applied"], "entries": sum(state["known"]["outcomes"].values())}
        if cursor:
            found["offset"] = cursor["offset"]
        return found

    def judge(self, history: History) -> Judgement:
        found: list[Violation] = []
        checks, tampered = 0, False
        for moment in history.moments:
            tampered = tampered or moment.role == "tampered"
            if tampered and (moment.answer.code or moment.role in ("tampered", "run")):
                continue  # only what a later command makes of it counts
            facts = list(self._look(moment.tree, tampered))
            if moment.answer.ok and moment.role in ("again", "retry"):
                facts += list(self._look_at_end(moment.tree))
            checks += len(facts) + 1
            found += [Violation("sites", "", f"{words} (after {moment.role})") for ok, words in facts if not ok]
        return Judgement(tuple(found), checks)

    def _look(self, tree: Tree, tampered: bool) -> Iterator[tuple[bool, str]]:
        """True in every snapshot, in the middle of everything: what is known is exactly what the entries up to A say."""
        state, cursor = parse(tree, STATE, tampered), parse(tree, CURSOR, tampered)
        yield tampered or state is not None or cursor is None, "a cursor is there, and no state"
        if state is None:
            return
        data = (tree.file(JOURNAL) or b"")[: state["applied"]]
        yield len(data) == state["applied"], "A is beyond the end of the journal: the state came first"
        yield data.endswith(b"\n") or not data, "A is not the end of a line"
        if cursor is not None and not tampered:
            yield cursor["offset"] <= state["applied"], "the cursor is ahead of A"
        known, due = state["known"], Fold(data)
        said = {name: outline(site) for name, site in known["sites"].items()}
        for name in sorted(said.keys() | due.sites.keys()):
            expected = outline(due.sites[name]) if name in due.sites else None
            yield said.get(name) == expected, f"{name} is {said.get(name)}, due is {expected}"
        pages = {page["url"]: (page["outcome"], page["until"]) for page in known["pages"].values()}
        yield pages == due.pages, f"the pages are {pages}, due are {due.pages}"
        yield known["rejected"] == due.rejected, f"{known['rejected']} lines rejected, due are {due.rejected}"
        yield known["outcomes"] == due.outcomes, f"applied {known['outcomes']}, the journal up to A has {due.outcomes}"

    def _look_at_end(self, tree: Tree) -> Iterator[tuple[bool, str]]:
        """True once a command has said done: all of the journal is applied, and the cursor is there."""
        state, cursor, size = parse(tree, STATE, False), parse(tree, CURSOR, False), len(tree.file(JOURNAL) or b"")
        if state is None and not size:
            return
        yield state is not None and state["applied"] == size, "not everything is applied"
        yield cursor is not None and cursor["offset"] == size, "the cursor is not at the end"


class FirstApply(SitesScenario):
    """No state; signals of every kind, and every story of the page."""


class SecondApply(SitesScenario):
    """The first signals are applied; the second ones come: each is the last that its site needs to move."""

    signals = (FIRST, SECOND)


class ConsumeOnly(SitesScenario):
    """After the crash only ``consume`` comes: what is in the journal is applied, what is not there was never taken."""

    def acknowledged(self, answer: Answer) -> set[str]:
        return super().acknowledged(answer) if answer.fields.get("command") == "apply" else set()

    def due(self, start: Tree) -> set[str]:
        return super().due(start) if start.entries == {} else set()


class Revive(SitesScenario):
    """A site that keeps robots out is revived by hand."""

    def due(self, start: Tree) -> set[str]:
        return super().due(start) | {f"revive:guarded.example:12000:{len(FIRST.splitlines())}"}


class Expire(SitesScenario):
    """Days later: what is past its term goes."""

    def due(self, start: Tree) -> set[str]:
        return super().due(start) | {f"tick:300000:{len(FIRST.splitlines())}"}


class Probe(SitesScenario):
    """A probe of an address where nobody listens."""

    signals = ()

    def due(self, start: Tree) -> set[str]:
        return {"p1"}


def parse(tree: Tree, path: str, tampered: bool) -> dict[str, Any] | None:
    """A document of the state, always whole; once somebody has tampered, None where it is not."""
    data = tree.file(path)
    if data is None:
        return None
    try:
        value = json.loads(data)
    except ValueError:
        if tampered:
            return None
        raise
    assert isinstance(value, dict)
    return value


def outline(site: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(site[name] for name in ("state", "since", "until", "failures", "challenges", "ok_at", "retry_until"))


class Fold:
    """What the entries of a journal amount to, by the page's rules in plain words."""

    def __init__(self, data: bytes) -> None:
        self.sites: dict[str, dict[str, Any]] = {}
        self.pages: dict[str, tuple[str, int]] = {}
        self.page_of: dict[str, tuple[str, int]] = {}
        self.outcomes: Counter[str] = Counter()
        self.failing: dict[str, int] = {}
        self.outage_at: int | None = None
        self.rejected = 0
        for line in data.splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                self.rejected += 1
            else:
                self.add(entry)

    def add(self, entry: dict[str, Any]) -> None:
        at, outcome = entry["at"], entry["outcome"]
        self.outcomes[outcome] += 1
        if outcome == "tick":
            for site in self.sites.values():
                self.settle(site, at)
                if site["retry_until"] is not None and not holds(site["retry_since"], site["retry_until"], at):
                    site["retry_until"] = None
            self.pages = {url: p for url, p in self.pages.items() if holds(self.page_of[url][1], p[1], at)}
            return
        site = self.sites.setdefault(entry["site"], fresh())
        self.settle(site, at)
        if outcome in ANSWERS:
            self.failing, self.outage_at = {}, None
        if outcome in PAGE_TERM:
            self.pages[entry["url"]] = (outcome, at + PAGE_TERM[outcome])
            self.page_of[entry["url"]] = (entry["site"], at)
        lives = outcome in ("found", "empty") or (outcome == "gone" and entry.get("root") == "alive")
        if outcome == "network-failure":
            if not self.everybody_fails(entry["site"], at):
                self.fail(site, at)
        elif outcome == "gone" and entry.get("root") == "fails":
            self.fail(site, at)
        elif outcome == "challenge":
            self.challenge(site, at)
        elif outcome == "transient":
            site["retry_since"], site["retry_until"] = at, at + min(entry.get("retry_after_s", 60), DAY)
        elif outcome == "revived":
            self.revive(entry["site"], site, at)
        elif lives:
            self.live(site, at, found=outcome == "found")
            if outcome in ("found", "empty"):
                site["ok_at"] = at

    def settle(self, site: dict[str, Any], at: int) -> None:
        if site["until"] is not None and not holds(site["since"], site["until"], at):
            go(site, "NEUTRAL", at)
        for name in ("failures", "challenges"):
            site[name] = [t for t in site[name] if abs(at - t) < DAY]

    def everybody_fails(self, name: str, at: int) -> bool:
        if self.outage_at is not None and abs(at - self.outage_at) <= 120:
            self.outage_at = at
            return True
        self.outage_at = None
        self.failing = {site: t for site, t in self.failing.items() if abs(at - t) <= 120} | {name: at}
        if len(self.failing) < 5:
            return False
        for other in self.failing:
            site = self.sites[other]
            site["failures"] = [t for t in site["failures"] if abs(at - t) > 120]
            if abs(at - site["since"]) <= 120 and site["state"] in ("SUSPECT", "DEAD"):
                go(site, "NEUTRAL", at)
        self.failing, self.outage_at = {}, at
        return True

    def fail(self, site: dict[str, Any], at: int) -> None:
        site["failures"] = [*site["failures"], at][-3:]
        if site["state"] == "DEAD":
            return
        if len(site["failures"]) >= (2 if site["ok_at"] is None else 3):
            go(site, "DEAD", at)
        elif site["state"] == "NEUTRAL" and site["ok_at"] is None:
            go(site, "SUSPECT", at)

    def challenge(self, site: dict[str, Any], at: int) -> None:
        site["failures"], site["challenges"] = [], [*site["challenges"], at][-2:]
        again, state = len(site["challenges"]) >= 2, site["state"]
        if state == "ANTIBOT_HARD":
            return
        if again:
            go(site, "ANTIBOT_HARD" if state == "ANTIBOT_SOFT" else "ANTIBOT_SOFT", at)
        elif site["ok_at"] is None and state in ("NEUTRAL", "SUSPECT", "DEAD"):
            go(site, "ANTIBOT_SOFT", at)
        elif state in ("SUSPECT", "DEAD"):
            go(site, "NEUTRAL", at)

    def live(self, site: dict[str, Any], at: int, *, found: bool) -> None:
        if found:
            site["goods"] += 1
            site["challenges"] = []
            if site["state"] == "FRIENDLY" or site["goods"] >= 3:
                go(site, "FRIENDLY", at)
            elif site["state"] != "NEUTRAL":
                go(site, "NEUTRAL", at)
        elif site["state"] in ("SUSPECT", "DEAD"):
            go(site, "NEUTRAL", at)
        site["failures"] = []

    def revive(self, name: str, site: dict[str, Any], at: int) -> None:
        if site["state"] != "NEUTRAL":
            go(site, "NEUTRAL", at)
        site["failures"], site["challenges"], site["retry_until"] = [], [], None
        self.pages = {url: page for url, page in self.pages.items() if self.page_of[url][0] != name}


def fresh() -> dict[str, Any]:
    return {"state": "NEUTRAL", "since": 0, "until": None, "failures": [], "challenges": [], "goods": 0, "ok_at": None,
            "retry_since": 0, "retry_until": None}  # fmt: skip


def go(site: dict[str, Any], state: str, at: int) -> None:
    if state in ("SUSPECT", "ANTIBOT_SOFT", "ANTIBOT_HARD", "DEAD"):
        site["goods"] = 0
    site["state"], site["since"] = state, at
    site["until"] = at + TERM[state] if state in TERM else None


def holds(since: int, until: int, now: int) -> bool:
    return since - HOUR <= now < until
