"""reach() and attempt() in this process: hits are counted, errors are raised instead of acting, misuse is never silent."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Iterator

import pytest

from killpoints import Plan, PlanError, Point, PointError, arm, attempt, declare, disarm, hook, reach


@pytest.fixture
def saved() -> Point:
    return declare("shop.saved", "the cart is durable")


@pytest.fixture
def paid() -> Point:
    return declare("shop.paid", "the money is taken")


class Control:
    """The controller's end of the pipe."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()

    def records(self) -> list[str]:
        """Everything written so far, without the pid, which is checked."""
        os.set_blocking(self.reader, False)
        try:
            lines = os.read(self.reader, 1 << 20).decode().splitlines()
        except BlockingIOError:
            return []
        assert all(line.endswith(f"\t{os.getpid()}") for line in lines)
        return [line.rpartition("\t")[0].replace("\t", " ") for line in lines]


@pytest.fixture
def control() -> Iterator[Control]:
    control = Control()
    yield control
    os.close(control.reader)
    os.close(control.writer)


def test_disarmed_nothing_happens(saved: Point) -> None:
    """Not even a name is looked at: the cost of a point is one test of one global."""
    disarm()
    reach(saved)
    reach("nobody declared this")
    assert attempt("nor this", divmod, 7, 2) == (3, 1)
    assert hook._armed is None


def test_an_error_comes_instead_of_the_act(saved: Point) -> None:
    done: list[str] = []
    arm("shop.saved#2=error:ENOSPC")
    assert attempt(saved, done.append, "first") is None
    with pytest.raises(OSError, match=r"No space left on device \(injected at shop.saved#2\)") as caught:
        attempt(saved, done.append, "second")
    assert caught.value.errno == errno.ENOSPC
    attempt(saved, done.append, "third")
    assert done == ["first", "third"]


def test_an_error_at_a_point_that_is_only_reached(saved: Point) -> None:
    arm("shop.saved=error:EXDEV")
    with pytest.raises(OSError) as caught:
        reach(saved)
    assert caught.value.errno == errno.EXDEV
    reach(saved)


def test_anything_but_an_error_comes_after_the_act(saved: Point, control: Control) -> None:
    resume_reader, resume_writer = os.pipe()
    os.write(resume_writer, b"\n")
    done: list[str] = []
    arm("shop.saved=pause", control_fd=control.writer, resume_fd=resume_reader)

    def act() -> str:
        done.extend(control.records())
        return "result"

    assert attempt(saved, act) == "result"
    assert done == [] and control.records() == ["pause shop.saved 1"]
    os.close(resume_reader)
    os.close(resume_writer)


def test_a_pause_takes_one_byte_and_leaves_the_next_to_the_next_pause(saved: Point) -> None:
    resume_reader, resume_writer = os.pipe()
    os.write(resume_writer, b"\n\n")
    os.set_blocking(resume_reader, False)
    arm("shop.saved#1=pause,shop.saved#2=pause", resume_fd=resume_reader)
    reach(saved)
    reach(saved)
    with pytest.raises(BlockingIOError):
        os.read(resume_reader, 1)
    os.close(resume_reader)
    os.close(resume_writer)


def test_an_act_that_fails_by_itself_was_not_the_fault(saved: Point, control: Control) -> None:
    arm("shop.saved=pause", control_fd=control.writer)
    with pytest.raises(ZeroDivisionError):
        attempt(saved, divmod, 1, 0)
    assert control.records() == []


def test_every_point_counts_its_own_hits(saved: Point, paid: Point, control: Control) -> None:
    arm("shop.paid#2=error:EIO", control_fd=control.writer, trace=True)
    reach(saved)
    reach(paid)
    reach(saved)
    with pytest.raises(OSError):
        reach(paid)
    reach(paid)
    assert control.records() == [
        "pass shop.saved 1",
        "pass shop.paid 1",
        "pass shop.saved 2",
        "error shop.paid 2",
        "pass shop.paid 3",
    ]


def test_without_a_trace_only_what_fires_is_recorded(saved: Point, paid: Point, control: Control) -> None:
    arm("shop.paid=error:EIO", control_fd=control.writer)
    reach(saved)
    with pytest.raises(OSError):
        reach(paid)
    assert control.records() == ["error shop.paid 1"]


def test_arming_anew_starts_to_count_anew(saved: Point) -> None:
    for _ in range(2):
        arm("shop.saved#1=error:EIO")
        with pytest.raises(OSError):
            reach(saved)
    disarm()
    reach(saved)


def test_a_controller_that_is_gone_does_not_stop_the_act(saved: Point) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    arm("shop.saved=error:EIO", control_fd=writer)
    with pytest.raises(OSError, match="injected at"):
        reach(saved)
    os.close(writer)


def test_arming_checks_every_name(saved: Point) -> None:
    with pytest.raises(PointError, match="unknown kill point 'shop.savd'; the nearest known: shop.saved"):
        arm("shop.saved=kill,shop.savd=kill")
    assert hook._armed is None, "a plan that was refused is not in force"
    with pytest.raises(PlanError):
        arm("shop.saved=explode")
    arm(Plan.parse("shop.saved#9=kill"))
    assert hook._armed is not None and hook._armed.verified, "checked once, not at every point again"


def test_arming_without_a_plan_takes_that_of_the_environment(saved: Point, monkeypatch: pytest.MonkeyPatch) -> None:
    arm()
    reach(saved)
    monkeypatch.setenv("KILLPOINTS", "shop.saved=error:EIO")
    arm()
    with pytest.raises(OSError):
        reach(saved)


def test_while_armed_a_name_that_is_not_declared_is_an_error(saved: Point) -> None:
    arm("shop.saved#9=kill")
    with pytest.raises(PointError, match="unknown kill point 'shop.savd'; the nearest known: shop.saved"):
        reach("shop.savd")
    with pytest.raises(PointError, match="unknown kill point"):
        attempt("shop.savd", print)


def test_while_armed_a_computed_name_is_an_error(saved: Point) -> None:
    """Equal is not enough: the text would be found nowhere in the code."""
    arm("shop.saved#9=kill")
    for computed in (f"shop.{'saved'.lower()}", "".join(["shop", ".saved"])):
        assert computed == saved
        with pytest.raises(PointError, match="'shop.saved' was computed"):
            reach(computed)
    reach(saved)


class SlowCounts(dict[str, int]):
    """Time enough between reading a count and writing it for another thread to read the same."""

    def get(self, key: str, default: int = 0) -> int:  # type: ignore[override]
        value = super().get(key, default)
        for _ in range(50):
            pass
        return value


def test_threads_share_one_count(saved: Point) -> None:
    """No hit is lost or given out twice: what is armed for the last hit of all fires exactly once."""
    threads_count, hits_each = 4, 2_000
    arm(f"shop.saved#{threads_count * hits_each}=error:EIO")
    assert hook._armed is not None
    hook._armed._hits = SlowCounts()
    begin, errors = threading.Barrier(threads_count), []

    def work() -> None:
        begin.wait()
        for _ in range(hits_each):
            try:
                reach(saved)
            except OSError as error:
                errors.append(error)

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(threads_count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval_s)
    assert len(errors) == 1
