"""Roots of its own for each test, on tmpfs where there is one: hundreds of small commits, each with its syncs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.sandbox import remove_tree, sandbox_base
from tests.collector.helpers import Collector
from tests.descriptors import no_descriptor_stays_open as no_descriptor_stays_open


@pytest.fixture
def collector() -> Iterator[Collector]:
    # resolved: the collector refuses a root below a link, which is what some systems' temp directory is
    home = Path(tempfile.mkdtemp(prefix="collector-", dir=sandbox_base())).resolve()
    yield Collector(home)
    remove_tree(home)
