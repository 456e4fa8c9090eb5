"""The chain over the segments: what breaks it, and that real runs only ever touch the highest segment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from harness.judge.tree import Tree
from product.collector.manifests import GENESIS, ChainBroken, Tip, append_lines, next_segment, read_lines
from tests.collector.helpers import Collector, canonical, nothing_changes
from tests.scenarios.collector import read_manifest

Segments = list[tuple[int, bytes]]


def entry(number: int) -> dict[str, object]:
    return {
        "run_id": "run-1",
        "stable_keys": [f"dynamic:{number}"],
        "identifiers": {"dynamic_id": str(number), "opus_id": None, "bvid": None},
        "published_at": "2026-11-29T08:00:00Z",
        "content_type": "video",
        "source_url": "https://space.bilibili.com/10001/dynamic",
    }


def make_segments(*sizes: int) -> Segments:
    """Segments of so many lines each, numbered and chained through."""
    segments, tip, number = [], Tip(), 0
    for segment, size in enumerate(sizes, 1):
        data, tip = append_lines(tip, map(entry, range(number, number + size)))
        segments.append((segment, data))
        number += size
    return segments


THREE = make_segments(2, 3, 1)


def read(segments: Iterable[tuple[int, bytes]]) -> list[int]:
    return [line.seq for line, _ in read_lines("cards", segments)]


def fault_of(segments: Segments) -> tuple[int, int]:
    """Segment and line at which the chain is broken."""
    with pytest.raises(ChainBroken) as caught:
        read(segments)
    assert f"cards/{caught.value.segment:06d}.jsonl line {caught.value.line}: " in str(caught.value)
    return caught.value.segment, caught.value.line


def change_line(segments: Segments, segment: int, line: int, change: Callable[[bytes], bytes]) -> Segments:
    out = []
    for number, data in segments:
        lines = data.splitlines(keepends=True)
        if number == segment:
            lines[line - 1] = change(lines[line - 1])
        out.append((number, b"".join(lines)))
    return out


def with_fields(**fields: object) -> Callable[[bytes], bytes]:
    return lambda raw: canonical(json.loads(raw) | fields) + b"\n"


# ------------------------------------------------------------------------------------------------------ the chain


def test_seq_and_prev_run_through_all_segments() -> None:
    assert read(THREE) == [1, 2, 3, 4, 5, 6]
    previous = GENESIS
    for _, data in THREE:
        for raw in data.splitlines():
            line = json.loads(raw)
            assert line["prev"] == previous and canonical(line) == raw
            previous = hashlib.sha256(raw).hexdigest()
    *_, (line, tip) = read_lines("cards", THREE)
    assert tip == Tip(3, 6, previous, len(THREE[-1][1])) and line.fields["run_id"] == "run-1"


def test_nothing_is_an_archive_too() -> None:
    assert read([]) == []
    assert append_lines(Tip(), []) == (b"", Tip())


def test_reading_goes_on_where_it_stopped() -> None:
    lines = list(read_lines("cards", THREE))
    line, tip = lines[2]
    assert (line.segment, line.offset) == (2, 0)
    rest = list(read_lines("cards", THREE[1:], tip, line.offset + line.size + 1))
    assert rest == lines[3:]
    for line, _ in lines:
        data = dict(THREE)[line.segment]
        assert json.loads(data[line.offset : line.offset + line.size]) == line.fields


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (with_fields(seq=9), "seq 9 where 4 is due"),
        (with_fields(seq=True), "seq True"),
        (with_fields(seq="4"), "seq '4'"),
        (with_fields(prev=GENESIS), "prev is not the hash"),
        (with_fields(prev=None), "prev is not the hash"),
        (with_fields(note=1), "other keys"),
        (lambda raw: raw.replace(b'"content_type":"video",', b""), "other keys"),
        (lambda raw: raw + raw, "seq 4 where 5 is due"),
        (lambda _: b"", "seq 5 where 4 is due"),
        (lambda _: b"\n", "not a line of ours"),
        (lambda _: b"[]\n", "not a line of ours"),
        (lambda _: b"null\n", "not a line of ours"),
        (lambda _: b"7\n", "not a line of ours"),
        (lambda raw: raw[:-9] + b"\n", "not a line of ours"),
        (lambda raw: b"\0" * (len(raw) - 1) + b"\n", "not a line of ours"),
        (lambda _: b"\xff\n", "not a line of ours"),
        (lambda _: b"[" * 100_000 + b"\n", "not a line of ours"),
        (lambda _: b'{"seq":' + b"9" * 5000 + b"}\n", "not a line of ours"),
    ],
)
def test_a_line_that_does_not_follow_breaks_the_chain(change: Callable[[bytes], bytes], reason: str) -> None:
    with pytest.raises(ChainBroken, match=reason) as caught:
        read(change_line(THREE, 2, 2, change))
    assert (caught.value.segment, caught.value.line) in {(2, 2), (2, 3)}


def test_a_line_that_was_rewritten_shows_in_the_next_one() -> None:
    """Any change of a line but the very last, and be it well formed."""
    change = with_fields(content_type="other")
    assert fault_of(change_line(THREE, 1, 1, change)) == (1, 2)
    assert fault_of(change_line(THREE, 1, 2, change)) == (2, 1), "across the segments"


def test_segments_are_all_there_and_in_their_order() -> None:
    assert fault_of([THREE[0], THREE[2]]) == (3, 1)
    assert fault_of([THREE[1], THREE[2]]) == (2, 1)
    assert fault_of([THREE[1], THREE[0], THREE[2]]) == (2, 1)
    assert fault_of([THREE[0], (2, b""), THREE[2]]) == (2, 1)
    assert fault_of([*THREE, (4, b"")]) == (4, 1)


def test_b044_a_segment_that_was_cut_is_read_to_a_line_s_end_or_not_at_all() -> None:
    first, second = THREE[0], THREE[1]
    ends = [index + 1 for index, byte in enumerate(second[1]) if byte == ord("\n")]
    for length in range(1, len(second[1])):
        cut = [first, (2, second[1][:length])]
        if length in ends:
            assert read(cut) == list(range(1, 3 + ends.index(length) + 1))
        else:
            assert fault_of(cut) == (2, sum(end < length for end in ends) + 1)


@pytest.mark.parametrize(
    ("tip", "limit", "number", "new"),
    [
        (Tip(), 100, 1, True),
        (Tip(1, 1, GENESIS, 99), 100, 1, False),
        (Tip(1, 1, GENESIS, 100), 100, 2, True),
        (Tip(7, 9, GENESIS, 101), 100, 8, True),
    ],
)
def test_a_segment_at_or_over_the_limit_is_never_touched_again(tip: Tip, limit: int, number: int, new: bool) -> None:
    assert next_segment(tip, limit) == (number, new)


# --------------------------------------------------------------------------------------------------- in real runs


def commit_hour(collector: Collector, number: int, posts: Iterable[int], limit: int) -> dict[str, Any]:
    """The run of one hour, with segments of at most ``limit`` bytes (and what the last append brings over it)."""
    evidence = collector.evidence(f"run-{number}", list(posts), hour=f"2026-11-30T{number:02d}")
    return collector.call("commit", "--evidence", evidence, "--segment-max-bytes", str(limit)).require_done()


def segments_of(tree: Tree, manifest: str) -> dict[str, bytes]:
    prefix = f"archive/{manifest}/"
    return {path: entry.data for path, entry in tree.entries.items() if path.startswith(prefix)}


def test_nothing_new_after_a_full_segment_makes_no_segment(collector: Collector) -> None:
    """The slot names no end of the cards then; that of the run before still holds them."""
    commit_hour(collector, 1, [1, 2], 600)
    cards = segments_of(collector.tree(), "cards")
    assert len(cards["archive/cards/000001.jsonl"]) >= 600
    commit_hour(collector, 2, [1, 2], 600)
    assert segments_of(collector.tree(), "cards") == cards
    slot = json.loads((collector.state / "refresh/slots/098.json").read_bytes())
    assert (slot["run_id"], slot["cards"], slot["runs"]["last_seq"]) == ("run-2", None, 2)
    collector.call("check").require_done()
    (collector.archive / "cards/000001.jsonl").write_bytes(
        cards["archive/cards/000001.jsonl"].partition(b"\n")[0] + b"\n"
    )
    evidence = collector.evidence("run-3", [3], hour="2026-11-30T03")
    answer = collector.call("commit", "--evidence", evidence).require_refused("E_RECOVERY_AMBIGUOUS", 70)
    assert "does not end where the last run left it" in answer["message"]


@pytest.mark.parametrize("limit", [1, 1200])
def test_only_the_highest_segment_ever_changes(collector: Collector, limit: int) -> None:
    for number in range(8):
        before = collector.tree()
        commit_hour(collector, number, range(2 * number + 1, 2 * number + 4), limit)  # the last post is shown again
        after = collector.tree()
        for manifest in ("cards", "runs"):
            old, new = segments_of(before, manifest), segments_of(after, manifest)
            for path in sorted(old)[:-1]:
                assert new[path] == old[path]
            highest = max(old, default="")
            if not old or len(old[highest]) >= limit:
                assert new.get(highest) == old.get(highest)
                assert set(new) - set(old) == {f"archive/{manifest}/{len(old) + 1:06d}.jsonl"}
            else:
                assert new[highest].startswith(old[highest]) and new.keys() == old.keys()
    tree = collector.tree()
    counts = {len(segments_of(tree, "cards")), len(segments_of(tree, "runs"))}
    assert counts == {8} if limit == 1 else min(counts) > 1 and max(counts) < 8
    assert [line["seq"] for line in read_manifest(tree, "cards")] == list(range(1, 18))
    assert collector.posts() == list(range(1, 18)) and collector.run_ids() == [f"run-{n}" for n in range(8)]


def test_a_run_without_news_leaves_a_full_segment_alone(collector: Collector) -> None:
    commit_hour(collector, 0, [1, 2], 1)
    answer = commit_hour(collector, 1, [2, 1], 1)
    assert (answer["state"], answer["no_new_token"]) == ("NO_NEW", 1)
    assert set(segments_of(collector.tree(), "cards")) == {"archive/cards/000001.jsonl"}
    commit_hour(collector, 2, [3, 2], 1)
    assert collector.posts() == [1, 2, 3]
    assert set(segments_of(collector.tree(), "cards")) == {f"archive/cards/00000{n}.jsonl" for n in (1, 2)}


def test_a_run_that_saw_nothing_starts_no_cards(collector: Collector) -> None:
    answer = commit_hour(collector, 0, [], 4096)
    assert (answer["state"], answer["cards_appended"]) == ("NO_NEW", 0)
    assert segments_of(collector.tree(), "cards") == {} and collector.run_ids() == ["run-0"]
    commit_hour(collector, 1, [1], 4096)
    assert collector.posts() == [1]


# ------------------------------------------------------------------------- a manifest that is not what was appended


def lose_the_middle(archive: Path) -> str:
    (archive / "cards/000002.jsonl").unlink()
    return "cards/000002.jsonl"


def tear(archive: Path) -> str:
    path = archive / "runs/000003.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    return "runs/000003.jsonl"


def lose_the_last_line(archive: Path) -> str:
    """What is left is a whole chain; only the slots know that it was longer."""
    path = archive / "cards/000003.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    return "cards/000003.jsonl"


def lose_the_last_segment(archive: Path) -> str:
    (archive / "runs/000003.jsonl").unlink()
    return "runs/000003.jsonl"


def lose_everything(archive: Path) -> str:
    for path in archive.glob("cards/*.jsonl"):
        path.unlink()
    return "cards/000003.jsonl"


def rewrite_the_last_line(archive: Path) -> str:
    path = archive / "cards/000003.jsonl"
    *lines, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, last.replace(b'"content_type":"video"', b'"content_type":"other"')]))
    return "cards/000003.jsonl"


def add_an_empty_segment(archive: Path) -> str:
    (archive / "cards/000004.jsonl").write_bytes(b"")
    return "cards/000004.jsonl"


def fill_with_nul(archive: Path) -> str:
    """B064."""
    path = archive / "cards/000003.jsonl"
    path.write_bytes(b"\0" * path.stat().st_size)
    return "cards/000003.jsonl"


def make_a_directory(archive: Path) -> str:
    (archive / "cards/000003.jsonl").unlink()
    (archive / "cards/000003.jsonl").mkdir()
    return "cards/000003.jsonl"


def link_a_segment(archive: Path) -> str:
    """B070: a second name for a segment."""
    (archive / "copy").hardlink_to(archive / "cards/000003.jsonl")
    return "cards/000003.jsonl"


@pytest.mark.parametrize(
    "damage",
    [
        lose_the_middle, tear, lose_the_last_line, lose_the_last_segment, lose_everything, rewrite_the_last_line,
        add_an_empty_segment, fill_with_nul, make_a_directory, link_a_segment,
    ],
)  # fmt: skip
def test_nothing_is_appended_to_a_manifest_that_is_not_whole(
    collector: Collector, damage: Callable[[Path], str]
) -> None:
    """The file is named, nothing is written: neither the archive nor a pending that could not go on."""
    for number in range(3):
        commit_hour(collector, number, [2 * number + 1, 2 * number + 2], 1)
    file = damage(collector.archive)
    evidence = collector.evidence("run-9", [99], hour="2026-11-30T09")
    for _ in range(2):
        with nothing_changes(collector):
            answer = collector.call("commit", "--evidence", evidence).require_refused("E_RECOVERY_AMBIGUOUS", 70)
        assert file in answer["message"] and answer["detail"]["file"] == file


def test_an_aborted_run_that_takes_the_last_slot_hides_nothing(collector: Collector) -> None:
    """The ring then knows less than the archive has; that is no loss."""
    collector.commit("one", [1], hour="2026-11-20T12")
    collector.commit("two", [2], hour="2026-11-20T13")
    begun = ("begin", "--task", "task-1", "--run-id", "three", "--at", "2026-11-27T13:30:00Z")
    collector.call(*begun).require_done()
    assert collector.call("recover").require_done()["state"] == "ABORTED"
    collector.commit("four", [3], hour="2026-11-28T12")
    assert collector.posts() == [1, 2, 3]
