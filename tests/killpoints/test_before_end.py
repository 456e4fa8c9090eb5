"""What is called before a process is ended or held: always then, never else, and never in the way of the end."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from killpoints import Point, arm, attempt, declare, reach
from tests.killpoints.test_armed_process import SHOP, run, shop

__all__ = ["shop"]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="descriptors and signals as POSIX has them")

LAST = """
import sys
def words():
    print("last words", flush=True)
def leave():
    sys.exit(3)
def interrupt():
    raise KeyboardInterrupt
def mute():
    sys.stderr = None
    raise ValueError("nobody hears it")
def wordless():
    class Wordless(Exception):
        def __str__(self):
            raise ValueError
    raise Wordless
"""


@pytest.fixture
def saved() -> Point:
    return declare("shop.saved", "the cart is durable")


def test_it_comes_after_the_act_and_before_the_record(saved: Point) -> None:
    """Who reads ``pause`` may end the process at once."""
    control_reader, control = os.pipe()
    resume, resume_writer = os.pipe()
    os.write(resume_writer, b"\n")
    os.set_blocking(control_reader, False)
    told: list[object] = []

    def before_end() -> None:
        with pytest.raises(BlockingIOError):
            os.read(control_reader, 100)
        told.append("before the end")

    arm("shop.saved=pause", control_fd=control, resume_fd=resume, before_end=before_end)
    attempt(saved, told.append, "act")
    assert told == ["act", "before the end"]
    assert os.read(control_reader, 100).startswith(b"pause\tshop.saved\t1\t")
    for fd in (control_reader, control, resume, resume_writer):
        os.close(fd)


def test_it_comes_at_no_other_point(saved: Point) -> None:
    told: list[str] = []
    arm("shop.saved#2=error:EIO", trace=True, before_end=lambda: told.append("before the end"))
    reach(saved)
    with pytest.raises(OSError, match="injected"):
        reach(saved)
    reach(saved)
    assert told == []


@pytest.mark.parametrize(("action", "status"), [("kill", signal.SIGKILL), ("term", signal.SIGTERM)])
def test_a_program_has_its_last_words(shop: Path, action: str, status: int) -> None:
    (shop / "last.py").write_text(LAST)
    ended, pid = run(shop, f"shop.paid#1={action}", KILLPOINTS_BEFORE_END="last:words")
    assert (ended.status, ended.out) == (-status, ["paid 0", "last words"])
    assert ended.records == [f"{action} shop.paid 1 {pid}"]
    assert run(shop, f"shop.paid#1={action}")[0].out == ["paid 0"]


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("last:leave", "killpoints: before the end: SystemExit: 3\n"),
        ("last:interrupt", "killpoints: before the end: KeyboardInterrupt: \n"),
        ("last:none_such", "killpoints: before the end: AttributeError: module 'last' has no attribute 'none_such'\n"),
        ("none_such:words", "killpoints: before the end: ModuleNotFoundError: No module named 'none_such'\n"),
        ("last:mute", ""),
        ("last:wordless", ""),
    ],
)
def test_whatever_it_raises_the_kill_happens(shop: Path, function: str, says: str) -> None:
    (shop / "last.py").write_text(LAST)
    ended, pid = run(shop, "shop.paid#1=kill", KILLPOINTS_BEFORE_END=function)
    assert (ended.status, ended.out, ended.records) == (-signal.SIGKILL, ["paid 0"], [f"kill shop.paid 1 {pid}"])
    assert ended.err == says


@pytest.mark.parametrize("plan", [None, "shop.paid#9=kill"])
def test_a_program_that_is_not_ended_never_looks_for_it(shop: Path, plan: str | None) -> None:
    ended, _ = run(shop, plan, KILLPOINTS_BEFORE_END="none_such:words", KILLPOINTS_TRACE="1")
    assert (ended.status, ended.err) == (0, "")


def test_the_variable_is_for_this_process_only(shop: Path) -> None:
    (shop / "curious.py").write_text("import os\n" + SHOP + "print([n for n in os.environ if 'KILLPOINTS' in n])\n")
    assert run(shop, None, "curious.py", KILLPOINTS_BEFORE_END="last:words")[0].out[-1] == "[]"
