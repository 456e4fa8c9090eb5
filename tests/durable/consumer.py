"""A product of its own on product.durable.cursor: states of sites, from a journal whose lines say where a site moves.

Unlike a counter it depends on the order of the lines, and its document has the path that each site has gone. As a
program: ``python -m tests.durable.consumer DIRECTORY`` consumes what is new and says what it did.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from killpoints import declare
from product.durable import canonical, cursor
from product.durable.cursor import RESUME, Action, ConsumerPoints, Durability, Progress, Store
from product.durable.evidence import EVIDENCE_FIELDS, Evidence, parse_evidence, require_object
from product.durable.files import PUT_STEPS, read_file
from product.durable.lines import Block, open_source

POINTS = ConsumerPoints(
    read=declare("cursor-test.read", "nothing is saved"),
    source_synced=declare("cursor-test.source-synced", "the journal is synced"),
    effect=declare("cursor-test.state", "the state is saved", steps=PUT_STEPS),
    saved=declare("cursor-test.saved", "the cursor has not moved"),
    cursor=declare("cursor-test.cursor", "the cursor has moved", steps=PUT_STEPS),
)
REFUSED = {Action.REFUSE_CHANGED, Action.REFUSE_STATE}


@dataclass
class Sites:
    """The path of each site so far."""

    paths: dict[str, list[str]] = field(default_factory=dict)

    def apply(self, block: Block) -> None:
        for line in block.lines():
            site, _, state = line.decode().partition(" ")
            self.paths.setdefault(site, []).append(state)

    def format(self, evidence: Evidence) -> bytes:
        return canonical.encode({**evidence.as_fields(), "sites": self.paths})


def load(path: Path, sites: Sites) -> Evidence | None:
    data = read_file(path)
    if data is None:
        return None
    document = require_object(canonical.decode_canonical(data), "", {*EVIDENCE_FIELDS, "sites"})
    sites.paths = document["sites"]
    return parse_evidence(document)


def consume(
    root: Path, durability: Durability = Durability.POWER, batch_bytes: int = 2**20
) -> tuple[str, Progress | None]:
    """The row, and what was done; None where the row refuses."""
    store = Store(root / "state.json", root / "cursor.json", POINTS, durability)
    sites = Sites()
    source = open_source(root / "journal")
    try:
        found = cursor.observe(store.cursor, source, lambda: load(store.effect, sites))
        row = RESUME.decide(**found.facts)
        if row.action in REFUSED:
            return row.label, None
        return row.label, cursor.consume(store, source, cursor.start_of(found), sites, batch_bytes=batch_bytes)
    finally:
        os.close(source)


def read_paths(root: Path) -> dict[str, list[str]]:
    paths: dict[str, list[str]] = json.loads((root / "state.json").read_bytes())["sites"]
    return paths


def say() -> dict[str, Any]:
    row, progress = consume(Path(sys.argv[1]))
    return {"row": row, "progress": None if progress is None else asdict(progress)}


if __name__ == "__main__":
    print(json.dumps(say()))
