"""Whatever a test calls in this process closes what it opened, on every way out."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

OPEN = Path("/proc/self/fd")


@pytest.fixture(autouse=True)
def no_descriptor_stays_open() -> Iterator[None]:
    """Linux only: elsewhere nobody lists them."""
    before = _opened()
    yield
    if before != _opened():
        gc.collect()  # what an exception still holds is no leak
    left = {number: name for number, name in _opened().items() if before.get(number) != name}
    assert not left, "still open: the code under test, or this test, does not close it"


def _opened() -> dict[int, str]:
    found = {}
    for entry in os.listdir(OPEN) if OPEN.is_dir() else ():
        try:
            found[int(entry)] = os.readlink(OPEN / entry)
        except FileNotFoundError:  # the listing's own
            pass
    return found
