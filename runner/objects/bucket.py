"""What a place for objects must do: the contract that the remote one and the local folder keep."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol

SHA256: Final = "foliobox-sha256"  # the metadata that tells what an object holds


class Fault(Exception):
    """An operation failed. ``reason`` is one of our own words and may be sent; ``code`` is for the log."""

    def __init__(self, reason: str, code: str = "") -> None:
        super().__init__(reason)
        self.reason, self.code = reason, code


class Missing(Fault):
    """There is no such object."""


class Clash(Fault):
    """A condition of a put did not hold."""


class Unconditional(Fault):
    """The store does not know conditions."""


@dataclass(frozen=True, slots=True)
class Found:
    """An object. ``modified`` in seconds since 1970, None where the store does not say."""

    key: str
    size: int
    etag: str
    modified: float | None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Opened:
    """An object that is read."""

    found: Found
    chunks: AsyncIterator[bytes]


@dataclass(frozen=True, slots=True)
class Absent:
    """The condition that there is no object yet."""


@dataclass(frozen=True, slots=True)
class Same:
    """The condition that the object is still this one."""

    etag: str


Condition = Absent | Same | None


def check(found: Found | None, only: Condition) -> None:
    """Raises Clash where a condition does not hold."""
    if isinstance(only, Absent) and found is not None:
        raise Clash("another object is there")
    if isinstance(only, Same) and (found is None or found.etag != only.etag):
        raise Clash("another object is there")


class Bucket(Protocol):
    """Objects by key. Everything raises ``Fault``."""

    async def put(self, key: str, data: memoryview, content_type: str, sha256: str = "", only: Condition = None) -> str:
        """Write an object whole or not at all; its ETag. Raises ``Clash``, ``Unconditional``."""

    async def head(self, key: str) -> Found | None:
        """What is there."""

    def open(self, key: str) -> AbstractAsyncContextManager[Opened]:
        """Read an object. Raises ``Missing``."""

    async def delete(self, key: str) -> None:
        """Remove an object; none is no error."""

    async def copy(self, source: str, target: str) -> None:
        """Copy an object over another. Raises ``Missing``."""

    def list(self, prefix: str) -> AsyncIterator[list[Found]]:
        """Objects below a folder, in pages; without metadata."""

    async def presign(self, key: str, seconds: int) -> str:
        """An address that gives the object to anybody for so long. Raises ``Fault``."""
