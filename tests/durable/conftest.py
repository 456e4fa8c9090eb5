"""What every test here shares."""

from __future__ import annotations

from tests.descriptors import no_descriptor_stays_open as no_descriptor_stays_open
