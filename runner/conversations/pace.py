"""How fast a queue moves, for estimates of when to come again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

MIN_RETRY_MS: Final = 1000
MAX_RETRY_MS: Final = 600_000
_WEIGHT = 0.2  # of the newest interval in the running mean
_LONGEST_S = 600.0


class Pace:
    """A running mean of the time that serving one takes, as those behind it see it."""

    def __init__(self, mean_s: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.mean_s = mean_s
        self._last = clock()

    def note(self, since: float) -> None:
        """Somebody who was there since then was served. A queue that was empty meanwhile counts for nothing."""
        now = self._clock()
        took = min(max(0.0, now - max(self._last, since)), _LONGEST_S)
        self.mean_s += _WEIGHT * (took - self.mean_s)
        self._last = now

    def wait_s(self, position: int, since: float) -> float:
        """How long the one at a position (from 1) will wait. ``since``: how long the first has waited in vain."""
        silence = min(self._clock() - max(self._last, since), _LONGEST_S)
        return max(position * self.mean_s, silence)


def retry_ms(seconds: float) -> int:
    """An estimate as callers are told it, between a second and ten minutes."""
    return max(MIN_RETRY_MS, min(MAX_RETRY_MS, round(seconds * 1000)))
