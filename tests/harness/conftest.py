"""What the harness's own tests share."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def toy_imports() -> Iterator[None]:
    """Engines import a project's judges into this process; afterwards it is as if they had not."""
    before = list(sys.path)
    yield
    sys.path[:] = before
    sys.modules.pop("toy_judge", None)
