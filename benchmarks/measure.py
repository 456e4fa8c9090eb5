"""Timing side by side: the machine is noisy, so what is compared is run in turn and only ratios are told."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def measure_side_by_side(
    acts: Mapping[str, Callable[[], object]], *, rounds: int, before: Callable[[], object] = lambda: None
) -> dict[str, float]:
    """The median seconds of each act over ``rounds``, one of each in every round, so that noise meets all alike.

    ``before`` each act, and not timed, its ground is laid.
    """
    times: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(rounds):
        for name, act in acts.items():
            before()
            started = time.perf_counter()
            act()
            times[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in times.items()}


def tell(title: str, lines: Mapping[str, str]) -> None:
    print(f"\n{title}")
    width = max(map(len, lines))
    for name, value in lines.items():
        print(f"  {name:<{width}}  {value}")
