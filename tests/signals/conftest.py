from pathlib import Path

import pytest

from tests.descriptors import no_descriptor_stays_open as no_descriptor_stays_open
from tests.signals.helpers import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
