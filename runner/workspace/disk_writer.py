"""Small objects of the local store, made by one thread that takes all that wait at once.

Records, manifests, draft entries and small files are what every call waits for. A thread for each of them would
fight for Python's lock at every system call, and for the staging folder's lock in the kernel. One thread that
makes whatever came while it was busy does a fraction of the calls: eight conversations that commit at the same
moment share one sync of each folder.

The order is that of a single create (``disk``): the bytes of an object are durable before its name leads to
them, and its name before anybody is told, and before the name of what refers to it (a version names its blobs)
is there. A file that has no name until then leaves nothing to be swept.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
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
    """An object to be made."""

    key: str
    data: bytes
    target: str = ""
    fd: int = -1
    staged: str = ""
    there: bool = False
    named: bool = False
    error: BaseException | None = None


@dataclass(eq=False)
class _Chain:
    """Objects to be made one after the other; ``answer`` tells the loop that asked, from another thread.

    What becomes of the ``follower``, the last of them where there is one, concerns no other.
    """

    items: list[_Item]
    follower: _Item | None
    answer: Callable[[BaseException | None, bool], None]

    @property
    def error(self) -> BaseException | None:
        """What went wrong first; that the last object was there already is an error, too."""
        items = [item for item in self.items if item is not self.follower]
        for item in items:
            if item.error is not None:
                return item.error
        return KeyExists("The object is already there.", cause=items[-1].key) if items[-1].there else None

    @property
    def followed(self) -> bool:
        """Whether the follower was made."""
        last = self.follower
        return last is not None and last.named and last.error is None and not last.there


@dataclass
class Writer:
    """Creates on one disk. ``nameless``: whether its file system takes files without a name."""

    disk: Disk
    pool: Executor
    nameless: Callable[[], bool]
    _waiting: deque[_Chain] = field(default_factory=deque)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _busy: bool = False

    async def create(self, *objects: tuple[str, bytes], then: tuple[str, bytes] | None = None) -> bool:
        """Make objects in their order: each is durable before the next one has its name.

        Durable when it returns, and done to the end when the caller is cancelled. One that is there already stays
        as it is; where that is the last, ``KeyExists`` is raised. ``then`` is made after them if all is well; True
        when it was, durably, and was not there before. Raises ``StoreFailed``.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()

        def answer(error: BaseException | None, followed: bool) -> None:
            loop.call_soon_threadsafe(_settle, future, error, followed)

        items = [_Item(key, data) for key, data in objects]
        follower = None if then is None else _Item(*then)
        with self._lock:
            self._waiting.append(_Chain([*items, follower] if follower else items, follower, answer))
            begin, self._busy = not self._busy, True
        if begin:
            self.pool.submit(self._work)
        return await future

    def _work(self) -> None:
        while True:
            with self._lock:
                chains: list[_Chain] = []
                room = MOST
                while self._waiting and (room >= len(self._waiting[0].items) or not chains):
                    chains.append(self._waiting.popleft())
                    room -= len(chains[-1].items)
                if not chains:
                    self._busy = False
                    return
            try:
                self._make(chains)
            except BaseException as error:  # a defect of ours must not leave callers waiting
                for chain in chains:
                    chain.items[0].error = chain.error or error
            for chain in chains:
                chain.answer(chain.error, chain.followed)

    def _make(self, chains: Sequence[_Chain]) -> None:
        items = [item for chain in chains for item in chain.items]
        try:
            for item in items:
                self._try(item, self._write)
            for item in items:
                self._try(item, self._sync)
            for step in range(max(len(chain.items) for chain in chains)):
                # An error anywhere in a chain ends it before its next object gets a name.
                named = [chain.items[step] for chain in chains if step < len(chain.items) and chain.error is None]
                for item in named:
                    self._try(item, self._link)
                self._sync_folders(named)
        finally:
            for item in items:
                self._clean(item)

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
        item.named = True

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


def _settle(future: asyncio.Future[bool], error: BaseException | None, followed: bool) -> None:
    if future.done():
        return  # the caller has gone
    if error is None:
        future.set_result(followed)
    else:
        future.set_exception(error)
