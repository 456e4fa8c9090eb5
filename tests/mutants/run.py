"""``python -m tests.mutants.run MUTANT MODULE ARGS``: run the product's command with one mistake in it.

``--list`` prints the catalogue as JSON. The module is the one that the matrix names.
"""

from __future__ import annotations

import json
import sys

import product.collector.cli
import product.signals.cli
import product.sites.cli
import tests.mutants.collector
import tests.mutants.durable
import tests.mutants.signals
import tests.mutants.sites  # noqa: F401  (they fill the catalogue)
from tests.mutants.catalogue import MUTANTS

PROGRAMS = {
    "product.collector": product.collector.cli.main,
    "product.signals": product.signals.cli.main,
    "product.sites": product.sites.cli.main,
}


def main(argv: list[str]) -> int:
    if argv == ["--list"]:
        fields = ("id", "says", "cells", "excuse")
        print(json.dumps([{name: getattr(mutant, name) for name in fields} for mutant in MUTANTS.values()]))
        return 0
    MUTANTS[argv[0]].apply()
    return PROGRAMS[argv[1]](argv[2:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
