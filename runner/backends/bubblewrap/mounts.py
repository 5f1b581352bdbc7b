"""Bounds what bwrap has no option for: inodes of the in-memory folders, and terminals, of one sandbox.

An empty file costs a kilobyte of kernel memory and no byte of a tmpfs's size, so that a sandbox could fill its
whole memory with them. Terminals are counted over the whole host: one sandbox could take them from all others.
The mounts are reached through the first process's root, by root, before any user code has run.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Mapping

from runner.backends.base import WORKSPACE

FOLDERS = (WORKSPACE, "/tmp", "/home/sandbox", "/dev/shm")
TERMINALS = 64
_FSPICK, _FSCONFIG = 433, 431  # the same on every architecture
_CLOEXEC, _NO_SYMLINKS = 1, 2
_SET_STRING, _RECONFIGURE = 1, 7
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def bound(outer: int) -> bool:
    """Bound the mounts of the sandbox whose bwrap has this pid; False where the kernel or the user may not."""
    try:
        with open(f"/proc/{outer}/task/{outer}/children") as file:
            first = int(file.read().split()[0])
        for folder in FOLDERS:
            place = f"/proc/{first}/root{folder}"
            # A file that is not empty takes a block at least: more inodes than blocks serve no honest use.
            _reconfigure(place, {"nr_inodes": str(os.statvfs(place).f_blocks)})
        # What is not named again goes back to its default.
        terminals = {"mode": "620", "ptmxmode": "0666", "max": str(TERMINALS)}
        _reconfigure(f"/proc/{first}/root/dev/pts", terminals)
    except (OSError, ValueError, IndexError):
        return False
    return True


def _reconfigure(place: str, settings: Mapping[str, str]) -> None:
    """Change a mounted file system's settings, as ``mount -o remount`` does. Raises OSError."""
    fd = _call(_FSPICK, -100, place.encode(), _CLOEXEC | _NO_SYMLINKS)
    try:
        for name, value in settings.items():
            _call(_FSCONFIG, fd, _SET_STRING, name.encode(), value.encode(), 0)
        _call(_FSCONFIG, fd, _RECONFIGURE, None, None, 0)
    finally:
        with contextlib.suppress(OSError):
            os.close(fd)


def _call(number: int, *arguments: int | bytes | None) -> int:
    given = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    result = int(_libc.syscall(ctypes.c_long(number), *given))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
