"""Append, scan, kill from outside at a moment that nobody chose, again and again: check agrees after every round.

``SIGNALS_ROUNDS=1000`` for a long run; ``SIGNALS_SEED`` for another one.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.signals.helpers import TIMEOUT_S, Bench, needs_posix, recount, signal_of

ROUNDS = int(os.environ.get("SIGNALS_ROUNDS", "40"))
SEED = int(os.environ.get("SIGNALS_SEED", "2"))
STORY_ROUNDS = 40
LINES_MAX = 300  # dozens of saves in one scan


@needs_posix
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits on a pidfd")
def test_check_agrees_after_every_kill(tmp_path: Path) -> None:
    choose = random.Random(SEED)
    total = Counter[str]()
    for story in range(0, ROUNDS, STORY_ROUNDS):
        root = tmp_path / str(story)
        root.mkdir()
        total += run_story(Bench(root), choose, min(STORY_ROUNDS, ROUNDS - story))
    print(", ".join(f"{count} {what}" for what, count in total.items()), file=sys.stderr)
    assert total["killed between two saves"] and total["finished"]


def run_story(bench: Bench, choose: random.Random, rounds: int) -> Counter[str]:
    """So many rounds with one file: how they ended."""
    ended = Counter[str]()
    applied, lasted_ms = 0, 0.0  # how long a scan lasts that ends by itself, as far as is known
    for _ in range(rounds):
        torn = append_some(bench, choose)
        scanner = bench.start("scan", "--batch-bytes", "100", "--durability", choose.choice(["process", "power"]))
        started = time.monotonic()
        died = wait_or_kill(scanner.pid, choose.uniform(0.3, 1.1) * lasted_ms if lasted_ms else TIMEOUT_S * 1000)
        out, words = scanner.communicate(timeout=TIMEOUT_S)
        finished = scanner.returncode == 0
        assert finished or (died and scanner.returncode == -signal.SIGKILL), (out, words)
        if finished:
            lasted_ms = (time.monotonic() - started) * 1000
        else:
            lasted_ms *= 1.05  # or on a machine that has become slower none would ever finish
        bench.append(torn)
        before = applied
        if bench.state.exists():
            bench.require_exact()
            applied = bench.run("show").require_done()["applied"]
        ended[
            "finished" if finished else "killed between two saves" if before < applied else "killed before a save"
        ] += 1
    bench.scan().require_done()
    bench.require_exact()
    assert bench.counts() == recount(bench.file.read_bytes())[0]
    return ended


def append_some(bench: Bench, choose: random.Random) -> bytes:
    """Some lines, the last one torn; the rest of it, to be appended later."""
    for _ in range(choose.randrange(1, LINES_MAX)):
        bench.append(choose.choice([signal_of(f"key {choose.randrange(9)}"), b"no signal\n", signal_of("ß€😀")]))
    last = signal_of("torn")
    cut = choose.randrange(len(last))
    bench.append(last[:cut])
    return last[cut:]


def wait_or_kill(pid: int, patience_ms: float) -> bool:
    """Wait for its end; kill it when the time is up. Whether it was killed, or was about to end anyway."""
    descriptor = os.pidfd_open(pid)
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        if poller.poll(patience_ms):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        return True
    finally:
        os.close(descriptor)
