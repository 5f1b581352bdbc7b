"""Removes from a store what is no longer kept, in the background: see ``prune`` for conversations; blobs here.

A blob goes when nothing names it, it is a day old, and still nothing names it after a wait that is longer than a
commit may last. That covers every way in which a writer comes to name a blob:

- One that was just stored is younger than a day. That also covers a clock that jumps by hours.
- One that the writer knew of (see ``reuse``), that a fork or a restore copies, or that a client names by its hash
  was named by a kept object when the writer looked, and is named by a new one before the wait is over. What was
  named at the first look is no candidate; what was not is looked for again among all that is new.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from runner.errors import StoreFailed
from runner.telemetry.logs import logger
from runner.workspace import keys
from runner.workspace.aside import aside
from runner.workspace.base import ObjectInfo, Store
from runner.workspace.config import WorkspaceConfig
from runner.workspace.prune import DAY_S, CollectReport, Pruner, pages, subfolders
from runner.workspace.prune_marks import Seen, mark

COMMIT_S: Final = 15 * 60.0
FIRST_AFTER_S: Final = 300.0
PAUSE_S: Final = 0.005
log = logger("collect")

Candidates = dict[str, ObjectInfo]


class Collector:
    """Collects over any store. It takes no lock, and several may work on one store.

    ``clock`` is the store's, in seconds; ``commit_s`` is how long to wait between the two looks at blobs, and
    ``pause_s`` is left between conversations.
    """

    def __init__(
        self,
        store: Store,
        config: WorkspaceConfig,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        commit_s: float = COMMIT_S,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._store, self._config = store, config
        self._clock, self._sleep = clock, sleep
        self._commit_s, self._pause_s = commit_s, pause_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Collect from now on, every ``collect_interval_s``; 0 there means never."""
        if self._config.collect_interval_s > 0 and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self.run_forever())

    async def close(self) -> None:
        """Stop, also in the middle of a collection. May be called again."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def run_forever(self) -> None:
        """Collect at intervals. A failure is logged, and the next time is another try."""
        interval = self._config.collect_interval_s
        await self._sleep(min(interval, FIRST_AFTER_S))
        while True:
            try:
                report = await self.run_once()
                log.info("collected", **report.counts())
            except Exception:
                log.exception("the collection failed")
            await self._sleep(interval)

    async def run_once(self) -> CollectReport:
        """One collection. Lasts ``commit_s`` longer when there are blobs to remove. Raises ``StoreFailed``."""
        began = time.monotonic()
        report = CollectReport()
        pruner = Pruner(self._store, self._config, report, self._clock, self._sleep)
        waiting: list[tuple[str, Candidates, Seen]] = []
        async for tenant in subfolders(self._store, keys.TENANTS):
            await self._prune(tenant, pruner, report)
            try:
                candidates, seen = await self._unnamed(tenant, pruner)
            except StoreFailed as error:
                self._failed(report, "blobs of a tenant were left", error, tenant=tenant)
                continue
            if candidates:
                waiting.append((tenant, candidates, seen))
        if waiting:
            await self._sleep(self._commit_s)
        for tenant, candidates, seen in waiting:
            try:
                await self._still_unnamed(tenant, candidates, seen)
            except StoreFailed as error:
                self._failed(report, "blobs of a tenant were left", error, tenant=tenant)
                continue
            report.blobs += await pruner.remove(list(candidates.values()))
        report.seconds = round(time.monotonic() - began, 3)
        return report

    async def _prune(self, tenant: str, pruner: Pruner, report: CollectReport) -> None:
        async for identifier in subfolders(self._store, keys.conversations(tenant)):
            try:
                await pruner.conversation(tenant, identifier)
            except StoreFailed as error:
                self._failed(report, "a conversation was left", error, tenant=tenant, conversation=identifier)
            report.conversations += 1
            await self._rest()

    async def _unnamed(self, tenant: str, pruner: Pruner) -> tuple[Candidates, Seen]:
        """Blobs that are old enough and that nothing names, and up to where was looked."""
        folder = keys.blobs(tenant)
        names: set[bytes] = set()
        seen = Seen(self._clock())
        candidates: Candidates = {}
        marked = False
        async for page in pages(self._store, folder):
            old = await aside(len(page), _old, page, pruner)
            if old and not marked:
                seen = await mark(self._store, tenant, self._clock(), names, rest=self._rest)
                marked = True
            await aside(len(old), _add, candidates, old, names)
        return candidates, seen

    async def _still_unnamed(self, tenant: str, candidates: Candidates, seen: Seen) -> None:
        """Drop from ``candidates`` what was named since."""
        names: set[bytes] = set()
        await mark(self._store, tenant, self._clock(), names, seen, self._rest)
        await aside(len(candidates), _drop, candidates, names)

    async def _rest(self) -> None:
        await self._sleep(self._pause_s)

    @staticmethod
    def _failed(report: CollectReport, what: str, error: StoreFailed, **about: str) -> None:
        report.failed += 1
        log.warning(what, cause=error.cause or error.detail, **about)


def _old(page: list[ObjectInfo], pruner: Pruner) -> list[ObjectInfo]:
    return [info for info in page if pruner.older(info, DAY_S) and keys.is_blob(_name(info))]


def _add(candidates: Candidates, old: list[ObjectInfo], names: set[bytes]) -> None:
    candidates |= {_name(info): info for info in old if _name(info).encode() not in names}


def _drop(candidates: Candidates, names: set[bytes]) -> None:
    for name in [name for name in candidates if name.encode() in names]:
        del candidates[name]


def _name(info: ObjectInfo) -> str:
    return info.key.rpartition("/")[2]
