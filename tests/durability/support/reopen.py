"""Opens a data folder as the next runner would, without its HTTP, and reads every file that it serves."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from pathlib import Path

from runner.workspace.config import WorkspaceConfig
from runner.workspace.registry import open_store
from runner.workspace.workspaces import Workspaces
from tests.durability.support.nodes import Image

_LINKED_BYTES = 64 << 10


class Rebuilt:
    """Puts images into folders, one after the other; large files, which are never changed in place, are shared."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._large: dict[int, tuple[bytes, Path]] = {}

    def put(self, image: Image) -> Path:
        """A fresh data folder with an image's content."""
        self._count += 1
        top = self._folder / f"{self._count}"
        shutil.rmtree(self._folder / f"{self._count - 1}", ignore_errors=True)
        top.mkdir(parents=True)
        for path, data in image.content.items():
            target = top / path
            if data is None:
                target.mkdir(mode=0o700)
            elif len(data) < _LINKED_BYTES:
                target.touch(0o600)
                target.write_bytes(data)
            else:
                target.hardlink_to(self._shared(data))
        return top

    def _shared(self, data: bytes) -> Path:
        if id(data) not in self._large:
            path = self._folder / f"large-{len(self._large)}"
            path.touch(0o600)
            path.write_bytes(data)
            self._large[id(data)] = (data, path)
        return self._large[id(data)][1]


def served(data: Path) -> dict[str, dict[str, str]]:
    """Conversations, and their files with the SHA-256 of the bytes. Raises what opening raises."""
    return asyncio.run(asyncio.wait_for(_served(data), 60))


async def _served(data: Path) -> dict[str, dict[str, str]]:
    config = WorkspaceConfig(data)
    store = await open_store(config)
    try:
        spaces = Workspaces(store, config)
        found: dict[str, dict[str, str]] = {}
        for tenant in await store.names("t/"):
            for name in await spaces.list(tenant, limit=10_000):
                space = await spaces.find(tenant, name)
                if space is None:
                    continue
                found[name] = files = {}
                for path, entry in space.files.items():
                    digest = hashlib.sha256()
                    async for chunk in await space.open(entry):
                        digest.update(chunk)
                    assert digest.hexdigest() == entry.sha256, f"{name}: {path} has other bytes than were promised"
                    files[path] = digest.hexdigest()
        assert not staged(data), "files under way were not swept"
        return found
    finally:
        await store.close()


def staged(data: Path) -> list[str]:
    """Files under way below a data folder."""
    return [str(path) for path in data.rglob("*.part") if "run" not in path.parts]
