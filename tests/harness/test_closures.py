"""The small products are closed under crashes: whatever their number, no other disk appears and every disk recovers."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.explore import explore
from harness.runner import default_spawn, open_project

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(default_spawn() != "fork", reason="explorations are slow without warm forks")
@pytest.mark.parametrize("scenario", ["signals.first-scan", "signals.adopt", "sites.first-apply", "sites.consume"])
def test_it_reaches_a_fixpoint_without_folding_anything(scenario: str) -> None:
    found = explore(open_project(ROOT / "matrix.yaml"), scenario, jobs=1, spawn="fork")
    assert found.fixpoint and not found.findings and not found.folding
    assert len(found.states) > 5 and found.depth >= 1
