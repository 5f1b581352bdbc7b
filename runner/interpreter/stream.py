"""Frames over a sandbox's stdio on asyncio: requests with replies, channels with credit, one reader task."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from asyncio import StreamReader, StreamWriter
from collections import deque
from collections.abc import AsyncIterator
from typing import NamedTuple

from runner.agent.protocol import (
    ABORT,
    CONTROL,
    CREDIT,
    CREDIT_WINDOW,
    DATA,
    END,
    MAX_PAYLOAD,
    MESSAGE,
    PADDING,
    PART,
    Assembler,
    Decoder,
    Frame,
    Json,
    Outbox,
    ProtocolViolation,
)
from runner.errors import ProtocolError, SandboxLost

_READ = 1 << 18
_WRITE_AHEAD = 1 << 17
_MAX_PENDING_NOTICES = 64
_REPLY_LIMIT_S = 30.0


class Item(NamedTuple):
    """What arrives on a channel: a message, or raw bytes, or the end (neither)."""

    body: Json | None = None
    attachments: tuple[bytes, ...] = ()
    data: bytes = b""
    size: int = 0


class Channel:
    """The receiving side of one channel; credit is granted as items are taken."""

    def __init__(self, stream: AgentStream, number: int) -> None:
        self.number = number
        self._stream = stream
        self._items: deque[Item] = deque()
        self._arrived = asyncio.Event()
        self._outstanding = 0

    def add(self, item: Item) -> None:
        """An item arrived; the window bounds how much may wait here."""
        self._outstanding += item.size
        if self._outstanding > CREDIT_WINDOW + MAX_PAYLOAD:
            raise ProtocolViolation("more bytes on a channel than were granted")
        self._items.append(item)
        self._arrived.set()

    async def take(self) -> Item:
        """The next item. Raises SandboxLost when the stream broke and nothing is left."""
        while not self._items:
            if self._stream.failure is not None:
                raise self._stream.failure
            self._arrived.clear()
            await self._arrived.wait()
        item = self._items.popleft()
        if item.size:
            self._outstanding -= item.size
            self._stream.grant(self.number, item.size)
        return item

    def wake(self) -> None:
        """Look again: the stream has failed."""
        self._arrived.set()

    def close(self) -> None:
        """Stop receiving; what still arrives is dropped."""
        self._stream.close_channel(self.number)


class AgentStream:
    """One attachment to an agent, under an epoch of its own."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.failure: SandboxLost | ProtocolError | None = None
        self.welcome: Json = {}
        self.ready = asyncio.Event()
        self._reader, self._writer = reader, writer
        self._decoder, self._assembler = Decoder(), Assembler()
        self._outbox = Outbox(secrets.randbits(31) + 1)
        self._channels: dict[int, Channel] = {}
        self._replies: dict[int, asyncio.Future[Json]] = {}
        self._numbers = itertools.count(1)
        self._welcomed: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._more = asyncio.Event()
        self._tasks = [asyncio.create_task(self._receive()), asyncio.create_task(self._pump())]

    async def attach(self, limit_s: float = _REPLY_LIMIT_S, *, padding: bool = False) -> Json:
        """Say hello; gives the agent's welcome. ``padding`` ends what another host may have half sent."""
        if padding:
            self._writer.write(PADDING)
        self._outbox.message(CONTROL, {"op": "hello"})
        self._kick()
        try:
            self.welcome = await asyncio.wait_for(asyncio.shield(self._welcomed), limit_s)
        except TimeoutError:
            raise SandboxLost("the sandbox did not answer; send the request again", cause="no welcome") from None
        if self.welcome.get("ready"):
            self.ready.set()
        return self.welcome

    async def request(
        self, body: Json, attachments: tuple[bytes, ...] = (), *, limit_s: float = _REPLY_LIMIT_S
    ) -> Json:
        """Ask the agent something. Raises SandboxLost when it does not answer in time."""
        number, reply = self.expect()
        self._outbox.message(CONTROL, {**body, "id": number}, attachments)
        self._kick()
        return await self.reply_to(number, reply, limit_s)

    def expect(self) -> tuple[int, asyncio.Future[Json]]:
        """A fresh request number and where its reply will be."""
        number = next(self._numbers)
        reply: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._replies[number] = reply
        if self.failure is not None:
            reply.set_exception(self.failure)
        return number, reply

    async def reply_to(self, number: int, reply: asyncio.Future[Json], limit_s: float = _REPLY_LIMIT_S) -> Json:
        """Wait for a reply."""
        try:
            return await asyncio.wait_for(reply, limit_s)
        except TimeoutError:
            raise SandboxLost("the sandbox stopped answering; send the request again", cause="no reply") from None
        finally:
            self._replies.pop(number, None)

    def tell(self, body: Json) -> None:
        """Send a control message that gets no reply."""
        self._outbox.message(CONTROL, body)
        self._kick()

    def open_channel(self) -> Channel:
        """A new channel to receive on."""
        number = next(self._numbers)
        channel = self._channels[number] = Channel(self, number)
        return channel

    def close_channel(self, number: int) -> None:
        """Forget a channel."""
        self._channels.pop(number, None)

    async def send(self, number: int, chunks: AsyncIterator[bytes]) -> None:
        """Send bytes on a channel, then its end; waits while more than the window is queued."""
        async for chunk in chunks:
            self._outbox.data(number, chunk)
            self._kick()
            while self._outbox.queued(number) > CREDIT_WINDOW:
                if self.failure is not None:
                    raise self.failure
                self._more.clear()
                await self._more.wait()
        self._outbox.end(number)
        self._kick()

    def grant(self, number: int, size: int) -> None:
        """Let the agent send more on a channel."""
        if number in self._channels:
            self._outbox.grant(number, size)
            self._kick()

    async def close(self) -> None:
        """Stop reading and writing; whoever still waits gets SandboxLost."""
        self._fail(SandboxLost("the sandbox was ended; send the request again"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- inside ----------------------------------------------------------------------------------------------

    def _kick(self) -> None:
        transport = self._writer.transport
        while not transport.is_closing() and transport.get_write_buffer_size() < _WRITE_AHEAD:
            data = self._outbox.pull(MAX_PAYLOAD)
            if not data:
                return
            self._writer.write(data)
        self._more.set()

    async def _pump(self) -> None:
        """Write on when the pipe has room again."""
        with contextlib.suppress(ConnectionError, OSError):
            while True:
                await self._more.wait()
                self._more.clear()
                await self._writer.drain()
                self._kick()

    async def _receive(self) -> None:
        try:
            while data := await self._reader.read(_READ):
                for frame in self._decoder.feed(data):
                    if frame.epoch == self._outbox.epoch:
                        self._on_frame(frame)
                if self._decoder.skipped > 1 << 24:
                    raise ProtocolViolation("nothing but garbage")
            self._fail(SandboxLost("the sandbox ended; send the request again", cause="end of stream"))
        except ProtocolViolation as error:
            self._fail(ProtocolError("the sandbox misbehaved and was ended; send the request again", cause=str(error)))
        except (OSError, asyncio.IncompleteReadError) as error:
            self._fail(SandboxLost("the sandbox ended; send the request again", cause=repr(error)))

    def _on_frame(self, frame: Frame) -> None:
        channel = self._channels.get(frame.channel)
        if frame.kind == CREDIT:
            self._outbox.credit(frame.channel, int.from_bytes(frame.payload[:4], "big"))
            self._kick()
            self._more.set()
        elif frame.kind in (MESSAGE, PART):
            self._on_message(frame, channel)
        elif channel is not None and frame.kind == DATA:
            channel.add(Item(data=frame.payload, size=len(frame.payload)))
        elif channel is not None and frame.kind in (END, ABORT):
            channel.add(Item())

    def _on_message(self, frame: Frame, channel: Channel | None) -> None:
        if frame.channel != CONTROL and channel is None:
            return
        whole = self._assembler.add(frame)
        if frame.kind == PART and channel is not None:
            self.grant(frame.channel, len(frame.payload))
        if whole is None:
            return
        body, attachments = whole
        if channel is not None:
            channel.add(Item(body, tuple(attachments), size=len(frame.payload)))
        elif body.get("op") == "reply":
            reply = self._replies.get(body.get("id", 0))
            if reply is not None and not reply.done():
                reply.set_result(body)
        elif body.get("op") == "welcome" and not self._welcomed.done():
            self._welcomed.set_result(body)
        elif body.get("op") == "ready":
            self.ready.set()

    def _fail(self, error: SandboxLost | ProtocolError) -> None:
        if self.failure is not None:
            return
        self.failure = error
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(error)
        if not self._welcomed.done():
            self._welcomed.set_exception(error)
            self._welcomed.exception()
        for channel in self._channels.values():
            channel.wake()
        self.ready.set()
        self._more.set()
