"""What of a conversation is no longer kept, and removing it: versions, drafts, superseded records, executions.

Everything here works on the store alone and takes no lock. What it removes, nobody reads any more: each rule says
why. Removal is oldest first and durable before the next step, so that a kill at any point leaves a store that
serves all that is kept, and in which a later run goes on.

Ages are by the store's clock. An object that is newer than now tells of a clock that was wrong: it is young.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, fields
from typing import Final

from runner.workspace import keys
from runner.workspace.base import ObjectInfo, Store
from runner.workspace.codec import WHOLE_EVERY, decode_info, whole_at
from runner.workspace.config import WorkspaceConfig

HOUR_S: Final = 3600.0
DAY_S: Final = 24 * HOUR_S
_OWNERS_KEPT: Final = 8
_PAGE: Final = 50_000
_REMOVED_AT_ONCE: Final = 64
_SHARE: Final = 3.0  # pauses between removals are so many times as long as the removals


@dataclass(slots=True)
class CollectReport:
    """What one collection removed. ``bytes_freed`` counts all of it; ``failed`` are conversations and tenants left."""

    conversations: int = 0
    versions: int = 0
    drafts: int = 0
    records: int = 0
    executions: int = 0
    claims: int = 0
    purged: int = 0
    blobs: int = 0
    bytes_freed: int = 0
    failed: int = 0
    seconds: float = 0.0

    def counts(self) -> dict[str, float]:
        """All figures by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


async def listing(store: Store, folder: str, after: str = "") -> list[ObjectInfo]:
    """All objects directly below a folder, in order."""
    found: list[ObjectInfo] = []
    async for page in pages(store, folder, after):
        found += page
    return found


async def pages(store: Store, folder: str, after: str = "") -> AsyncIterator[list[ObjectInfo]]:
    """The same, a page at a time."""
    while page := await store.objects(folder, after, _PAGE):
        yield page
        after = page[-1].key


async def subfolders(store: Store, folder: str) -> AsyncIterator[str]:
    """Names directly below a folder, in order."""
    after = ""
    while page := await store.names(folder, after):
        for name in page:
            yield name
        after = page[-1]


class Pruner:
    """Prunes conversations. ``clock`` is that of the store, in seconds; ``sleep`` makes the pauses."""

    def __init__(
        self,
        store: Store,
        config: WorkspaceConfig,
        report: CollectReport,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store, self._config, self._report = store, config, report
        self._clock, self._sleep = clock, sleep

    def older(self, info: ObjectInfo, seconds: float) -> bool:
        """Whether an object is surely older than that."""
        return info.modified < self._clock() - seconds

    async def remove(self, objects: Sequence[ObjectInfo]) -> int:
        """Remove objects in this order, a few at a time and with pauses; how many."""
        for start in range(0, len(objects), _REMOVED_AT_ONCE):
            some = objects[start : start + _REMOVED_AT_ONCE]
            began = time.monotonic()
            await self._store.delete_many([info.key for info in some])
            self._report.bytes_freed += sum(info.size for info in some)
            await self._sleep(_SHARE * (time.monotonic() - began))
        return len(objects)

    async def conversation(self, tenant: str, identifier: str) -> None:
        """Prune all incarnations of a conversation."""
        folder = keys.incarnations(tenant, identifier)
        names = [name async for name in subfolders(self._store, folder) if keys.is_incarnation(name)]
        for name in names:
            home = keys.incarnation(tenant, identifier, name)
            top = await listing(self._store, home)
            tombstone = next((info for info in top if info.key == keys.tombstone(home)), None)
            if tombstone is None:
                await self._living(home)
            elif self.older(tombstone, HOUR_S):  # a writer that began before the purge has finished
                await self._purged(home, tombstone, superseded=name != names[-1])

    async def _purged(self, home: str, tombstone: ObjectInfo, superseded: bool) -> None:
        """Remove all but the tombstone; that as well when a newer incarnation says that this one is over."""
        removed = 0
        async for name in subfolders(self._store, home):
            if name != keys.TOMBSTONE:
                removed += await self.remove(await listing(self._store, f"{home}{name}/"))
        if superseded:
            removed += await self.remove([tombstone])
        if removed:
            self._report.purged += 1
            await self._store.tidy(home)

    async def _living(self, home: str) -> None:
        oldest = await self._versions(home)
        if oldest is not None:
            await self._drafts(home, oldest)
        # Readers list these and take the newest; a day later nobody holds the number of one that was superseded.
        for folder, kept in ((keys.settings(home), 1), (keys.owners(home), _OWNERS_KEPT)):
            records = await self._numbered(folder)
            self._report.records += await self.remove([r for r in records[:-kept] if self.older(r, DAY_S)])
        await self._executions(home)

    async def _versions(self, home: str) -> ObjectInfo | None:
        """Remove versions that are neither among the newest nor young; the oldest that is kept."""
        infos = await self._numbered(keys.versions(home))
        if not infos:
            return None
        cut = self._cut(infos)
        gone = [info for info in infos if _number(info) < cut]
        # The whole manifest goes first, durably: what is left of its chain is then known for a remainder.
        for start in range(whole_at(_number(infos[0])), cut, WHOLE_EVERY):
            chain = [info for info in gone if start <= _number(info) < start + WHOLE_EVERY]
            if chain and _number(chain[0]) == start:
                self._report.versions += await self.remove(chain[:1])
                chain = chain[1:]
            self._report.versions += await self.remove(chain)
        return infos[len(gone)]

    async def _numbered(self, folder: str) -> list[ObjectInfo]:
        return [info for info in await listing(self._store, folder) if keys.number_of(info.key) is not None]

    def _cut(self, infos: Sequence[ObjectInfo]) -> int:
        """The oldest version to keep, which is a whole one."""
        newest = _number(infos[-1])
        keep_from = newest - self._config.keep_versions + 1
        young = (_number(info) for info in infos if not self.older(info, self._config.keep_days * DAY_S))
        return max(0, whole_at(min(keep_from, next(young, newest))))

    async def _drafts(self, home: str, oldest: ObjectInfo) -> None:
        """Remove draft entries that are folded into the oldest version: they are read only from a version on."""
        if _number(oldest) == 0:
            return
        drafts = await self._numbered(keys.drafts(home))
        if not drafts or not self.older(drafts[0], DAY_S):
            return
        data = await self._store.read(oldest.key)
        folded = (await asyncio.to_thread(decode_info, data, oldest.key)).draft
        gone = []
        for info in drafts:
            if _number(info) > folded or not self.older(info, DAY_S):
                break
            gone.append(info)
        self._report.drafts += await self.remove(gone)

    async def _executions(self, home: str) -> None:
        """Remove old claims, then old executions: first the beginnings, for a beginning without end means lost."""
        age = self._config.keep_executions_days * DAY_S
        claims = await listing(self._store, keys.claims(home))
        standing = {keys.claimed(info.key) for info in claims if not self.older(info, age)}
        # All of a key or none, the first one last: without it the key is free, whatever claims came after.
        self._report.claims += await self.remove([info for info in claims if keys.claimed(info.key) not in standing])
        infos = await listing(self._store, keys.executions(home))
        young = {_execution(info) for info in infos if not self.older(info, age)}
        gone = [info for info in infos if _execution(info) not in young]
        begins = [info for info in gone if info.key.endswith(keys.BEGIN)]
        self._report.executions += await self.remove(begins)
        await self.remove([info for info in gone if not info.key.endswith(keys.BEGIN)])


def _number(info: ObjectInfo) -> int:
    number = keys.number_of(info.key)
    assert number is not None
    return number


def _execution(info: ObjectInfo) -> str:
    return info.key.removesuffix(keys.BEGIN).removesuffix(keys.END)
