"""The agent's event loop: one thread, readable or writable descriptors, and timers that can be cancelled."""

from __future__ import annotations

import contextlib
import itertools
import selectors
import time
from collections.abc import Callable

Handler = Callable[[], None]
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Loop:
    """Calls handlers when their descriptor is ready and actions when they are due."""

    def __init__(self) -> None:
        # Not epoll: what it watches is counted by uid, which sandboxes may share, and one of them could use it up.
        self._selector = selectors.PollSelector()
        self._timers: dict[int, tuple[float, Handler]] = {}
        self._numbers = itertools.count(1)

    def watch(self, fd: int, handler: Handler, events: int = READ) -> None:
        """Call ``handler`` whenever ``fd`` is ready."""
        if fd in self._selector.get_map():
            self._selector.modify(fd, events, handler)
        else:
            self._selector.register(fd, events, handler)

    def unwatch(self, fd: int) -> None:
        """Stop watching ``fd``; call it before the descriptor is closed."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(fd)

    def watching(self, fd: int) -> bool:
        """Whether some handler waits for ``fd``."""
        return fd in self._selector.get_map()

    def later(self, seconds: float, action: Handler) -> int:
        """Call ``action`` once after a while; gives a number to cancel it by."""
        number = next(self._numbers)
        self._timers[number] = (time.monotonic() + seconds, action)
        return number

    def cancel(self, number: int) -> None:
        """Forget a timer, if it is still there."""
        self._timers.pop(number, None)

    def turn(self) -> None:
        """Wait for something to happen and handle it."""
        ready = self._selector.select(self._until_next())
        watched = self._selector.get_map()
        for key, _ in ready:
            # A handler before this one may have closed the descriptor and another have taken its number.
            if watched.get(key.fd) is key:
                key.data()
        if self._timers:
            self._fire()

    def _until_next(self) -> float | None:
        if not self._timers:
            return None
        return max(0.0, min(due for due, _ in self._timers.values()) - time.monotonic())

    def _fire(self) -> None:
        now = time.monotonic()
        due = sorted(number for number, (when, _) in self._timers.items() if when <= now)
        for number in due:
            timer = self._timers.pop(number, None)
            if timer is not None:
                timer[1]()
