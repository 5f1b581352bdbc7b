"""What a row measured: its values and the few numbers that are shown of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """Values of one row in the row's unit, at least one; ``note`` says what a reader must know of them."""

    values: tuple[float, ...]
    note: str = ""

    @property
    def n(self) -> int:
        """How many values."""
        return len(self.values)

    @property
    def least(self) -> float:
        """The smallest value: what the machine can do when nothing else runs."""
        return min(self.values)

    @property
    def p50(self) -> float:
        """The median."""
        return percentile(self.values, 50)

    @property
    def p95(self) -> float:
        """The value that 95 of 100 do not exceed."""
        return percentile(self.values, 95)


def percentile(values: tuple[float, ...], percent: float) -> float:
    """Percentile with linear interpolation between the two nearest ranks. Raises ValueError without values."""
    if not values:
        raise ValueError("a percentile needs at least one value")
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def timed(action: Callable[[], object]) -> float:
    """Milliseconds that one call takes."""
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1000


def repeat(action: Callable[[], object], count: int, warm_up: int = 0) -> Sample:
    """Milliseconds of ``count`` calls, after some that are not counted."""
    for _ in range(warm_up):
        action()
    return Sample(tuple(timed(action) for _ in range(count)))
