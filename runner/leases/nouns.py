"""What is asked of a single run, and what it gives back; surfaces translate these."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

from runner.model import FileEntry, Language
from runner.workspace.history import Workspace

_TYPES: Final = {
    "pdf": "application/pdf",
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "svg": "image/svg+xml",
    "webp": "image/webp",
    "txt": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
    "json": "application/json",
    "html": "text/html",
    "xml": "application/xml",
    "zip": "application/zip",
    "mp4": "video/mp4",
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}


@dataclass(frozen=True, slots=True)
class Ask:
    """A run. ``files`` by name, one path component each; ``container_id`` names a lease, if it is known."""

    language: Language
    code: str
    files: dict[str, bytes] = field(default_factory=dict)
    timeout_s: int | None = None
    network: bool = False
    container_id: str | None = None
    keep_alive: bool = False


@dataclass(frozen=True, slots=True)
class Item:
    """A file that is delivered: ``content``, or what the store has under ``entry``."""

    name: str
    path: str
    size: int
    entry: FileEntry | None = None
    content: bytes = b""

    @property
    def mime(self) -> str:
        """By the name's ending."""
        stem, _, ending = self.name.rpartition(".")
        return _TYPES.get(ending.lower(), "application/octet-stream") if stem else "application/octet-stream"


def nothing() -> None:
    """There is nothing to end."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Everything a caller learns. ``exit_code``: of a death by signal, its number as a negative one.

    ``notes``: what the caller may want to know beyond the protocol. Call ``close`` when it was delivered.
    """

    exit_code: int
    stdout: str
    stderr: str
    duration_ms: int
    workspace: Workspace
    timed_out: bool = False
    output_truncated: bool = False
    items: list[Item] = field(default_factory=list)
    artifacts_truncated: bool = False
    empty_files: list[str] = field(default_factory=list)
    skipped_files: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lease: str | None = None
    close: Callable[[], None] = nothing

    async def content(self, item: Item) -> AsyncIterator[bytes]:
        """The bytes of one of ``items``. Raises StoreFailed."""
        if item.entry is None:
            yield item.content
            return
        stream = await self.workspace.open(item.entry)
        try:
            async for chunk in stream:
                yield chunk
        finally:
            await stream.aclose()
