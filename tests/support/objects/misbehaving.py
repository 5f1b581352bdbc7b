"""Servers that are no store: one that only counts who comes, and some that hang, break off or send elsewhere."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Listener:
    """A server that is up, and the heads of the requests that came."""

    port: int = 0
    heads: list[str] = field(default_factory=list)
    connections: int = 0

    @property
    def host(self) -> str:
        """As it stands in SANDBOX_STORAGE_HOSTS."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """Its endpoint."""
        return f"http://{self.host}"


async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An empty 200 to anything: what a canary says."""
    writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nETag: "x"\r\nConnection: close\r\n\r\n')


async def hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Takes the request and never answers."""
    with suppress(ConnectionError):
        while await reader.read(65536):
            pass


async def dies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Breaks off in the midst of an upload."""
    with suppress(asyncio.IncompleteReadError):
        await reader.readexactly(64 << 10)
    writer.transport.abort()


async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Gives half of what it announces."""
    writer.write(
        b'HTTP/1.1 200 OK\r\nContent-Length: 2000\r\nETag: "x"\r\n'
        b"Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n\r\n" + bytes(1000)
    )


def metadata(document: bytes) -> Behaviour:
    """A cloud's metadata service: to any request a document, with the connection closed after it."""

    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            f"HTTP/1.1 200 OK\r\nContent-Length: {len(document)}\r\nConnection: close\r\n\r\n".encode() + document
        )

    return behaviour


def redirects(target: str) -> Behaviour:
    """Sends everybody elsewhere."""

    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 307 Temporary Redirect\r\nLocation: {target}\r\n"
        writer.write(f"{head}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())

    return behaviour


@asynccontextmanager
async def listener(behaviour: Behaviour = answers, tls: ssl.SSLContext | None = None) -> AsyncIterator[Listener]:
    """A server of that behaviour, for as long as the block lasts."""
    record = Listener()

    served: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        record.connections += 1
        served[writer] = asyncio.current_task()
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            record.heads.append((await reader.readuntil(b"\r\n\r\n")).decode("latin-1"))
            await behaviour(reader, writer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    record.port = server.sockets[0].getsockname()[1]
    try:
        yield record
    finally:
        server.close()
        for writer in served:
            writer.transport.abort()
        await asyncio.wait([task for task in served.values() if task is not None] or [asyncio.create_task(_nothing())])
        await server.wait_closed()


async def _nothing() -> None:
    """So that there is something to wait for."""
