"""``python -m killpoints MODULE ...``: import the modules and print the points they declare, as one JSON array."""

from __future__ import annotations

import importlib
import json
import sys

from killpoints.registry import catalogue


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) > 1 else 64
    sys.path.insert(0, "")
    for module in sys.argv[1:]:
        importlib.import_module(module)
    json.dump([{"name": str(p), "says": p.says, "spec": p.spec} for p in catalogue()], sys.stdout, ensure_ascii=False)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
