"""Any sequence of signals and of commands that fail anywhere: a command that succeeds has applied each exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from product.durable import canonical
from product.durable.evidence import Evidence, Identity
from product.durable.plain import Digest
from product.sites import points
from product.sites.knowledge import Knowledge
from product.sites.records import format_knowledge, parse_knowledge
from tests.scenarios.sites import Fold, outline
from tests.sites.helpers import NOW, Bench

CONSUMER = points.CONSUMER
PLACES = [
    str(place)
    for point in (points.JOURNAL, CONSUMER.read, CONSUMER.effect, CONSUMER.saved, CONSUMER.cursor, points.DONE)
    for place in (point, *point.steps)
]
OUTCOMES = ["network-failure", "gone", "transient", "challenge", "found", "empty", "pool-hit", "refused", "row"]
signals = st.lists(
    st.tuples(
        st.sampled_from(OUTCOMES), st.integers(0, 6), st.integers(-8000, 200_000), st.sampled_from(["alive", "fails"])
    ),
    max_size=12,
)
faults = st.one_of(st.none(), st.tuples(st.sampled_from(PLACES), st.sampled_from(["ENOSPC", "EIO"])))


def require_exact(bench: Bench) -> None:
    """The replay agrees, and so does the judge's own fold of the journal."""
    bench.run("check").require_done()
    seen = parse_knowledge((bench.state / "state.json").read_bytes())[0]
    due = Fold((bench.state / "journal.jsonl").read_bytes())
    document = canonical.decode((bench.state / "state.json").read_bytes())["known"]
    assert {name: outline(site) for name, site in document["sites"].items()} == {
        name: outline(site) for name, site in due.sites.items()
    }
    assert {page.url: (page.outcome, page.until) for page in seen.pages.values()} == due.pages


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(signals, faults), min_size=1, max_size=4))
def test_no_fault_loses_or_doubles_a_signal(
    tmp_path_factory: pytest.TempPathFactory,
    rounds: list[tuple[list[tuple[str, int, int, str]], tuple[str, str] | None]],
) -> None:
    bench, number = Bench(Path(tmp_path_factory.mktemp("sites"))), 0
    for given_signals, fault in rounds:
        lines = []
        for outcome, site, after, root in given_signals:
            number += 1
            url = f"https://site{site}.example/{number % 5}"
            lines.append({"id": f"s{number}", "outcome": outcome, "url": url, "at": NOW + after, "root": root})
        path = str(bench.write(*lines))
        ran = bench.run("apply", "--signals", path, plan=f"{fault[0]}=error:{fault[1]}" if fault else "")
        assert ran.code in (None, "E_IO"), ran.answer
        bench.run("apply", "--signals", path).require_done()  # sent again
        journal = bench.state / "journal.jsonl"
        assert len(journal.read_bytes().splitlines()) == number
        if number:
            require_exact(bench)
            moved = bench.root / "elsewhere.jsonl"
            moved.write_bytes(journal.read_bytes())
            assert bench.run("replay", str(moved)).answer["sha256"] == bench.run("check").answer["sha256"]


def test_the_state_is_written_as_rfc_8785(bench: Bench) -> None:
    bench.give("refused", "https://bücher.example/€", why="zu groß €")
    data = (bench.state / "state.json").read_bytes()
    assert canonical.encode(canonical.decode(data)) == data


def test_an_empty_state_reads_back() -> None:
    nothing = Digest.of(b"")
    evidence = Evidence(1, 0, Identity("1", "2", nothing, nothing))
    assert parse_knowledge(format_knowledge(Knowledge(), evidence)) == (Knowledge(), evidence)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"state":"NEUTRAL"', b'"state":"ALIVE"'),
        (b'"since":0', b'"since":true'),
        (b'"goods":0', b'"goods":-1'),
        (b'"until":null', b'"until":5'),
        (b'"rejected":0', b'"rejected":0.5'),
        (b'"schema":1', b'"schema":2'),
        (b'"schema":1', b'"schema":1 '),
        (b'"schema":1', b'"schema":1,"schema":1'),
    ],
)
def test_a_broken_state_is_refused_and_nothing_is_touched(bench: Bench, before: bytes, after: bytes) -> None:
    bench.give("empty", "https://clinic.example/")
    path = bench.state / "state.json"
    assert before in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(before, after, 1))
    snapshot = bench.snapshot()
    for command in ("consume", "check"):
        ran = bench.run(command)
        assert (ran.status, ran.code) == (70, "E_SITE_STATE"), ran.answer
        assert "move" in ran.answer["detail"]["repair"]
    assert bench.snapshot() == snapshot
    path.unlink()
    (bench.state / "cursor.json").unlink()
    assert bench.run("consume").require_done()["rows"] == ["R1"]  # the repair


def test_a_journal_that_is_gone_is_not_begun_anew(bench: Bench) -> None:
    bench.give("empty", "https://clinic.example/")
    (bench.state / "journal.jsonl").unlink()
    assert bench.run("consume").code == "E_SITE_JOURNAL"
    assert not (bench.state / "journal.jsonl").exists()


def test_a_changed_entry_is_found_by_check(bench: Bench) -> None:
    for number in range(120):
        bench.give("empty", f"https://clinic.example/{number}")
    journal = bench.state / "journal.jsonl"
    data = journal.read_bytes()
    place = data.index(b'"empty"', len(data) // 2)
    journal.write_bytes(data[:place] + b'"found"' + data[place + 7 :])
    ran = bench.run("check")
    assert (ran.status, ran.code) == (70, "E_SITE_REPLAY")


def test_a_restored_copy_goes_on(bench: Bench) -> None:
    bench.give("empty", "https://clinic.example/")
    journal = bench.state / "journal.jsonl"
    data = journal.read_bytes()
    journal.rename(bench.root / "old")
    journal.write_bytes(data)
    bench.give("empty", "https://clinic.example/2")
    bench.run("check").require_done()


# ------------------------------------------------------------------------------------------------------- what comes in


def test_an_id_with_other_content_is_a_conflict_and_nothing_is_written(bench: Bench) -> None:
    bench.give("empty", "https://clinic.example/")
    before = bench.snapshot()
    other = bench.write({"id": "new", "outcome": "row", "url": "https://a.example/"},
                        {"id": "s1", "outcome": "found", "url": "https://clinic.example/"})  # fmt: skip
    ran = bench.run("apply", "--signals", str(other))
    assert (ran.status, ran.code) == (65, "E_SITE_ID_CONFLICT")
    assert bench.snapshot() == before


def test_a_signal_that_is_sent_again_later_is_the_same(bench: Bench) -> None:
    path = str(bench.write({"outcome": "empty", "url": "https://Clinic.example:443/#x", "id": 'odd "id","outcome":'}))
    assert bench.run("apply", "--signals", path).require_done()["recorded"] == 1
    ran = bench.run("apply", "--signals", path, now=NOW + 50).require_done()
    assert (ran["recorded"], ran["already"]) == (0, 1)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"\xff",
        b'\xef\xbb\xbf{"id":"a","outcome":"empty","url":"https://a.example/"}',
        b'{"id":"a","outcome":"empty"}',
        b'{"id":"a","outcome":"empty","url":"mailto:a@b.example"}',
        b'{"id":"","outcome":"empty","url":"https://a.example/"}',
        b'{"id":"a","id":"b","outcome":"empty","url":"https://a.example/"}',
        b'{"id":"a","outcome":"nonsense","url":"https://a.example/"}',
        b'{"id":"a","outcome":"revived","url":"https://a.example/"}',
        b'{"id":"a","outcome":"tick","url":"https://a.example/"}',
        b'{"id":"a","at":true,"outcome":"empty","url":"https://a.example/"}',
        b'{"id":"a","at":1e400,"outcome":"empty","url":"https://a.example/"}',
        b'{"id":"a","at":' + b"9" * 5000 + b',"outcome":"empty","url":"https://a.example/"}',
        b'{"id":"\\ud800","outcome":"empty","url":"https://a.example/"}',
        b'{"id":"a","outcome":"empty","url":"https://a.example/","more":1}',
        b'{"id":"a","outcome":"gone","root":"maybe","url":"https://a.example/"}',
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b" " * (2**20 + 1),
    ],
)
def test_an_invalid_line_stops_no_other(bench: Bench, line: bytes) -> None:
    good = b'{"id":"%d","outcome":"empty","url":"https://clinic.example/%d"}\n'
    path = bench.root / "mixed.jsonl"
    path.write_bytes(good % (1, 1) + line + b"\n" + good % (2, 2) + b'{"id":"3"')
    told = bench.run("apply", "--signals", str(path)).require_done()
    assert (told["recorded"], told["invalid"], told["unfinished_bytes"]) == (2, 1, 9)
    assert told["first_invalid"][0]["line"] == 2
    assert bench.explain("clinic.example")["pages"] == {"empty": 2}


def test_a_strange_line_in_the_journal_is_counted_and_passed(bench: Bench) -> None:
    bench.give("empty", "https://clinic.example/")
    with (bench.state / "journal.jsonl").open("ab") as stream:
        stream.write(b'{"id":"x","outcome":"empty"}\n' + b"torn")
    bench.give("empty", "https://clinic.example/2")
    assert bench.run("status").require_done()["rejected"] == 1
    assert b"torn" not in (bench.state / "journal.jsonl").read_bytes()
    bench.run("check").require_done()


@pytest.mark.parametrize(
    "argv", [[], ["probe"], ["apply", "--state", "x"], ["nonsense"], ["status", "--state", "x", "--now", "-1"]]
)
def test_misuse_is_usage(argv: list[str]) -> None:
    from product.sites.cli import main

    with pytest.raises(SystemExit) as left:
        main(argv)
    assert left.value.code == 64
