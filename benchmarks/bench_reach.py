"""A disarmed kill point beside an empty call. Goal: at most 1.3 times."""

from __future__ import annotations

from benchmarks.measure import measure_side_by_side, tell
from killpoints import attempt, declare, reach

POINT = declare("benchmark.reach.point", "never armed")
CALLS = 200_000


def empty(point: str) -> None:
    pass


def empty_with_argument(point: str, value: object) -> None:
    pass


def main() -> None:
    def call_empty() -> None:
        call, point = empty, POINT
        for _ in range(CALLS):
            call(point)

    def call_reach() -> None:
        call, point = reach, POINT
        for _ in range(CALLS):
            call(point)

    def call_act() -> None:
        act, point = empty_with_argument, POINT
        for _ in range(CALLS):
            act(point, None)

    def call_attempt() -> None:
        call, act, point = attempt, empty_with_argument, POINT
        for _ in range(CALLS):
            call(point, act, point, None)

    took = measure_side_by_side(
        {"empty": call_empty, "reach": call_reach, "act": call_act, "attempt": call_attempt}, rounds=25
    )
    tell(
        "disarmed kill points",
        {
            "reach / an empty call": f"{took['reach'] / took['empty']:.2f}  (goal at most 1.3)",
            "attempt / calling the act itself": f"{took['attempt'] / took['act']:.2f}",
            "reach": f"{took['reach'] / CALLS * 1e9:.0f} ns",
        },
    )
