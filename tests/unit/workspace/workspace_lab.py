"""What the workspace tests share: a store in a temporary folder, and short ways to do everyday things."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from runner.model import ChangeKind, FileChange, FileEntry
from runner.workspace.base import Store
from runner.workspace.config import WorkspaceConfig
from runner.workspace.history import CommitResult, Workspace
from runner.workspace.manifest import Cause
from runner.workspace.registry import open_store
from runner.workspace.workspaces import Workspaces
from tests.unit.workspace.workspace_memory import MemoryStore

T = TypeVar("T")

RUN = Cause("run", execution_id="x1")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine with a deadline; no test may hang."""

    async def bounded() -> T:
        return await asyncio.wait_for(work, 30)

    return asyncio.run(bounded())


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def fake_entry(path: str, data: bytes = b"x", **fields: Any) -> FileEntry:
    """An entry whose blob is in no store."""
    digest = sha(data)
    return replace(FileEntry(path, len(data), digest, f"{digest}-00000000"), **fields)


def change(entry: FileEntry, kind: ChangeKind = "modified") -> FileChange:
    return FileChange(entry.path, kind, entry)


def gone(path: str) -> FileChange:
    return FileChange(path, "deleted", None)


@dataclass
class Lab:
    """An open store with its conversations."""

    store: Store
    config: WorkspaceConfig
    spaces: Workspaces

    async def space(self, name: str = "a", tenant: str = "t") -> Workspace:
        return (await self.spaces.create(tenant, name))[0]

    async def again(self, name: str = "a", tenant: str = "t") -> Workspace:
        """The same conversation decoded anew from the store, as another process would."""
        found = await Workspaces(self.store, self.config).find(tenant, name)
        assert found is not None
        return found

    @property
    def files(self) -> Path:
        return self.config.data_dir / "store" / "objects"

    def blobs(self, tenant: str = "t") -> list[str]:
        folder = self.files / "t" / tenant / "b"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def staged(self) -> list[str]:
        return [path.name for path in (self.config.data_dir / "store" / "staging").iterdir()]


@asynccontextmanager
async def lab(folder: Path, **settings: int) -> AsyncIterator[Lab]:
    config = WorkspaceConfig(folder, **settings)
    store = await open_store(config)
    try:
        yield Lab(store, config, Workspaces(store, config))
    finally:
        await store.close()


def memory_lab(**settings: int) -> tuple[Lab, MemoryStore]:
    """The same over a store in memory."""
    config, store = WorkspaceConfig(Path("/nowhere"), **settings), MemoryStore()
    return Lab(store, config, Workspaces(store, config)), store


async def put(space: Workspace, path: str, data: bytes, **options: Any) -> FileEntry:
    async with space.stage() as staging:
        await staging.write(data)
        return await space.put(path, staging, **options)


async def get(space: Workspace, path: str, start: int = 0, end: int | None = None) -> bytes:
    stream = await space.open(space.files[path], start, end)
    return b"".join([chunk async for chunk in stream])


async def made(space: Workspace, path: str, data: bytes) -> FileChange:
    """A file that a run made: its bytes adopted, the change not yet committed."""
    async with space.stage() as staging:
        await staging.write(data)
        digest, size, blob = await space.adopt_blob(staging)
    return FileChange(path, "created", FileEntry(path, size, digest, blob))


async def cut(space: Workspace, path: str, data: bytes) -> CommitResult:
    """A run that made one file."""
    return await space.commit([await made(space, path, data)], synced_seq=space.draft_seq, cause=RUN)


async def contents(space: Workspace) -> dict[str, bytes]:
    return {path: await get(space, path) for path in space.files}
