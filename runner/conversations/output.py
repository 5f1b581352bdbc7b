"""Collects what a run printed and showed: head and tail in the result, the full stream as a blob."""

from __future__ import annotations

import contextlib
from collections import deque
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from runner.agent.protocol import STREAM_KEEP, Json
from runner.errors import FolioboxError
from runner.workspace.base import Staging
from runner.workspace.history import Workspace

MAX_RESULTS = 200
MAX_RESULT_BYTES = 64 << 20
_INLINE_TEXT = 256 << 10
_ELLIPSIS = "\n… {count} bytes left out{rest} …\n"


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """Bytes outside the workspace that a result refers to."""

    blob: str
    size: int
    media_type: str


@dataclass(frozen=True, slots=True)
class StreamText:
    """One output stream as the result shows it. ``total`` counts bytes; ``full`` is the stored stream."""

    text: str
    truncated: bool
    total: int
    full: StoredBlob | None


class StreamRecorder:
    """Keeps the first and the last half of ``limit`` bytes, and the whole (to 16 MiB) once it is longer."""

    def __init__(self, workspace: Workspace, limit: int, stack: AsyncExitStack) -> None:
        self._workspace, self._limit, self._stack = workspace, limit, stack
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._long = False
        self._staging: Staging | None = None

    async def add(self, text: str) -> None:
        """More output."""
        data = text.encode("utf-8", "replace")
        if not self._long and len(self._head) + len(data) <= self._limit:
            self._head += data
            return
        if not self._long:
            self._long = True
            self._staging = await self._stack.enter_async_context(self._workspace.stage(4 * STREAM_KEEP))
            await self._spool(bytes(self._head))
            self._remember(bytes(self._head[self._limit // 2 :]))
            del self._head[self._limit // 2 :]
        await self._spool(data)
        self._remember(data)

    async def _spool(self, data: bytes) -> None:
        """Keep the whole stream, as long as the store takes it; head and tail are shown in any case."""
        if self._staging is not None:
            try:
                await self._staging.write(data)
            except FolioboxError:
                self._staging = None

    def _remember(self, data: bytes) -> None:
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail and self._tail_size - len(self._tail[0]) >= self._limit // 2:
            self._tail_size -= len(self._tail.popleft())

    async def finish(self, counts: Json, ref: str) -> StreamText:
        """The text for the result; ``counts`` is what the agent says of the stream."""
        if not self._long and not counts["tail"]:
            return StreamText(self._head.decode("utf-8", "replace"), False, counts["total"], None)
        full = None
        if self._staging is not None:
            with contextlib.suppress(FolioboxError):
                _, size, blob = await self._workspace.adopt_blob(self._staging)
                full = StoredBlob(blob, size, "text/plain; charset=utf-8")
        ending = (b"".join(self._tail) + counts["tail"].encode()) if counts["tail"] else b"".join(self._tail)
        ending = ending[-(self._limit // 2) :]
        left_out = max(0, counts["total"] - len(self._head) - len(ending))
        gap = _ELLIPSIS.format(count=left_out, rest=f"; the whole stream is at {ref}" if full else "")
        text = self._head.decode("utf-8", "ignore") + gap + ending.decode("utf-8", "ignore")
        return StreamText(text, True, counts["total"], full)


@dataclass
class ResultRecorder:
    """Keeps displayed MIME bundles; binary and long representations become stored blobs with a reference.

    An update of a display takes the place of what it updates.
    """

    workspace: Workspace
    base_url: str
    results: list[Json] = field(default_factory=list)
    blobs: list[StoredBlob] = field(default_factory=list)
    dropped: int = 0
    _bytes: int = 0
    _named: dict[str, int] = field(default_factory=dict)

    async def add(self, body: Json, attachments: tuple[bytes, ...]) -> Json | None:
        """Store a display event; gives it as results show it, or None beyond the limits."""
        size = sum(len(a) for a in attachments)
        name = body.get("display_id")
        known = self._named.get(name) if isinstance(name, str) and body.get("kind") == "update" else None
        if (known is None and len(self.results) >= MAX_RESULTS) or self._bytes + size > MAX_RESULT_BYTES:
            self.dropped += 1
            return None
        self._bytes += size
        try:
            shown = await self._shown(body, attachments)
        except FolioboxError:  # a store that takes nothing more must not cost the run
            self.dropped += 1
            return None
        if known is not None:
            self.results[known] = shown
        else:
            if isinstance(name, str):
                self._named[name] = len(self.results)
            self.results.append(shown)
        return shown

    async def _shown(self, body: Json, attachments: tuple[bytes, ...]) -> Json:
        data: dict[str, Any] = {}
        for mime, value in body["data"].items():
            if isinstance(value, str) and len(value) > _INLINE_TEXT:
                data[mime] = await self._keep(value.encode("utf-8", "replace"), mime)
            else:
                data[mime] = value
        for mime, content in zip(body["binary"], attachments, strict=True):
            data[mime] = await self._keep(content, mime)
        kind = "result" if body.get("kind") == "result" else "display"
        metadata = body.get("metadata")
        shown: Json = {"type": kind, "data": data}
        if isinstance(metadata, dict) and metadata:
            shown["metadata"] = metadata
        return shown

    async def _keep(self, content: bytes, mime: str) -> str:
        async with self.workspace.stage(MAX_RESULT_BYTES) as staging:
            await staging.write(content)
            _, size, blob = await self.workspace.adopt_blob(staging)
        self.blobs.append(StoredBlob(blob, size, mime))
        return f"{self.base_url}/results/{len(self.blobs) - 1}"
