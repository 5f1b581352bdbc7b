"""Writes files as a zip while they are read: sizes follow each file, and zip64 is used from 4 GiB on.

The same files give the same bytes, at any time and place. Names are UTF-8 and marked so.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from runner.workspace.archives.entries import Item, Opener, is_dense, whole

ZIP64_FROM: Final = 0xFFFFFFFF
_COUNT64_FROM: Final = 0xFFFF
_LEVEL: Final = 6
_INLINE: Final = 16 << 10
_FLAGS: Final = 0x0808  # sizes follow the data; the name is UTF-8
_FOLDER_FLAGS: Final = 0x0800
_UNIX: Final = 3 << 8
_STORED, _DEFLATED = 0, 8
_FOLDER_BIT: Final = 0x10


@dataclass(slots=True)
class _Written:
    """What the directory at the end says of a member."""

    name: bytes
    method: int
    flags: int
    stamp: tuple[int, int]
    attributes: int
    offset: int
    crc: int = 0
    packed: int = 0
    size: int = 0


class ZipWriter:
    """One archive. ``zip64_from`` is the size or offset from which eight bytes are used; tests lower it."""

    def __init__(self, zip64_from: int = ZIP64_FROM) -> None:
        self._zip64_from = zip64_from
        self._members: list[_Written] = []
        self._offset = 0

    async def write(self, items: Iterable[Item], opener: Opener) -> AsyncGenerator[bytes, None]:
        """The archive. A file that cannot be read whole raises, so that the stream has no valid end."""
        for item in items:
            async with aclosing(self._folder(item) if item.entry is None else self._file(item, opener)) as pieces:
                async for piece in pieces:
                    self._offset += len(piece)
                    yield piece
        for piece in self._directory():
            yield piece

    async def _folder(self, item: Item) -> AsyncGenerator[bytes, None]:
        mode = 0o40755 << 16 | _FOLDER_BIT
        member = _Written(item.path.encode() + b"/", _STORED, _FOLDER_FLAGS, _stamp(0), mode, self._offset)
        self._members.append(member)
        yield _local(member, b"", 20)

    async def _file(self, item: Item, opener: Opener) -> AsyncGenerator[bytes, None]:
        entry = item.entry
        assert entry is not None
        mode = (0o100000 | entry.mode & 0o777) << 16
        member = _Written(item.path.encode(), _DEFLATED, _FLAGS, _stamp(entry.modified_ns), mode, self._offset)
        large = entry.size + (entry.size >> 8) + 1024 >= self._zip64_from  # deflate may add a little
        yield _local(member, struct.pack("<HHQQ", 1, 16, 0, 0) if large else b"", 45 if large else 20)
        # Level 0 costs nothing and, unlike stored, lets a reader find the end without knowing the size.
        deflate = zlib.compressobj(0 if is_dense(item.path) else _LEVEL, zlib.DEFLATED, -15)
        async with opener(entry) as stream:
            async for chunk in whole(entry, stream):
                member.size += len(chunk)
                member.crc = zlib.crc32(chunk, member.crc)
                small = len(chunk) <= _INLINE
                piece = deflate.compress(chunk) if small else await asyncio.to_thread(deflate.compress, chunk)
                member.packed += len(piece)
                if piece:
                    yield piece
        piece = deflate.flush()
        member.packed += len(piece)
        yield piece
        sizes = "<4sLQQ" if large else "<4sLLL"
        yield struct.pack(sizes, b"PK\x07\x08", member.crc, member.packed, member.size)
        self._members.append(member)

    def _directory(self) -> Iterable[bytes]:
        """The central directory, and the records that say where it is."""
        size = 0
        for member in self._members:
            record = self._central(member)
            size += len(record)
            yield record
        count, start, limit = len(self._members), self._offset, self._zip64_from
        if count >= _COUNT64_FROM or size >= limit or start >= limit:
            yield struct.pack("<4sQHHLLQQQQ", b"PK\x06\x06", 44, _UNIX | 45, 45, 0, 0, count, count, size, start)
            yield struct.pack("<4sLQL", b"PK\x06\x07", 0, start + size, 1)
            count, size, start = 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF
        yield struct.pack("<4sHHHHLLH", b"PK\x05\x06", 0, 0, count, count, size, start, 0)

    def _central(self, member: _Written) -> bytes:
        wide = []
        fields = []
        for value in (member.size, member.packed, member.offset):  # in the order of the zip64 field
            fits = value < self._zip64_from
            fields.append(value if fits else 0xFFFFFFFF)
            if not fits:
                wide.append(value)
        extra = struct.pack(f"<HH{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
        size, packed, offset = fields
        needs = 45 if wide else 20
        head = struct.pack(
            "<4sHHHHHHLLLHHHHHLL", b"PK\x01\x02", _UNIX | needs, needs, member.flags, member.method, *member.stamp,
            member.crc, packed, size, len(member.name), len(extra), 0, 0, 0, member.attributes, offset,
        )  # fmt: skip
        return head + member.name + extra


def _local(member: _Written, extra: bytes, needs: int) -> bytes:
    unknown = 0xFFFFFFFF if extra else 0
    fields = (needs, member.flags, member.method, *member.stamp, 0, unknown, unknown, len(member.name), len(extra))
    return struct.pack("<4sHHHHHLLLHH", b"PK\x03\x04", *fields) + member.name + extra


def _stamp(modified_ns: int) -> tuple[int, int]:
    """Time and date of MS-DOS, in UTC; what it cannot say becomes its first or last day."""
    when = datetime.fromtimestamp(min(max(modified_ns // 1_000_000_000, 0), 1 << 33), UTC)
    if when.year < 1980:
        return 0, 1 << 5 | 1
    if when.year > 2107:
        return 23 << 11 | 59 << 5 | 29, 127 << 9 | 12 << 5 | 31
    time = when.hour << 11 | when.minute << 5 | when.second // 2
    return time, (when.year - 1980) << 9 | when.month << 5 | when.day
