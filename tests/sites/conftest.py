from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.descriptors import no_descriptor_stays_open as no_descriptor_stays_open
from tests.sites.helpers import Bench
from tests.sites.server import Server


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running
