"""``python -m benchmarks [NAME ...]``: every number that the README states. Ratios, measured side by side."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def main() -> int:
    known = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))
    chosen = sys.argv[1:] or known
    for name in chosen:
        if name not in known:
            print(f"benchmarks: no benchmark {name!r}; there are: {', '.join(known)}", file=sys.stderr)
            return 64
    for name in chosen:
        importlib.import_module(f"benchmarks.bench_{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
