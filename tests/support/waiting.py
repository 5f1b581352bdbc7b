"""Waiting until something holds, and work done aside: what a test relies on is seen, never assumed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import httpx

PATIENCE_S = 30.0  # how busy the machine is now is no test's question
T = TypeVar("T")


def until(condition: Callable[[], object], what: str, limit_s: float = PATIENCE_S) -> None:
    """Return once ``condition`` holds; AssertionError at the limit."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_s:g} s: {what}"
        time.sleep(0.01)


def aside(work: Callable[[], T]) -> Future[T]:
    """Begin something in a thread of its own; ``result(seconds)`` gives what it gave, or raises what it raised."""
    future: Future[T] = Future()

    def go() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=go, daemon=True).start()
    return future


def gauge(http: httpx.Client, name: str) -> int:
    """A number of ``/metrics`` that has no labels."""
    rows = http.get("/metrics").text.splitlines()
    return int(float(next(row.split()[1] for row in rows if row.startswith(f"{name} "))))


def queued(http: httpx.Client, count: int) -> None:
    """Until so many requests wait for their conversation or for a sandbox."""
    until(lambda: gauge(http, "foliobox_queue_length") == count, f"{count} requests wait")
