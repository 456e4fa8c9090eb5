"""V003 1.3 through the public commit: each leaves both manifests byte for byte as they were, and gives no no-new token."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.collector.evidence_samples import make_card, make_evidence, make_observation, make_unparsed, to_bytes
from tests.collector.helpers import Collector

Evidence = dict[str, Any]


def base() -> Evidence:
    """Three cards and one unparsed node, to the end of the feed."""
    observation = make_observation([make_card(0), make_card(2), make_card(3)], [make_unparsed(1)])
    return make_evidence(observation)


def first(evidence: Evidence) -> dict[str, Any]:
    observation = evidence["observations"][0]
    assert isinstance(observation, dict)
    return observation


def in_both_sets(evidence: Evidence) -> None:
    first(evidence)["unparsed_nodes"].append(make_unparsed(2))
    first(evidence)["unparsed_node_count"] += 1


def overlap(evidence: Evidence) -> None:
    first(evidence)["cards"][2]["position"] = 2


def gap(evidence: Evidence) -> None:
    first(evidence)["cards"][2]["position"] = 9


def drift(key: str, by: int) -> Callable[[Evidence], None]:
    def change(evidence: Evidence) -> None:
        first(evidence)[key] += by

    return change


def unknown_reason(evidence: Evidence) -> None:
    first(evidence)["unparsed_nodes"][0]["reason_code"] = "DID_NOT_FEEL_LIKE_IT"


def repeated_fingerprint(evidence: Evidence) -> None:
    node = make_unparsed(1)
    observation = make_observation([make_card(0)], [node, {**node, "position": 2}])
    evidence["observations"] = [observation]


def missing_field(key: str) -> Callable[[Evidence], None]:
    def change(evidence: Evidence) -> None:
        del first(evidence)["cards"][0][key]

    return change


def vanished(evidence: Evidence) -> None:
    first(evidence)["unparsed_nodes"] = []
    first(evidence)["unparsed_node_count"] = 0


REFUSED: dict[str, tuple[Callable[[Evidence], None], str]] = {
    "one node in cards and in unparsed_nodes": (in_both_sets, "/observations/0"),
    "positions overlap": (overlap, "/observations/0/cards/2/position"),
    "positions have a gap": (gap, "/observations/0/cards/2/position"),
    "a node vanished from both sets": (vanished, "/observations/0"),
    "unknown reason": (unknown_reason, "/observations/0/unparsed_nodes/0/reason_code"),
    "fingerprint repeated": (repeated_fingerprint, "/observations/0/unparsed_nodes/1/node_fingerprint_sha256"),
    **{
        f"{key} {by:+d}": (drift(key, by), "/observations/0")
        for key in ("visible_node_count", "complete_card_count", "unparsed_node_count")
        for by in (1, -1)
    },
    **{
        f"a card without {key}": (missing_field(key), "/observations/0/cards/0")
        for key in ("position", "identifiers", "stable_keys", "published_at", "content_type", "source_url")
    },
}


@pytest.fixture
def collector(tmp_path: Path) -> Collector:
    """An archive with one run in it."""
    collector = Collector(tmp_path)
    collector.commit("before", (901, 902), started_at="2026-11-30T09:00:00Z")
    return collector


def manifests(collector: Collector) -> dict[str, bytes]:
    return {path: entry.data for path, entry in collector.tree().entries.items() if path.endswith(".jsonl")}


def send(collector: Collector, evidence: Evidence) -> Any:
    path = collector.home / "counter.json"
    path.write_bytes(to_bytes(evidence))
    return collector.call("commit", "--evidence", str(path))


@pytest.mark.parametrize("case", REFUSED)
def test_what_contradicts_itself_is_refused_and_changes_nothing(collector: Collector, case: str) -> None:
    change, pointer = REFUSED[case]
    evidence = base()
    change(evidence)
    (collector.home / "counter.json").write_bytes(to_bytes(evidence))
    before = collector.tree()
    answer = send(collector, evidence).require_refused("E_EVIDENCE_SCHEMA", 65)
    assert collector.tree().differences(before) == []
    assert answer["detail"]["pointer"].startswith(pointer)
    assert "no_new_token" not in answer


def test_the_unchanged_one_is_taken(collector: Collector) -> None:
    """The counter-examples above differ from it in one thing each."""
    assert send(collector, base()).require_done()["cards_appended"] == 3


def test_an_incomplete_node_is_only_in_unparsed_and_gives_no_token(collector: Collector) -> None:
    evidence = make_evidence(make_observation([make_card(0, dynamic="901")], [make_unparsed(1)]))
    before = manifests(collector)["archive/cards/000001.jsonl"]
    answer = send(collector, evidence).require_done()
    assert (answer["state"], answer["no_new_token"]) == ("INCOMPLETE", 0)
    assert manifests(collector)["archive/cards/000001.jsonl"] == before


def test_49_cards_and_one_unparsed_node_hit_the_limit(collector: Collector) -> None:
    cards = [make_card(position) for position in range(49)]
    evidence = make_evidence(make_observation(cards, [make_unparsed(49)]))
    answer = send(collector, evidence).require_done()
    assert (answer["state"], answer["no_new_token"]) == ("NEW_APPENDED_PARTIAL", 0)
    silent = copy.deepcopy(evidence)
    first(silent)["limit_hit"] = None
    silent["run_id"] = "silent"
    before = manifests(collector)
    send(collector, silent).require_refused("E_EVIDENCE_SCHEMA", 65)
    assert manifests(collector) == before


def seen(*known: int, new: int = 0, before: str | None = None, after: str | None = None) -> Evidence:
    cards = [make_card(n, dynamic=str(post)) for n, post in enumerate(known)]
    cards += [make_card(len(known) + n) for n in range(new)]
    return make_evidence(make_observation(cards, before=before, after=after))


@pytest.mark.parametrize(
    ("evidence", "state", "token"),
    [
        (seen(901, new=2), "NEW_APPENDED", 0),
        (seen(new=2, after="more"), "NEW_APPENDED_PARTIAL", 0),
        (seen(901), "NO_NEW", 1),
        (seen(901, after="more"), "NO_NEW", 1),
        (seen(901, before="midway"), "INCOMPLETE", 0),
        (seen(901, new=2, before="midway"), "NEW_APPENDED_PARTIAL", 0),
        (make_evidence(make_observation([], [make_unparsed(0)])), "INCOMPLETE", 0),
    ],
)
def test_the_terminal_states(collector: Collector, evidence: Evidence, state: str, token: int) -> None:
    answer = send(collector, evidence).require_done()
    assert (answer["state"], answer["no_new_token"]) == (state, token)
    slot = json.loads((collector.state / f"refresh/slots/{answer['slot']:03d}.json").read_bytes())
    assert (slot["state"], slot["no_new_token"]) == (state, token)


def old_line(dynamic: str | None, opus: str | None, bvid: str | None) -> bytes:
    """A line of schema 1, as the archive's earlier writer left it: no seq, no prev, no run."""
    card = make_card(0, dynamic=dynamic, opus=opus, bvid=bvid)
    fields = {key: card[key] for key in ("identifiers", "published_at", "content_type", "source_url")}
    return json.dumps({"schema_version": 1, **fields}, separators=(",", ":"), sort_keys=True).encode() + b"\n"


def bvid_of(number: int) -> str:
    return f"BV1xx411c{number:03d}"


def test_a_mixed_history_of_an_older_schema_is_joined(tmp_path: Path) -> None:
    """22 entries: 16 known by video, 5 by opus, 1 by dynamic id only. A run that shows each of them under all of its
    names, and one new post, appends the one."""
    collector = Collector(tmp_path)
    cards = collector.archive / "cards"
    cards.mkdir()
    old = [old_line(None, None, bvid_of(n)) for n in range(16)]
    old += [old_line(None, str(700 + n), None) for n in range(5)] + [old_line("800", None, None)]
    history = b"".join(old)
    (cards / "000001.jsonl").write_bytes(history)
    shown = [make_card(n, dynamic=str(100 + n), bvid=bvid_of(n)) for n in range(16)]
    shown += [make_card(16 + n, dynamic=str(200 + n), opus=str(700 + n)) for n in range(5)]
    shown += [make_card(21, dynamic="800", opus="801"), make_card(22, dynamic="999")]
    answer = send(collector, make_evidence(make_observation(shown))).require_done()
    assert (answer["state"], answer["cards_appended"]) == ("NEW_APPENDED", 1)
    data = (cards / "000001.jsonl").read_bytes()
    assert data.startswith(history)
    (line,) = map(json.loads, data[len(history) :].splitlines())
    assert (line["seq"], line["stable_keys"]) == (23, ["dynamic:999"])
