"""What one key may do at a time and a minute. A few numbers for each key of the file, nothing for anybody else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil

from runner.api.keys import KeyLimits
from runner.errors import RateLimited

_SLOT_MS = 1000  # nobody knows when a request of the same key will end


class Quota:
    """A bucket that holds a minute's requests, is filled evenly and starts full; and the number under way."""

    def __init__(self, limits: KeyLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._tokens = float(limits.requests_per_minute or 0)
        self._at = clock()
        self.under_way = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """A request's place from its head to the end of its answer. Raises RateLimited, and then takes nothing."""
        most = self.limits.concurrent_requests
        if most is not None and self.under_way >= most:
            raise RateLimited(
                f"this key may have {most} requests under way at a time (its limit concurrent_requests): wait for one "
                "to end",
                limit=most,
                retry_after_ms=_SLOT_MS,
            )
        self._spend()
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1

    def _spend(self) -> None:
        rate = self.limits.requests_per_minute
        if rate is None:
            return
        now = self._clock()
        self._tokens = min(float(rate), self._tokens + (now - self._at) * rate / 60)
        self._at = now
        if self._tokens < 1:
            wait_ms = ceil((1 - self._tokens) * 60_000 / rate)
            raise RateLimited(
                f"this key may send {rate} requests a minute (its limit requests_per_minute): send more slowly",
                limit=rate,
                retry_after_ms=wait_ms,
            )
        self._tokens -= 1
