"""Applying signals, and replaying a journal of N entries beside one of 4 N: goal, at most 4.4 times the time.

SITES_ENTRIES sets N (default 20,000; a million takes some minutes). Two hundred entries a site, pages of their own.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import measure_side_by_side, tell
from product.sites import commands
from product.sites.commands import Saving
from product.sites.entries import Entry
from product.sites.layout import Layout
from product.sites.states import Outcome

ENTRIES = int(os.environ.get("SITES_ENTRIES", "20000"))
ROUNDS = 3
OUTCOMES = (Outcome.EMPTY, Outcome.GONE, Outcome.FOUND, Outcome.NETWORK_FAILURE, Outcome.TRANSIENT, Outcome.CHALLENGE)


def entries(count: int) -> Iterator[Entry]:
    for number in range(count):
        site = f"site{number // 200}.example"
        outcome = OUTCOMES[number % len(OUTCOMES)]
        yield Entry(f"id-{number}", 10**9 + number, outcome, f"https://{site}/{number}", site)


def write_journal(path: Path, count: int) -> Path:
    with path.open("wb") as stream:
        stream.writelines(entry.format() for entry in entries(count))
    return path


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="killmatrix-bench-") as directory:
        root = Path(directory)
        one, four = (write_journal(root / f"{n}.jsonl", n * ENTRIES) for n in (1, 4))
        replayed = measure_side_by_side(
            {"N": lambda: commands.replay(one), "4 N": lambda: commands.replay(four)}, rounds=ROUNDS
        )
        signals = root / "signals.jsonl"
        signals.write_bytes(b"".join(_as_signal(entry) for entry in entries(ENTRIES)))
        made = iter(range(ROUNDS))
        applied = measure_side_by_side(
            {"apply": lambda: commands.apply(Layout(root / f"state{next(made)}"), signals, Saving(10**9))},
            rounds=ROUNDS,
        )
    tell(
        f"sites: {ENTRIES:,} entries",
        {
            "replay, 4 N / N": f"{replayed['4 N'] / replayed['N']:.2f}  (goal at most 4.4)",
            "replay": f"{ENTRIES / replayed['N']:,.0f} entries/s",
            "apply, durable, from a file of signals": f"{ENTRIES / applied['apply']:,.0f} signals/s",
        },
    )


def _as_signal(entry: Entry) -> bytes:
    """An entry without the site is a signal that comes in."""
    line = entry.format()
    start = line.index(b',"site":"')
    end = line.index(b'"', start + len(b',"site":"'))
    return line[:start] + line[end + 1 :]


if __name__ == "__main__":
    main()
