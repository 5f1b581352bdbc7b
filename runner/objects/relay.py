"""The way out to stores: a proxy on loopback that lets each bucket's client reach that bucket's host and nothing else.

The library resolves names itself and follows redirects. Behind this, a name is resolved once for a connection, every
address is looked at, and the connection goes to what was looked at; a redirect to any other host ends here. Whoever
connects must know the bucket's token, so that nobody else on this machine gets anywhere.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from runner.objects.hosts import is_public

_MAX_HEAD: Final = 64 << 10
_HEAD_S: Final = 30.0
_END_S: Final = 2.0
_PIECE: Final = 256 << 10
_HOP: Final = frozenset(("connection", "proxy-authorization", "proxy-connection", "keep-alive"))
NOT_PUBLIC: Final = "its host leads to an address that is not public, and is not listed itself"
UNREACHABLE: Final = "the store cannot be reached"
ELSEWHERE: Final = "the store sends to another host"


@dataclass(slots=True)
class Route:
    """Where one bucket's client may go. ``named``: to any address. ``problem``: why it last got nowhere."""

    host: str
    port: int
    named: bool
    connect_timeout_s: float
    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    problem: str = ""


class _Refused(Exception):
    """A connection that ends here."""


class Relay:
    """Starts when it is first needed, in the loop that needs it."""

    def __init__(self) -> None:
        self._routes: dict[str, Route] = {}
        self._server: asyncio.Server | None = None
        self._starting = asyncio.Lock()
        self._open: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()

    async def address(self, route: Route) -> str:
        """The address of the proxy for a route; known from now on until ``forget``."""
        async with self._starting:
            if self._server is None:
                self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_MAX_HEAD)
        self._routes[_credentials(route.token)] = route
        return f"http://{route.token}:x@127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def forget(self, route: Route) -> None:
        """The bucket is gone."""
        self._routes.pop(_credentials(route.token), None)

    async def close(self) -> None:
        """End what is open. May be called again, and before anything was begun."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            for writer in list(self._open):
                writer.transport.abort()
            if self._serving:
                await asyncio.wait(self._serving, timeout=_END_S)
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        if (task := asyncio.current_task()) is not None:
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
        try:
            with suppress(_Refused, OSError, EOFError, TimeoutError, asyncio.LimitOverrunError, ValueError):
                await self._pass(reader, writer)
        finally:
            self._open.discard(writer)
            writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HEAD_S):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, version = head[0].split(" ")
        fields = [line.partition(":") for line in head[1:] if line]
        said = {name.strip().lower(): value.strip() for name, _, value in fields}
        route = self._routes.get(said.get("proxy-authorization", ""))
        if route is None:
            raise _Refused
        tunnel = method == "CONNECT"
        parts = urlsplit(f"//{target}" if tunnel else target)
        host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname
        if (host, parts.port or (443 if tunnel else 80)) != (route.host, route.port):
            route.problem = ELSEWHERE
            raise _Refused
        there, back = await _connect(route)
        self._open.add(back)
        try:
            if tunnel:
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                await _both(reader, writer, there, back, None)
                return
            kept = [f"{name}:{value}" for name, _, value in fields if name.strip().lower() not in _HOP]
            path = parts._replace(scheme="", netloc="").geturl() or "/"
            back.write(
                "\r\n".join([f"{method} {path} {version}", *kept, "Connection: close", "", ""]).encode("latin-1")
            )
            await _both(reader, writer, there, back, int(said.get("content-length", "0")))
        finally:
            self._open.discard(back)
            back.transport.abort()


async def _connect(route: Route) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to an address of the route that was looked at. Raises _Refused."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(route.connect_timeout_s):
            found = await loop.getaddrinfo(route.host.strip("[]"), route.port, type=socket.SOCK_STREAM)
            addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
            if not route.named and not all(is_public(ipaddress.ip_address(address)) for address in addresses):
                route.problem = NOT_PUBLIC
                raise _Refused
            for address in dict.fromkeys(addresses):
                with suppress(OSError):
                    return await asyncio.open_connection(address, route.port, limit=_MAX_HEAD)
    except (OSError, TimeoutError):
        pass
    route.problem = UNREACHABLE
    raise _Refused


async def _both(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    there: asyncio.StreamReader,
    back: asyncio.StreamWriter,
    size: int | None,
) -> None:
    """Bytes in both directions until the store has ended; ``size`` of them to it, None for as many as come."""
    up = asyncio.create_task(_up(reader, back, size))
    try:
        if size is not None:
            await _answer_heads(there, writer)
        await _copy(there, writer, None)
    finally:
        up.cancel()
        await asyncio.wait([up])


async def _up(reader: asyncio.StreamReader, back: asyncio.StreamWriter, size: int | None) -> None:
    """What the client sends; when it goes, the store's side ends too."""
    await _copy(reader, back, size)
    with suppress(OSError):
        while size is not None and await reader.read(_PIECE):  # nothing more is for the store
            pass
    back.transport.abort()


async def _answer_heads(there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The head of the answer, with the word that the connection ends with it: the next request comes anew."""
    while True:
        head = await there.readuntil(b"\r\n\r\n")
        if head.split(b" ", 2)[1:2] != [b"100"]:
            break
        writer.write(head)
    lines = [line for line in head[:-4].split(b"\r\n") if not line.lower().startswith((b"connection:", b"keep-alive:"))]
    writer.write(b"\r\n".join([*lines, b"Connection: close", b"", b""]))
    await writer.drain()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, size: int | None) -> None:
    with suppress(OSError):
        while size is None or size > 0:
            piece = await source.read(_PIECE if size is None else min(size, _PIECE))
            if not piece:
                return
            size = None if size is None else size - len(piece)
            target.write(piece)
            await target.drain()


def _credentials(token: str) -> str:
    return "Basic " + base64.b64encode(f"{token}:x".encode()).decode()
