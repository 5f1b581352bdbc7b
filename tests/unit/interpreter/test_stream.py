"""The host's end against agents that misbehave: a typed error, bounded memory, nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest

from runner.agent.protocol import (
    ABORT,
    CONTROL,
    CREDIT_WINDOW,
    DATA,
    END,
    MAX_MESSAGE,
    MAX_PAYLOAD,
    MESSAGE,
    PART,
    Assembler,
    Decoder,
    Json,
    encode_frame,
    pack_message,
)
from runner.errors import FolioboxError, ProtocolError, SandboxLost
from runner.interpreter import stream as stream_module
from runner.interpreter.client import SandboxClient
from runner.model import RunRequest
from tests.unit.agent.lab import Ends, collect


class FakeAgent:
    """The other end of a socket pair: answers ``hello``, then does what a test says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.decoder, self.assembler = Decoder(), Assembler()
        self.epoch = 0
        self.requests: asyncio.Queue[Json] = asyncio.Queue()
        self.got = 0

    async def serve(self) -> None:
        while data := await self.reader.read(1 << 16):
            for frame in self.decoder.feed(data):
                self.epoch = frame.epoch
                self.got += len(frame.payload)
                if frame.kind in (MESSAGE, PART) and (whole := self.assembler.add(frame)):
                    if whole[0]["op"] == "hello":
                        self.say({"op": "welcome", "ready": True})
                    else:
                        self.requests.put_nowait(whole[0])

    def say(self, body: Json, attachments: tuple[bytes, ...] = (), channel: int = CONTROL) -> None:
        self.frame(channel, MESSAGE, pack_message(body, attachments))

    def frame(self, channel: int, kind: int, payload: bytes = b"", epoch: int | None = None) -> None:
        self.writer.write(encode_frame(self.epoch if epoch is None else epoch, channel, kind, payload))

    async def accept_run(self) -> int:
        body = await self.requests.get()
        self.say({"op": "reply", "id": body["id"], "ok": True})
        return int(body["channel"])


@contextlib.asynccontextmanager
async def pair() -> AsyncIterator[tuple[SandboxClient, FakeAgent]]:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    agent = FakeAgent(*await asyncio.open_connection(sock=theirs))
    serving = asyncio.create_task(agent.serve())
    client = SandboxClient(Ends(reader, writer))
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    try:
        await client.attach(5)
        yield client, agent
    finally:
        await client.destroy()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        for end in (writer, agent.writer):
            end.transport.abort()
        await asyncio.sleep(0)
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not left, left
    assert not unhandled, unhandled


STARTED = {"seq": 1, "type": "started", "interpreter": "new"}
COUNTS = {"total": 0, "forwarded": 0, "tail": ""}
DONE: Json = {
    "seq": 2, "type": "done", "status": "ok", "exit_code": 0, "signal": None, "stopped_by": None, "duration_ms": 1,
    "interpreter": "kept", "survivors": 0, "streams": {"stdout": COUNTS, "stderr": COUNTS}, "error": None,
    "changes": {"created": [], "modified": [], "deleted": []},
}  # fmt: skip


async def run_against(behave: Callable[[FakeAgent, int], Awaitable[None]]) -> FolioboxError | None:
    async with pair() as (client, agent):

        async def act() -> None:
            channel = await agent.accept_run()
            with contextlib.suppress(ConnectionError):
                await behave(agent, channel)

        acting = asyncio.create_task(act())
        try:
            async with asyncio.timeout(10):
                await collect(client.run("r", RunRequest(code="", timeout_ms=100)))
            return None
        except FolioboxError as error:
            return error
        finally:
            acting.cancel()
            await asyncio.gather(acting, return_exceptions=True)


async def test_a_run_that_goes_well() -> None:
    async def behave(agent: FakeAgent, channel: int) -> None:
        agent.say({"op": "reply", "id": 10**9, "ok": True})
        agent.say({"op": "reply", "id": [], "ok": True})
        agent.frame(channel, MESSAGE, b"forged", epoch=1)
        agent.frame(channel + 5, DATA, b"to nobody")
        agent.writer.write(b"noise" * 1000)
        agent.say(STARTED, channel=channel)
        agent.say(DONE, channel=channel)

    assert await run_against(behave) is None


async def test_every_byte_of_an_event_counts_for_its_acknowledgement() -> None:
    """An event of control characters spans several frames; the agent holds all of it until it is acknowledged."""
    acknowledged: list[int] = []

    async def behave(agent: FakeAgent, channel: int) -> None:
        agent.say(STARTED, channel=channel)
        for seq in (2, 3):
            packed = pack_message({"seq": seq, "type": "stdout", "text": "\0" * 30_000})
            for at in range(0, len(packed), MAX_PAYLOAD):
                kind = MESSAGE if at + MAX_PAYLOAD >= len(packed) else PART
                agent.frame(channel, kind, packed[at : at + MAX_PAYLOAD])
        acknowledged.append((await agent.requests.get())["seq"])
        agent.say({**DONE, "seq": 4}, channel=channel)

    assert await run_against(behave) is None
    assert acknowledged == [3]


def entry(**fields: object) -> Json:
    return {"path": "a", "size": 1, "mode": 420, "modified_ns": 0, **fields}


WRONG_EVENTS: list[Json] = [
    {}, {"seq": 1}, {"seq": 1, "type": "nonsense"}, {"seq": "1", "type": "started"}, {"seq": True, "type": "started"},
    {"seq": 2, "type": "started"}, {"seq": 0, "type": "started"},
    {"seq": 1, "type": "stdout"}, {"seq": 1, "type": "stdout", "text": 5},
    {"seq": 1, "type": "stdout", "text": "x" * (2 << 20)},
    {"seq": 1, "type": "display"}, {"seq": 1, "type": "display", "data": [], "binary": [], "texts": []},
    {"seq": 1, "type": "display", "data": {}, "binary": ["a/b"], "texts": []},
    {"seq": 1, "type": "display", "data": {}, "binary": [], "texts": [[]]},
    {"seq": 1, "type": "changes", "created": 5}, {"seq": 1, "type": "changes", "created": [{}]},
    {"seq": 1, "type": "changes", "links": {"../x": "y"}}, {"seq": 1, "type": "changes", "folders": ["/etc"]},
    {"seq": 1, "type": "changes", "deleted": ["a"] * 50_000},
    *({**DONE, "seq": 1, **wrong} for wrong in cast(list[Json], [
        {"duration_ms": "x"}, {"duration_ms": 1e400}, {"survivors": None}, {"streams": {}}, {"streams": []},
        {"streams": {"stdout": COUNTS, "stderr": {"total": 1e999, "forwarded": 0, "tail": ""}}},
        {"changes": None}, {"changes": {"created": [entry(path="../x")], "modified": [], "deleted": []}},
        {"changes": {"created": [entry(path="/etc/passwd")], "modified": [], "deleted": []}},
        {"changes": {"created": [entry(path="a\0")], "modified": [], "deleted": []}},
        {"changes": {"created": [entry(size=-1)], "modified": [], "deleted": []}},
        {"changes": {"created": [entry(modified_ns=1 << 63)], "modified": [], "deleted": []}},
        {"changes": {"created": [entry(size=1e999)], "modified": [], "deleted": []}},
        {"changes": {"created": [], "modified": [], "deleted": [7]}},
        {"changes": {"created": [], "modified": [], "deleted": [], "links": {"a": ""}}},
        {"changes": {"created": [], "modified": [], "deleted": [], "links": []}},
        {"changes": {"created": [], "modified": [], "deleted": [], "folders": ["x/../y"]}},
    ])),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(WRONG_EVENTS)))
async def test_wrong_events_are_protocol_errors(number: int) -> None:
    async def behave(agent: FakeAgent, channel: int) -> None:
        packed = pack_message(WRONG_EVENTS[number])
        for at in range(0, len(packed), MAX_PAYLOAD):
            last = at + MAX_PAYLOAD >= len(packed)
            agent.frame(channel, MESSAGE if last else PART, packed[at : at + MAX_PAYLOAD])

    assert isinstance(await run_against(behave), ProtocolError)


async def giant_message(agent: FakeAgent, channel: int) -> None:
    for _ in range(MAX_MESSAGE // MAX_PAYLOAD + 2):
        agent.frame(CONTROL, PART, b"x" * MAX_PAYLOAD)
        await agent.writer.drain()


async def no_json(agent: FakeAgent, channel: int) -> None:
    agent.frame(channel, MESSAGE, b"\0\0\0\2{]")


async def garbage(agent: FakeAgent, channel: int) -> None:
    for _ in range(300):
        agent.writer.write(b"\xff" * 65536)
        await agent.writer.drain()


async def end_of_stream(agent: FakeAgent, channel: int) -> None:
    agent.writer.write(encode_frame(agent.epoch, channel, DATA, b"x" * 1000)[:500])
    agent.writer.close()


async def refuse(agent: FakeAgent, channel: int) -> None:
    agent.frame(channel, ABORT, b"no")


@pytest.mark.parametrize(
    ("behave", "kind"),
    [
        (giant_message, ProtocolError), (no_json, ProtocolError),
        (garbage, ProtocolError), (end_of_stream, SandboxLost), (refuse, ProtocolError),
    ],
)  # fmt: skip
async def test_broken_streams_end_the_run(behave: Callable[[FakeAgent, int], Awaitable[None]], kind: type) -> None:
    assert type(await run_against(behave)) is kind


async def test_silence_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.interpreter.client._GRACE_S", 0.1)

    async def behave(agent: FakeAgent, channel: int) -> None:
        agent.say(STARTED, channel=channel)

    assert isinstance(await run_against(behave), SandboxLost)


async def test_drops_of_output_do_not_keep_a_run_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.interpreter.client._GRACE_S", 0.1)

    async def behave(agent: FakeAgent, channel: int) -> None:
        agent.say(STARTED, channel=channel)
        for seq in range(2, 1 << 30):
            agent.say({"seq": seq, "type": "stdout", "text": "."}, channel=channel)
            await asyncio.sleep(0.01)

    assert isinstance(await run_against(behave), SandboxLost)


async def test_no_welcome_and_no_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair() as (client, _):
        with pytest.raises(SandboxLost):
            await client.stream.request({"op": "ping"}, limit_s=0.05)
        monkeypatch.setattr(stream_module, "_REPLY_LIMIT_S", 0.05)
        with pytest.raises(SandboxLost):
            await client.stream.send(5, chunks(8 * CREDIT_WINDOW))
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    silent = SandboxClient(Ends(reader, writer))
    with pytest.raises(SandboxLost):
        await silent.attach(0.05)
    await silent.destroy()
    writer.close()
    await writer.wait_closed()
    theirs.close()


async def chunks(size: int) -> AsyncIterator[bytes]:
    for _ in range(0, size, 1 << 16):
        yield b"u" * (1 << 16)


async def test_a_flood_of_messages_is_held_back_while_nobody_takes_them() -> None:
    async with pair() as (client, agent):
        channel = client.stream.open_channel()
        sent = 0
        size = 60_000
        credit = CREDIT_WINDOW
        while credit >= size:
            agent.say({"n": 1}, (b"x" * (size - 100),), channel=channel.number)
            credit -= size
            sent += 1
        await client_settled(agent)
        assert len(channel._items) == sent
        assert channel._ungranted <= CREDIT_WINDOW
        for _ in range(sent):
            await channel.take()
        assert channel._ungranted < CREDIT_WINDOW // 4


async def test_more_bytes_than_were_granted_end_the_sandbox() -> None:
    async with pair() as (client, agent):
        channel = client.stream.open_channel()
        for _ in range(3 * CREDIT_WINDOW // MAX_PAYLOAD):
            agent.frame(channel.number, DATA, b"x" * MAX_PAYLOAD)
        async with asyncio.timeout(5):
            while client.alive:
                await asyncio.sleep(0)
        assert isinstance(client.stream.failure, ProtocolError)
        assert channel._waiting <= 2 * CREDIT_WINDOW + (1 << 18)


@pytest.mark.parametrize("how", ["hangs up", "is ended"])
async def test_the_end_of_a_stream_is_told_once(how: str) -> None:
    async with pair() as (client, agent):
        told: list[bool] = []
        client.when_ended(lambda: told.append(client.alive))
        await client_settled(agent)
        assert told == []
        if how == "hangs up":
            agent.writer.close()
            async with asyncio.timeout(5):
                while client.alive:
                    await asyncio.sleep(0)
        await client.stream.close()
        assert told == [False]


async def client_settled(agent: FakeAgent) -> None:
    await agent.writer.drain()
    async with asyncio.timeout(5):
        for _ in range(50):
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("pieces", "kind"),
    [
        ([(DATA, b"12345"), (END, b"")], None),
        ([(DATA, b"123"), (END, b"")], SandboxLost),
        ([(DATA, b"123"), (ABORT, b"gone")], SandboxLost),
        ([(DATA, b"123456")], ProtocolError),
    ],
)
async def test_a_fetched_file_is_whole_or_an_error(pieces: list[tuple[int, bytes]], kind: type | None) -> None:
    async with pair() as (client, agent):

        async def act() -> None:
            body = await agent.requests.get()
            agent.say({"op": "reply", "id": body["id"], "ok": True, "size": 5})
            for piece in pieces:
                agent.frame(body["channel"], *piece)

        acting = asyncio.create_task(act())
        if kind is None:
            assert b"".join([c async for c in client.fetch("a", 100)]) == b"12345"
        else:
            with pytest.raises(kind):
                _ = [c async for c in client.fetch("a", 100)]
        await acting


async def test_control_overtakes_an_upload() -> None:
    async with pair() as (client, agent):
        sending = asyncio.create_task(client.stream.send(7, chunks(4 * CREDIT_WINDOW)))
        await client_settled(agent)
        asking = asyncio.create_task(client.stream.request({"op": "ping"}))
        body = await asyncio.wait_for(agent.requests.get(), 5)
        assert body["op"] == "ping"
        assert agent.got <= CREDIT_WINDOW + (1 << 18)
        agent.say({"op": "reply", "id": body["id"], "ok": True})
        await asking
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
