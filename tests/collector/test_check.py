"""check: each damage alone, planted into a sound archive, is named with its code, file and line; nothing is changed."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.judge.tree import Tree
from harness.sandbox import remove_tree, sandbox_base
from tests.collector.helpers import (
    LOCK,
    PENDING,
    QUARANTINE,
    Collector,
    canonical,
    copy_of,
    needs_linux,
    nothing_changes,
)
from tests.collector.test_spec import SPEC

Found = tuple[str, str, int | None]
CARDS, RUNS = "cards/000001.jsonl", "runs/000001.jsonl"
SHA = "ab" * 32
LEFT_BEHIND = "collector.transaction.cards/dir-synced"
"""Dies with the cards in place, the runs not, and the formal lock held."""
LEFT = "collector.claim.HELD"


@pytest.fixture(scope="module")
def shelf() -> Iterator[Path]:
    """Where the samples are made, each once."""
    home = Path(tempfile.mkdtemp(prefix="collector-", dir=sandbox_base())).resolve()
    yield home
    remove_tree(home)


@pytest.fixture(scope="module")
def sound(shelf: Path) -> Tree:
    """Three runs of one hour each; cards in two segments; the evidence of the first two is moved to the archive."""
    collector = Collector(shelf / "sound")
    commit(collector, "first", [1, 2, 3], "12")
    commit(collector, "second", [4, 5], "13", segment_max_bytes=700)  # over it: the cards only
    collector.call("move-completed").require_done()
    commit(collector, "third", [6, 7], "14")
    return collector.tree()


@pytest.fixture(scope="module")
def in_flight(shelf: Path) -> dict[str, Tree]:
    """What a holder that died left, by point; with a dead owner's metadata in quarantine."""
    found = {}
    for point in (LEFT_BEHIND, LEFT, "collector.transaction.TERMINAL"):
        collector = Collector(shelf / point.rpartition(".")[2].replace("/", "-"))
        collector.commit()
        collector.kill(point, "commit", "--evidence", collector.evidence("second", [3], hour="2026-11-30T13"))
        collector.call("check").require_done()
        found[point] = collector.tree()
    return found


@pytest.fixture
def home(collector: Collector) -> Path:
    return collector.home / "copy"


def commit(collector: Collector, run_id: str, posts: list[int], hour: str, segment_max_bytes: int = 1 << 22) -> None:
    evidence = collector.evidence(run_id, posts, hour=f"2026-11-30T{hour}")
    collector.call("commit", "--evidence", evidence, "--segment-max-bytes", str(segment_max_bytes)).require_done()


def findings(collector: Collector) -> list[Found]:
    """All of them, when there are some: the answer, the exit status and the words agree about it."""
    with nothing_changes(collector):
        ran = collector.call("check")
    answer = ran.require_refused("E_CHECK_FAILED", 70)
    assert answer["findings"] and set(answer["counts"]) >= {"cards", "runs", "segments", "slots"}
    assert all(finding.keys() == {"code", "file", "line", "message"} for finding in answer["findings"])
    return [(finding["code"], finding["file"], finding["line"]) for finding in answer["findings"]]


# ---------------------------------------------------------------------------------------------------- damages


def edit(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


def edit_json(path: Path, **changes: Any) -> None:
    path.write_bytes(canonical(json.loads(path.read_bytes()) | changes))


def rechain(path: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], before: str = "0" * 64) -> None:
    """Write other lines, chained as ours are: what somebody would do who knows the format."""
    out = []
    for fields in change([json.loads(line) for line in path.read_bytes().splitlines()]):
        raw = canonical(fields | {"prev": before})
        before = hashlib.sha256(raw).hexdigest()
        out.append(raw + b"\n")
    path.write_bytes(b"".join(out))


def segment_removed(c: Collector) -> set[Found]:
    (c.archive / CARDS).unlink()
    return {
        ("K_SEGMENT_MISSING", CARDS, None), ("K_SLOT_TIP", CARDS, None), ("K_RUN_CARDS", RUNS, 1),
    }  # fmt: skip


def last_segment_removed(c: Collector) -> set[Found]:
    (c.archive / "cards/000002.jsonl").unlink()
    tip = ("K_SLOT_TIP", "cards/000002.jsonl", None)
    return {tip, ("K_RUN_CARDS", RUNS, 2), ("K_RUN_CARDS", RUNS, 3)}


def segment_emptied(c: Collector) -> set[Found]:
    (c.archive / CARDS).write_bytes(b"")
    # the next segment's first line has seq 4, where 1 is due
    return {
        ("K_SEGMENT_EMPTY", CARDS, None), ("K_SLOT_TIP", CARDS, None), ("K_LINE_MISSING", "cards/000002.jsonl", 1),
        ("K_RUN_CARDS", RUNS, 1),
    }  # fmt: skip


def torn_end(c: Collector) -> set[Found]:
    path = c.archive / RUNS
    path.write_bytes(path.read_bytes()[:-1])
    return {
        ("K_LINE_TORN", RUNS, 3), ("K_SLOT_TIP", RUNS, None), ("K_SLOT_WITHOUT_RUN", "refresh/slots/110.json", None),
        ("K_CARDS_WITHOUT_RUN", "cards/000002.jsonl", 3),
    }  # fmt: skip


def stray_byte_at_the_end(c: Collector) -> set[Found]:
    path = c.archive / RUNS
    path.write_bytes(path.read_bytes() + b"x")
    return {("K_LINE_TORN", RUNS, 4)}


def line_removed(c: Collector) -> set[Found]:
    edit(c.archive / CARDS, lambda lines: [lines[0], lines[2]])
    return {("K_LINE_MISSING", CARDS, 2), ("K_SLOT_TIP", CARDS, None), ("K_RUN_CARDS", RUNS, 1)}


def last_line_removed(c: Collector) -> set[Found]:
    edit(c.archive / "cards/000002.jsonl", lambda lines: lines[:-1])
    return {("K_SLOT_TIP", "cards/000002.jsonl", None), ("K_RUN_CARDS", RUNS, 3)}


def line_repeated(c: Collector) -> set[Found]:
    edit(c.archive / CARDS, lambda lines: [lines[0], lines[1], lines[1], lines[2]])
    return {("K_LINE_REPEATED", CARDS, 3), ("K_SLOT_TIP", CARDS, None)}


def lines_exchanged(c: Collector) -> set[Found]:
    edit(c.archive / CARDS, lambda lines: [lines[1], lines[0], lines[2]])
    # the one that came too early is told as a jump, the one that came too late as a step back
    return {
        ("K_LINE_MISSING", CARDS, 1), ("K_LINE_REPEATED", CARDS, 2), ("K_SLOT_TIP", CARDS, None),
        ("K_RUN_CARDS", RUNS, 1),
    }  # fmt: skip


def byte_changed(c: Collector) -> set[Found]:
    edit(c.archive / CARDS, lambda lines: [lines[0].replace(b'"video"', b'"vidxo"'), *lines[1:]])
    return {("K_LINE_CHANGED", CARDS, 2), ("K_SLOT_TIP", CARDS, None)}


def byte_changed_in_the_last_line(c: Collector) -> set[Found]:
    edit(c.archive / "cards/000002.jsonl", lambda lines: [*lines[:-1], lines[-1].replace(b'"video"', b'"vidxo"')])
    return {("K_SLOT_TIP", "cards/000002.jsonl", None)}


def byte_changed_over_the_border(c: Collector) -> set[Found]:
    edit(c.archive / CARDS, lambda lines: [*lines[:2], lines[2].replace(b'"video"', b'"vidxo"')])
    return {("K_LINE_CHANGED", "cards/000002.jsonl", 1), ("K_SLOT_TIP", CARDS, None)}


def number_changed(c: Collector) -> set[Found]:
    edit(
        c.archive / CARDS,
        lambda lines: [lines[0], lines[1].replace(b'"dynamic_id":"2"', b'"dynamic_id":"9"'), lines[2]],
    )
    return {("K_LINE_FOREIGN", CARDS, 2), ("K_SLOT_TIP", CARDS, None), ("K_RUN_CARDS", RUNS, 1)}


def nul_bytes(c: Collector) -> set[Found]:
    edit(c.archive / CARDS, lambda lines: [lines[0], b"\0" * (len(lines[1]) - 1) + b"\n", lines[2]])
    return {("K_LINE_FOREIGN", CARDS, 2), ("K_SLOT_TIP", CARDS, None), ("K_RUN_CARDS", RUNS, 1)}


def space_added(c: Collector) -> set[Found]:
    edit(c.archive / RUNS, lambda lines: [lines[0].replace(b",", b", ", 1), *lines[1:]])
    # a line that is not ours says nothing: what stands on it is told, too
    return {
        ("K_LINE_FOREIGN", RUNS, 1), ("K_SLOT_TIP", RUNS, None), ("K_CARDS_WITHOUT_RUN", CARDS, 1),
        ("K_SLOT_WITHOUT_RUN", "refresh/slots/108.json", None), ("K_STRAY", "evidence/2026/11/first.json", None),
    }  # fmt: skip


def post_appended_again(c: Collector) -> set[Found]:
    """By somebody who knows the format: the chain is whole, the post is there twice."""
    append_cards(c, {"dynamic_id": "4", "opus_id": "77", "bvid": None})
    return {("K_POST_REPEATED", "cards/000002.jsonl", 5), ("K_RUN_CARDS", RUNS, 3)}


def post_appended_again_under_another_name(c: Collector) -> set[Found]:
    """Only the second of its keys says that it is there already."""
    append_cards(
        c, {"dynamic_id": "50", "opus_id": "77", "bvid": None}, {"dynamic_id": "51", "opus_id": "77", "bvid": None}
    )
    return {("K_POST_REPEATED", "cards/000002.jsonl", 6), ("K_RUN_CARDS", RUNS, 3)}


def append_cards(c: Collector, *posts: dict[str, str | None]) -> None:
    """As cards of the last run."""

    def appended(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for names in posts:
            keys = [f"dynamic:{names['dynamic_id']}", f"opus:{names['opus_id']}"]
            lines.append(lines[-1] | {"seq": lines[-1]["seq"] + 1, "stable_keys": keys, "identifiers": names})
        return lines

    first = (c.archive / CARDS).read_bytes().splitlines()[-1]
    rechain(c.archive / "cards/000002.jsonl", appended, hashlib.sha256(first).hexdigest())


def run_appended_again(c: Collector) -> set[Found]:
    rechain(c.archive / RUNS, lambda lines: [*lines, lines[-1] | {"seq": 4}])
    return {("K_RUN_REPEATED", RUNS, 4)}


def cards_of_nobody(c: Collector) -> set[Found]:
    path = c.archive / "cards/000002.jsonl"
    first = (c.archive / CARDS).read_bytes().splitlines()[-1]
    names = {"dynamic_id": "99", "opus_id": None, "bvid": None}
    other = {"seq": 8, "run_id": "nobody", "stable_keys": ["dynamic:99"], "identifiers": names}
    rechain(path, lambda lines: [*lines, lines[-1] | other], hashlib.sha256(first).hexdigest())
    return {("K_CARDS_WITHOUT_RUN", "cards/000002.jsonl", 5)}


def cards_of_a_run_apart(c: Collector) -> set[Found]:
    """The count is right and the first is right, but the second run's second card has gone to the end."""
    path = c.archive / "cards/000002.jsonl"
    first = (c.archive / CARDS).read_bytes().splitlines()[-1]

    def apart(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [lines[0], lines[2] | {"seq": 5}, lines[3] | {"seq": 6}, lines[1] | {"seq": 7}]

    rechain(path, apart, hashlib.sha256(first).hexdigest())
    tip = ("K_SLOT_TIP", "cards/000002.jsonl", None)
    return {("K_RUN_CARDS", RUNS, 2), ("K_RUN_CARDS", RUNS, 3), tip}


def run_counts_otherwise(c: Collector) -> set[Found]:
    rechain(c.archive / RUNS, lambda lines: [lines[0] | {"cards_appended": 2}, *lines[1:]])
    return {("K_RUN_CARDS", RUNS, 1), ("K_RUN_SLOT_OTHER", RUNS, 1), ("K_SLOT_TIP", RUNS, None)}


def run_begins_otherwise(c: Collector) -> set[Found]:
    rechain(c.archive / RUNS, lambda lines: [lines[0], lines[1] | {"first_card_seq": 5}, lines[2]])
    return {("K_RUN_CARDS", RUNS, 2), ("K_SLOT_TIP", RUNS, None)}


def slot_removed(c: Collector) -> set[Found]:
    (c.state / "refresh/slots/109.json").unlink()
    return {("K_RUN_SLOT_GONE", RUNS, 2)}


def slot_of_another_run(c: Collector) -> set[Found]:
    edit_json(c.state / "refresh/slots/109.json", run_id="other", transaction_id=SHA)
    return {("K_RUN_SLOT_OTHER", RUNS, 2), ("K_SLOT_WITHOUT_RUN", "refresh/slots/109.json", None)}


def slot_of_an_hour_before(c: Collector) -> set[Found]:
    """168 hours earlier: the ring has lost the newer record of that slot."""
    edit_json(c.state / "refresh/slots/109.json", hour="2026-11-23T13:00:00Z")
    return {("K_RUN_SLOT_OTHER", RUNS, 2)}


def slot_state_changed(c: Collector) -> set[Found]:
    edit_json(c.state / "refresh/slots/109.json", state="NEW_APPENDED_PARTIAL")
    return {("K_RUN_SLOT_OTHER", RUNS, 2)}


def slot_under_another_number(c: Collector) -> set[Found]:
    path = c.state / "refresh/slots/109.json"
    path.rename(path.with_name("111.json"))
    return {("K_DOCUMENT", "refresh/slots/111.json", None), ("K_RUN_SLOT_GONE", RUNS, 2)}


def slot_token_changed(c: Collector) -> set[Found]:
    edit_json(c.state / "refresh/slots/109.json", no_new_token=1)
    return {("K_DOCUMENT", "refresh/slots/109.json", None)}


def slot_that_says_no_end(c: Collector) -> set[Found]:
    edit_json(c.state / "refresh/slots/109.json", runs=None)
    return {("K_DOCUMENT", "refresh/slots/109.json", None)}


def slot_end_changed(c: Collector) -> set[Found]:
    path = c.state / "refresh/slots/109.json"
    edit_json(path, runs=json.loads(path.read_bytes())["runs"] | {"last_seq": 1})
    return {("K_SLOT_TIP", RUNS, None)}


def slot_not_canonical(c: Collector) -> set[Found]:
    path = c.state / "refresh/slots/108.json"
    path.write_bytes(path.read_bytes() + b"\n")
    return {("K_DOCUMENT", "refresh/slots/108.json", None)}


def latest_removed(c: Collector) -> set[Found]:
    (c.state / "refresh/latest.json").unlink()
    return {("K_LATEST", "refresh/latest.json", None)}


def latest_behind(c: Collector) -> set[Found]:
    slot = (c.state / "refresh/slots/109.json").read_bytes()
    edit_json(c.state / "refresh/latest.json", hour="2026-11-30T13:00:00Z", slot=109, run_id="second",
              slot_sha256=hashlib.sha256(slot).hexdigest())  # fmt: skip
    return {("K_LATEST", "refresh/latest.json", None)}


def latest_ahead(c: Collector) -> set[Found]:
    edit_json(c.state / "refresh/latest.json", hour="2026-11-30T15:00:00Z", slot=111)
    return {("K_LATEST", "refresh/latest.json", None)}


def latest_other_hash(c: Collector) -> set[Found]:
    edit_json(c.state / "refresh/latest.json", slot_sha256=SHA)
    return {("K_LATEST", "refresh/latest.json", None)}


def latest_cut(c: Collector) -> set[Found]:
    path = c.state / "refresh/latest.json"
    path.write_bytes(path.read_bytes()[:20])
    return {("K_DOCUMENT", "refresh/latest.json", None)}


def latest_without_slots(c: Collector) -> set[Found]:
    shutil.rmtree(c.state / "refresh/slots")
    return {("K_LATEST", "refresh/latest.json", None), *(("K_RUN_SLOT_GONE", RUNS, line) for line in (1, 2, 3))}


def evidence_removed(c: Collector) -> set[Found]:
    (c.state / "refresh/runs/third/evidence.json").unlink()
    return {("K_EVIDENCE_MISSING", "refresh/runs/third/evidence.json", None)}


def archived_evidence_removed(c: Collector) -> set[Found]:
    (c.archive / "evidence/2026/11/first.json").unlink()
    return {("K_EVIDENCE_MISSING", "refresh/runs/first/evidence.json", None)}


def evidence_changed(c: Collector) -> set[Found]:
    path = c.state / "refresh/runs/third/evidence.json"
    path.write_bytes(path.read_bytes() + b" ")
    return {("K_EVIDENCE_CHANGED", "refresh/runs/third/evidence.json", None)}


def archived_evidence_changed(c: Collector) -> set[Found]:
    path = c.archive / "evidence/2026/11/second.json"
    path.write_bytes(path.read_bytes().replace(b"page-extractor", b"page-extraktor"))
    return {("K_EVIDENCE_CHANGED", "evidence/2026/11/second.json", None)}


def second_copy_differs(c: Collector) -> set[Found]:
    (c.archive / "evidence/2026/11/third.json").write_bytes(b"{}")
    return {("K_EVIDENCE_CHANGED", "evidence/2026/11/third.json", None)}


def evidence_in_another_month(c: Collector) -> set[Found]:
    (c.archive / "evidence/2026/10").mkdir()
    (c.archive / "evidence/2026/11/first.json").rename(c.archive / "evidence/2026/10/first.json")
    name = "refresh/runs/first/evidence.json"
    return {("K_STRAY", "evidence/2026/10/first.json", None), ("K_EVIDENCE_MISSING", name, None)}


def strays(c: Collector) -> set[Found]:
    """Each in another directory of ours; and what lies at the top of a root under a name that is not ours is no business
    of this command."""
    names = {
        c.archive: ["cards/README", "cards/000001.jsonl.bak", "runs/000000.jsonl", "evidence/x.json", "evidence/20/a",
                    ".candidates/x", ".candidates/cards.jsonl", f"{QUARANTINE.partition('/')[2]}/notes.txt",
                    "cards/.000001.jsonl.tmp", "cards/deeper/000001.jsonl"],
        c.state: ["refresh/lock-recovery", "refresh/slots/168.json", "refresh/slots/old.json", "refresh/runs/a.b/x",
                  "refresh/runs/third/notes", "refresh/runs/third/.notes.tmp",
                  ".collector.lock.owner.quarantine/x.json"],
    }  # fmt: skip
    for root, files in names.items():
        for name in files:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(b"x")
        (root / "notes.txt").write_bytes(b"somebody else's")
        (root / "refresh2").mkdir()
    told = {
        "cards/deeper/000001.jsonl": "cards/deeper", "evidence/20/a": "evidence/20", "refresh/runs/a.b/x": "refresh/runs/a.b",
    }  # fmt: skip
    return {("K_STRAY", told.get(name, name), None) for files in names.values() for name in files}


def not_plain(c: Collector) -> set[Found]:
    """A link where a file is due, another where a directory is, a second hard link, a directory where a file is due."""
    slots = c.state / "refresh/slots"
    slots.rename(c.home / "slots")
    slots.symlink_to(c.home / "slots")
    latest = c.state / "refresh/latest.json"
    latest.unlink()
    latest.mkdir()
    (c.archive / RUNS).rename(c.home / "runs")
    (c.archive / RUNS).symlink_to(c.home / "runs")
    (c.archive / "evidence/2026/11/first.json").rename(c.home / "first")
    (c.archive / "evidence/2026/11/first.json").hardlink_to(c.home / "first")
    cards = [("K_CARDS_WITHOUT_RUN", CARDS, 1), ("K_CARDS_WITHOUT_RUN", "cards/000002.jsonl", 1),
             ("K_CARDS_WITHOUT_RUN", "cards/000002.jsonl", 3)]  # fmt: skip
    plain = ("refresh/slots", "refresh/latest.json", RUNS, "evidence/2026/11/first.json")
    evidence = ("evidence/2026/11/first.json", "evidence/2026/11/second.json")
    return {*(("K_NOT_PLAIN", n, None) for n in plain), *cards, *(("K_STRAY", n, None) for n in evidence)}


def foreign_lock(c: Collector) -> set[Found]:
    (c.home / LOCK).write_bytes(b'{"somebody":"else"}')
    return {("K_FORMAL_LOCK", LOCK.partition("/")[2], None)}


def lock_that_is_no_file(c: Collector) -> set[Found]:
    (c.home / LOCK).mkdir()
    return {("K_NOT_PLAIN", LOCK.partition("/")[2], None)}


def quarantined_by_nobody(c: Collector) -> set[Found]:
    (c.home / QUARANTINE / "first-g0-x.json").write_bytes(b"{}")
    return {("K_QUARANTINE", f"{QUARANTINE.partition('/')[2]}/first-g0-x.json", None)}


def leftover_changed(c: Collector) -> set[Found]:
    """leftovers.json accounts for one content, another is there; one that is exact or gone is nothing to tell."""
    name = QUARANTINE.partition("/")[2]
    due = {"exact": hashlib.sha256(b"{}").hexdigest(), "gone": SHA, "other": SHA}
    items = [{"path": f"{name}/{item}.json", "sha256": sha256, "size": 2} for item, sha256 in due.items()]
    (c.state / "refresh/leftovers.json").write_bytes(canonical({"schema_version": 1, "items": items}))
    for item in ("exact", "other"):
        (c.home / QUARANTINE / f"{item}.json").write_bytes(b"{}")
    return {("K_QUARANTINE", f"{name}/other.json", None)}


def leftovers_cut(c: Collector) -> set[Found]:
    (c.state / "refresh/leftovers.json").write_bytes(b"{")
    return {("K_DOCUMENT", "refresh/leftovers.json", None)}


def marker_changed(c: Collector) -> set[Found]:
    (c.home / QUARANTINE / ".owner-marker.json").write_bytes(b"{}")
    return {("K_MARKER", f"{QUARANTINE.partition('/')[2]}/.owner-marker.json", None)}


def marker_removed(c: Collector) -> set[Found]:
    """An empty directory without a marker is what a death leaves; one with something in it is not."""
    (c.home / QUARANTINE / ".owner-marker.json").unlink()
    c.call("check").require_done()
    return quarantined_by_nobody(c) | {("K_MARKER", f"{QUARANTINE.partition('/')[2]}/.owner-marker.json", None)}


def owner_changed(c: Collector) -> set[Found]:
    directory = c.state / ".collector.lock.owner.quarantine"
    directory.mkdir()
    data = b"{}"
    (directory / f"{hashlib.sha256(data).hexdigest()}.json").write_bytes(data)
    c.call("check").require_done()
    (directory / f"{SHA}.json").write_bytes(data)
    return {("K_OWNER", f".collector.lock.owner.quarantine/{SHA}.json", None)}


def pending_foreign(c: Collector) -> set[Found]:
    (c.home / PENDING).write_bytes(canonical({"schema_version": 1}))
    return {("K_DOCUMENT", "refresh/pending.json", None), ("K_ROW", "refresh/pending.json", None)}


DAMAGES = (
    segment_removed, last_segment_removed, segment_emptied, torn_end, stray_byte_at_the_end, line_removed,
    last_line_removed, line_repeated, lines_exchanged, byte_changed, byte_changed_in_the_last_line,
    byte_changed_over_the_border, number_changed, nul_bytes, space_added, post_appended_again,
    post_appended_again_under_another_name, run_appended_again,
    cards_of_nobody, cards_of_a_run_apart, run_counts_otherwise, run_begins_otherwise, slot_removed,
    slot_of_another_run, slot_of_an_hour_before, slot_state_changed, slot_under_another_number, slot_token_changed,
    slot_that_says_no_end, slot_end_changed, slot_not_canonical, latest_removed, latest_behind, latest_ahead,
    latest_other_hash, latest_cut, latest_without_slots, evidence_removed, archived_evidence_removed, evidence_changed,
    archived_evidence_changed, second_copy_differs, evidence_in_another_month, strays, not_plain, foreign_lock,
    lock_that_is_no_file, quarantined_by_nobody, leftover_changed, leftovers_cut, marker_changed, marker_removed,
    owner_changed, pending_foreign,
)  # fmt: skip


@needs_linux
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damage_is_named_where_it_is(sound: Tree, home: Path, damage: Callable[[Collector], set[Found]]) -> None:
    collector = copy_of(sound, home)
    due = damage(collector)
    found = findings(collector)
    assert set(found) == due
    assert len(found) == len(due), "told twice"
    assert found == sorted(found, key=lambda finding: (finding[1], finding[2] or 0, finding[0]))


def test_a_sound_archive_has_no_findings_and_is_counted(sound: Tree, home: Path) -> None:
    collector = copy_of(sound, home)
    before = collector.tree()
    answer = collector.call("check").require_done()
    assert answer["findings"] == [] and answer["pending"] is None
    assert answer["counts"] == {
        "cards": 7, "runs": 3, "segments": 3, "slots": 3, "evidence": 1, "archived_evidence": 2, "orphans": 0,
        "quarantined": 0, "leftovers": 0, "temporaries": 0,
    }  # fmt: skip
    assert before.differences(collector.tree()) == []


def test_empty_roots_have_no_findings(collector: Collector) -> None:
    assert collector.call("check").require_done()["counts"]["cards"] == 0


def test_an_archive_of_an_older_schema_has_no_findings_until_a_post_is_there_twice(collector: Collector) -> None:
    names = [{"dynamic_id": None, "opus_id": str(number), "bvid": None} for number in (1, 2, 2)]
    common = {"schema_version": 1, "source_url": "https://space.bilibili.com/10001/dynamic"}
    old = [json.dumps(common | {"identifiers": name}).encode() + b"\n" for name in names]
    (collector.archive / "cards").mkdir()
    path = collector.archive / CARDS
    path.write_bytes(b"".join(old[:2]))
    collector.commit()
    assert collector.call("check").require_done()["counts"]["cards"] == 4
    path.write_bytes(b"".join(old))
    (collector.state / "refresh/slots/108.json").unlink()
    assert ("K_POST_REPEATED", CARDS, 3) in findings(collector)


def test_a_later_hour_in_the_slot_is_no_finding(collector: Collector) -> None:
    collector.commit("first", [1])
    collector.commit("later", [2], hour="2026-12-07T12")
    collector.call("check").require_done()


@needs_linux
def test_what_no_process_may_read_is_one_finding_and_hides_no_other(sound: Tree, home: Path) -> None:
    collector = copy_of(sound, home)
    patch = (
        "import os\n"
        "from product.collector import inventory\n"
        "real = inventory.read_file\n"
        "def denied(path):\n"
        "    if path.name == '108.json': raise PermissionError(13, 'Permission denied', str(path))\n"
        "    return real(path)\n"
        "inventory.read_file = denied\n"
    )
    latest_removed(collector)
    ran = collector.run("check", patch=patch)
    found = ran.require_refused("E_CHECK_FAILED", 70)["findings"]
    assert ("K_NOT_PLAIN", "refresh/slots/108.json") in {(finding["code"], finding["file"]) for finding in found}


# -------------------------------------------------------------------------------------------------- in flight


@needs_linux
def test_what_is_in_flight_is_told_and_is_no_finding(in_flight: dict[str, Tree], home: Path) -> None:
    collector = copy_of(in_flight[LEFT_BEHIND], home)
    with nothing_changes(collector):
        answer = collector.call("check").require_done()
    assert (answer["pending"]["run_id"], answer["pending"]["phase"]) == ("second", "TRANSACTION_INTENT")


def cards_of_another_in_flight(c: Collector) -> set[Found]:
    """The cards in place are of a run that is not the one in flight; the manifest is neither base nor candidate."""
    edit(c.archive / CARDS, lambda lines: [*lines[:-1], lines[-1].replace(b'"second"', b'"secund"')])
    return {("K_CARDS_WITHOUT_RUN", CARDS, 3), ("K_ROW", "refresh/pending.json", None)}


def well_formed_line_in_flight(c: Collector) -> set[Found]:
    """The chain is whole, and only the transaction knows that this is not its own."""
    names = {"dynamic_id": "99", "opus_id": None, "bvid": None}
    other = {"seq": 4, "run_id": "second", "stable_keys": ["dynamic:99"], "identifiers": names}
    rechain(c.archive / CARDS, lambda lines: [*lines, lines[-1] | other])
    return {("K_ROW", "refresh/pending.json", None)}


def lock_changed_in_flight(c: Collector) -> set[Found]:
    (c.home / LOCK).write_bytes((c.home / LOCK).read_bytes() + b" ")
    return {("K_FORMAL_LOCK", LOCK.partition("/")[2], None), ("K_ROW", "refresh/pending.json", None)}


def lock_removed_in_flight(c: Collector) -> set[Found]:
    (c.home / LOCK).unlink()
    return {("K_ROW", "refresh/pending.json", None)}


def evidence_removed_in_flight(c: Collector) -> set[Found]:
    (c.state / "refresh/runs/second/evidence.json").unlink()
    return {("K_EVIDENCE_MISSING", "refresh/runs/second/evidence.json", None)}


def evidence_changed_in_flight(c: Collector) -> set[Found]:
    (c.state / "refresh/runs/second/evidence.json").write_bytes(b"{}")
    return {("K_EVIDENCE_CHANGED", "refresh/runs/second/evidence.json", None)}


def candidate_after_its_time(c: Collector) -> set[Found]:
    (c.archive / ".candidates/runs.jsonl").write_bytes(b"x")
    return {("K_STRAY", ".candidates/runs.jsonl", None)}


def archive_unsound_before_the_run(c: Collector) -> set[Found]:
    """PREPARED: the run's evidence says that two archived posts are one."""
    path = c.state / "refresh/runs/second/evidence.json"
    changed = json.loads(path.read_bytes())
    card = changed["observations"][0]["cards"][0]
    card["identifiers"]["opus_id"], card["source_url"] = "5", "https://t.bilibili.com/2"
    card["stable_keys"] = ["dynamic:2", "dynamic:3", "opus:5"]
    path.write_bytes(json.dumps(changed).encode())
    return {("K_EVIDENCE_CHANGED", "refresh/runs/second/evidence.json", None), ("K_ROW", PENDING[6:], None)}


IN_FLIGHT: dict[Callable[[Collector], set[Found]], str] = {
    cards_of_another_in_flight: LEFT_BEHIND,
    well_formed_line_in_flight: LEFT_BEHIND,
    lock_changed_in_flight: LEFT_BEHIND,
    lock_removed_in_flight: LEFT_BEHIND,
    evidence_removed_in_flight: LEFT_BEHIND,
    evidence_changed_in_flight: LEFT_BEHIND,
    candidate_after_its_time: "collector.transaction.TERMINAL",
    archive_unsound_before_the_run: LEFT,
}


@needs_linux
@pytest.mark.parametrize("damage", IN_FLIGHT, ids=lambda damage: damage.__name__)
def test_a_damage_in_flight_is_named(
    in_flight: dict[str, Tree], home: Path, damage: Callable[[Collector], set[Found]]
) -> None:
    collector = copy_of(in_flight[IN_FLIGHT[damage]], home)
    due = damage(collector)
    assert set(findings(collector)) == due


@needs_linux
def test_a_quarantined_lock_that_is_gone_before_its_term_is_named(collector: Collector) -> None:
    collector.kill("collector.claim.HELD", "commit", "--evidence", collector.evidence())
    collector.kill("collector.takeover.OLD_LOCK_QUARANTINED", "recover")
    collector.call("check").require_done()
    (item,) = collector.pending["quarantined"]
    (collector.archive / item["path"]).write_bytes(b"{}")
    assert ("K_QUARANTINE", item["path"], None) in findings(collector)
    (collector.archive / item["path"]).unlink()
    assert ("K_QUARANTINE", item["path"], None) in findings(collector)


@needs_linux
def test_a_lock_that_was_just_moved_aside_and_is_not_listed_yet_is_no_finding(collector: Collector) -> None:
    """The two renames of a takeover, each a moment before pending lists what it moved."""
    collector.kill("collector.claim.HELD", "commit", "--evidence", collector.evidence())
    collector.kill("collector.takeover.rename", "recover")
    assert collector.call("check").require_done()["counts"]["quarantined"] == 1
    collector.kill("collector.takeover.new-lock", "recover")
    collector.kill("collector.takeover.attempt-rename", "recover")
    assert collector.call("check").require_done()["counts"]["quarantined"] == 2
    collector.kill("collector.cleanup.item", "recover")
    assert collector.call("check").require_done()["counts"]["quarantined"] == 1


@needs_linux
def test_check_waits_for_the_state_lock_and_changes_nothing_of_whoever_has_it(collector: Collector) -> None:
    with collector.started("commit", "--evidence", collector.evidence(), plan=f"{LEFT}#1=pause") as holder:
        holder.await_pause(LEFT)
        before = collector.tree()
        collector.call("check").require_refused("E_STATE_LOCKED", 75)
        assert before.differences(collector.tree()) == []
        holder.resume()
        assert collector.call("check", "--wait", "60").require_done()["pending"] is None


# ------------------------------------------------------------------------------------------------- the list itself


def test_every_code_of_the_spec_is_planted_and_every_planted_one_is_in_the_spec(sound: Tree, home: Path) -> None:
    section = SPEC.read_text().split("\n## Findings of check\n")[1].split("\n## ")[0]
    planted = set()
    for number, damage in enumerate(DAMAGES):
        planted |= {code for code, _, _ in damage(copy_of(sound, home.with_name(f"copy-{number}")))}
    assert set(re.findall(r"^\| (K_[A-Z_]+) \|", section, re.MULTILINE)) == planted
