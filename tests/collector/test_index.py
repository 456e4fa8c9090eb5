"""The derived index: what it saves, and that it is never believed over the segments."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from product.collector import index
from product.collector.errors import CollectorError
from product.collector.keys import Identifiers
from product.collector.layout import Layout
from product.collector.manifests import Tip, append_lines
from product.collector.transaction import Archive


def entry(number: int) -> dict[str, object]:
    return {
        "run_id": "r",
        "stable_keys": [f"dynamic:{number}", f"opus:{number}"],
        "identifiers": {"dynamic_id": str(number), "opus_id": str(number), "bvid": None},
        "published_at": "2026-11-30T10:00:00Z",
        "content_type": "DRAW",
        "source_url": f"https://www.bilibili.com/opus/{number}",
    }


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "state", tmp_path / "archive")
    for directory in (layout.refresh, layout.manifest_directory("cards"), layout.manifest_directory("runs")):
        directory.mkdir(parents=True)
    return layout


def append(layout: Layout, numbers: range, segment: int = 1, tip: Tip | None = None) -> Tip:
    data, tip = append_lines(tip or Tip(), map(entry, numbers))
    path = layout.segment("cards", segment)
    path.write_bytes((path.read_bytes() if path.exists() else b"") + data)
    return tip


def known(archive: Archive, numbers: range) -> list[str | None]:
    return [archive.post_of(f"opus:{number}") for number in numbers]


def lines_read(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> tuple[Archive, int]:
    """The archive, and how many lines had to be read into the index for it."""
    added = []
    original = index._Index._add

    def add(self: Any, line: Any, tip: Any) -> None:
        added.append(line.seq)
        original(self, line, tip)

    monkeypatch.setattr(index._Index, "_add", add)
    archive = index.open_archive(layout)
    monkeypatch.setattr(index._Index, "_add", original)
    return archive, len(added)


def test_an_empty_archive_has_no_index(layout: Layout) -> None:
    archive = index.open_archive(layout)
    assert (archive.cards_tip, archive.post_of("opus:1")) == (Tip(), None)
    assert not layout.index.exists()


def test_only_what_was_appended_since_is_read(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    tip = append(layout, range(1, 51))
    assert lines_read(layout, monkeypatch)[1] == 50
    tip = append(layout, range(51, 54), tip=tip)
    append(layout, range(54, 56), segment=2, tip=tip)
    archive, read = lines_read(layout, monkeypatch)
    assert read == 5
    assert known(archive, range(1, 57)) == [*map(str, range(1, 56)), None]
    assert archive.identifiers_of("55") == Identifiers("55", "55", None)
    assert lines_read(layout, monkeypatch)[1] == 0


def rewrite(layout: Layout) -> None:
    """Another archive of the same size: other first line, same shape."""
    layout.segment("cards", 1).unlink()
    append(layout, range(101, 151))


def forget_tables(layout: Layout) -> None:
    database = sqlite3.connect(layout.index)
    database.executescript("DELETE FROM posts WHERE seq = 50; DELETE FROM keys WHERE seq = 50;")
    database.close()


def point_elsewhere(layout: Layout) -> None:
    database = sqlite3.connect(layout.index)
    database.executescript("UPDATE keys SET seq = 7 WHERE key = 'opus:3';")
    database.close()


def come_from_a_newer_one(layout: Layout) -> None:
    """Whose numbers may mean something else."""
    database = sqlite3.connect(layout.index)
    database.executescript("UPDATE tip SET schema = schema + 1; UPDATE keys SET seq = 7 WHERE key = 'opus:3';")
    database.close()


def be_somebody_elses(layout: Layout) -> None:
    layout.index.unlink()
    database = sqlite3.connect(layout.index)
    database.executescript("CREATE TABLE notes (words TEXT);")
    database.close()


DAMAGE: dict[str, tuple[Callable[[Layout], object], int]] = {
    "deleted": (lambda layout: layout.index.unlink(), 1),
    "cut": (lambda layout: layout.index.write_bytes(layout.index.read_bytes()[:9000]), 1),
    "empty": (lambda layout: layout.index.write_bytes(b""), 1),
    "filled with NUL": (lambda layout: layout.index.write_bytes(bytes(layout.index.stat().st_size)), 1),
    "not a database": (lambda layout: layout.index.write_bytes(b"somebody else's notes"), 1),
    "of another archive": (rewrite, 101),
    "newer than the archive": (lambda layout: append_shorter(layout), 1),
    "its tables disagree": (forget_tables, 1),
    "pointing at another line": (point_elsewhere, 1),
    "of a newer program": (come_from_a_newer_one, 1),
    "somebody else's": (be_somebody_elses, 1),
}


def append_shorter(layout: Layout) -> None:
    path = layout.segment("cards", 1)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:40]))


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_noticed_and_the_index_made_again(layout: Layout, damage: str) -> None:
    append(layout, range(1, 51))
    index.open_archive(layout)
    change, first = DAMAGE[damage]
    change(layout)
    archive = index.open_archive(layout)
    lines = layout.segment("cards", 1).read_bytes().count(b"\n")
    due = list(map(str, range(1, lines + 1)))
    assert known(archive, range(first, first + lines)) == due
    assert archive.cards_tip.seq == lines


def test_a_post_is_not_taken_for_the_one_whose_line_its_row_points_at(layout: Layout) -> None:
    append(layout, range(1, 51))
    index.open_archive(layout)
    database = sqlite3.connect(layout.index)
    database.executescript(
        "UPDATE posts SET (offset, size) = (SELECT offset, size FROM posts WHERE seq = 7) WHERE seq = 3;"
    )
    database.close()
    assert index.open_archive(layout).identifiers_of("3") == Identifiers("3", "3", None)


def test_a_journal_of_an_index_that_is_gone_is_not_played_back_into_the_next(layout: Layout) -> None:
    """SQLite drops it: a file of no bytes has nothing to roll back."""
    append(layout, range(1, 3001))
    index.open_archive(layout)
    journal = layout.index.with_name(f"{layout.index.name}-journal")
    database = sqlite3.connect(layout.index, isolation_level=None)
    database.executescript(
        "PRAGMA cache_size = 1; PRAGMA cache_spill = 1; BEGIN IMMEDIATE; UPDATE posts SET seq = -seq;"
    )
    hot = journal.read_bytes()
    database.close()
    assert not journal.exists() and any(hot[:8])
    layout.index.write_bytes(b"somebody else's notes" * 1000)
    journal.write_bytes(hot)
    archive = index.open_archive(layout)
    assert known(archive, range(1, 3001)) == list(map(str, range(1, 3001)))


def test_an_index_of_another_schema_is_made_again(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    append(layout, range(1, 51))
    index.open_archive(layout)
    assert lines_read(layout, monkeypatch)[1] == 0
    for change in (come_from_a_newer_one, be_somebody_elses):
        change(layout)
        assert lines_read(layout, monkeypatch)[1] == 50
        database = sqlite3.connect(layout.index)
        assert not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'notes'").fetchall()
        database.close()


def test_a_broken_chain_is_ambiguous_and_names_the_line(layout: Layout) -> None:
    append(layout, range(1, 51))
    path = layout.segment("cards", 1)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:20] + lines[21:]))
    with pytest.raises(CollectorError) as caught:
        index.open_archive(layout)
    assert (caught.value.code, caught.value.detail["line"]) == ("E_RECOVERY_AMBIGUOUS", 21)


def test_a_post_that_is_archived_twice_is_ambiguous(layout: Layout) -> None:
    tip = append(layout, range(1, 51))
    append(layout, range(3, 4), tip=tip)
    with pytest.raises(CollectorError, match="archived twice"):
        index.open_archive(layout)


def test_lines_of_the_older_schema_are_read_and_chained_on(layout: Layout) -> None:
    import json

    old = [{key: value for key, value in entry(n).items() if key not in ("run_id", "stable_keys")} for n in range(1, 4)]
    raw = [json.dumps({"schema_version": 1, **line}, sort_keys=True).encode() for line in old]
    layout.segment("cards", 1).write_bytes(b"".join(line + b"\n" for line in raw))
    archive = index.open_archive(layout)
    assert known(archive, range(1, 5)) == ["1", "2", "3", None]
    append(layout, range(4, 6), tip=archive.cards_tip)
    assert known(index.open_archive(layout), range(1, 6)) == ["1", "2", "3", "4", "5"]
    layout.segment("cards", 1).write_bytes(
        layout.segment("cards", 1).read_bytes() + raw[0].replace(b'"1"', b'"9"') + b"\n"
    )
    with pytest.raises(CollectorError, match="schema"):
        index.open_archive(layout)
