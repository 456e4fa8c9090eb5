"""The signal counter beside a bare loop; its memory; and what it costs to come back to a file without news.

The bare loop reads lines, decodes each with the same decoder and counts the keys in a dict: no state, no rejects, no offsets.
Goals: at least 0.8 of its throughput; memory within 64 MiB and the keys, whatever the file; coming back does not depend on
the size of the file. ``BENCH_SIGNALS_MIB`` sets the size (32; 1024 for the numbers that README states).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import measure_side_by_side, tell
from harness.sandbox import sandbox_base
from product.signals import commands
from product.signals.commands import Saving
from product.signals.layout import Layout
from product.signals.tally import decode_line

ROOT = Path(__file__).resolve().parent.parent
SIZE_MIB = int(os.environ.get("BENCH_SIGNALS_MIB", "32"))
KEYS, ROUNDS, LINES = 1000, 5, 10_000
PEAK = """
import sys
from product.signals.cli import main
status = main(sys.argv[1:])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")))
sys.exit(status)
"""


def make_file(path: Path, size_bytes: int) -> None:
    """Signals of a usual kind, about 85 bytes each, until the file has that size."""
    choose = random.Random(1)
    signals = [
        {"key": f"key {choose.randrange(KEYS)}", "at": number, "source": "probe", "note": "x" * choose.randrange(40)}
        for number in range(LINES)
    ]
    part = b"".join(json.dumps(signal).encode() + b"\n" for signal in signals)
    with path.open("wb") as file:
        while file.tell() < size_bytes:
            file.write(part)


def count_barely(path: Path) -> dict[str, int]:
    counts: dict[str, int] = {}
    with path.open("rb") as file:
        for line in file:
            key = decode_line(line.decode())["key"]
            counts[key] = counts.get(key, 0) + 1
    return counts


def peak_of(*argv: str) -> float:
    """The peak of resident memory in MiB of a process of its own."""
    done = subprocess.run([sys.executable, "-c", PEAK, *argv], cwd=ROOT, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1]) / 1024


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sandbox_base()) as directory:
        root = Path(directory)
        measure_throughput(root, min(SIZE_MIB, 16) * 2**20)
        if sys.platform.startswith("linux"):
            measure_memory(root, SIZE_MIB * 2**20)
        measure_coming_back(root, SIZE_MIB * 2**20)


def measure_throughput(root: Path, size_bytes: int) -> None:
    file, state = root / "signals.jsonl", root / "state"
    make_file(file, size_bytes)

    def scan() -> None:
        shutil.rmtree(state, ignore_errors=True)
        commands.scan(Layout(state), file, Saving())

    scan()
    assert commands.show(Layout(state), None)["counts"] == dict(
        sorted(count_barely(file).items(), key=lambda item: (-item[1], item[0]))
    )
    took = measure_side_by_side({"bare": lambda: count_barely(file), "scan": scan}, rounds=ROUNDS)
    mib = file.stat().st_size / 2**20
    tell(
        f"signals: throughput, {mib:.0f} MiB, {KEYS} keys",
        {
            "scan / bare loop": f"{took['bare'] / took['scan']:.2f} of its throughput  (goal at least 0.8)",
            "scan": f"{mib / took['scan']:.0f} MiB/s",
        },
    )


def measure_memory(root: Path, size_bytes: int) -> None:
    file, state = root / "large.jsonl", root / "large"
    make_file(file, size_bytes)
    arguments = ("scan", "--file", str(file), "--state", str(state))
    peak, idle = peak_of(*arguments), peak_of(*arguments)
    tell(
        f"signals: peak of resident memory, {size_bytes / 2**20:.0f} MiB, {KEYS} keys",
        {
            "a scan of all of it": f"{peak:.1f} MiB  (goal within 64 MiB and the keys)",
            "a scan with nothing new": f"{idle:.1f} MiB",
            "counts.json": f"{(state / 'counts.json').stat().st_size / 2**20:.2f} MiB",
        },
    )
    file.unlink()
    shutil.rmtree(state)


def measure_coming_back(root: Path, size_bytes: int) -> None:
    acts = {}
    for name, size in (("small", 2**20), ("large", size_bytes)):
        file, layout = root / f"{name}.jsonl", Layout(root / name)
        make_file(file, size)
        commands.scan(layout, file, Saving())
        acts[name] = lambda layout=layout, file=file: commands.scan(layout, file, Saving())
    took = measure_side_by_side(acts, rounds=50)
    tell(
        "signals: coming back to a file with nothing new",
        {
            f"{size_bytes / 2**20:.0f} MiB / 1 MiB": f"{took['large'] / took['small']:.2f}  (goal 1: the size does not matter)",
            "one scan": f"{took['large'] * 1e3:.2f} ms",
        },
    )


if __name__ == "__main__":
    main()
