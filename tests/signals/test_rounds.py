"""Append, scan, kill from outside at a moment that nobody chose, again and again: check agrees after every round.

``SIGNALS_ROUNDS=1000`` for a long run; ``SIGNALS_SEED`` for another one.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sys

import pytest

from tests.signals.helpers import TIMEOUT_S, Bench, needs_posix, recount, signal_of

ROUNDS = int(os.environ.get("SIGNALS_ROUNDS", "40"))
SEED = int(os.environ.get("SIGNALS_SEED", "2"))
LINES_MAX = 600  # a hundred saves in one scan


@needs_posix
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits on a pidfd")
def test_check_agrees_after_every_kill(bench: Bench) -> None:
    choose = random.Random(SEED)
    killed = finished = midway = 0
    applied = 0
    lasted_ms = 300.0  # of a scan that ends by itself, as far as is known
    for _ in range(ROUNDS):
        torn = append_some(bench, choose)
        scanner = bench.start("scan", "--batch-bytes", "100", "--durability", choose.choice(["process", "power"]))
        died = wait_or_kill(scanner.pid, choose.uniform(0.3, 1.1) * lasted_ms)
        out, words = scanner.communicate(timeout=TIMEOUT_S)
        if died:
            assert scanner.returncode in (-signal.SIGKILL, 0), words
        else:
            assert scanner.returncode == 0, (out, words)
        killed, finished = killed + (scanner.returncode != 0), finished + (scanner.returncode == 0)
        lasted_ms *= 0.85 if scanner.returncode == 0 else 1.05  # most of them are killed, on any machine
        bench.append(torn)
        if bench.state.exists():
            bench.require_exact()
            applied, before = bench.run("show").answer["applied"], applied
            midway += scanner.returncode != 0 and before < applied
    bench.scan().require_done()
    bench.require_exact()
    assert bench.counts() == recount(bench.file.read_bytes())[0]
    print(f"{killed} killed, {midway} of them between two saves, {finished} finished", file=sys.stderr)
    assert midway and finished


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
