"""Counts the steps that change a disk in this process, and lets one of them kill it or fail.

A step is a call of ``os``, or of ``syncfs``, that makes, writes, syncs, names, removes or cuts. ``test_steps``
holds against a trace of system calls that no change takes another way.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

NAMES: Final = (
    "open", "write", "writev", "pwrite", "pwritev", "fsync", "fdatasync", "link", "rename", "replace", "unlink",
    "remove", "mkdir", "rmdir", "ftruncate", "truncate", "posix_fallocate", "sendfile", "copy_file_range",
)  # fmt: skip
# The system calls that they make, as a trace names them. ``open`` counts where it makes a file.
SYSTEM_CALLS: Final = (
    "open", "openat", "creat", "write", "writev", "pwrite64", "pwritev", "fsync", "fdatasync", "syncfs", "link",
    "linkat", "rename", "renameat", "renameat2", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir", "ftruncate",
)  # fmt: skip
_TWO_PATHS: Final = ("link", "rename", "replace")
_CLEANING: Final = ("unlink", "remove", "rmdir")  # these work on a disk that is full
Harm = Literal["kill", "once", "from then on"]


class Stepper:
    """``at`` is the step to harm, counted from 1; 0 harms none. ``number`` is the error that a step fails with.

    ``done`` names all steps, ``harmed`` those that failed.
    """

    def __init__(self, top: str, at: int = 0, harm: Harm = "kill", number: int = errno.EIO) -> None:
        self.count = 0
        self.done: list[str] = []
        self.harmed: list[str] = []
        self._top, self._at, self._harm, self._number = top, at, harm, number
        self._lock = threading.Lock()
        self._mine: set[int] = set()

    def step(self, name: str) -> None:
        """One step is about to be done."""
        with self._lock:
            self.count += 1
            self.done.append(name)
            hit = self.count == self._at or (self._harm == "from then on" and 0 < self._at <= self.count)
        if not hit:
            return
        if self._harm == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()
        if self._harm == "once" or name not in _CLEANING:
            self.harmed.append(name)
            raise OSError(self._number, os.strerror(self._number))

    def concerns(self, name: str, args: tuple[Any, ...]) -> bool:
        """Whether a call changes something below the folder."""
        first = args[0]
        if name == "open":
            makes = bool(args[1] & os.O_CREAT) or args[1] & os.O_TMPFILE == os.O_TMPFILE
            return makes and str(first).startswith(self._top)
        if isinstance(first, int):
            return first in self._mine
        return any(str(path).startswith(self._top) for path in args[: 2 if name in _TWO_PATHS else 1])

    def wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        """The call with a step before it."""

        def call(*args: Any, **named: Any) -> Any:
            if self.concerns(name, args):
                self.step(name)
            found = real(*args, **named)
            if name == "open":
                (self._mine.add if str(args[0]).startswith(self._top) else self._mine.discard)(found)
            return found

        return call

    def wrap_sync(self, real: Callable[[int], int]) -> Callable[[int], int]:
        """``syncfs``, which Python reaches through a C library only."""

        def call(fd: int) -> int:
            try:
                if fd in self._mine:
                    self.step("syncfs")
            except OSError as error:
                ctypes.set_errno(error.errno or 0)
                return -1
            return real(fd)

        return call


@contextmanager
def stepping(stepper: Stepper) -> Iterator[Stepper]:
    """For the length of a block, calls of ``os`` go through a stepper."""
    real = {name: getattr(os, name) for name in NAMES if hasattr(os, name)}
    for name, call in real.items():
        setattr(os, name, stepper.wrap(name, call))
    libraries: list[Any] = [
        library
        for module in list(sys.modules.values())
        if getattr(module, "__name__", "").startswith("runner.workspace")
        for library in vars(module).values()
        if isinstance(library, ctypes.CDLL)
    ]
    whole = [library.syncfs for library in libraries]
    for library, sync in zip(libraries, whole, strict=True):
        library.syncfs = stepper.wrap_sync(sync)
    try:
        yield stepper
    finally:
        for name, call in real.items():
            setattr(os, name, call)
        for library, sync in zip(libraries, whole, strict=True):
            library.syncfs = sync
