"""Sees which files of the workspace were opened for writing, by inotify.

A write through a shared mapping changes neither mtime nor ctime on a tmpfs, so that a look at the files
alone would miss it. But whoever maps a file for writing has opened it for writing, and the kernel tells when
the last reference to that opening is gone. What is still mapped is found in the process itself, which takes a
millisecond: so it is asked only when a file that somebody touched is still open for writing.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import struct
from collections.abc import Iterable
from typing import NamedTuple

_libc = ctypes.CDLL(None, use_errno=True)
_EVENT = struct.Struct("iIII")
_IN_CLOSE_WRITE, _IN_OPEN, _IN_MOVED, _IN_CREATE = 0x8, 0x20, 0xC0, 0x100
_IN_ONLYDIR, _IN_DONT_FOLLOW, _IN_EXCL_UNLINK = 0x01000000, 0x02000000, 0x04000000
_IN_Q_OVERFLOW, _IN_IGNORED, _IN_ISDIR = 0x4000, 0x8000, 0x40000000
_MASK = _IN_CLOSE_WRITE | _IN_OPEN | _IN_MOVED | _IN_CREATE | _IN_ONLYDIR | _IN_DONT_FOLLOW
_BUFFER = 1 << 16
_MOST = 65_536  # names that are kept: more are a look at every file


class Seen(NamedTuple):
    """Paths closed after writing; paths opened, made or moved; whether every event was seen."""

    written: set[str]
    touched: set[str]
    complete: bool


class WriteWatch:
    """Follows the folders below one root. Where the kernel gives no inotify, every look says ``complete=False``."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.fd: int = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        self._folders: dict[int, str] = {}  # watch → folder
        self._watches: dict[int, int] = {}  # inode → watch
        self._written: set[tuple[int, str]] = set()
        self._touched: set[tuple[int, str]] = set()
        self._complete = True

    @property
    def works(self) -> bool:
        """Whether the kernel gave us an instance."""
        return self.fd >= 0

    def follow(self, folders: dict[str, int]) -> None:
        """Watch exactly these folders, given as relative path → inode, under the names they have now."""
        if not self.works:
            return
        inodes = set(folders.values())
        for inode in [known for known in self._watches if known not in inodes]:
            watch = self._watches.pop(inode)
            self._folders.pop(watch, None)
            _libc.inotify_rm_watch(self.fd, watch)
        for path, inode in folders.items():
            known = self._watches.get(inode)
            if known is None:
                known = _libc.inotify_add_watch(self.fd, os.fsencode(os.path.join(self._root, path)), _MASK)
                if known < 0:
                    self._complete = False
                    continue
                self._watches[inode] = known
            self._folders[known] = path

    def drain(self) -> None:
        """Take what the kernel has queued (16,384 events at most, by default)."""
        while self.works:
            try:
                data = os.read(self.fd, _BUFFER)
            except (BlockingIOError, InterruptedError):
                return
            at = 0
            while at < len(data):
                watch, mask, _, size = _EVENT.unpack_from(data, at)
                name = data[at + _EVENT.size : at + _EVENT.size + size].rstrip(b"\0")
                at += _EVENT.size + size
                self._note(watch, mask, name)

    def _note(self, watch: int, mask: int, name: bytes) -> None:
        if mask & _IN_Q_OVERFLOW:
            self._complete = False
        elif mask & _IN_IGNORED:
            folder = self._folders.pop(watch, None)
            if folder is not None:
                self._watches = {inode: known for inode, known in self._watches.items() if known != watch}
        elif not mask & _IN_ISDIR:
            event = (watch, os.fsdecode(name))
            self._touched.add(event)
            if mask & _IN_CLOSE_WRITE:
                self._written.add(event)
            if len(self._touched) > _MOST:
                self._touched.clear()
                self._written.clear()
                self._complete = False

    def look(self) -> Seen:
        """What happened since ``forget``; folders by the names given to the last ``follow``."""
        self.drain()
        return Seen(self._paths(self._written), self._paths(self._touched), self.works and self._complete)

    def _paths(self, events: Iterable[tuple[int, str]]) -> set[str]:
        found = set()
        for watch, name in events:
            folder = self._folders.get(watch)
            if folder is not None:
                found.add(f"{folder}/{name}" if folder else name)
        return found

    def forget(self) -> None:
        """Start anew: what happened until now is known, or was our own doing."""
        self.drain()
        self._written.clear()
        self._touched.clear()
        self._complete = True

    def close(self) -> None:
        """Give the instance back."""
        with contextlib.suppress(OSError):
            if self.works:
                os.close(self.fd)
        self.fd = -1


def closed(place: str) -> bool:
    """Whether nobody has a file open for writing, and so nobody has it mapped for writing; False where unknown.

    Only then does the kernel grant a lease for reading (fcntl(2), F_SETLEASE).
    """
    try:
        fd = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
