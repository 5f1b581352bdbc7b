"""Reads a tar stream member by member: regular files are given, folders passed over, all else is refused.

Nothing is written here and no name reaches a file system: names become workspace paths or ``InvalidPath``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Final

from runner.errors import BadArchive, InvalidPath, TooLarge
from runner.workspace.archives import tar_header
from runner.workspace.archives.source import Source
from runner.workspace.archives.tar_header import BLOCK, Header
from runner.workspace.paths import MAX_PATH_BYTES, normalise, shown

MAX_PAX: Final = 64 << 10
MAX_LONG_NAME: Final = 4 * MAX_PATH_BYTES
_PER_MEMBER: Final = 4 * BLOCK
_SLACK: Final = 1 << 20
_EXTENDED: Final = (tar_header.PAX, tar_header.PAX_GLOBAL, tar_header.LONG_NAME, tar_header.LONG_LINK)
_LAST_NS: Final = (1 << 62) - 1
_SKIPPABLE: Final = tar_header.REGULAR | {tar_header.FOLDER, *(b"1", b"2", b"3", b"4", b"6")}  # links and devices too
_UNREADABLE: Final = ("GNU.sparse.", "SCHILY.realsize")


@dataclass(frozen=True, slots=True)
class Member:
    """A regular file of an archive: its workspace path and its bytes, which are read before the next member."""

    path: str
    size: int
    content: AsyncIterator[bytes]
    mode: int
    modified_ns: int


@dataclass(slots=True)
class _Extended:
    """What extended headers say of the member behind them."""

    name: bytes | None = None
    size: int | None = None
    modified_ns: int | None = None


def stream_limit(content_bytes: int, members: int) -> int:
    """The most bytes of an archive whose files may hold ``content_bytes``: headers and padding included."""
    return content_bytes + members * _PER_MEMBER + _SLACK


async def members(
    source: Source, max_members: int, max_bytes: int, passed_over: Callable[[str], None] | None = None
) -> AsyncIterator[Member]:
    """The regular files, in order. Raises ``BadArchive``, ``InvalidPath``, ``TooLarge``.

    With ``passed_over`` a member that no workspace can hold is told to it and skipped, instead of refused.
    """
    seen = total = 0
    while True:
        found = await _header(source)
        if found is None:
            break
        header, name, modified_ns = found
        seen += 1
        if seen > max_members:
            raise TooLarge(
                f"the archive has more than {max_members} members: send several, or raise SANDBOX_MAX_UPLOAD_FILES",
                limit=max_members,
            )
        path = await _given(source, header, name, passed_over)
        if path is None:
            continue
        total += header.size
        if total > max_bytes:
            raise TooLarge(f"the files of the archive have more than {max_bytes} bytes", limit=max_bytes)
        content = source.pieces(header.size)
        mode = header.mode & 0o777 | 0o600  # its owner, the sandbox's user, can always read and replace it
        yield Member(path, header.size, content, mode, min(modified_ns, _LAST_NS))
        async for _ in content:  # what the caller left
            pass
        await source.exactly(-header.size % BLOCK)
    async for piece in source.rest():
        if piece.strip(b"\0"):
            raise BadArchive("something follows the end of the archive: send one archive, and nothing after it")


async def _header(source: Source) -> tuple[Header, bytes, int] | None:
    """The next member's header, name and time, its extended headers taken in; None at the end."""
    said = _Extended()
    seen: set[bytes] = set()
    while True:
        block = await source.exactly(BLOCK)
        if not block.strip(b"\0"):
            if seen - {tar_header.PAX_GLOBAL}:
                raise BadArchive("the archive is damaged: an extended header has no member")
            if (await source.exactly(BLOCK)).strip(b"\0"):
                raise BadArchive("the archive is damaged: a block of zeros stands before its end")
            return None
        header = tar_header.parse(block)
        if header.kind not in _EXTENDED:
            if said.size is not None:
                header = replace(header, size=said.size)
            time = header.modified_s * 1_000_000_000 if said.modified_ns is None else said.modified_ns
            return header, header.name if said.name is None else said.name, time
        if header.kind in seen:
            raise BadArchive("the archive is damaged: a member has the same extended header twice")
        seen.add(header.kind)
        _take(said, header.kind, await _extended(source, header))


def _take(said: _Extended, kind: bytes, data: bytes) -> None:
    if kind == tar_header.LONG_NAME:
        said.name = data.split(b"\0", 1)[0]
    elif kind in (tar_header.PAX, tar_header.PAX_GLOBAL):
        records = tar_header.pax_records(data)
        if any(name.startswith(_UNREADABLE) for name in records):
            raise BadArchive("the archive holds a sparse file: pack it without --sparse")
        if kind == tar_header.PAX_GLOBAL:
            if {"path", "size", "linkpath"} & records.keys():
                raise BadArchive("a global header gives all members one name or size: pack the archive without it")
            return
        said.name = records.get("path", said.name)
        said.size = tar_header.decimal(records["size"]) if "size" in records else None
        said.modified_ns = tar_header.nanoseconds(records["mtime"]) if "mtime" in records else None


async def _extended(source: Source, header: Header) -> bytes:
    """What an extended header holds."""
    limit = MAX_PAX if header.kind in (tar_header.PAX, tar_header.PAX_GLOBAL) else MAX_LONG_NAME
    if header.size > limit:
        raise BadArchive(f"an extended header of the archive has {header.size} bytes, the limit is {limit}")
    data = await source.exactly(header.size)
    await source.exactly(-header.size % BLOCK)
    return data


async def _given(source: Source, header: Header, name: bytes, passed_over: Callable[[str], None] | None) -> str | None:
    """The workspace path of a file; None for what is not given: a folder, or a member that is passed over."""
    try:
        return _place(header, name)
    except (BadArchive, InvalidPath) as error:
        damaged = header.kind == tar_header.FOLDER and header.size
        if passed_over is None or header.kind not in _SKIPPABLE or damaged:
            raise
        passed_over(error.detail)
    if header.kind in tar_header.REGULAR:  # no other kind has bytes
        async for _ in source.pieces(header.size + -header.size % BLOCK):
            pass
    return None


def _place(header: Header, name: bytes) -> str | None:
    """The workspace path of a file, None for a folder. Raises ``BadArchive``, ``InvalidPath`` for anything else."""
    path = _decoded(name)
    if header.kind == tar_header.FOLDER or (header.kind in tar_header.REGULAR and path.endswith("/")):
        _check_folder(path, header)
        return None
    if header.kind not in tar_header.REGULAR:
        raise BadArchive(
            f"{shown(path)} is {tar_header.kind_named(header.kind)}: only regular files and folders are taken"
        )
    return _relative(path)


def _decoded(name: bytes) -> str:
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidPath(f"the archive holds the name {ascii(name)[1:101]}, which is not UTF-8: rename it") from None


def _relative(path: str) -> str:
    """The workspace path of a member; an absolute one is never meant for a workspace."""
    if path.startswith("/"):
        raise InvalidPath(f"{shown(path)} is an absolute path: pack the archive with relative names")
    return normalise(path)


def _check_folder(path: str, header: Header) -> None:
    if header.size:
        raise BadArchive(f"the archive is damaged: the folder {shown(path)} has content")
    bare = path.rstrip("/")
    if path.startswith("/") or [part for part in bare.split("/") if part not in ("", ".")]:
        _relative(bare or path)
