"""Collects what a run printed and showed: head and tail in the result, the full stream as a blob."""

from __future__ import annotations

import contextlib
import json
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from runner.agent.protocol import STREAM_KEEP, Json
from runner.errors import FolioboxError, QuotaExceeded
from runner.workspace.base import Staging
from runner.workspace.history import Workspace

MAX_RESULTS = 200
MAX_RESULT_BYTES = 64 << 20  # stored by one run for what it shows
MAX_RESULT_BLOBS = 2000
MAX_INLINE_BYTES = 1 << 20  # in a result, of all representations together
MAX_METADATA_BYTES = 16 << 10
MAX_REPRESENTATIONS = 32
_INLINE_BYTES = 256 << 10  # of one representation
_MAX_NAME = 256
_MOST = (1 << 53) - 1  # what every JSON reader counts to
_ELLIPSIS = "\n… {count} bytes left out{rest} …\n"


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """Bytes outside the workspace that a result refers to."""

    blob: str
    size: int
    media_type: str

    @property
    def kept(self) -> bool:
        """Whether there are such bytes: not of what was shown before a restart of the service."""
        return bool(self.blob)


@dataclass(frozen=True, slots=True)
class StreamText:
    """One output stream as the result shows it. ``total`` counts bytes; ``full`` is the stored stream."""

    text: str
    truncated: bool
    total: int
    full: StoredBlob | None

    def cut(self, limit: int) -> StreamText:
        """The same with at most ``limit`` characters."""
        if len(self.text) <= limit:
            return self
        return replace(self, text=self.text[: limit // 2] + "\n…\n" + self.text[-(limit // 2) :], truncated=True)


class StreamRecorder:
    """Keeps the first and the last half of ``limit`` bytes, and the first 16 MiB of all once it is longer.

    Memory stays below twice the limit, whatever comes. ``partial``: the beginning went to an earlier start of the
    service and is lost.
    """

    def __init__(self, workspace: Workspace, limit: int, stack: AsyncExitStack, *, partial: bool = False) -> None:
        self._workspace, self._limit, self._stack = workspace, limit, stack
        self._half = limit // 2
        self._head, self._tail = bytearray(), bytearray()
        self._long = False
        self._staging: Staging | None = None
        self._room = STREAM_KEEP
        self._partial = partial

    async def add(self, text: str) -> None:
        """More output."""
        data = text.encode("utf-8", "replace")
        if not self._long and len(self._head) + len(data) <= self._limit:
            self._head += data
            return
        if not self._long:
            self._long = True
            if not self._partial:
                self._staging = await self._stack.enter_async_context(self._workspace.stage(STREAM_KEEP))
            await self._spool(bytes(self._head))
            self._remember(self._head[self._half :])
            del self._head[self._half :]
        await self._spool(data)
        self._remember(data)

    async def _spool(self, data: bytes) -> None:
        """Keep the whole stream, as long as the store takes it; head and tail are shown in any case."""
        if self._staging is None or not self._room:
            return
        data = data[: self._room]
        self._room -= len(data)
        try:
            await self._staging.write(data)
        except FolioboxError:
            self._staging = None

    def _remember(self, data: bytes | bytearray) -> None:
        self._tail += data[-self._half :] if self._half else b""
        if len(self._tail) > 2 * self._half:
            del self._tail[: len(self._tail) - self._half]

    async def finish(self, counts: Json, ref: str) -> StreamText:
        """The text for the result; ``counts`` is what the agent says of the stream."""
        total = min(counts["total"], _MOST)
        if self._partial and (self._long or total > len(self._head)):
            return self._ending(total, counts["tail"])
        if not self._long and not counts["tail"]:
            return StreamText(self._head.decode("utf-8", "replace"), False, total, None)
        full = None
        if self._staging is not None:
            with contextlib.suppress(FolioboxError):
                _, size, blob = await self._workspace.adopt_blob(self._staging)
                full = StoredBlob(blob, size, "text/plain; charset=utf-8")
        ending = bytes(self._tail) + counts["tail"].encode("utf-8", "replace")
        ending = ending[max(0, len(ending) - self._half) :]
        left_out = max(0, total - len(self._head) - len(ending))
        gap = _ELLIPSIS.format(count=left_out, rest=f"; the whole stream is at {ref}" if full else "")
        text = self._head.decode("utf-8", "ignore") + gap + ending.decode("utf-8", "ignore")
        return StreamText(text, True, total, full)

    def _ending(self, total: int, tail: str) -> StreamText:
        """What came of a stream whose beginning is lost."""
        ending = bytes(self._tail if self._long else self._head) + tail.encode("utf-8", "replace")
        ending = ending[max(0, len(ending) - self._limit) :]
        gap = _ELLIPSIS.format(count=max(0, total - len(ending)), rest="")
        return StreamText(gap + ending.decode("utf-8", "ignore"), True, total, None)


@dataclass
class ResultRecorder:
    """Keeps displayed MIME bundles; binary and long representations become stored blobs with a reference.

    An update of a display takes the place of what it updates. What is inline in all results together is
    bounded: beyond, short representations become blobs too.
    """

    workspace: Workspace
    base_url: str
    blobs: list[StoredBlob] = field(default_factory=list)
    results: list[Json] = field(default_factory=list)
    dropped: int = 0
    _written: int = 0
    _inline: list[int] = field(default_factory=list)
    _named: dict[str, int] = field(default_factory=dict)

    def skip(self, results: int, blobs: int) -> None:
        """An earlier start of the service took so many: they are lost, and their places are not taken again."""
        self.dropped += results
        self.blobs += [StoredBlob("", 0, "")] * blobs

    async def add(self, body: Json, attachments: tuple[bytes, ...]) -> Json | None:
        """Store a display event; gives it as results show it, or None beyond the limits."""
        name = body.get("display_id")
        if not isinstance(name, str) or len(name) > _MAX_NAME:
            name = None
        known = self._named.get(name) if name is not None and body.get("kind") == "update" else None
        many = len(body["data"]) + len(body["binary"]) > MAX_REPRESENTATIONS
        if many or (known is None and len(self.results) >= MAX_RESULTS):
            self.dropped += 1
            return None
        room = MAX_INLINE_BYTES - sum(self._inline) + (0 if known is None else self._inline[known])
        try:
            shown, inline = await self._shown(body, attachments, room)
        except FolioboxError:  # a store that takes nothing more must not cost the run
            self.dropped += 1
            return None
        if known is not None:
            self.results[known], self._inline[known] = shown, inline
        else:
            if name is not None:
                self._named[name] = len(self.results)
            self.results.append(shown)
            self._inline.append(inline)
        return shown

    async def _shown(self, body: Json, attachments: tuple[bytes, ...], room: int) -> tuple[Json, int]:
        """A display as results show it, and how many bytes of it are inline, at most ``room``."""
        data: dict[str, Any] = {}
        left = room
        kind = "result" if body.get("kind") == "result" else "display"
        shown: Json = {"type": kind, "data": data}
        metadata = body.get("metadata")
        if isinstance(metadata, dict) and metadata:
            size = len(_encoded(metadata))
            if size <= min(MAX_METADATA_BYTES, left):
                shown["metadata"] = metadata
                left -= size
        for mime, value in body["data"].items():
            content = _encoded(value)
            size = len(content) + len(mime)
            if size <= min(_INLINE_BYTES, left):
                data[mime] = value
                left -= size
            else:
                data[mime] = await self._keep(content, mime)
        for mime, content in zip(body["binary"], attachments, strict=True):
            data[mime] = await self._keep(content, mime)
        return shown, room - left

    async def _keep(self, content: bytes, mime: str) -> str:
        self._written += len(content)
        if self._written > MAX_RESULT_BYTES or len(self.blobs) >= MAX_RESULT_BLOBS:
            raise QuotaExceeded("a run shows more than is kept")
        async with self.workspace.stage(MAX_RESULT_BYTES) as staging:
            await staging.write(content)
            _, size, blob = await self.workspace.adopt_blob(staging)
        self.blobs.append(StoredBlob(blob, size, mime))
        return f"{self.base_url}/results/{len(self.blobs) - 1}"


def _encoded(value: Any) -> bytes:
    """A text as it is, anything else as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace")
