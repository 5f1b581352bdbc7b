"""What the host can ask of one live sandbox: fill it with files, run cells, fetch files, interrupt, reset.

Everything a sandbox says is checked (here and in ``events.py``): types, lengths, names and counts, before
any other code sees it.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass

from runner.agent.protocol import Json
from runner.backends.base import Sandbox
from runner.errors import InvalidRequest, ProtocolError, QuotaExceeded, SandboxLost
from runner.interpreter.events import ChangedFile, Event, EventReader, RunEnd, entries
from runner.interpreter.stream import AgentStream, Channel, Item
from runner.model import FileEntry, Language, RunRequest, SandboxUsage
from runner.workspace.aside import aside

INLINE = 64 << 10
FETCH_FILES = 500
FETCH_BYTES = 512 << 10  # with its names well below what a channel may have in flight
_BATCH = 512 << 10
_NAMES_AT_ONCE = 500
_GRACE_S = 15.0
_START_S = 75.0
_INTERRUPT_S = 2.0
_LEAVE_S = 2.0
_ACK_BYTES = 256 << 10
_BEATS = 5  # as often in the time after which a sandbox takes itself for forgotten
_TOO_SMALL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no file may be larger than the whole workspace
__all__ = ["FETCH_BYTES", "FETCH_FILES", "INLINE", "ChangedFile", "Event", "Outgoing", "RunEnd", "SandboxClient"]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A file to write into the sandbox: small content inline, larger content as chunks."""

    entry: FileEntry
    content: bytes | None = None
    chunks: AsyncIterator[bytes] | None = None


class SandboxClient:
    """A sandbox with somebody listening at its stream."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.stream = AgentStream(sandbox.reader, sandbox.writer)
        if sandbox.orphan_s is not None:
            self.stream.beat_every(sandbox.orphan_s / _BEATS)

    @property
    def sandbox_id(self) -> str:
        """The id of the sandbox."""
        return self.sandbox.sandbox_id

    @property
    def alive(self) -> bool:
        """Whether the stream still works."""
        return self.stream.failure is None

    def when_ended(self, call: Callable[[], None]) -> None:
        """Have ``call`` called as soon as the stream works no longer, instead of what was to be called before."""
        self.stream.ended = call

    @property
    def adoptable(self) -> bool:
        """Whether the sandbox outlives this process, so that the next start may find it."""
        return self.sandbox.orphan_s is not None

    @property
    def preload_failed(self) -> dict[str, str]:
        """Libraries that the template could not import, with the reason; known once the sandbox is ready."""
        return self.stream.preload_failed

    async def attach(self, limit_s: float, *, padding: bool = False) -> Json:
        """Say hello to the agent; its answer tells about a run going on. Raises SandboxLost.

        ``padding``: another host may have left half a frame behind.
        """
        return await self.stream.attach(limit_s, padding=padding)

    async def wait_ready(self, limit_s: float) -> None:
        """Until an interpreter waits for its first cell. Raises SandboxLost."""
        try:
            async with asyncio.timeout(limit_s):
                await self.stream.ready.wait()
        except TimeoutError:
            raise SandboxLost("the sandbox did not become ready; send the request again") from None
        if self.stream.failure is not None:
            raise self.stream.failure

    # -- files -----------------------------------------------------------------------------------------------

    async def put(self, files: Sequence[Outgoing], links: dict[str, str], folders: Iterable[str]) -> None:
        """Write files, links and empty folders. Raises QuotaExceeded when the sandbox's space is too small."""
        rest: Iterable[Json] = itertools.chain(
            ({"path": path, "link": target} for path, target in links.items()),
            ({"path": path, "folder": True} for path in folders),
        )
        while batch := list(itertools.islice(rest, _NAMES_AT_ONCE)):
            await self._put_batch(batch, [])
        contents: list[bytes] = []
        size = 0
        for file in files:
            if file.content is None:
                await self._upload(file)
                continue
            batch.append({
                "path": file.entry.path, "mode": file.entry.mode, "modified_ns": file.entry.modified_ns,
            })  # fmt: skip
            contents.append(file.content)
            size += len(file.content)
            if size > _BATCH or len(batch) >= _NAMES_AT_ONCE:
                await self._put_batch(batch, contents)
                batch, contents, size = [], [], 0
        if batch:
            await self._put_batch(batch, contents)

    async def _put_batch(self, batch: list[Json], contents: list[bytes]) -> None:
        self._check(await self.stream.request({"op": "put", "files": batch}, tuple(contents)))

    async def _upload(self, file: Outgoing) -> None:
        assert file.chunks is not None
        number, reply = self.stream.expect()
        channel = self.stream.open_channel()
        entry = file.entry
        self.stream.tell({
            "op": "upload", "id": number, "channel": channel.number,
            "path": entry.path, "mode": entry.mode, "modified_ns": entry.modified_ns,
        })  # fmt: skip
        try:
            await self.stream.send(channel.number, file.chunks)
            self._check(await self.stream.reply_to(number, reply, _GRACE_S + entry.size / 1e6))
        finally:
            channel.close()

    async def remove(self, removed: Sequence[str]) -> None:
        """Remove files and links."""
        for start in range(0, len(removed), _NAMES_AT_ONCE):
            paths = list(removed[start : start + _NAMES_AT_ONCE])
            self._check(await self.stream.request({"op": "remove", "paths": paths}))

    async def clear(self) -> None:
        """Empty the workspace."""
        self._check(await self.stream.request({"op": "clear"}))

    async def fetch(self, path: str, limit: int) -> AsyncGenerator[bytes, None]:
        """Bytes of a file, at most ``limit``. Raises SandboxLost when they do not all come, ProtocolError for more."""
        channel = self.stream.open_channel()
        ended = False
        try:
            body: Json = {"op": "get", "path": path, "channel": channel.number, "limit": limit}
            reply = await self.stream.request(body)
            size = reply.get("size")
            if not reply.get("ok") or not isinstance(size, int):
                ended = True
                raise SandboxLost("a file could not be read in the sandbox", cause=f"{path!r}: {reply}"[:500])
            left = min(size, limit)
            while (item := await self._take(channel, _GRACE_S + 15)).data:
                left -= len(item.data)
                if left < 0:
                    raise ProtocolError("the sandbox misbehaved and was ended", cause="more bytes than the file has")
                yield item.data
            ended = True
            if left or item.aborted:
                raise SandboxLost("a file could not be read in the sandbox", cause=f"{path!r}: {item.aborted}"[:500])
        finally:
            if ended:
                channel.close()
            else:
                self.stream.refuse(channel.number)

    async def fetch_many(self, files: Sequence[tuple[str, int]]) -> list[bytes]:
        """Contents of small files, given by path and size; at most ``FETCH_FILES`` of ``FETCH_BYTES`` together.

        Raises SandboxLost unless each has the size that it is said to have, ProtocolError for an answer to
        something else.
        """
        paths, sizes = [path for path, _ in files], [size for _, size in files]
        channel = self.stream.open_channel(sum(sizes) + 64 + 16 * len(files))  # one byte more each, and its length
        ended = False
        try:
            body: Json = {"op": "get_many", "paths": paths, "sizes": sizes, "channel": channel.number}
            reply = await self.stream.request(body)
            if not reply.get("ok"):
                ended = True
                raise SandboxLost("a file could not be read in the sandbox", cause=str(reply)[:500])
            contents = (await self._take(channel, _GRACE_S + 15)).attachments
            ended = True
        finally:
            if ended:
                channel.close()
            else:
                self.stream.refuse(channel.number)
        if len(contents) != len(files):
            raise ProtocolError("the sandbox misbehaved and was ended", cause=f"{len(contents)} of {len(files)} files")
        for content, (path, size) in zip(contents, files, strict=True):
            if len(content) != size:
                raise SandboxLost(
                    "a file could not be read in the sandbox", cause=f"{path!r}: {len(content)} bytes of {size}"[:500]
                )
        return list(contents)

    @staticmethod
    def _check(reply: Json) -> None:
        if reply.get("ok"):
            return
        if reply.get("errno") in _TOO_SMALL or "No space" in str(reply.get("detail")):
            raise QuotaExceeded("the files do not fit into the sandbox's workspace; delete some or ask for more space")
        raise ProtocolError("the sandbox could not take the files", cause=str(reply.get("detail"))[:500])

    # -- runs ------------------------------------------------------------------------------------------------

    async def run(
        self, run_id: str, request: RunRequest, mark: Json | None = None, note: Callable[[], object] = lambda: None
    ) -> AsyncIterator[Event | RunEnd]:
        """Run a cell; gives its events and, last, its end. Raises SandboxLost when the sandbox dies.

        ``mark`` is kept by the agent for the next host, and so is what ``note`` gives with each acknowledgement of
        events. Raises InvalidRequest when no process can be given that much environment.
        """
        channel = self.stream.open_channel()
        body: Json = {
            "op": "run", "run": run_id, "channel": channel.number, "language": request.language,
            "fresh": request.fresh, "script": request.script and request.language == "python",
            "detached": request.detached, "bare": request.bare,
            "timeout_ms": request.timeout_ms, "env": dict(request.env), "mark": mark,
        }  # fmt: skip
        code = request.code.encode("utf-8", "replace")
        attached = (code,) if request.stdin is None else (code, request.stdin)
        try:
            reply = await self.stream.request(body, attached)
            if not reply.get("ok"):
                raise _refused(reply)
            async for event in self._events(channel, run_id, request.ends_as, 0, request.timeout_ms / 1000, note):
                yield event
        finally:
            channel.close()

    async def adopt(
        self,
        run_id: str,
        after: int,
        *,
        language: Language = "python",
        timeout_s: float = 120.0,
        note: Callable[[], object] = lambda: None,
    ) -> AsyncIterator[Event | RunEnd]:
        """Take over a run that another host began: its events after number ``after``, and its end, as from ``run``.

        What the welcome calls ``acknowledged`` is the earliest number that can be given. Raises SandboxLost
        when the agent does not have that run.
        """
        channel = self.stream.open_channel()
        try:
            body: Json = {"op": "resume", "run": run_id, "channel": channel.number, "after": after}
            reply = await self.stream.request(body)
            if not reply.get("ok"):
                raise SandboxLost("the run is not in this sandbox any more", cause=str(reply)[:500])
            async for event in self._events(channel, run_id, language, after, timeout_s, note):
                yield event
        finally:
            channel.close()

    async def _events(
        self,
        channel: Channel,
        run_id: str,
        language: Language,
        after: int,
        timeout_s: float,
        note: Callable[[], object],
    ) -> AsyncIterator[Event | RunEnd]:
        reader = EventReader(language, after)
        started_by = time.monotonic() + _START_S
        ends_by: float | None = None if after == 0 else time.monotonic() + timeout_s + _GRACE_S
        unacknowledged = 0
        while True:
            item = await self._take(channel, max(0.0, (ends_by or started_by) - time.monotonic()))
            event = await aside(entries(item), reader.read, item)
            if isinstance(event, RunEnd):
                yield event
                return
            unacknowledged += item.size
            if event is None:
                await asyncio.sleep(0)  # the whole of a long report may be here already
                continue
            if event.kind == "started":
                ends_by = time.monotonic() + timeout_s + _GRACE_S
            waited = time.monotonic()
            yield event
            if ends_by is not None:  # the time that the caller took is not the sandbox's
                ends_by += time.monotonic() - waited
            if unacknowledged > _ACK_BYTES:
                self.stream.tell({"op": "ack", "run": run_id, "seq": event.seq, "note": note()})
                unacknowledged = 0

    @staticmethod
    async def _take(channel: Channel, limit_s: float) -> Item:
        if channel.waiting:
            return await channel.take()
        try:
            async with asyncio.timeout(limit_s):
                return await channel.take()
        except TimeoutError:
            raise SandboxLost("the sandbox stopped answering and was ended", cause="nothing came in time") from None

    def acknowledge(self, run_id: str, mark: Json | None = None) -> None:
        """The result of a run is stored: the agent may forget it. ``mark`` says for the next host of what the files
        are now.
        """
        if self.alive:
            self.stream.tell_soon({"op": "ack", "run": run_id, "seq": 1 << 62, "final": True, "mark": mark})

    def mark(self, mark: Json | None) -> None:
        """Have the agent keep a note for the next host."""
        if self.alive:
            self.stream.tell_soon({"op": "mark", "mark": mark})

    async def interrupt(self, run_id: str) -> bool:
        """Interrupt a run; False when it is not going on. Raises SandboxLost when no answer comes soon."""
        reply = await self.stream.request({"op": "interrupt", "run": run_id}, limit_s=_INTERRUPT_S)
        return bool(reply.get("running"))

    async def reset(self) -> None:
        """A new interpreter; files stay."""
        self._check(await self.stream.request({"op": "reset"}))

    async def ping(self) -> None:
        """A round trip through the agent."""
        self._check(await self.stream.request({"op": "ping"}))

    async def usage(self) -> SandboxUsage:
        """Counters from outside."""
        return await self.sandbox.usage()

    async def detach(self) -> None:
        """Stop listening and leave the sandbox to the next host. Raises SandboxLost when it does not answer."""
        self._check(await self.stream.request({"op": "ping"}, limit_s=_LEAVE_S))  # now it knows all that was said
        await self.stream.close()
        await self.sandbox.detach()

    async def destroy(self) -> None:
        """End the sandbox and stop listening."""
        await self.stream.close()
        await self.sandbox.destroy()


def _refused(reply: Json) -> InvalidRequest | SandboxLost:
    """Why the agent did not begin a run."""
    if reply.get("errno") == errno.E2BIG:
        return InvalidRequest("env and arguments are too large; put the data into a file")
    detail = reply.get("detail")
    why = detail[:300] if isinstance(detail, str) and detail else "it did not say why"
    return SandboxLost("the sandbox refused the run; send it again", cause=f"the run was refused: {why}")
