"""An archive of a session, staged as files: all of it or an error, with a note for what no workspace can hold.

Such archives were packed by GNU tar from a folder that user code had written to. Links, devices and names that lead
out of the workspace are passed over and told; a damaged archive, one that ends early and one that is too large raise.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

from runner.errors import BadArchive
from runner.workspace.archives import tar_reader
from runner.workspace.archives.source import Source, gunzip
from runner.workspace.base import Staging
from runner.workspace.paths import shown

MAX_NOTES: Final = 100
_SMALL: Final = 16 << 10  # what may wait in memory, while all together have no more than
_IN_MEMORY: Final = 1 << 20


@dataclass(slots=True)
class Restored:
    """Files that wait to be put, by workspace path. ``skipped`` counts what was passed over; the first are noted."""

    files: dict[str, Staging] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    modified_ns: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    skipped: int = 0

    def note(self, text: str) -> None:
        """Something was passed over."""
        self.skipped += 1
        if len(self.notes) < MAX_NOTES:
            self.notes.append(text)


async def staged(
    chunks: AsyncIterator[bytes],
    stack: AsyncExitStack,
    stage: Callable[[], Staging],
    *,
    max_members: int,
    max_bytes: int,
) -> Restored:
    """The files of a tar.gz. What ``stack`` holds is dropped when it is left without a put.

    ``max_members`` and ``max_bytes`` are those of the workspace. Raises ``BadArchive``, ``TooLarge`` and whatever
    ``chunks`` raises; then there is nothing to put.
    """
    restored = Restored()
    source = Source(gunzip(chunks), tar_reader.stream_limit(max_bytes, max_members))
    in_memory = 0
    async for member in tar_reader.members(source, max_members, max_bytes, restored.note):
        staging = await stack.enter_async_context(stage())
        async for chunk in member.content:
            await staging.write(chunk)
        size = (await staging.finish()).size
        if size <= _SMALL and in_memory + size <= _IN_MEMORY:
            in_memory += size
        else:
            await staging.park()
        if (earlier := restored.files.get(member.path)) is not None:  # appended later: the last one counts, as in tar
            await earlier.abort()
        restored.files[member.path], restored.sizes[member.path] = staging, size
        restored.modes[member.path], restored.modified_ns[member.path] = member.mode, member.modified_ns
    _check_folders(restored)
    return restored


def _check_folders(restored: Restored) -> None:
    """Raises ``BadArchive`` where a file stands in the way of another one's folder."""
    for path in restored.files:
        folder = path.rpartition("/")[0]
        while folder:
            if folder in restored.files:
                raise BadArchive(f"the archive has {shown(folder)} as a file and as the folder of {shown(path)}")
            folder = folder.rpartition("/")[0]
