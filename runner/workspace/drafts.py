"""Draft entries: changes by clients that no version holds yet, as data and as bytes. Pure.

An entry is one object of the store, so its changes happen all together or not at all. Written as
``{"format": 2, "seq": n, "changes": [a file's row, or the path of what is gone, …]}``, and where a move took
them along also ``"links": {path: target}`` and ``"folders": [empty folder, …]``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from runner.errors import TooLarge
from runner.model import FileEntry
from runner.workspace import keys
from runner.workspace.encoding import (
    MAX_DECODED_BYTES,
    Json,
    as_count,
    as_text,
    dump,
    guarded,
    load,
    optional,
    packed,
    read_row,
    row,
    unpacked,
)
from runner.workspace.paths import is_canonical

FORMAT: Final = 2

Change = tuple[str, FileEntry | None]


@dataclass(frozen=True, slots=True)
class DraftEntry:
    """Changes in their order, a file with ``None`` being gone (so may be a link or an empty folder); then
    ``links`` and empty ``folders`` that a move set down.
    """

    seq: int
    changes: tuple[Change, ...]
    links: tuple[tuple[str, str], ...] = ()
    folders: tuple[str, ...] = ()

    @property
    def puts(self) -> Iterator[FileEntry]:
        """The files that it sets down."""
        return (entry for _, entry in self.changes if entry is not None)

    @property
    def size(self) -> int:
        """How many things it changes."""
        return len(self.changes) + len(self.links) + len(self.folders)


def encode_draft(entry: DraftEntry) -> bytes:
    """Bytes of a draft entry. Raises ``TooLarge`` for more than could be read back."""
    document: Json = {
        "format": FORMAT,
        "seq": entry.seq,
        "changes": [path if file is None else row(file) for path, file in entry.changes],
    }
    if entry.links:
        document["links"] = dict(entry.links)
    if entry.folders:
        document["folders"] = list(entry.folders)
    plain = dump(document)
    if len(plain) > MAX_DECODED_BYTES:
        raise TooLarge("So many files cannot change at once; send them in several requests.", limit=MAX_DECODED_BYTES)
    return packed(plain)


def decode_draft(data: bytes, key: str) -> DraftEntry:
    """A stored draft entry; its number must be the one in ``key``."""
    return guarded(lambda: _read(load(unpacked(data)), keys.number_of(key)), key)


def _read(document: Json, number: int | None) -> DraftEntry:
    if as_count(document["seq"]) != number:
        raise ValueError("number")
    if document["format"] == 1:  # from when an entry held one change
        changes = [_change(document["path"], optional(document["file"], read_row))]
    elif document["format"] == FORMAT:
        changes = [_change(*_parted(item)) for item in document["changes"]]
    else:
        raise ValueError(f"format {document['format']!r}; this runner knows {FORMAT}")
    links = tuple((_path(path), as_text(target)) for path, target in document.get("links", {}).items())
    return DraftEntry(number, tuple(changes), links, tuple(map(_path, document.get("folders", ()))))


def _parted(item: object) -> tuple[str, FileEntry | None]:
    if isinstance(item, list):
        entry = read_row(item)
        return entry.path, entry
    return as_text(item), None


def _change(path: object, entry: FileEntry | None) -> Change:
    if entry is not None and entry.path != path:
        raise ValueError("path")
    return _path(path), entry


def _path(value: object) -> str:
    if not is_canonical(as_text(value)):
        raise ValueError("path")
    return as_text(value)
