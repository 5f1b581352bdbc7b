"""Many small files in one message: exactly those that were asked for, each of its size, or an error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.agent.protocol import ABORT, DATA, END, MESSAGE, PART, pack_message
from runner.errors import FolioboxError, ProtocolError, SandboxLost
from runner.interpreter.client import FETCH_BYTES, FETCH_FILES, Outgoing, SandboxClient
from runner.model import FileEntry
from tests.unit.agent.lab import local_agent
from tests.unit.interpreter.test_stream import FakeAgent, pair

ASKED = [("a", 3), ("b", 0), ("c", 2)]
RIGHT = (b"aaa", b"", b"cc")


def message(*contents: bytes) -> Callable[[FakeAgent, int], None]:
    return lambda agent, channel: agent.say({}, contents, channel)


def frames(*wanted: tuple[int, bytes]) -> Callable[[FakeAgent, int], None]:
    def send(agent: FakeAgent, channel: int) -> None:
        for kind, payload in wanted:
            agent.frame(channel, kind, payload)

    return send


async def fetch(answer: Callable[[FakeAgent, int], None], ok: object = True) -> list[bytes] | FolioboxError:
    async with pair() as (client, agent):
        fetching = asyncio.create_task(client.fetch_many(ASKED))
        body = await agent.requests.get()
        assert (body["op"], body["paths"], body["sizes"]) == ("get_many", ["a", "b", "c"], [3, 0, 2])
        agent.say({"op": "reply", "id": body["id"], "ok": ok})
        answer(agent, body["channel"])
        try:
            return await asyncio.wait_for(fetching, 10)
        except FolioboxError as error:
            return error


async def test_the_contents_come_in_order() -> None:
    assert await fetch(message(*RIGHT)) == list(RIGHT)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (message(b"aaa", b""), ProtocolError),
        (message(*RIGHT, b"more"), ProtocolError),
        (message(b"aaaa", b"", b"cc"), SandboxLost),
        (message(b"aa", b"", b"cc"), SandboxLost),
        (message(b"aa", b"", b"ccc"), SandboxLost),
        (message(b"", b"", b"c" * 500), SandboxLost),
        (frames((PART, bytes(60)), (PART, bytes(60))), ProtocolError),
        (frames((MESSAGE, b"\0\0\0\x02{}")), ProtocolError),
        (frames((MESSAGE, b"\0\0\0\x02[]")), ProtocolError),
        (frames((MESSAGE, pack_message({"attached": [-1, 1, 5]}) + b"aaacc")), ProtocolError),
        (frames((DATA, b"aaacc"), (END, b"")), ProtocolError),
        (frames((END, b"")), ProtocolError),
        (frames((ABORT, b"no")), ProtocolError),
    ],
)
async def test_anything_else_is_an_error(answer: Callable[[FakeAgent, int], None], kind: type[FolioboxError]) -> None:
    assert type(await fetch(answer)) is kind


async def test_a_refusal_is_an_error() -> None:
    assert isinstance(await fetch(lambda *_: None, ok=False), SandboxLost)


async def test_a_real_agent_sends_as_many_as_may_be_asked_for(tmp_path: Path) -> None:
    async with local_agent(tmp_path) as (ends, _):
        client = SandboxClient(ends)
        await client.attach(20)
        size = FETCH_BYTES // FETCH_FILES
        names = [f"{'n' * 200}/{'p' * 200}/{number}" for number in range(FETCH_FILES)]
        contents = [b"%d" % number * 2000 for number in range(FETCH_FILES)]
        contents = [content[:size] for content in contents]
        files = [FileEntry(name, size, "", "") for name in names]
        await client.put([Outgoing(file, content) for file, content in zip(files, contents, strict=True)], {}, ())
        asked = [(name, size) for name in names]
        for got in await asyncio.gather(client.fetch_many(asked), client.fetch_many(asked)):
            assert got == contents
        for wrong in ([(names[0], size - 1)], [(names[0], size + 1)], [("missing", 1)], [("n" * 200, 1)]):
            with pytest.raises(SandboxLost):
                await client.fetch_many(wrong)
        assert await client.fetch_many([(names[1], size)]) == [contents[1]]
        await client.stream.close()
