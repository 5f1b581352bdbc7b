"""What the tests of collection share: a store in memory that knows ages and can be stopped at any removal."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from runner.errors import StoreFailed
from runner.model import FileChange, FileEntry
from runner.workspace import keys
from runner.workspace.base import ObjectInfo
from runner.workspace.collect import Collector
from runner.workspace.config import WorkspaceConfig
from runner.workspace.history import Workspace
from runner.workspace.prune import CollectReport
from runner.workspace.workspaces import Workspaces
from tests.unit.workspace.workspace_lab import RUN, Lab, gone
from tests.unit.workspace.workspace_memory import MemoryStore

HOUR = 3600.0
DAY = 24 * HOUR


class Stopped(BaseException):
    """Stands for a kill."""


class AgedStore(MemoryStore):
    """Objects have the time of ``now`` at their creation. ``at_step`` is called before each step of a collection."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000_000.0
        self.times: dict[str, float] = {}
        self.removals_left: int | None = None
        self.at_step: Callable[[], Awaitable[None]] | None = None

    async def create(self, key: str, data: bytes) -> None:
        await super().create(key, data)
        self.times[key] = self.now

    async def objects(self, prefix: str, after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        await self._step()
        found = await super().objects(prefix, after, limit)
        return [ObjectInfo(info.key, info.size, self.times[info.key]) for info in found]

    async def delete_many(self, keys: Sequence[str]) -> None:
        await self._step()
        for key in keys:
            if self.removals_left is not None:
                if self.removals_left == 0:
                    raise Stopped
                self.removals_left -= 1
            await self.delete(key)

    async def _step(self) -> None:
        at_step, self.at_step = self.at_step, None  # a step within a step is not one of the collection's
        if at_step is not None:
            await at_step()
            if self.at_step is None:
                self.at_step = at_step

    def copy(self) -> AgedStore:
        twin = AgedStore()
        twin.objects_now, twin.times, twin.now = dict(self.objects_now), dict(self.times), self.now
        return twin


def aged_lab(store: AgedStore | None = None, **settings: int) -> tuple[Lab, AgedStore]:
    store = store or AgedStore()
    config = WorkspaceConfig(Path("/nowhere"), **settings)
    return Lab(store, config, Workspaces(store, config)), store


def collector(at: Lab, store: AgedStore) -> Collector:
    """Pauses take no time; the wait for commits lets the store's clock go on."""

    async def sleep(seconds: float) -> None:
        await store._step()
        store.now += seconds

    return Collector(store, at.config, clock=lambda: store.now, sleep=sleep)


async def collect(at: Lab, store: AgedStore) -> CollectReport:
    return await collector(at, store).run_once()


async def write(space: Workspace, path: str, data: bytes) -> str:
    """A version with one more file; the blob's name."""
    digest, size, blob = (await space.adopt_contents([data]))[0]
    await space.commit([FileChange(path, "created", FileEntry(path, size, digest, blob))], synced_seq=0, cause=RUN)
    return blob


async def erase(space: Workspace, path: str) -> None:
    await space.commit([gone(path)], synced_seq=0, cause=RUN)


async def fill(space: Workspace, versions: int) -> None:
    """Cut versions until there are so many; each changes one of three files."""
    while space.version < versions:
        await write(space, f"f{space.version % 3}", f"{space.id} {space.version}".encode())


async def check_readable(at: Lab, tenant: str = "t") -> dict[str, list[int]]:
    """Every file of every kept version of every conversation has its bytes; the versions by conversation."""
    kept: dict[str, list[int]] = {}
    spaces = Workspaces(at.store, at.config)
    for name in await spaces.list(tenant, limit=10_000):
        space = await spaces.find(tenant, name)
        assert space is not None
        infos = await space.versions(limit=10_000)
        kept[name] = [info.version for info in reversed(infos)]
        entries = {entry.blob: entry for entry in space.files.values()}
        for info in infos:
            entries |= {entry.blob: entry for entry in (await space.manifest(info.version)).files.values()}
        for entry in entries.values():
            try:
                data = await at.store.read(keys.blob(tenant, entry.blob))
            except StoreFailed as error:
                raise AssertionError(f"{entry.path} is lost") from error
            assert hashlib.sha256(data).hexdigest() == entry.sha256
    return kept
