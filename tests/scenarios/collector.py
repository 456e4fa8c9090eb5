"""Set-ups and the judge of the collector. It reads the disk with code of its own and imports nothing of the product."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.judge.scenario import Afterwards, Answer, History, Judgement, Scenario
from harness.judge.tree import Tree
from harness.model import Violation
from tests.scenarios import collector_canonical, collector_tamper
from tests.scenarios.collector_canonical import OWNER
from tests.scenarios.collector_tamper import LOCK, PENDING, QUARANTINE

WHILE_HELD = ("paused", "rival", "tampered")
DATA = Path(__file__).resolve().parent.parent / "data"
FOREIGN = {
    "archive/notes.txt": b"somebody else's notes\n",
    "archive/cards/README": b"not a segment\n",
    "archive/cards/000001.jsonl.bak": b"a copy that somebody made\n",
    "state/refresh/slots/old.json": b"{}\n",
    "state/.collector.lock.bak": b"\x00",
}


class CollectorScenario(Scenario):
    """What every collector scenario shares: the feeds, the archive's shape, and what may lie where in the end."""

    append_only = ("archive/cards/??????.jsonl", "archive/runs/??????.jsonl")
    immutable: tuple[str, ...] = (f"{QUARANTINE}/*", "state/refresh/runs/*/evidence.json", "state/refresh/slots/???.json",
                                  "state/.collector.lock", "state/.collector.lock.owner.quarantine/*")  # fmt: skip
    foreign = (*FOREIGN, "*.feed.json", "*.evidence.json")
    allowed: tuple[str, ...] = (
        "archive", "archive/cards", "archive/runs", "archive/.candidates", "archive/cards/??????.jsonl",
        "archive/runs/??????.jsonl", QUARANTINE, f"{QUARANTINE}/.owner-marker.json",
        "state", "state/.collector.lock", "state/.collector.lock.owner.quarantine",
        "state/.collector.lock.owner.quarantine/*.json", "state/refresh", "state/refresh/runs", "state/refresh/runs/*",
        "state/refresh/slots", "state/refresh/slots/???.json", "state/refresh/latest.json",
        "state/refresh/index.sqlite*",
    )  # fmt: skip
    own_state = (PENDING, "state/refresh/index.sqlite")
    bookkeeping = ("state/.collector.lock*", "state/..collector.lock.owner.json.tmp", "state/refresh/index.sqlite*")
    busy_codes = frozenset({"E_STATE_LOCKED", "E_FORMAL_LOCK_BUSY"})
    runs: tuple[str, ...] = ("first",)

    def set_up(self, sandbox: Path) -> None:
        """The roots with somebody else's files in them, and two feed answers of which the second repeats posts."""
        for path, data in FOREIGN.items():
            (sandbox / path).parent.mkdir(parents=True, exist_ok=True)
            (sandbox / path).write_bytes(data)
        for name, feed in feeds().items():
            (sandbox / f"{name}.feed.json").write_bytes(json.dumps(feed).encode())

    def tamper(self, name: str, sandbox: Path) -> Afterwards:
        """What somebody else does to the disk in the middle of a run (tests.scenarios.collector_tamper)."""
        return (
            collector_tamper.TAMPERS[name](sandbox)
            if name in collector_tamper.TAMPERS
            else super().tamper(name, sandbox)
        )

    def records(self, tree: Tree) -> list[str]:
        """The dynamic id of every archived post, then the id of every archived run. Raises ValueError."""
        posts = [f"post {line['identifiers']['dynamic_id']}" for line in read_manifest(tree, "cards")]
        return posts + [f"run {line['run_id']}" for line in read_manifest(tree, "runs")]

    def acknowledged(self, answer: Answer) -> set[str]:
        """Everything of the run that an answer says is done; an aborted or waiting run appended nothing."""
        if answer.ok and answer.fields.get("state") in ("NEW_APPENDED", "NEW_APPENDED_PARTIAL", "NO_NEW", "INCOMPLETE"):
            return records_of(str(answer.fields.get("run_id")))
        return set()

    def due(self, start: Tree) -> set[str]:
        return set().union(*map(records_of, self.runs))

    def counters(self, tree: Tree) -> dict[str, int]:
        found = {f"{name} seq": len(data.splitlines()) for name in ("cards", "runs") for data in segments(tree, name)}
        pending = read_json(tree, PENDING)
        if pending and pending.get("formal_lock_claim"):
            found["recovery_generation"] = pending["formal_lock_claim"]["lock_record"]["recovery_generation"]
            found["claim_attempt"] = pending["takeover"]["claim_attempt"]
        return found

    def may_vanish(self, path: str, tree: Tree) -> bool:
        """A quarantined lock's term is over once the terminal record and latest are durable."""
        if not path.startswith(f"{QUARANTINE}/") or path.endswith(".owner-marker.json"):
            return False
        pending = read_json(tree, PENDING)
        return pending is None or pending.get("phase") in ("TERMINAL", "RELEASING")

    def is_own(self, path: str, tree: Tree) -> bool:
        """A formal lock that pending knows is a run's own, whoever made the two say so."""
        pending, lock = read_json(tree, PENDING), tree.entries.get(path)
        return path == LOCK and lock is not None and pending is not None and lock.data.decode() in locks_of(pending)

    abstraction, folding = collector_canonical.ABSTRACTION, collector_canonical.FOLDING

    def canonical(self, tree: Tree, *, folded: bool) -> str:
        return collector_canonical.canonical_form(tree, folded=folded)

    def describe(self, tree: Tree) -> str:
        return collector_canonical.describe_state(tree)

    def judge(self, history: History) -> Judgement:
        found: list[Violation] = []
        checks, tampered = 0, False
        for before, after in zip(history.moments, history.moments[1:], strict=False):
            if after.role != "tampered" and not is_counted(before.tree, after.tree):
                found.append(Violation("collector", PENDING, f"another claimant and no other attempt ({after.role})"))
            if before.role not in WHILE_HELD and not keeps_dead_owner(before.tree, after.tree):
                found.append(
                    Violation("collector", f"{OWNER}.json", f"a dead owner's metadata is nowhere (after {after.role})")
                )
        for moment in history.moments:
            tampered = tampered or moment.role == "tampered"
            facts = list(self._look(moment.tree, tampered))
            checks += len(facts)
            found += [Violation("collector", "", f"{words} (after {moment.role})") for ok, words in facts if not ok]
        if history.moments[-1].role in ("again", "retry") and history.moments[-1].answer.ok:
            facts = list(self._look_at_end(history.end))
            checks += len(facts)
            found += [Violation("collector", "", words) for ok, words in facts if not ok]
        return Judgement(tuple(found), checks)

    def _look(self, tree: Tree, tampered: bool) -> Iterator[tuple[bool, str]]:
        """True in every snapshot, in the middle of everything; of what others changed only the archive is judged here."""
        yield from runs_point_at_cards(tree)
        if tampered:
            return
        yield (
            "state/refresh/lock-recovery" not in tree.entries,
            "the abolished quarantine under the state root is there",
        )
        pending = read_json(tree, PENDING)
        yield pending is not None or PENDING not in tree.entries, "pending is no whole JSON object"
        lock = tree.entries.get(LOCK)
        if lock is not None:
            known = pending is not None and lock.data.decode(errors="replace") in locks_of(pending)
            yield known, "a formal lock is there that pending does not know"
        if pending is not None and pending["takeover"]["phase"] == "TAKEOVER_PLANNED":
            yield not any("new" in key for key in pending["takeover"]), "TAKEOVER_PLANNED freezes a new holder"
        yield from latest_has_its_slot(tree)
        for path in (path for path in tree if is_quarantined(path)):
            yield is_lock_record(tree.file(path)), f"{path} is not a whole lock record"
            yield path.rpartition("-")[2] == f"{tree.entries[path].sha256}.json", f"{path} does not have its own hash"

    def _look_at_end(self, tree: Tree) -> Iterator[tuple[bool, str]]:
        """True once a recovery has said done."""
        pending = read_json(tree, PENDING)
        if pending is not None:
            yield pending["phase"] == "BEGUN", f"pending is still in {pending['phase']}"
        yield LOCK not in tree.entries, "the formal lock is still there"
        yield not any(is_quarantined(path) for path in tree), "a quarantined lock is left over"
        yield from latest_is_newest(tree)


class FirstCommit(CollectorScenario):
    """An empty archive; one run."""


class SecondCommit(CollectorScenario):
    """The archive has a run, and the second evidence repeats some of its posts."""

    runs = ("first", "second")


class NothingNew(CollectorScenario):
    """Two runs are archived, and the evidence of the third has no post that is new."""

    runs = ("first", "second", "third")


class Begin(CollectorScenario):
    """A run is begun and waits for its evidence."""

    runs = ()
    allowed = (*CollectorScenario.allowed, PENDING)


class Abort(CollectorScenario):
    """A run was begun in an hour that has passed: it ends as ABORTED and appends nothing."""

    runs = ()

    def _look_at_end(self, tree: Tree) -> Iterator[tuple[bool, str]]:
        yield from super()._look_at_end(tree)
        latest = read_json(tree, "state/refresh/latest.json") or {}
        yield latest.get("state") == "ABORTED", "the begun run did not end as ABORTED"
        yield not any(segments(tree, "cards")), "an aborted run appended cards"


class Moved(FirstCommit):
    """The evidence of finished runs leaves the state root for the archive: at least once, and in the end exactly once."""

    allowed = (*CollectorScenario.allowed, "archive/evidence*")
    immutable = (*CollectorScenario.immutable, "archive/evidence/*/*/*.json")

    def may_vanish(self, path: str, tree: Tree) -> bool:
        return path.endswith("/evidence.json") and sha_of_evidence(tree) in evidence_hashes(tree, "archive/evidence/")

    def _look(self, tree: Tree, tampered: bool) -> Iterator[tuple[bool, str]]:
        yield from super()._look(tree, tampered)
        yield sha_of_evidence(tree) in evidence_hashes(tree, ""), "the evidence of the run is nowhere"

    def judge(self, history: History) -> Judgement:
        judgement = super().judge(history)
        if history.moments[-1].role != "retry":
            return judgement
        left = evidence_hashes(history.end, "state/refresh/runs/")
        found = [Violation("collector", path, "is still there after the move") for path in left.values()]
        return Judgement((*judgement.violations, *found), judgement.checks + 1)


class Handoff(FirstCommit):
    """A bundle is whole or not there, whatever lies beside it under its temporary name."""

    allowed = (*CollectorScenario.allowed, "bundle", "bundle/*", ".bundle.tmp", ".bundle.tmp/*")

    def _look(self, tree: Tree, tampered: bool) -> Iterator[tuple[bool, str]]:
        yield from super()._look(tree, tampered)
        if "bundle" not in tree.entries:
            return
        sums = (tree.file("bundle/SHA256SUMS") or b"").decode().splitlines()
        due = {line[66:]: line[:64] for line in sums}
        there = {
            path[7:] for path, entry in tree.entries.items() if path.startswith("bundle/") and entry.kind == "file"
        }
        yield bool(due) and there == {*due, "SHA256SUMS"}, "the bundle is not what its SHA256SUMS lists"
        for name, sha256 in due.items():
            yield tree.entries[f"bundle/{name}"].sha256 == sha256, f"bundle/{name} does not have its hash"
        for path in tree:
            if path.startswith("archive/cards/0") and len(path) == 27:
                yield any(tree.entries[path].sha256 == value for value in due.values()), f"{path} is not in the bundle"


class Leftovers(FirstCommit):
    """A quarantined lock cannot be deleted: it is written down, blocks nothing, and the next run deletes it."""

    def may_vanish(self, path: str, tree: Tree) -> bool:
        return path.startswith(f"{QUARANTINE}/")


class LiveOwner(FirstCommit):
    """The formal lock's holder is a living process (this one), whoever released the state lock."""

    stamp_offset = 0

    def finish_set_up(self, sandbox: Path) -> None:
        collector_tamper.set_holder(sandbox, os.getpid(), collector_tamper.own_stamp(self.stamp_offset))


class ReusedPid(LiveOwner):
    """A living process has the dead holder's number, and another creation stamp."""

    stamp_offset = -1


@functools.cache
def feeds() -> dict[str, dict[str, Any]]:
    """Two answers of real shape: the second shows four posts of the first again, and six new ones."""
    first = json.loads((DATA / "feed_space.json").read_bytes())
    other = json.loads((DATA / "feed_all.json").read_bytes())
    second = json.loads(json.dumps(other))
    second["data"]["items"] = other["data"]["items"][:6] + first["data"]["items"][:4]
    return {"first": first, "second": second}


def records_of(run_id: str) -> set[str]:
    """What the archive must have once this run is done."""
    feed = feeds().get("second" if run_id == "third" else run_id)
    if feed is None:
        return set()
    return {f"post {item['id_str']}" for item in feed["data"]["items"]} | {f"run {run_id}"}


def segments(tree: Tree, manifest: str) -> list[bytes]:
    """The manifest's whole content as one item, its segments joined in order; empty where there is none."""
    prefix = f"archive/{manifest}/"
    names = sorted(p for p in tree if p.startswith(prefix) and p.endswith(".jsonl") and len(p) == len(prefix) + 12)
    return [b"".join(tree.file(name) or b"" for name in names)] if names else []


def read_manifest(tree: Tree, manifest: str) -> tuple[dict[str, Any], ...]:
    """Every line, the chain proven. Raises ValueError naming the line that does not follow."""
    return parse_manifest(manifest, b"".join(segments(tree, manifest)))


@functools.lru_cache(maxsize=256)
def parse_manifest(manifest: str, data: bytes) -> tuple[dict[str, Any], ...]:
    """By content: the same bytes are looked at in one snapshot after the other."""
    lines: list[dict[str, Any]] = []
    previous = "0" * 64
    for number, raw in enumerate(data.split(b"\n")[:-1], 1):
        line = json.loads(raw)
        if line["seq"] != number or line["prev"] != previous:
            raise ValueError(f"{manifest}: the chain is broken at line {number}")
        previous = hashlib.sha256(raw).hexdigest()
        lines.append(line)
    if data and not data.endswith(b"\n"):
        raise ValueError(f"{manifest}: a torn last line")
    return tuple(lines)


def is_quarantined(path: str) -> bool:
    """A lock in quarantine: not the marker, and not its temporary file."""
    return path.startswith(f"{QUARANTINE}/") and path.endswith(".json") and not path.endswith("/.owner-marker.json")


def read_json(tree: Tree, path: str) -> dict[str, Any] | None:
    """The object in a file; None where there is no file, or no whole object in it."""
    try:
        value = json.loads(tree.file(path) or b"")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def locks_of(pending: dict[str, Any]) -> list[str]:
    """The exact bytes of every lock that this record knows."""
    known = [pending["formal_lock_claim"]["lock_bytes"]] if pending.get("formal_lock_claim") else []
    known += [value for key, value in pending["takeover"].items() if key.endswith("_lock_bytes")]
    return known


def is_lock_record(data: bytes | None) -> bool:
    try:
        return isinstance(json.loads(data or b""), dict)
    except ValueError:
        return False


def runs_point_at_cards(tree: Tree) -> Iterator[tuple[bool, str]]:
    """Each run's line counts exactly the cards that carry its id; runs never come before their cards."""
    try:
        cards, runs = read_manifest(tree, "cards"), read_manifest(tree, "runs")
    except ValueError as error:
        yield False, str(error)
        return
    for run in runs:
        own = [card["seq"] for card in cards if card["run_id"] == run["run_id"]]
        yield (
            len(own) == run["cards_appended"],
            f"run {run['run_id']} says {run['cards_appended']} cards, {len(own)} are there",
        )
        yield (own[0] if own else None) == run["first_card_seq"], f"run {run['run_id']} points at another first card"
    ids = [card["identifiers"]["dynamic_id"] for card in cards]
    yield len(ids) == len(set(ids)), "a post is archived twice"


def is_counted(before: Tree, after: Tree) -> bool:
    """Whether a change of the planned claimant within one generation was counted as an attempt."""
    plans = [(read_json(tree, PENDING) or {}).get("takeover", {}) for tree in (before, after)]
    records = [plan.get("new_lock_record") for plan in plans]
    if None in records or records[0] == records[1]:
        return True
    same_generation = records[0]["recovery_generation"] == records[1]["recovery_generation"]
    return not same_generation or plans[0]["claim_attempt"] < plans[1]["claim_attempt"]


def keeps_dead_owner(before: Tree, after: Tree) -> bool:
    """Whether the metadata that a process left when it ended lies there still, or whole in quarantine."""
    left = before.entries.get(f"{OWNER}.json")
    if left is None:
        return True
    later = (after.entries.get(path) for path in (f"{OWNER}.json", f"{OWNER}.quarantine/{left.sha256}.json"))
    return any(entry is not None and entry.sha256 == left.sha256 for entry in later)


def sha_of_evidence(tree: Tree) -> str:
    """What the first run's line says that its evidence is."""
    try:
        return str(read_manifest(tree, "runs")[0]["evidence_sha256"])
    except (ValueError, IndexError):
        return "no run's line can be read"


def evidence_hashes(tree: Tree, prefix: str) -> dict[str, str]:
    """Content -> path of every evidence file below the prefix: a run's own, or moved to the archive."""
    return {
        entry.sha256: path
        for path, entry in tree.entries.items()
        if path.startswith(prefix) and (path.endswith("/evidence.json") or path.startswith("archive/evidence/"))
        and entry.kind == "file"
    }  # fmt: skip


def latest_has_its_slot(tree: Tree) -> Iterator[tuple[bool, str]]:
    """Latest never points at a slot that is not there yet."""
    latest = read_json(tree, "state/refresh/latest.json")
    if latest is not None:
        slot = tree.file(f"state/refresh/slots/{latest['slot']:03d}.json") or b""
        yield hashlib.sha256(slot).hexdigest() == latest["slot_sha256"], "latest points at a slot that is not there"


def latest_is_newest(tree: Tree) -> Iterator[tuple[bool, str]]:
    prefix = "state/refresh/slots/"
    slots = [
        read_json(tree, p) for p in tree if p.startswith(prefix) and len(p) == len(prefix) + 8 and p[-8:-5].isdigit()
    ]
    newest = max((slot for slot in slots if slot), key=lambda slot: str(slot["hour"]), default=None)
    latest = read_json(tree, "state/refresh/latest.json")
    if newest is None:
        yield latest is None, "latest points at no slot"
        return
    yield latest is not None and latest["hour"] == newest["hour"], "latest is not the newest slot"
    yield latest is not None and latest["run_id"] == newest["run_id"], "latest names another run than its slot"
