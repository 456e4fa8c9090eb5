"""watch follows the file until it is interrupted."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from product.durable.kernel_lock import KernelLock
from product.signals import commands, points
from tests.signals.helpers import TIMEOUT_S, Bench, needs_posix, padded


@contextmanager
def watching(bench: Bench, **start: Any) -> Iterator[subprocess.Popen[bytes]]:
    process = bench.start("watch", **start)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def next_answer(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None and process.stderr is not None
    line = process.stdout.readline()
    assert line, process.stderr.read()
    answer: dict[str, Any] = json.loads(line)
    return answer


@needs_posix
def test_every_growth_is_counted_until_it_is_interrupted(bench: Bench) -> None:
    pytest.importorskip("watchfiles")
    bench.append(padded("K"))
    with watching(bench) as process:
        assert next_answer(process)["counted"] == 1
        for applied in (80, 120):
            bench.append(padded("K"))
            answer = next_answer(process)
            assert (answer["counted"], answer["applied"]) == (1, applied)
        assert bench.counts() == {"K": 3}
        process.send_signal(signal.SIGINT)
        out, words = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, out) == (130, b"")
        assert words.startswith(b"signals: interrupted") and words.count(b"\n") == 1


@needs_posix
def test_a_file_that_is_replaced_ends_it_with_the_reason(bench: Bench) -> None:
    pytest.importorskip("watchfiles")
    bench.append(padded("K") * 2)
    with watching(bench) as process:
        next_answer(process)
        (bench.root / "next").write_bytes(padded("L") * 3)
        os.replace(bench.root / "next", bench.file)
        answer = next_answer(process)
        assert (answer["code"], process.wait(TIMEOUT_S)) == ("E_SIGNAL_FILE_CHANGED", 70)


@needs_posix
def test_it_goes_on_while_another_scanner_has_the_lock(bench: Bench) -> None:
    pytest.importorskip("watchfiles")
    bench.append(padded("K"))
    bench.scan().require_done()
    reader, control = os.pipe()
    trace = {"KILLPOINTS_TRACE": "1", "KILLPOINTS_CONTROL": str(control)}
    try:
        with watching(bench, environment=trace, pass_fds=(control,)) as process:
            os.close(control)
            assert next_answer(process)["read"] == 0
            with KernelLock(bench.state / ".signals.lock", points=points.LOCK):
                bench.append(padded("K"))
                await_attempts(reader, 3)  # the first scan, one that was refused, and it has tried again
            assert next_answer(process)["counted"] == 1
    finally:
        os.close(reader)


def await_attempts(reader: int, attempts: int) -> None:
    """Until that process has asked for the lock so often."""
    records = b""
    while records.count(b"\tsignals.lock.locked\t") < attempts:
        assert select.select([reader], [], [], TIMEOUT_S)[0], records
        records += os.read(reader, 10_000)


def test_a_file_that_does_not_change_is_not_scanned_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def follow_three_times(_file: Path) -> Iterator[None]:
        yield from (None, None, None)

    monkeypatch.setattr(commands, "follow", follow_three_times)
    bench.append(padded("K"))
    bench.run("watch", plan="signals.lock.locked#2=error:EIO").require_done()
    bench.require_exact()


def test_without_its_package_it_says_what_is_missing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    refused = bench.run("watch")
    assert (refused.status, refused.code) == (78, "E_CONFIG")
    assert "pip install watchfiles" in refused.words
