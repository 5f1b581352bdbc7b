"""Frames over a sandbox's stdio on asyncio: requests with replies, channels with credit, one reader task."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from asyncio import StreamReader, StreamWriter
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

from runner.agent.protocol import (
    CONTROL,
    CREDIT,
    CREDIT_WINDOW,
    DATA,
    END,
    MAX_PAYLOAD,
    MAX_REPORT,
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
_GRANT_STEP = CREDIT_WINDOW // 4
_MAX_GARBAGE = 1 << 20
_MAX_CONTROL = 1 << 20
_REPLY_LIMIT_S = 30.0
_SOON_S = 0.02


class Item(NamedTuple):
    """What arrives on a channel: a message, or raw bytes, or the end (neither); ``aborted`` says why it broke off.

    ``size`` counts every byte of it on the wire: what is acknowledged by it must not be less than what the agent
    holds back, or both would wait for each other.
    """

    body: Json | None = None
    attachments: tuple[bytes, ...] = ()
    data: bytes = b""
    size: int = 0
    aborted: str | None = None


class Channel:
    """The receiving side of one channel; credit is granted as items are taken, so that little waits here.

    ``at_most`` bytes may come in all, where the caller knows how many there can be.
    """

    def __init__(self, stream: AgentStream, number: int, at_most: int | None = None) -> None:
        self.number = number
        self._left = at_most
        self._stream = stream
        self._items: deque[Item] = deque()
        self._arrived = asyncio.Event()
        self._waiting = 0
        self._ungranted = 0
        self._partial = 0

    def part(self, size: int) -> int:
        """A piece of a message came; gives how many bytes of it there are by now."""
        self._partial += size
        return self._partial

    def received(self, size: int) -> None:
        """Bytes arrived that cost the other end credit. Raises ProtocolViolation beyond what was granted."""
        self._ungranted += size
        if self._ungranted > CREDIT_WINDOW:
            raise ProtocolViolation("more bytes on a channel than were granted")
        if self._left is not None:
            self._left -= size
            if self._left < 0:
                raise ProtocolViolation("more bytes on a channel than were asked for")
        self.grant_more()

    def grant_more(self) -> None:
        """Grant what was used, in large steps, unless enough waits here already."""
        if self._ungranted >= _GRANT_STEP and self._waiting <= CREDIT_WINDOW:
            self._stream.grant(self.number, self._ungranted)
            self._ungranted = 0

    def add(self, item: Item) -> None:
        """A whole item arrived."""
        self._partial = 0
        self._waiting += item.size
        self._items.append(item)
        self._arrived.set()

    @property
    def waiting(self) -> bool:
        """Whether the next item is here already."""
        return bool(self._items)

    async def take(self) -> Item:
        """The next item. Raises SandboxLost when the stream broke and nothing is left."""
        while not self._items:
            if self._stream.failure is not None:
                raise self._stream.failure
            self._arrived.clear()
            await self._arrived.wait()
        item = self._items.popleft()
        self._waiting -= item.size
        self.grant_more()
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
        self.ended: Callable[[], None] = lambda: None  # called once, when it has failed
        self.welcome: Json = {}
        self.ready, self._more = asyncio.Event(), asyncio.Event()
        self.preload_failed: dict[str, str] = {}
        self._reader, self._writer = reader, writer
        self._decoder, self._assembler, self._control = Decoder(), Assembler(MAX_REPORT), Assembler(_MAX_CONTROL)
        self._outbox = Outbox(secrets.randbits(31) + 1)
        self._channels: dict[int, Channel] = {}
        self._replies: dict[int, asyncio.Future[Json]] = {}
        self._numbers = itertools.count(1)
        self._welcomed: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._waiting_for_room: list[asyncio.Future[None]] = []
        self._soon: asyncio.TimerHandle | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._tasks = [asyncio.create_task(self._receive()), asyncio.create_task(self._pump())]

    async def attach(self, limit_s: float = _REPLY_LIMIT_S, *, padding: bool = False) -> Json:
        """Say hello; gives the agent's welcome. ``padding`` ends what another host may have half sent."""
        if padding:
            self._writer.write(PADDING)
        self._outbox.message(CONTROL, {"op": "hello"})
        self._kick()
        try:
            async with asyncio.timeout(limit_s):
                self.welcome = await asyncio.shield(self._welcomed)
        except TimeoutError:
            raise SandboxLost("the sandbox did not answer; send the request again", cause="no welcome") from None
        if self.welcome.get("ready"):
            self._note_ready(self.welcome)
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
        reply.add_done_callback(_seen)
        self._replies[number] = reply
        if self.failure is not None:
            reply.set_exception(self.failure)
        return number, reply

    async def reply_to(self, number: int, reply: asyncio.Future[Json], limit_s: float = _REPLY_LIMIT_S) -> Json:
        """Wait for a reply."""
        try:
            async with asyncio.timeout(limit_s):
                return await reply
        except TimeoutError:
            raise SandboxLost("the sandbox stopped answering; send the request again", cause="no reply") from None
        finally:
            self._replies.pop(number, None)

    def tell(self, body: Json) -> None:
        """Send a control message that gets no reply."""
        self._outbox.message(CONTROL, body)
        self._kick()

    def tell_soon(self, body: Json) -> None:
        """Send a control message that nobody waits for: with what is sent next, or after a moment alone."""
        self._outbox.message(CONTROL, body)
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(_SOON_S, self._send_late)

    def beat_every(self, pause_s: float) -> None:
        """From now on tell the agent now and then that there is a host."""
        if self.failure is None:
            self._outbox.message(CONTROL, {"op": "beat"})
            self._kick()
            self._beat = asyncio.get_running_loop().call_later(pause_s, self.beat_every, pause_s)

    def _send_late(self) -> None:
        self._soon = None
        if self.failure is None:
            self._kick()

    def open_channel(self, at_most: int | None = None) -> Channel:
        """A new channel to receive on, at most so many bytes in all."""
        number = next(self._numbers)
        channel = self._channels[number] = Channel(self, number, at_most)
        return channel

    def close_channel(self, number: int) -> None:
        """Forget a channel."""
        self._channels.pop(number, None)
        self._assembler.drop(self._outbox.epoch, number)
        self._outbox.close(number)

    async def send(self, number: int, chunks: AsyncIterator[bytes]) -> None:
        """Send bytes on a channel, then its end; waits while more than the window is queued.

        When ``chunks`` raises, the agent is told to forget what it has got. Raises SandboxLost when it takes
        nothing more for a while.
        """
        try:
            async for chunk in chunks:
                self._outbox.data(number, chunk)
                self._kick()
                while self._outbox.queued(number) > CREDIT_WINDOW:
                    await self._room()
        except BaseException:
            self._outbox.abort(number, "the sender failed")
            self._kick()
            raise
        self._outbox.end(number)
        self._kick()

    async def _room(self) -> None:
        if self.failure is not None:
            raise self.failure
        room = asyncio.get_running_loop().create_future()
        self._waiting_for_room.append(room)
        try:
            async with asyncio.timeout(_REPLY_LIMIT_S):
                await room
        except TimeoutError:
            raise SandboxLost("the sandbox stopped listening; send the request again", cause="no credit") from None

    def grant(self, number: int, size: int) -> None:
        """Let the agent send more on a channel."""
        if number in self._channels:
            self._outbox.grant(number, size)
            self._kick()

    async def close(self) -> None:
        """Stop reading and writing; whoever still waits gets SandboxLost."""
        if self._soon is not None:
            self._soon.cancel()
            self._send_late()
        if self._beat is not None:
            self._beat.cancel()
        self._fail(SandboxLost("the sandbox was ended; send the request again"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def refuse(self, number: int) -> None:
        """Tell the agent to send nothing more on a channel, and forget it."""
        self.close_channel(number)
        if self.failure is None:
            self._outbox.abort(number, "not wanted")
            self._kick()

    # -- inside ----------------------------------------------------------------------------------------------

    def _kick(self) -> None:
        """Write what the pipe takes; the pump goes on with the rest when there is room again."""
        transport = self._writer.transport
        while not transport.is_closing():
            if transport.get_write_buffer_size() >= _WRITE_AHEAD:
                self._more.set()
                return
            data = self._outbox.pull(MAX_PAYLOAD)
            if not data:
                return
            self._writer.write(data)

    async def _pump(self) -> None:
        with contextlib.suppress(ConnectionError, OSError):
            while self.failure is None:
                await self._more.wait()
                self._more.clear()
                await self._writer.drain()
                self._kick()
                self._tell_room()

    def _tell_room(self) -> None:
        waiting, self._waiting_for_room = self._waiting_for_room, []
        for room in waiting:
            if not room.done():
                room.set_result(None)

    async def _receive(self) -> None:
        try:
            while data := await self._reader.read(_READ):
                for frame in self._decoder.feed(data):
                    if frame.epoch == self._outbox.epoch:
                        self._on_frame(frame)
                if self._decoder.skipped > _MAX_GARBAGE:
                    raise ProtocolViolation("nothing but garbage")
            self._fail(SandboxLost("the sandbox ended; send the request again", cause="end of stream"))
        except ProtocolViolation as error:
            self._fail(ProtocolError("the sandbox misbehaved and was ended; send the request again", cause=str(error)))
        except (OSError, asyncio.IncompleteReadError) as error:
            self._fail(SandboxLost("the sandbox ended; send the request again", cause=repr(error)))
        except Exception as error:
            self._fail(ProtocolError("the sandbox misbehaved and was ended; send the request again", cause=repr(error)))
            raise

    def _on_frame(self, frame: Frame) -> None:
        if frame.kind == CREDIT:
            self._outbox.credit(frame.channel, int.from_bytes(frame.payload[:4], "big"))
            self._kick()
            self._tell_room()
            return
        channel = self._channels.get(frame.channel)
        if frame.channel == CONTROL:
            if frame.kind in (MESSAGE, PART):
                whole = self._control.add(frame)
                if whole is not None:
                    self._on_control(whole[0])
        elif channel is None:
            return
        elif frame.kind in (MESSAGE, PART):
            self._on_message(frame, channel)
        elif frame.kind == DATA:
            channel.add(Item(data=frame.payload, size=len(frame.payload)))
            channel.received(len(frame.payload))
        elif frame.kind == END:
            channel.add(Item())
        else:
            channel.add(Item(aborted=frame.payload[:200].decode("utf-8", "replace")))

    def _on_message(self, frame: Frame, channel: Channel) -> None:
        whole = self._assembler.add(frame)
        size = channel.part(len(frame.payload))
        if whole is not None:
            body, attachments = whole
            channel.add(Item(body, tuple(attachments), size=size))
        channel.received(len(frame.payload))

    def _on_control(self, body: Json) -> None:
        number = body.get("id")
        if body.get("op") == "reply":
            reply = self._replies.get(number) if isinstance(number, int) else None
            if reply is not None and not reply.done():
                reply.set_result(body)
        elif body.get("op") == "welcome" and not self._welcomed.done():
            self._welcomed.set_result(body)
        elif body.get("op") == "ready":
            self._note_ready(body)

    def _note_ready(self, body: Json) -> None:
        failed = body.get("failed")
        if isinstance(failed, dict):
            self.preload_failed = {str(name)[:100]: str(why)[:300] for name, why in list(failed.items())[:50]}
        self.ready.set()

    def _fail(self, error: SandboxLost | ProtocolError) -> None:
        if self.failure is not None:
            return
        self.failure = error
        waiting: list[asyncio.Future[Any]] = [*self._replies.values(), *self._waiting_for_room]
        for future in waiting:
            if not future.done():
                future.set_exception(error)
        if not self._welcomed.done():
            self._welcomed.set_exception(error)
            self._welcomed.exception()
        for channel in self._channels.values():
            channel.wake()
        self.ready.set()
        self._more.set()
        self.ended()


def _seen(future: asyncio.Future[Json]) -> None:
    """Nobody may be waiting for a reply any more when it fails; that is no news to log."""
    if not future.cancelled():
        future.exception()
