"""A container's own stdio on asyncio: the attach call upgraded to a byte stream, and what comes back taken apart.

Without a terminal the daemon sends pieces of both outputs, each behind eight bytes: which one, and how long. Standard
output goes to a reader, whose limit holds up the daemon and so the container; of standard error the end is kept.
Source: Docker Engine API, "Attach to a container", stream format.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import struct
from asyncio import StreamReader, StreamReaderProtocol, StreamWriter
from collections.abc import Mapping
from typing import Final, cast
from urllib.parse import urlsplit

from runner.backends.docker.door import RETRY_MS, ContainerGone, NameTaken, gone, silent, unavailable
from runner.errors import BackendUnavailable

STDERR_KEEP: Final = 4096
_HEADER: Final = struct.Struct(">BxxxI")
_STDOUT, _STDERR = 1, 2
_MAX_HEAD: Final = 16 << 10
_DEFAULT: Final = "unix:///var/run/docker.sock"
_READER_LIMIT: Final = 1 << 17
_ASK: Final = (
    "POST /containers/{name}/attach?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1\r\n"
    "Host: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n"
)


class Demultiplexer:
    """Takes the daemon's stream apart; ``feed`` gives the standard output in what came."""

    def __init__(self) -> None:
        self.last_words = b""
        self._head = b""
        self._kind, self._left = 0, 0

    def feed(self, data: bytes) -> list[bytes]:
        """Pieces of standard output, in order. Raises ValueError on what is no such stream."""
        found: list[bytes] = []
        at, end = 0, len(data)
        while at < end:
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                if self._kind == _STDERR:
                    self.last_words = (self.last_words + piece)[-STDERR_KEEP:]
                else:
                    found.append(piece)
                continue
            missing = _HEADER.size - len(self._head)
            self._head += data[at : at + missing]
            at += missing
            if len(self._head) == _HEADER.size:
                self._kind, self._left = _HEADER.unpack(self._head)
                self._head = b""
                if self._kind not in (_STDOUT, _STDERR):
                    raise ValueError(f"no such stream: {self._kind}")
        return found


class _Attachment(StreamReaderProtocol):
    """The answer's head first, then the outputs."""

    def __init__(self, reader: StreamReader) -> None:
        super().__init__(reader)
        self.outputs = Demultiplexer()
        self.ended = False
        self.upgraded: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        self._reader = reader
        self._head: bytes | None = b""
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            data = self._read_head(data)
        try:
            for piece in self.outputs.feed(data):
                self._reader.feed_data(piece)
        except ValueError:
            assert self._transport is not None
            self._transport.close()

    def _read_head(self, data: bytes) -> bytes:
        """What follows the head, once that is complete."""
        assert self._head is not None
        self._head += data
        head, blank, rest = self._head.partition(b"\r\n\r\n")
        if not blank and len(self._head) < _MAX_HEAD:
            return b""
        status = head.split(b" ", 2)[1:2]
        code = int(status[0]) if status and status[0].isdigit() else 0
        self._head = None
        if not self.upgraded.done():
            self.upgraded.set_result((code, rest[:500].decode("utf-8", "replace")))
        return rest if code in (101, 200) else b""

    def eof_received(self) -> bool:
        self.ended = True
        return bool(super().eof_received())

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = True
        if not self.upgraded.done():
            self.upgraded.set_exception(error or ConnectionResetError("the daemon closed the connection"))
            self.upgraded.exception()  # whoever waits raises it; else nobody needs it
        super().connection_lost(error)


class Attached:
    """An open stream to a container's agent."""

    def __init__(self, reader: StreamReader, writer: StreamWriter, protocol: _Attachment) -> None:
        self.reader, self.writer, self.outputs = reader, writer, protocol.outputs
        self._protocol = protocol

    @property
    def ended(self) -> bool:
        """Whether nothing more comes: the container has ended, or the daemon."""
        return self._protocol.ended

    def close(self) -> None:
        """Let go; the container does not notice."""
        self.writer.transport.abort()


async def attach(daemon: Mapping[str, str], container: str, limit_s: float) -> Attached:
    """Attach to a container, running or about to be started. Raises BackendUnavailable, ContainerGone."""
    try:
        async with asyncio.timeout(limit_s):
            return await _attach(daemon, container)
    except (OSError, ValueError, TimeoutError) as error:  # ssl.SSLError is an OSError
        cause = f"attach: {type(error).__name__}: {error}"[:500]
        raise unavailable(silent(str(error)), cause) from error


async def _attach(daemon: Mapping[str, str], container: str) -> Attached:
    loop = asyncio.get_running_loop()
    reader = StreamReader(limit=_READER_LIMIT)
    protocol = _Attachment(reader)
    transport = await _connect(loop, daemon, protocol)
    try:
        writer = StreamWriter(transport, protocol, None, loop)
        writer.write(_ASK.format(name=container).encode())
        code, text = await protocol.upgraded
        if code not in (101, 200):
            raise _refused(code, text)
    except BaseException:
        transport.abort()
        raise
    return Attached(reader, writer, protocol)


def _refused(code: int, text: str) -> BackendUnavailable | ContainerGone:
    cause = f"attach: {code} {text}"[:500]
    if code == 404:
        return gone(cause)
    if code == 409:
        detail = "the sandbox cannot be attached to; send the request again"
        return NameTaken(detail, cause=cause, retry_after_ms=RETRY_MS)
    return unavailable("the Docker daemon could not do it; see the log", cause)


async def _connect(
    loop: asyncio.AbstractEventLoop, daemon: Mapping[str, str], protocol: _Attachment
) -> asyncio.WriteTransport:
    where = daemon.get("DOCKER_HOST", "").strip() or _DEFAULT
    address = urlsplit(where)
    transport: asyncio.BaseTransport
    if address.scheme == "unix":
        transport, _ = await loop.create_unix_connection(lambda: protocol, address.path)
    elif address.scheme in ("tcp", "http", "https") and address.hostname:
        secured = _context(daemon) if address.scheme == "https" or _secured(daemon) else None
        port = address.port or (2376 if secured else 2375)
        transport, _ = await loop.create_connection(lambda: protocol, address.hostname, port, ssl=secured)
    else:
        raise ValueError(f"DOCKER_HOST={where}: only unix:// and tcp:// can be used")
    return cast(asyncio.WriteTransport, transport)  # uvloop's does not say so


def _secured(daemon: Mapping[str, str]) -> bool:
    return bool(daemon.get("DOCKER_TLS_VERIFY") or daemon.get("DOCKER_CERT_PATH"))


def _context(daemon: Mapping[str, str]) -> ssl.SSLContext:
    """As the docker package has it: the caller shows a certificate, and looks at the daemon's unless told not to."""
    folder = daemon.get("DOCKER_CERT_PATH") or os.path.expanduser("~/.docker")
    context = ssl.create_default_context()
    with contextlib.suppress(FileNotFoundError):
        context.load_verify_locations(os.path.join(folder, "ca.pem"))
    context.load_cert_chain(os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem"))
    if not daemon.get("DOCKER_TLS_VERIFY"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
