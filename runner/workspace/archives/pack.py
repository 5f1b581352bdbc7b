"""The archive of a session: the files of a workspace as tar.gz, without those that a gateway stages anew each time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Final

from runner.model import FileEntry
from runner.workspace.archives.entries import Item, Opener
from runner.workspace.archives.tar_writer import tar_gz
from runner.workspace.aside import aside
from runner.workspace.history import Workspace

LEFT_OUT: Final = ("uploads/", "skills/")


def reading(workspace: Workspace) -> Opener:
    """How an archive reads the files of a workspace, one at a time; each is closed when it was read."""

    @asynccontextmanager
    async def opened(entry: FileEntry) -> AsyncIterator[AsyncIterator[bytes]]:
        stream = await workspace.open(entry)
        try:
            yield stream
        finally:
            await stream.aclose()

    return opened


async def packed(workspace: Workspace) -> AsyncGenerator[bytes, None]:
    """The workspace as it is now. Links are left out. A file that cannot be read whole raises before a valid end."""

    files, folders = workspace.files, workspace.folders
    items = await aside(len(files) + len(folders), archived, files, folders)
    async with aclosing(tar_gz(items, reading(workspace))) as pieces:
        async for piece in pieces:
            yield piece


def archived(files: Mapping[str, FileEntry], folders: frozenset[str]) -> list[Item]:
    """What of a workspace goes into the archive, in order."""
    found = [Item(path, entry) for path, entry in files.items() if not path.startswith(LEFT_OUT)]
    found += [Item(path, None) for path in folders if not f"{path}/".startswith(LEFT_OUT)]
    return sorted(found, key=lambda item: item.path)
