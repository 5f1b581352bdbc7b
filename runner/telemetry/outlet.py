"""Where log lines leave the process: a thread writes them, so that a destination that is full or blocked stops
nobody. Lines that find no room are dropped and counted, and the count is told as soon as there is room again.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Final, TextIO

LINES: Final = 8192
_CLOSE_S: Final = 1.0
_GATHER_S: Final = 0.02


class Outlet:
    """A text file for writing whole lines to. ``told`` makes the line that says how many were dropped."""

    def __init__(self, stream: TextIO, told: Callable[[int], str], lines: int = LINES) -> None:
        self._stream = stream
        self._told = told
        self._queue: queue.SimpleQueue[str | threading.Event | None] = queue.SimpleQueue()
        self._lines = lines
        self._lock = threading.Lock()
        self._waiting = 0  # lines dropped and not told of yet
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def write(self, line: str) -> int:
        """Take a line, or drop it; never waits."""
        if self._queue.qsize() < self._lines:
            self._queue.put(line)
        else:
            with self._lock:
                self._waiting += 1
                self.dropped += 1
        return len(line)

    def flush(self) -> None:
        """Lines leave by themselves."""

    def settle(self, limit_s: float = _CLOSE_S) -> None:
        """Wait until what was taken is written, but not longer than the limit."""
        written = threading.Event()
        self._queue.put(written)
        written.wait(limit_s)

    def close(self, limit_s: float = _CLOSE_S) -> None:
        """Settle, and end the thread: what is written later is lost. May be called again."""
        self._queue.put(None)
        self._thread.join(limit_s)

    def _run(self) -> None:
        while (line := self._next()) is not None:
            if isinstance(line, threading.Event):
                line.set()
                continue
            with self._lock:
                lost, self._waiting = self._waiting, 0
            if lost:
                line = self._told(lost) + line
            try:
                self._put(line)
            except (OSError, ValueError):
                with self._lock:
                    self.dropped += 1

    def _next(self) -> str | threading.Event | None:
        """What comes next. A thread that woke for every line would take Python's lock from the loop as often."""
        if self._queue.empty():
            time.sleep(_GATHER_S)
        return self._queue.get()

    def _put(self, line: str) -> None:
        """Past the stream's own buffer: its lock, held by a blocked thread, would break the interpreter's end."""
        try:
            fd = self._stream.fileno()
        except (OSError, ValueError):  # a stream of a test
            self._stream.write(line)
            return
        data = line.encode("utf-8", "backslashreplace")
        while data:
            data = data[os.write(fd, data) :]
