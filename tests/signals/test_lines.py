"""What is a line, what is counted, what is passed: whatever the file holds, the scan goes on and the cursor is exact."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from product.signals.tally import Rejected, Tally
from tests.signals.helpers import REPOSITORY, TIMEOUT_S, Bench, needs_posix, recount, signal_of

MIB = 2**20
REJECTED = {
    "not-utf8": [b"\xff\xfe", b'{"key":"\xe2\x82"}', b'{"key":"\xed\xa0\x80"}'],
    "not-json": [b"", b"  \r", b'{"key":"a"', b'{"key":"a"} {"key":"b"}', b'{"key":"a\x00"}', b'{"key":"a\x0b\x1c"}',
                 b'{"key":"a","n":NaN}', b'{"key":"a","n":-Infinity}', b"[" * 100_000, b"\xef\xbb\xbf{}", b"'a'"],
    "not-object": [b"[]", b'["key"]', b'"key"', b"null", b"7", b"1e400"],
    "no-key": [b"{}", b'{"Key":"a"}', b'{"key":null}', b'{"key":7}', b'{"key":["a"]}', b'{"key":{"a":1}}',
               b'{"key":true}', b'{"key":"\\ud800"}', b'{"other":"\\udc00"}'],
}  # fmt: skip
COUNTED = {
    "K": [b'{"key":"K"}', b' { "key" : "K" } \r', b'{"key":"\\u004b"}', b'{"key":"K","other":{"key":"L"}}',
          b'{"key":"K","n":' + b"9" * 5000 + b"}", b'{"key":"K","n":1e400}', b'{"key":"K","other":"\\udc00"}'],
    "": [b'{"key":""}'],
    "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"): [b'{"key":"\\ud83d\\ude00"}'],
    "\u2028\u2029\x85\x7f\ufffe": ['{"key":"\u2028\u2029\x85\x7f\ufffe"}'.encode()],
}  # fmt: skip


@pytest.mark.parametrize("reason", REJECTED)
def test_what_is_no_signal_is_rejected_by_its_reason_and_passed(bench: Bench, reason: str) -> None:
    starts = []
    for line in REJECTED[reason]:
        starts.append(bench.file.stat().st_size)
        bench.append(line, b"\n")
    bench.append(signal_of("K"))
    done = bench.scan().require_done()
    assert (done["counted"], done["rejected"]) == (1, len(starts))
    assert done["rejected_so_far"] == {reason: {"count": len(starts), "first": starts[:10]}}
    assert done["applied"] == done["offset"] == bench.file.stat().st_size
    bench.require_exact()


@pytest.mark.parametrize("key", COUNTED)
def test_what_is_a_signal_is_counted(bench: Bench, key: str) -> None:
    bench.append(*(line + b"\n" for line in COUNTED[key]))
    done = bench.scan().require_done()
    assert (done["rejected"], bench.counts()) == (0, {key: len(COUNTED[key])})
    bench.require_exact()


def test_separators_of_text_end_no_line(bench: Bench) -> None:
    """B093: each raw inside a string, then a normal line. What JSON forbids raw is one rejected line, not two."""
    for number, separator in enumerate(["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r"], 1):
        bench.append(signal_of("K").replace(b"K", f"a{separator}b".encode()), signal_of("normal"))
        done = bench.scan().require_done()
        assert done["read"] == 2 and done["offset"] == bench.file.stat().st_size
        assert bench.counts()["normal"] == number
    assert {"a\x85b", "a\u2028b", "a\u2029b"} <= bench.counts().keys()
    bench.require_exact()


def test_a_line_without_its_end_is_not_there_yet(bench: Bench) -> None:
    """B085, with a scan after each write."""
    bench.append(signal_of("foo"), signal_of("bar")[:-1])
    first = bench.scan().require_done()
    assert (first["read"], first["offset"]) == (1, len(signal_of("foo")))
    assert bench.scan().require_done()["read"] == 0
    bench.append(b"\n")
    done = bench.scan().require_done()
    assert (done["read"], done["offset"]) == (1, bench.file.stat().st_size)
    assert bench.counts() == {"foo": 1, "bar": 1}


@needs_posix
def test_a_death_between_a_torn_line_and_its_end(bench: Bench) -> None:
    """B085, with a kill at the end of it."""
    bench.append(signal_of("foo"), signal_of("bar")[:-1])
    bench.kill_at("signals.done")
    assert bench.document("cursor.json")["offset"] == len(signal_of("foo"))
    bench.append(b"\n")
    bench.kill_at("signals.counted")
    bench.scan().require_done()
    assert bench.counts() == {"foo": 1, "bar": 1}


def test_a_torn_line_may_be_taken_back_by_who_wrote_it(bench: Bench) -> None:
    bench.append(signal_of("foo"), b'{"key":"ba')
    bench.scan().require_done()
    os.truncate(bench.file, len(signal_of("foo")))
    bench.append(signal_of("other"))
    bench.scan().require_done()
    assert bench.counts() == {"foo": 1, "other": 1}


def test_characters_over_the_borders_of_reading(bench: Bench) -> None:
    """B090: the bytes of the euro sign on both sides of every border; 1 000 such lines."""
    bench.append(*(signal_of("€" * (number % 7 + 1)) for number in range(1000)))
    done = bench.scan("--batch-bytes", "1001").require_done()
    assert done["offset"] == bench.file.stat().st_size
    assert sum(bench.counts().values()) == 1000
    bench.require_exact()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_line_without_end_of_64_mib_takes_no_memory(bench: Bench) -> None:
    """B087, under a limit of the system that a single copy of the line would break."""
    bench.append(*([b"x" * MIB] * 64))
    scan_within(bench, 64 * MIB)
    assert not (bench.state / "counts.json").exists()
    bench.append(b"\n", *(signal_of("K") for _ in range(10)))
    peak_kib = scan_within(bench, 64 * MIB)
    assert bench.counts() == {"K": 10}
    shown = bench.run("show").require_done()
    assert shown["rejected"] == {"too-long": {"count": 1, "first": [0]}}
    assert bench.document("cursor.json")["offset"] == bench.file.stat().st_size
    assert peak_kib - scan_within(bench, 64 * MIB) < 16 * 1024  # beside a scan with nothing new


@pytest.mark.parametrize("size", [MIB - 1, MIB, MIB + 1, 2 * MIB])
def test_a_line_of_just_a_mebibyte_is_the_longest(bench: Bench, size: int) -> None:
    bare = len(b'{"key":"K","pad":""}')
    bench.append(b'{"key":"K","pad":"' + b"x" * (size - bare) + b'"}\n', signal_of("L"))
    done = bench.scan().require_done()
    fits = size <= MIB
    assert (done["counted"], done["rejected"]) == ((2, 0) if fits else (1, 1))
    bench.require_exact()


def test_the_longest_key_can_be_saved_and_read(bench: Bench) -> None:
    key = "k" * (MIB - len(b'{"key":""}'))
    bench.append(b'{"key":"' + key.encode() + b'"}\n')
    bench.scan().require_done()
    assert bench.scan().require_done()["rows"] == ["R5"]
    assert bench.counts() == {key: 1}


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[1]), int(sys.argv[1])))
from product.signals.cli import main
status = main(sys.argv[2:])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")))
sys.exit(status)
"""


def scan_within(bench: Bench, data_bytes: int) -> int:
    """Scan in a process that may allocate so much; its peak of resident memory in KiB."""
    command = [sys.executable, "-c", LIMITED, str(data_bytes), *bench.argv("scan")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


PIECES = st.sampled_from(
    [b"\n", b"\r\n", b"{}", b'{"key":"K"}', b'{"key":"K"}\n', '{"key":"ß€😀"}\n'.encode(), b'{"key":', b'"L"}', b"\0", b"\xff",
     b"x" * 300, b'{"key":7}\n', b"[]\n", b"\xe2\x82", b"\xac"]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(PIECES, max_size=12), min_size=1, max_size=4), st.sampled_from(["1", "7", "64", "1000000"]))
def test_any_bytes_in_any_pieces_count_as_the_judge_counts(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[list[bytes]], batch_bytes: str
) -> None:
    bench = Bench(Path(tmp_path_factory.mktemp("signals")))
    for pieces in rounds:
        bench.append(*pieces)
        bench.scan("--durability", "process", "--batch-bytes", batch_bytes).require_done()
        bench.require_exact()
    data = bench.file.read_bytes()
    assert bench.counts() == recount(data)[0]
    assert bench.run("check").require_done()["offset"] == data.rfind(b"\n") + 1


def test_what_an_epoch_alone_has_counted() -> None:
    tally = Tally({"K": 5, "L": 2, "M": 1}, {"K": 3, "L": 2}, {"not-json": Rejected(1, [0])})
    assert tally.of_this_epoch() == {"K": 2, "M": 1}
    assert tally.next_epoch() == Tally({"K": 5, "L": 2, "M": 1}, {"K": 5, "L": 2, "M": 1}, {})
    assert tally.next_epoch().of_this_epoch() == {}
