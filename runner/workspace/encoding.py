"""How everything small in a store is written: JSON under zlib; read back with bounds. Pure.

Whatever cannot be decoded is ``StoreFailed`` naming the key.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from runner.errors import StoreFailed, TooLarge
from runner.model import FileEntry
from runner.workspace import keys, pieces
from runner.workspace.paths import is_canonical

MAX_DECODED_BYTES: Final = 256 << 20
MAX_RECORD_BYTES: Final = 16 << 20

T = TypeVar("T")
Json = dict[str, Any]


def encode_record(payload: Mapping[str, Any], *, short: bool = False) -> bytes:
    """Bytes of a record; the payload must be JSON. ``short``: it is known to be. Raises ``TooLarge``."""
    plain = dump(dict(payload), nan=True, short=short)
    if len(plain) > MAX_RECORD_BYTES:
        raise TooLarge(
            f"A record of {len(plain)} bytes cannot be kept; the limit is {MAX_RECORD_BYTES}.", limit=MAX_RECORD_BYTES
        )
    return packed(plain)


def decode_record(data: bytes, key: str) -> Json:
    """A stored record."""
    return guarded(lambda: load(unpacked(data, MAX_RECORD_BYTES)), key)


def row(entry: FileEntry) -> list[object]:
    """A file as it is written; its SHA-256 is the first half of its blob's name."""
    return [entry.path, entry.size, entry.blob, entry.mode, entry.modified_ns]


def dump(document: object, *, nan: bool = False, short: bool = False) -> bytes:
    """Compact JSON. Halves of surrogate pairs, which a record may hold, come back as they were."""
    return pieces.dumps(document, nan=nan, short=short).encode("utf-8", "surrogatepass")


def packed(plain: bytes) -> bytes:
    """Under zlib even where that saves nothing: its checksum finds damage that would still be JSON."""
    return zlib.compress(plain, 1)


def unpacked(data: bytes, limit: int | None = None) -> bytes:
    """Also plain JSON, as a person may have written it: it begins with a brace, which no zlib stream does."""
    if not data.startswith(b"{"):
        return inflate(data, limit)
    if limit is not None and len(data) > limit:
        raise ValueError("too long")
    return data


def inflate(data: bytes, limit: int | None = None) -> bytes:
    """Decompressed, and never more than ``limit`` bytes (default: ``MAX_DECODED_BYTES``) of it in memory."""
    inflater = zlib.decompressobj()
    plain = inflater.decompress(data, MAX_DECODED_BYTES if limit is None else limit)
    if not inflater.eof or inflater.unused_data:
        raise ValueError("compressed data is cut, too long, or followed by more")
    return plain


def load(data: bytes, until: str | None = None) -> Json:
    """A JSON object, or what stands in it before the key ``until``."""
    document = pieces.loads(data, until)
    if not isinstance(document, dict):
        raise ValueError("not an object")
    return document


def read_row(fields: Sequence[Any]) -> FileEntry:
    """A file back from its row."""
    path, size, blob, mode, modified_ns = fields
    if not isinstance(path, str) or not is_canonical(path) or not isinstance(modified_ns, int):
        raise ValueError("path of a file")
    if not isinstance(blob, str) or not keys.is_blob(blob):
        raise ValueError("blob of a file")
    return FileEntry(path, as_count(size), blob[:64], blob, as_count(mode), modified_ns)


def as_count(value: object) -> int:
    """A whole number from 0; ``True`` is none."""
    if type(value) is not int or value < 0:
        raise ValueError("not a count")
    return value


def as_text(value: object) -> str:
    """A text."""
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value


def optional(value: object, read: Callable[[Any], T]) -> T | None:
    """None, or what ``read`` makes of it."""
    return None if value is None else read(value)


def guarded(read: Callable[[], T], key: str) -> T:
    """Total: whatever a decoder trips over is a damaged object."""
    try:
        return read()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, zlib.error) as error:
        raise damaged(key, repr(error)) from error


def expect(holds: bool, key: str, what: str) -> None:
    """Raises ``StoreFailed`` naming ``key`` unless it holds."""
    if not holds:
        raise damaged(key, what)


def damaged(key: str, what: str) -> StoreFailed:
    """The error for an object that cannot be decoded."""
    return StoreFailed(
        f"The stored object {key.partition('/c/')[2] or key} is damaged; restore it from a backup.",
        cause=f"{key}: {what}",
        key=key,
    )
