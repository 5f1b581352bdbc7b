"""What goes into an archive, and what a file's type says about compressing it again. Pure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final

from runner.errors import StoreFailed
from runner.model import FileEntry

Opened = AbstractAsyncContextManager[AsyncIterator[bytes]]
Opener = Callable[[FileEntry], Opened]
Compress = Callable[[bytes], Awaitable[bytes]]

_DENSE: Final = frozenset(
    "7z avif br bz2 docx epub flac gif gz heic jar jpeg jpg m4a mkv mov mp3 mp4 odp ods odt ogg opus parquet png pptx"
    " tgz webm webp whl woff2 xlsx xz zip zst".split()
)


@dataclass(frozen=True, slots=True)
class Item:
    """A file, or an empty folder (``entry`` is None). ``path`` is canonical, without a slash at its end."""

    path: str
    entry: FileEntry | None


def is_dense(path: str) -> bool:
    """Whether a file is compressed already, by its name."""
    return path.rpartition(".")[2].lower() in _DENSE


async def whole(entry: FileEntry, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The bytes of a file; fewer or more than it should have break the archive instead of ending it well."""
    seen = 0
    async for chunk in stream:
        seen += len(chunk)
        if seen > entry.size:
            break
        yield chunk
    if seen != entry.size:
        raise StoreFailed(
            "The store gave another number of bytes than a file has.",
            cause=f"blob {entry.blob}: {seen} bytes of {entry.size}",
        )
