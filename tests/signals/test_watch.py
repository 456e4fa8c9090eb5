"""watch follows the file until it is interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.signals.helpers import TIMEOUT_S, Bench, needs_posix, padded


@contextmanager
def watching(bench: Bench, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    process = bench.start("watch", *options)
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
    from product.durable.kernel_lock import KernelLock
    from product.signals import points

    bench.append(padded("K"))
    bench.scan().require_done()
    with watching(bench) as process:
        assert next_answer(process)["read"] == 0
        with KernelLock(bench.state / ".signals.lock", points=points.LOCK):
            bench.append(padded("K"))
        assert next_answer(process)["counted"] == 1


def test_without_its_package_it_says_what_is_missing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    refused = bench.run("watch")
    assert (refused.status, refused.code) == (78, "E_CONFIG")
    assert "pip install watchfiles" in refused.words
