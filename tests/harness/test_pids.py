"""Numbers of processes: who has one now, and whether the circle passed it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from harness.pids import any_given, is_in_use, last_given

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the number that it gave out last")


def test_a_living_process_has_its_number_and_a_reaped_one_has_not() -> None:
    assert is_in_use(os.getpid()) and is_in_use(1)
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert not is_in_use(gone.pid)


def test_the_circle_moves_on_to_a_new_process() -> None:
    before = last_given()
    new = subprocess.Popen(["true"])
    new.wait()
    assert any_given([new.pid], before, last_given())


@pytest.mark.parametrize(
    ("pid", "before", "after", "given"),
    [
        (7, 6, 9, True),
        (9, 6, 9, True),
        (6, 6, 9, False),
        (10, 6, 9, False),
        (7, 7, 7, False),
        (32_000, 31_000, 400, True),
        (300, 31_000, 400, True),
        (500, 31_000, 400, False),
        (31_000, 31_000, 400, False),
        (7, None, 9, False),
        (7, 6, None, False),
    ],
)
def test_where_the_circle_went(pid: int, before: int | None, after: int | None, given: bool) -> None:
    assert any_given([pid], before, after) is given
    assert not any_given([], before, after)
