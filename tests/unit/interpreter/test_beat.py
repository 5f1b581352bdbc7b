"""A host that a sandbox may wait for lets it know that it is there, until it lets go."""

from __future__ import annotations

import asyncio
import socket

from runner.agent.protocol import Assembler, Decoder, Json
from runner.interpreter.client import SandboxClient
from tests.unit.agent.lab import Ends


async def said(orphan_s: float | None, count: int) -> list[str]:
    """The first words of a host to a sandbox, and all that it says until it lets go."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    heard, other = await asyncio.open_connection(sock=theirs)
    ends = Ends(reader, writer)
    ends.orphan_s = orphan_s
    client = SandboxClient(ends)
    decoder, assembler, words = Decoder(), Assembler(), list[str]()
    client.mark(None)
    client.mark(None)
    while len(words) < count:
        for frame in decoder.feed(await heard.read(1 << 16)):
            whole: tuple[Json, list[bytes]] | None = assembler.add(frame)
            words += [] if whole is None else [str(whole[0]["op"])]
    await client.stream.close()
    left = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    assert [handle for handle in left if not handle.cancelled()] == []
    for end in (writer, other):
        end.close()
    return words


async def test_beats_come_as_long_as_there_is_a_host() -> None:
    words = await said(0.05, 5)
    assert words.count("beat") >= 3
    assert words[0] == "beat"


async def test_a_sandbox_that_ends_with_its_host_needs_none() -> None:
    assert await said(None, 2) == ["mark", "mark"]
