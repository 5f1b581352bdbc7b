"""What a store of objects must do: the contract that every concrete store keeps.

Keys are ASCII, ``/`` between segments. An object is written once and never changed. ``create`` and
``Staging.commit`` return only when the object would survive a loss of power. All failures are
``StoreFailed`` or one of the two subclasses here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self

from runner.errors import StoreFailed

CHUNK_BYTES: Final = 256 << 10


class KeyExists(StoreFailed):
    """``create`` or ``commit`` met an object that is already there; that object is durable."""


class KeyMissing(StoreFailed):
    """There is no such object."""


@dataclass(frozen=True, slots=True)
class Digest:
    """What was written to a staging: SHA-256 in hex, and bytes."""

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object as a listing shows it: bytes, and when it was made in seconds of the store's own clock."""

    key: str
    size: int
    modified: float


class ByteStream(Protocol):
    """Chunks of at most ``CHUNK_BYTES``. ``aclose`` may be called at any time and more than once."""

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> bytes: ...

    async def aclose(self) -> None:
        """Give back what the stream holds."""


class Staging(Protocol):
    """An object under way: bytes go in, are hashed and counted, and become an object or nothing.

    As a context manager it aborts on leaving unless a commit was begun.
    """

    async def write(self, chunk: bytes) -> None:
        """Append. Raises ``TooLarge`` when the total would pass the limit; the staging is then gone."""

    async def finish(self) -> Digest:
        """End writing. May be called again."""

    async def park(self) -> None:
        """Finish, and hold neither memory nor an open file until the commit: many may wait at once."""

    async def commit(self, key: str) -> Digest:
        """Make it the object ``key``, durably. Raises ``KeyExists``. The staging is spent either way."""

    async def abort(self) -> None:
        """Drop the bytes. Does nothing once a commit was begun."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Store(Protocol):
    """A flat space of immutable objects."""

    async def start(self) -> None:
        """Take possession, tidy up what a killed runner left. Raises ``ConfigurationError``."""

    async def close(self) -> None:
        """Give up possession. May be called again."""

    async def probe(self) -> None:
        """Prove that a second create of a key fails; else ``ConfigurationError``: the store is refused."""

    async def create(self, key: str, data: bytes) -> None:
        """Write a small object. Raises ``KeyExists``."""

    async def create_in_order(self, items: Sequence[tuple[str, bytes]], then: tuple[str, bytes] | None = None) -> bool:
        """Write a few small objects, of which each is durable before the next one is there.

        One that is there already stays as it is; where that is the last, ``KeyExists`` is raised. ``then`` is written
        after them; True when that is durable and was not there before. What it fails with is not told.
        """

    async def read(self, key: str) -> bytes:
        """A small object. Raises ``KeyMissing``."""

    async def read_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """Several small objects, in the order of ``keys``; None for one that is missing."""

    async def exists(self, key: str) -> bool:
        """Whether the object is there."""

    def stage(self, max_bytes: int) -> Staging:
        """Begin an object whose bytes come in pieces and whose key depends on them."""

    async def open(self, key: str, start: int = 0, end: int | None = None) -> ByteStream:
        """Bytes ``start`` to ``end`` (exclusive) of an object. Raises ``KeyMissing`` before any byte."""

    async def keys(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
        """Keys below the folder ``prefix`` (ends in ``/``), in order, greater than the key ``after``."""

    async def names(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
        """Names of objects and folders directly below ``prefix``, in order, greater than ``after``.

        A folder may be named that holds no object yet.
        """

    async def objects(self, prefix: str, after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        """Objects directly below the folder ``prefix``, in order, greater than the key ``after``.

        A page may be short, or shorter than ``limit``, only where objects went away meanwhile or it is the last.
        """

    async def commit_many(self, items: Sequence[tuple[str, Staging]]) -> None:
        """Commit stagings, each to its key, durably and in few steps; they may be many.

        A key that is there stays as it is. When it raises, some may have been made; all stagings are spent.
        """

    async def create_many(self, items: Sequence[tuple[str, bytes]]) -> None:
        """Create small objects, durably and in few steps; else as ``commit_many``."""

    async def delete(self, key: str) -> None:
        """Remove an object, durably. A missing one is no error."""

    async def delete_many(self, keys: Sequence[str]) -> None:
        """Remove objects, durably when it returns. Missing ones are no error. Runs behind all other work."""

    async def tidy(self, prefix: str) -> None:
        """Forget the empty folders at and below ``prefix``, where nobody creates objects any more."""
