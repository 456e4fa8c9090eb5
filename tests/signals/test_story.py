"""The story that the design comes from, with its numbers: lines of 40 bytes of one key, ends at 40, 80 and 120."""

from __future__ import annotations

import pytest

from tests.signals.helpers import Bench, needs_posix, padded

K = padded("K")

BEFORE_THE_SAVE = ["signals.read", "signals.counts/tmp-written", "signals.counts/tmp-synced"]
AFTER_THE_SAVE = [
    "signals.counts/replaced",
    "signals.counts",
    "signals.counted",
    "signals.cursor/tmp-written",
    "signals.cursor/tmp-synced",
]


def require_state(bench: Bench, *, count: int, applied: int, offset: int) -> None:
    counts = bench.document("counts.json")
    assert (counts["counts"], counts["applied"]) == ({"K": count}, applied)
    assert bench.document("cursor.json")["offset"] == offset


def require_three_scans(bench: Bench) -> None:
    """The second and the third scan, after the first left N=2, A=80 and C=0."""
    counts = bench.document("counts.json")
    assert (counts["counts"], counts["applied"]) == ({"K": 2}, 80)
    assert not (bench.state / "cursor.json").exists()  # C is 0
    bench.append(K)
    second = bench.scan().require_done()
    assert (second["read"], second["counted"], second["replayed"]) == (3, 1, 2)
    require_state(bench, count=3, applied=120, offset=120)
    third = bench.scan().require_done()
    assert (third["read"], third["counted"]) == (0, 0)
    require_state(bench, count=3, applied=120, offset=120)


def test_nothing_fails(bench: Bench) -> None:
    bench.append(K, K)
    done = bench.scan().require_done()
    assert (done["read"], done["counted"], done["applied"], done["offset"]) == (2, 2, 80, 80)
    require_state(bench, count=2, applied=80, offset=80)


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
@pytest.mark.parametrize("point", [*BEFORE_THE_SAVE, "signals.counts", "signals.counts/replaced"])
def test_a_save_that_fails_consumes_nothing(bench: Bench, point: str, error: str) -> None:
    """The first test of the story, and B072: the cursor could still be saved, and is not."""
    bench.append(K, K)
    failed = bench.scan(plan=f"{point}#1=error:{error}")
    assert (failed.status, failed.code, failed.answer["detail"]["errno"]) == (73, "E_IO", error)
    assert bench.counts() == {}
    assert sorted(path.name for path in bench.state.iterdir()) == [".signals.lock"]
    done = bench.scan().require_done()
    assert (done["read"], done["counted"]) == (2, 2)
    require_state(bench, count=2, applied=80, offset=80)


@pytest.mark.parametrize("point", ["signals.cursor", "signals.cursor/tmp-written", "signals.counted"])
def test_a_cursor_that_fails_counts_nothing_twice(bench: Bench, point: str) -> None:
    """The second test of the story."""
    bench.append(K, K)
    assert bench.scan(plan=f"{point}#1=error:EIO").code == "E_IO"
    require_three_scans(bench)


@needs_posix
@pytest.mark.parametrize("point", BEFORE_THE_SAVE)
def test_a_death_before_the_save_loses_nothing(bench: Bench, point: str) -> None:
    bench.append(K, K)
    bench.kill_at(point)
    assert bench.counts() == {}
    done = bench.scan().require_done()
    assert (done["read"], done["counted"]) == (2, 2)
    require_state(bench, count=2, applied=80, offset=80)


@needs_posix
@pytest.mark.parametrize("point", AFTER_THE_SAVE)
def test_a_death_after_the_save_counts_nothing_twice(bench: Bench, point: str) -> None:
    bench.append(K, K)
    bench.kill_at(point)
    require_three_scans(bench)


@needs_posix
@pytest.mark.parametrize("durability", ["process", "power"])
def test_both_durabilities_survive_the_death_of_the_process(bench: Bench, durability: str) -> None:
    bench.append(K, K)
    bench.kill_at("signals.counted", "scan", "--durability", durability)
    require_three_scans(bench)


def test_with_nothing_new_nothing_is_written(bench: Bench) -> None:
    bench.append(K, K)
    bench.scan().require_done()
    before = {path: path.stat() for path in bench.state.iterdir()}
    assert bench.scan().require_done()["rows"] == ["R5"]
    for path, status in before.items():
        now = path.stat()
        assert (now.st_ino, now.st_mtime_ns) == (status.st_ino, status.st_mtime_ns), path
