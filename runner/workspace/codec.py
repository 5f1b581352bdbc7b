"""Manifests as bytes, and back, with bounds. Pure.

A manifest is JSON under zlib, whose checksum finds damage. Every 32nd is whole; the others hold what changed
against the version before. ``links`` and ``folders`` are complete, or null where nothing changed in them. A
file is ``[path, size, blob, mode, modified_ns]``; its SHA-256 is the first half of its blob's name.

Whatever cannot be decoded is ``StoreFailed`` naming the key: a damaged version is never an empty workspace.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from runner.errors import StoreFailed
from runner.model import FileEntry
from runner.workspace import keys
from runner.workspace.encoding import (
    as_count,
    as_text,
    damaged,
    dump,
    expect,
    guarded,
    inflate,
    load,
    optional,
    read_row,
    row,
)
from runner.workspace.manifest import CAUSES, Cause, Counts, Delta, Manifest, VersionInfo
from runner.workspace.paths import is_canonical

FORMAT: Final = 1
WHOLE_EVERY: Final = 32
_FEW: Final = 100


@dataclass(frozen=True, slots=True)
class Encoded:
    """A manifest as it was stored: whole, or a delta that needs the version before."""

    info: VersionInfo
    whole: bool
    put: tuple[FileEntry, ...]
    removed: tuple[str, ...]
    links: Mapping[str, str] | None
    folders: frozenset[str] | None

    @property
    def size(self) -> int:
        """How many things it names."""
        return len(self.put) + len(self.removed) + len(self.links or ()) + len(self.folders or ())


def whole_at(version: int) -> int:
    """The newest whole manifest at or before ``version``."""
    return version - version % WHOLE_EVERY


def encode_manifest(manifest: Manifest, before: Manifest | None, delta: Delta) -> bytes:
    """Bytes of a version; made in short steps. ``delta`` leads to it from ``before``, the version one lower."""
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
        "files": [row(entry) for entry in (manifest.files.values() if whole else delta.put)],
        "removed": [] if whole else list(delta.removed),
        "links": None if same_links else dict(manifest.links),
        "folders": None if same_folders else sorted(manifest.folders),
    }
    entries = (len(manifest.files) if whole else len(delta.put) + len(delta.removed)) + (
        (0 if same_links else len(manifest.links)) + (0 if same_folders else len(manifest.folders))
    )
    return zlib.compress(dump(document, short=entries <= _FEW), 1)


def decode_manifest(data: bytes, key: str) -> Encoded:
    """One stored manifest. ``key`` is where it lay; its number must be the one inside."""
    return guarded(lambda: _read_manifest(inflate(data), keys.number_of(key)), key)


def decode_info(data: bytes, key: str) -> VersionInfo:
    """Only the head of a stored manifest: what stands before its files."""
    return guarded(lambda: _read_info(load(inflate(data), "files"), keys.number_of(key)), key)


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
        expect(step.whole or (last is not None and step.info.version == last.info.version + 1), where, "chain")
        if step.whole:
            files = {}
        for path in step.removed:
            gone = files.pop(path, None)
            if gone is None:
                raise damaged(where, f"removes {path!a}, which is not there")
            if on_drop:
                on_drop(gone, step.info.version - 1)
        for entry in step.put:
            old = files.get(entry.path)
            if old is not None and on_drop:
                on_drop(old, step.info.version - 1)
            files[entry.path] = entry
        expect(len(files) == step.info.file_count, where, "number of files")
        links = links if step.links is None else step.links
        folders = folders if step.folders is None else step.folders
        last = step
    if last is None:
        raise StoreFailed("A version of the conversation is damaged.", cause="an empty chain")
    expect(sum(entry.size for entry in files.values()) == last.info.size_bytes, where, "size of the files")
    return Manifest(last.info, MappingProxyType(files), links, folders)


def _read_info(document: dict[str, Any], number: int | None) -> VersionInfo:
    if document["format"] != FORMAT:
        raise ValueError(f"format {document['format']!r}; this runner knows {FORMAT}")
    cause = document["cause"]
    if cause["kind"] not in CAUSES:
        raise ValueError("cause")
    created, modified, deleted = document["changes"]
    info = VersionInfo(
        version=as_count(document["version"]),
        base=None if document["base"] is None else as_count(document["base"]),
        created_at=as_text(document["created_at"]),
        cause=Cause(
            cause["kind"],
            optional(cause["execution_id"], as_text),
            optional(cause["version"], as_count),
            optional(cause["source"], as_text),
        ),
        draft=as_count(document["draft"]),
        file_count=as_count(document["file_count"]),
        size_bytes=as_count(document["size_bytes"]),
        changes=Counts(as_count(created), as_count(modified), as_count(deleted)),
    )
    if info.version != number:
        raise ValueError(f"holds version {info.version}")
    return info


def _read_manifest(data: bytes, number: int | None) -> Encoded:
    document = load(data)
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
        put=tuple(map(read_row, document["files"])),
        removed=tuple(map(as_text, document["removed"])),
        links=links,
        folders=None if folders is None else frozenset(folders),
    )
