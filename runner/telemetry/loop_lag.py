"""How late the event loop is: a timer that measures how long after its time it was called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from runner.telemetry import metrics

EVERY_S: Final = 0.25


@contextmanager
def watched(
    loop: asyncio.AbstractEventLoop, observe: Callable[[float], None] = metrics.LOOP_LAG.observe
) -> Iterator[None]:
    """Measure for the length of a block; ``observe`` is given seconds."""
    timer: asyncio.TimerHandle

    def tick(due: float) -> None:
        nonlocal timer
        now = loop.time()
        observe(max(0.0, now - due))
        timer = loop.call_at(now + EVERY_S, tick, now + EVERY_S)

    begin = loop.time() + EVERY_S
    timer = loop.call_at(begin, tick, begin)
    try:
        yield
    finally:
        timer.cancel()
