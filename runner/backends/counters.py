"""What the kernel counts for one control group: memory now, its peak, processes killed for want of memory."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from runner.model import SandboxUsage

_COUNTER_BYTES = 4096


class Counters:
    """Open descriptors of a group's files: a run reads each of them twice. Thread-safe; ``usage`` never raises."""

    def __init__(self, folder: Path, *, v2: bool) -> None:
        self._folder, self._v2 = folder, v2
        self._open: dict[str, int] | None = {}  # None once closed; removal is done in another thread
        self._lock = threading.Lock()
        self._peak: int | None = None
        self._peak_known = True

    def usage(self) -> SandboxUsage:
        """What is known now; None for what is not."""
        if self._v2:
            return SandboxUsage(
                _number(self._read("memory.current")),
                self._peak_v2(),
                _of_key(self._read("memory.events"), b"oom_kill"),
            )
        peak = _number(self._read("memory.max_usage_in_bytes")) if self._peak_known else None
        return SandboxUsage(
            _number(self._read("memory.usage_in_bytes")), peak, _of_key(self._read("memory.oom_control"), b"oom_kill")
        )

    def reset_peak(self) -> None:
        """Peaks count from now; where that cannot be had they are unknown from now on.

        On v2 the new mark belongs to a descriptor (Linux 6.12).
        """
        name, mark = ("memory.peak", b"reset") if self._v2 else ("memory.max_usage_in_bytes", b"0")
        flags = (os.O_RDWR if self._v2 else os.O_WRONLY) | os.O_CLOEXEC
        try:
            if self._peak is None:
                self._peak = os.open(self._folder / name, flags)
            os.pwrite(self._peak, mark, 0) if not self._v2 else os.write(self._peak, mark)
        except OSError:
            self._peak_known = False

    def close(self) -> None:
        """Give the descriptors back; what comes after is unknown."""
        with self._lock:
            for fd in (self._open or {}).values():
                os.close(fd)
            self._open = None
            if self._peak is not None:
                os.close(self._peak)
            self._peak, self._peak_known = None, False

    def _read(self, name: str) -> bytes:
        """What a file of the group says now; empty when it cannot be read."""
        with self._lock, contextlib.suppress(OSError):
            if self._open is not None:
                fd = self._open.get(name)
                if fd is None:
                    fd = self._open[name] = os.open(self._folder / name, os.O_RDONLY | os.O_CLOEXEC)
                return os.pread(fd, _COUNTER_BYTES, 0)
        return b""

    def _peak_v2(self) -> int | None:
        if not self._peak_known:
            return None
        if self._peak is None:
            return _number(self._read("memory.peak"))
        try:
            return int(os.pread(self._peak, 64, 0))
        except (OSError, ValueError):
            return None


def _number(text: bytes) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _of_key(text: bytes, key: bytes) -> int | None:
    for line in text.splitlines():
        name, _, value = line.partition(b" ")
        if name == key:
            return _number(value)
    return None
