"""More than one scanner at once, and commands that read while one writes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.signals.helpers import TIMEOUT_S, Bench, needs_posix, padded, signal_of

pytestmark = needs_posix

POINTS = ["signals.lock.locked", "signals.read", "signals.counts/tmp-written", "signals.counted", "signals.done"]


@contextmanager
def held_at(bench: Bench, point: str) -> Iterator[None]:
    """A scanner of its own waits there; afterwards it goes on and must finish."""
    control_reader, control = os.pipe()
    resume, resume_writer = os.pipe()
    channels = {"KILLPOINTS_CONTROL": str(control), "KILLPOINTS_RESUME": str(resume)}
    process = bench.start("scan", plan=f"{point}=pause", environment=channels, pass_fds=(control, resume))
    try:
        os.close(control)
        os.close(resume)
        assert os.read(control_reader, 1000).startswith(b"pause\t"), process.communicate(timeout=TIMEOUT_S)
        yield
        os.write(resume_writer, b"\n")
        out, words = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, (out, words)
    finally:
        os.close(control_reader)
        os.close(resume_writer)
        process.kill()
        process.communicate()


@pytest.mark.parametrize("point", POINTS)
def test_the_second_is_refused_and_changes_nothing(bench: Bench, point: str) -> None:
    bench.append(padded("K") * 2)
    with held_at(bench, point):
        before = bench.snapshot()
        for command in ("scan", "adopt"):
            refused = bench.run(command)
            assert (refused.status, refused.code) == (75, "E_STATE_LOCKED")
        assert bench.snapshot() == before
    assert bench.scan().require_done()["rows"] == ["R5"]
    bench.require_exact()


def test_the_second_waits_and_counts_what_is_left(bench: Bench) -> None:
    bench.append(padded("K") * 2)
    with held_at(bench, "signals.counted"):
        bench.append(padded("K"))
        waiting = bench.start("scan", "--wait", str(TIMEOUT_S))
    out, words = waiting.communicate(timeout=TIMEOUT_S)
    assert waiting.returncode == 0, words
    assert json.loads(out)["rows"] == ["R5"]
    bench.require_exact()
    assert bench.counts() == {"K": 3}


@pytest.mark.parametrize("point", POINTS)
def test_show_and_check_need_no_lock(bench: Bench, point: str) -> None:
    bench.append(padded("K") * 2)
    bench.scan().require_done()
    bench.append(padded("K"))
    with held_at(bench, point):
        shown = bench.counts()["K"]
        assert shown == bench.run("check").require_done()["total"]
        assert shown in (2, 3)


def test_four_scanners_and_a_writer_at_once(bench: Bench) -> None:
    """Nothing is armed: what the system makes of it. Every scanner says what it has counted; together it is everything."""
    counted = 0
    for number in range(3):
        scanners = [bench.start("scan", "--wait", str(TIMEOUT_S), "--batch-bytes", "500") for _ in range(4)]
        for line in range(200):
            bench.append(signal_of(f"key {line % 7}", round=number))
        for scanner in scanners:
            out, words = scanner.communicate(timeout=TIMEOUT_S)
            assert scanner.returncode == 0, words
            counted += json.loads(out)["counted"]
    counted += bench.scan().require_done()["counted"]
    assert counted == 600 == sum(bench.counts().values())
    bench.require_exact()
