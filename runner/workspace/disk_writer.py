"""Small objects of the local store, made by one thread that takes all that wait at once.

Records, manifests, draft entries and small files are what every call waits for. A thread for each of them would
fight for Python's lock at every system call, and for the staging folder's lock in the kernel. One thread that
makes whatever came while it was busy does a fraction of the calls: eight conversations that commit at the same
moment share one sync of each folder.

The order is that of a single create (``disk``): the bytes of an object are durable before its name leads to
them, and its name before anybody is told. A file that has no name until then leaves nothing to be swept.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from runner.errors import FolioboxError
from runner.workspace.base import KeyExists
from runner.workspace.disk import Disk, sync_folder, translate, write_all

MOST: Final = 64  # objects in one go: each holds a descriptor meanwhile
_NAMELESS: Final = os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC


@dataclass(eq=False)
class _Item:
    """An object to be made; ``done`` is called in the thread of the loop that asked."""

    key: str
    data: bytes
    answer: Callable[[BaseException | None], None]
    target: str = ""
    fd: int = -1
    staged: str = ""
    there: bool = False
    error: BaseException | None = None


@dataclass
class Writer:
    """Creates on one disk. ``nameless``: whether its file system takes files without a name."""

    disk: Disk
    pool: Executor
    nameless: Callable[[], bool]
    _waiting: deque[_Item] = field(default_factory=deque)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _busy: bool = False

    async def create(self, key: str, data: bytes) -> None:
        """Durable when it returns, and done to the end when the caller is cancelled.

        Raises ``KeyExists``, ``StoreFailed``.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def answer(error: BaseException | None) -> None:
            loop.call_soon_threadsafe(_settle, future, error)

        with self._lock:
            self._waiting.append(_Item(key, data, answer))
            begin, self._busy = not self._busy, True
        if begin:
            self.pool.submit(self._work)
        await future

    def _work(self) -> None:
        while True:
            with self._lock:
                items = [self._waiting.popleft() for _ in range(min(MOST, len(self._waiting)))]
                if not items:
                    self._busy = False
                    return
            try:
                self._make(items)
            except BaseException as error:  # a defect of ours must not leave callers waiting
                for item in items:
                    item.error = item.error or error
            for item in items:
                item.answer(item.error)

    def _make(self, items: list[_Item]) -> None:
        try:
            for item in items:
                self._try(item, self._write)
            for item in items:
                self._try(item, self._sync)
            for item in items:
                self._try(item, self._link)
            self._sync_folders(items)
        finally:
            for item in items:
                self._clean(item)
        for item in items:
            if item.there and item.error is None:
                item.error = KeyExists("The object is already there.", cause=item.key)

    @staticmethod
    def _try(item: _Item, step: Callable[[_Item], None]) -> None:
        """One step for one object; a failure is that object's alone."""
        if item.error is None:
            try:
                step(item)
            except FolioboxError as error:
                item.error = error
            except OSError as error:
                item.error = translate(error, "write", item.key)

    def _write(self, item: _Item) -> None:
        item.target = self.disk.path(item.key)
        if self.nameless():
            item.fd = os.open(self.disk.staging, _NAMELESS, 0o600)
        else:
            item.fd, item.staged = self.disk.begin()
        write_all(item.fd, item.data)

    def _sync(self, item: _Item) -> None:
        os.fsync(item.fd)

    def _link(self, item: _Item) -> None:
        self.disk.ensure_folder(os.path.dirname(item.target))
        try:
            self.disk.link(item.staged or item.fd, item.target)
        except FileExistsError:
            item.there = True  # its folder is synced all the same: whoever made it may not have come this far yet

    def _sync_folders(self, items: list[_Item]) -> None:
        folders: dict[str, list[_Item]] = {}
        for item in items:
            if item.error is None:
                folders.setdefault(os.path.dirname(item.target), []).append(item)
        for folder, inside in folders.items():
            try:
                sync_folder(folder)
            except OSError as error:
                for item in inside:
                    item.error = translate(error, "write", item.key)

    @staticmethod
    def _clean(item: _Item) -> None:
        with suppress(OSError):
            if item.fd >= 0:
                os.close(item.fd)
        with suppress(OSError):  # what stays is swept at the next start
            if item.staged:
                os.unlink(item.staged)


def _settle(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():
        return  # the caller has gone
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
