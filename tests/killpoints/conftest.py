"""Every test declares points of its own: afterwards they are unknown again, and nothing is armed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from killpoints import disarm, registry


@pytest.fixture(autouse=True)
def fresh_catalogue() -> Iterator[None]:
    before = dict(registry._points)
    yield
    registry._points.clear()
    registry._points.update(before)
    disarm()
