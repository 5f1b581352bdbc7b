"""Manifests and draft entries as bytes, and back, with bounds. Pure.

A manifest is JSON under zlib, whose checksum finds damage. Every 32nd is whole; the others hold what changed
against the version before. ``links`` and ``folders`` are complete, or null where nothing changed in them. A
file is ``[path, size, blob, mode, modified_ns]``; its SHA-256 is the first half of its blob's name.

Whatever cannot be decoded is ``StoreFailed`` naming the key: a damaged version is never an empty workspace.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar

from runner.errors import StoreFailed
from runner.model import FileEntry
from runner.workspace import keys
from runner.workspace.manifest import CAUSES, Cause, Counts, Delta, Manifest, VersionInfo
from runner.workspace.paths import is_canonical

FORMAT: Final = 1
WHOLE_EVERY: Final = 32
MAX_DECODED_BYTES: Final = 256 << 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Encoded:
    """A manifest as it was stored: whole, or a delta that needs the version before."""

    info: VersionInfo
    whole: bool
    put: tuple[FileEntry, ...]
    removed: tuple[str, ...]
    links: Mapping[str, str] | None
    folders: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class DraftEntry:
    """An upload or, with ``entry`` None, a deletion that no version holds yet."""

    seq: int
    path: str
    entry: FileEntry | None


def whole_at(version: int) -> int:
    """The newest whole manifest at or before ``version``."""
    return version - version % WHOLE_EVERY


def encode_manifest(manifest: Manifest, before: Manifest | None, delta: Delta) -> bytes:
    """Bytes of a version. ``delta`` leads to it from ``before``, the version one lower."""
    info = manifest.info
    whole = before is None or info.version == whole_at(info.version)
    same_links = not whole and before is not None and before.links == manifest.links
    same_folders = not whole and before is not None and before.folders == manifest.folders
    document = {
        "format": FORMAT,
        "version": info.version,
        "base": info.base,
        "created_at": info.created_at,
        "cause": {
            "kind": info.cause.kind,
            "execution_id": info.cause.execution_id,
            "version": info.cause.version,
            "source": info.cause.source,
        },
        "draft": info.draft,
        "file_count": info.file_count,
        "size_bytes": info.size_bytes,
        "changes": [info.changes.created, info.changes.modified, info.changes.deleted],
        "whole": whole,
        "files": [_row(entry) for entry in (manifest.files.values() if whole else delta.put)],
        "removed": [] if whole else list(delta.removed),
        "links": None if same_links else dict(manifest.links),
        "folders": None if same_folders else sorted(manifest.folders),
    }
    return zlib.compress(_dump(document), 1)


def decode_manifest(data: bytes, key: str) -> Encoded:
    """One stored manifest. ``key`` is where it lay; its number must be the one inside."""
    return _guarded(lambda: _read_manifest(_inflate(data), keys.number_of(key)), key)


def decode_info(data: bytes, key: str) -> VersionInfo:
    """Only the head of a stored manifest."""
    return _guarded(lambda: _read_info(_load(_inflate(data)), keys.number_of(key)), key)


def replay(chain: Iterable[tuple[str, Encoded]], on_drop: Callable[[FileEntry, int], None] | None = None) -> Manifest:
    """The last version of a chain that begins with a whole manifest and leaves none out.

    ``on_drop`` hears of each entry that a step replaces or removes, with the last version that named it.
    """
    files: dict[str, FileEntry] = {}
    links: Mapping[str, str] = {}
    folders: frozenset[str] = frozenset()
    last: Encoded | None = None
    where = ""
    for where, step in chain:
        _expect(step.whole or (last is not None and step.info.version == last.info.version + 1), where, "chain")
        if step.whole:
            files = {}
        for path in step.removed:
            gone = files.pop(path, None)
            if gone is None:
                raise _damaged(where, f"removes {path!a}, which is not there")
            if on_drop:
                on_drop(gone, step.info.version - 1)
        for entry in step.put:
            old = files.get(entry.path)
            if old is not None and on_drop:
                on_drop(old, step.info.version - 1)
            files[entry.path] = entry
        _expect(len(files) == step.info.file_count, where, "number of files")
        links = links if step.links is None else step.links
        folders = folders if step.folders is None else step.folders
        last = step
    if last is None:
        raise StoreFailed("A version of the conversation is damaged.", cause="an empty chain")
    _expect(sum(entry.size for entry in files.values()) == last.info.size_bytes, where, "size of the files")
    return Manifest(last.info, MappingProxyType(files), links, folders)


def encode_draft(entry: DraftEntry) -> bytes:
    """Bytes of a draft entry."""
    file = None if entry.entry is None else _row(entry.entry)
    return _dump({"format": FORMAT, "seq": entry.seq, "path": entry.path, "file": file})


def decode_draft(data: bytes, key: str) -> DraftEntry:
    """A stored draft entry."""
    return _guarded(lambda: _read_draft(_load(data), keys.number_of(key)), key)


def encode_record(payload: Mapping[str, Any]) -> bytes:
    """Bytes of a record; the payload must be JSON."""
    return _dump(dict(payload))


def decode_record(data: bytes, key: str) -> dict[str, Any]:
    """A stored record."""
    return _guarded(lambda: _load(data), key)


def _row(entry: FileEntry) -> list[object]:
    return [entry.path, entry.size, entry.blob, entry.mode, entry.modified_ns]


def _dump(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _inflate(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    plain = inflater.decompress(data, MAX_DECODED_BYTES)
    if not inflater.eof or inflater.unused_data:
        raise ValueError("compressed data is cut, too long, or followed by more")
    return plain


def _load(data: bytes) -> dict[str, Any]:
    document = json.loads(data)
    if not isinstance(document, dict):
        raise ValueError("not an object")
    return document


def _read_info(document: dict[str, Any], number: int | None) -> VersionInfo:
    if document["format"] != FORMAT:
        raise ValueError(f"format {document['format']!r}; this runner knows {FORMAT}")
    cause = document["cause"]
    if cause["kind"] not in CAUSES:
        raise ValueError("cause")
    created, modified, deleted = document["changes"]
    info = VersionInfo(
        version=_number(document["version"]),
        base=None if document["base"] is None else _number(document["base"]),
        created_at=_text(document["created_at"]),
        cause=Cause(
            cause["kind"],
            _optional(cause["execution_id"], _text),
            _optional(cause["version"], _number),
            _optional(cause["source"], _text),
        ),
        draft=_number(document["draft"]),
        file_count=_number(document["file_count"]),
        size_bytes=_number(document["size_bytes"]),
        changes=Counts(_number(created), _number(modified), _number(deleted)),
    )
    if info.version != number:
        raise ValueError(f"holds version {info.version}")
    return info


def _read_manifest(data: bytes, number: int | None) -> Encoded:
    document = _load(data)
    info = _read_info(document, number)
    links = document["links"]
    folders = document["folders"]
    if links is not None and not all(is_canonical(path) and isinstance(to, str) for path, to in links.items()):
        raise ValueError("links")
    if folders is not None and not all(isinstance(path, str) and is_canonical(path) for path in folders):
        raise ValueError("folders")
    return Encoded(
        info=info,
        whole=document["whole"] is True,
        put=tuple(map(_read_row, document["files"])),
        removed=tuple(map(_text, document["removed"])),
        links=links,
        folders=None if folders is None else frozenset(folders),
    )


def _read_row(row: Sequence[Any]) -> FileEntry:
    path, size, blob, mode, modified_ns = row
    if not isinstance(path, str) or not is_canonical(path) or not isinstance(modified_ns, int):
        raise ValueError("path of a file")
    if not isinstance(blob, str) or not keys.is_blob(blob):
        raise ValueError("blob of a file")
    return FileEntry(path, _number(size), blob[:64], blob, _number(mode), modified_ns)


def _read_draft(document: dict[str, Any], number: int | None) -> DraftEntry:
    if document["format"] != FORMAT or _number(document["seq"]) != number:
        raise ValueError("format or number")
    path = _text(document["path"])
    entry = _optional(document["file"], _read_row)
    if not is_canonical(path) or (entry is not None and entry.path != path):
        raise ValueError("path")
    return DraftEntry(_number(document["seq"]), path, entry)


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("not a count")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value


def _optional(value: object, read: Callable[[Any], T]) -> T | None:
    return None if value is None else read(value)


def _guarded(read: Callable[[], T], key: str) -> T:
    """Total: whatever a decoder trips over is a damaged object."""
    try:
        return read()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, zlib.error) as error:
        raise _damaged(key, repr(error)) from error


def _expect(holds: bool, key: str, what: str) -> None:
    if not holds:
        raise _damaged(key, what)


def _damaged(key: str, what: str) -> StoreFailed:
    return StoreFailed(
        f"The stored object {key.partition('/c/')[2] or key} is damaged; restore it from a backup.",
        cause=f"{key}: {what}",
        key=key,
    )
