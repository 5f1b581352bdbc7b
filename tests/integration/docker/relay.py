"""A socket in front of a real daemon's, that can lose it, hold its answers back, and find it again."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit


class Relay:
    """``lose`` is a daemon that was stopped, ``hold`` one that hangs: it hears and says nothing."""

    def __init__(self, place: Path, daemon: str) -> None:
        self.address = f"unix://{place}"
        self._place, self._daemon = place, urlsplit(daemon).path
        self._speaks = asyncio.Event()
        self._speaks.set()
        self._server: asyncio.Server | None = None
        self._talks: set[asyncio.Task[None]] = set()

    async def find(self) -> None:
        """Listen."""
        self._server = await asyncio.start_unix_server(self._accept, self._place)

    async def lose(self) -> None:
        """Listen no more, and cut what was connected."""
        if self._server is not None:
            self._server.close()
            self._place.unlink(missing_ok=True)
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    def hold(self) -> None:
        """Hear everything, say nothing."""
        self._speaks.clear()

    def let_go(self) -> None:
        """Speak again."""
        self._speaks.set()

    def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        talk = asyncio.create_task(self._talk(reader, writer))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def _talk(self, reader: StreamReader, writer: StreamWriter) -> None:
        heard, said = await asyncio.open_unix_connection(self._daemon)
        ways = [
            asyncio.create_task(self._pass(reader, said, speaking=False)),
            asyncio.create_task(self._pass(heard, writer, speaking=True)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in (said, writer):
                end.close()
                with contextlib.suppress(OSError):
                    await end.wait_closed()

    async def _pass(self, source: StreamReader, target: StreamWriter, *, speaking: bool) -> None:
        while data := await source.read(1 << 16):
            if speaking:
                await self._speaks.wait()
            target.write(data)
            await target.drain()


@contextlib.asynccontextmanager
async def relay(folder: Path, daemon: str) -> AsyncIterator[Relay]:
    """A relay that listens, for the length of a block."""
    made = Relay(folder / "relay.sock", daemon)
    await made.find()
    try:
        yield made
    finally:
        made.let_go()
        await made.lose()
