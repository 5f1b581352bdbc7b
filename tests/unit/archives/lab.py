"""Archives made by hand and by the standard library, and sources that give bytes in pieces of any size."""

from __future__ import annotations

import asyncio
import hashlib
import io
import tarfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from runner.model import FileEntry
from runner.workspace.archives import tar_reader
from runner.workspace.archives.entries import Item
from runner.workspace.archives.source import Source, gunzip


async def pieces(data: bytes, size: int = 1000) -> AsyncIterator[bytes]:
    """``data`` cut into pieces."""
    for at in range(0, len(data), size):
        yield data[at : at + size]


def read_tar(
    data: bytes, *, piece: int = 1000, gz: bool = False, max_members: int = 100, max_bytes: int = 1 << 20
) -> dict[str, tuple[bytes, int, int]]:
    """What the reader gives: path to content, mode and time. The last one wins; the API refuses two."""

    async def read() -> dict[str, tuple[bytes, int, int]]:
        limit = tar_reader.stream_limit(max_bytes, max_members)
        chunks = pieces(data, piece)
        source = Source(gunzip(chunks) if gz else chunks, limit)
        return {
            member.path: (b"".join([chunk async for chunk in member.content]), member.mode, member.modified_ns)
            async for member in tar_reader.members(source, max_members, max_bytes)
        }

    return asyncio.run(read())


def tar(*infos: tuple[tarfile.TarInfo, bytes], format: int = tarfile.PAX_FORMAT, gz: bool = False) -> bytes:
    """An archive by the standard library."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz" if gz else "w", format=format) as archive:
        for info, content in infos:
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def info(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    """A member."""
    made = tarfile.TarInfo(name)
    made.size = len(content)
    made.mtime = 1_700_000_000
    for field, value in fields.items():
        setattr(made, field, value)
    return made, content


def block(
    name: bytes = b"x", size: bytes = b"00000000000\0", kind: bytes = b"0", magic: bytes = b"ustar\x0000"
) -> bytes:
    """A header by hand, with a right checksum."""
    head = name.ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + size + b"00000000000\0"
    tail = kind + bytes(100) + magic
    whole = head + b" " * 8 + tail
    whole = whole.ljust(512, b"\0")
    return whole[:148] + b"%06o\0 " % sum(whole) + whole[156:]


END = bytes(1024)


def items(files: dict[str, bytes], folders: Iterable[str] = ()) -> list[Item]:
    """Entries of an archive to be written, in the order of their paths."""
    made = [
        Item(path, FileEntry(path, len(c), hashlib.sha256(c).hexdigest(), path, 0o755, 1_700_000_000_000_000_000))
        for path, c in files.items()
    ]
    return sorted([*made, *(Item(path, None) for path in folders)], key=lambda item: item.path)


class Blobs:
    """Gives the bytes of files, counts what is open, and can lose a file or cut it short."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.open = 0

    @asynccontextmanager
    async def opener(self, entry: FileEntry) -> AsyncIterator[AsyncIterator[bytes]]:
        self.open += 1
        try:
            yield pieces(self.files[entry.path], 65536)
        finally:
            self.open -= 1
