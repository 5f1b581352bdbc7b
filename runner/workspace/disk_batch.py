"""Many objects of the local store at once: one sync for all their bytes, and one for all their names.

The order is that of a single create: all bytes are durable before the first name leads to one. A ``syncfs`` does
for hundreds of files what a few fsyncs cost, and files without a name save the staging folder two changes each.
Both are used where their promise is known to hold: on file systems that write data and metadata back for a
``syncfs``, and on kernels that report a failed writeback through it (5.8 and later). Everywhere else each file is
fsynced; so it is when a ``syncfs`` fails, which the file of another program may cause.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Final

from runner.workspace.disk import Disk, door, sync_folder, write_all

FEW: Final = 4  # fewer fsyncs, done at once, cost less than two syncs of a whole file system
_SYNCS_AT_ONCE: Final = 4  # a disk makes those that wait together durable together
_KERNEL: Final = (5, 8)
_MAGIC: Final = {0xEF53: "ext4", 0x58465342: "xfs", 0x9123683E: "btrfs"}
_NAMELESS: Final = os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

Content = bytes | str  # bytes to write, or the path of a staging file that is written and not synced
_libc = ctypes.CDLL(None, use_errno=True)


class Batches:
    """Writes batches to one disk. Blocks; runs in the store's threads."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._whole: bool | None = None

    def create(self, items: Sequence[tuple[str, Content]]) -> None:
        """Make each item, a key and its content, an object. Holds a descriptor for each.

        Durable when it returns. Keys that are there stay as they are. When it raises, some objects may have been
        made. Staging files are removed either way.
        """
        with ExitStack() as after, door("write", items[0][0] if items else "nothing"):
            for _, content in items:
                if isinstance(content, str):
                    after.callback(_remove, content)
            targets = [self._disk.path(key) for key, _ in items]
            if len(items) >= FEW and self.syncs_whole():
                self._create_whole(items, targets, after)
            else:
                self._create_each(items, targets, after)

    def _create_whole(self, items: Sequence[tuple[str, Content]], targets: Sequence[str], after: ExitStack) -> None:
        # Opened before the first byte: an error of writeback is told to descriptors that were open when it came.
        folder = _opened(self._disk.staging, _FOLDER, after)
        fds = []
        for _, content in items:
            if isinstance(content, str):
                fds.append(_opened(content, os.O_WRONLY | os.O_CLOEXEC, after))
            else:
                fds.append(_opened(self._disk.staging, _NAMELESS, after))
                write_all(fds[-1], content)
        if not _syncfs(folder):
            for fd in fds:
                os.fsync(fd)

        def link(number: int) -> None:
            # Not by the path of a staging file either: what was synced is what gets the name.
            self._disk.link(fds[number], targets[number])

        folders = self._link(items, targets, link)
        if not _syncfs(folder):
            for name in folders:
                sync_folder(name)

    def _create_each(self, items: Sequence[tuple[str, Content]], targets: Sequence[str], after: ExitStack) -> None:
        sources = []
        for _, content in items:
            if isinstance(content, str):
                sources.append(content)
                continue
            fd, path = self._disk.begin()
            after.callback(_remove, path)
            sources.append(path)
            try:
                write_all(fd, content)
            finally:
                os.close(fd)
        with ThreadPoolExecutor(_SYNCS_AT_ONCE) as pool:
            list(pool.map(_sync_file, sources))
        for name in self._link(items, targets, lambda number: self._disk.link(sources[number], targets[number])):
            sync_folder(name)

    def _link(
        self, items: Sequence[tuple[str, Content]], targets: Sequence[str], link: Callable[[int], None]
    ) -> set[str]:
        """Give all their names, which are not durable yet; the folders they are in."""
        folders = {os.path.dirname(target) for target in targets}
        for folder in folders:
            self._disk.ensure_folder(folder)
        for number in range(len(items)):
            with suppress(FileExistsError):
                link(number)
        return folders

    def syncs_whole(self) -> bool:
        """Whether this file system is one whose ``syncfs`` and nameless files are known to do what is promised."""
        if self._whole is None:
            self._whole = (
                _kernel() >= _KERNEL and _file_system(self._disk.staging) in _MAGIC and os.path.isdir("/proc/self/fd")
            )
        return self._whole


def _opened(path: str, flags: int, after: ExitStack) -> int:
    fd = os.open(path, flags, 0o600)
    after.callback(os.close, fd)
    return fd


def _sync_file(path: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _remove(path: str) -> None:
    with suppress(OSError):  # what stays is swept at the next start
        os.unlink(path)


def _syncfs(fd: int) -> bool:
    return bool(_libc.syncfs(fd) == 0)


def _file_system(path: str) -> int:
    """The magic number of the file system of a folder; 0 when it cannot be had. It is the first field."""
    about = ctypes.create_string_buffer(256)
    if _libc.statfs(os.fsencode(path), about) != 0:
        return 0
    return ctypes.c_ulong.from_buffer(about).value & 0xFFFFFFFF


def _kernel() -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(found[1]), int(found[2])) if found else (0, 0)
