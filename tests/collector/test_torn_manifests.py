"""B048: a manifest that was cut in the middle of a line, or got a stray byte, between two runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.collector.helpers import Collector

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut in the middle of the last line": lambda data: data[:-20],
    "a stray byte at the end": lambda data: data + b"x",
    "cut to the middle of the first line": lambda data: data[:40],
}


@pytest.mark.parametrize("manifest", ["cards", "runs"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_b048_nothing_is_appended_to_a_torn_manifest(collector: Collector, manifest: str, damage: str) -> None:
    """A and B are there, B is damaged: C is refused, the file named, not one byte changed, however often it is tried.
    With B put back, C is there once, and so are A and B."""
    collector.commit("a", (1, 2), started_at="2026-11-30T08:00:00Z")
    collector.commit("b", (3, 4), started_at="2026-11-30T09:00:00Z")
    path = collector.archive / manifest / "000001.jsonl"
    whole = path.read_bytes()
    path.write_bytes(DAMAGE[damage](whole))
    evidence = collector.evidence("c", (4, 5), started_at="2026-11-30T10:00:00Z")
    before = collector.tree()
    for _ in range(3):
        answer = collector.call("commit", "--evidence", evidence).require_refused("E_RECOVERY_AMBIGUOUS", 70)
        assert f"{manifest}/000001.jsonl" in answer["message"]
    assert [path for path, _ in before.differences(collector.tree()) if "index.sqlite" not in path] == []
    path.write_bytes(whole)
    collector.kill("collector.transaction.TRANSACTION_INTENT", "commit", "--evidence", evidence)
    collector.run("recover").require_done()
    assert collector.posts() == [1, 2, 3, 4, 5] and collector.run_ids() == ["a", "b", "c"]
