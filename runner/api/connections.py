"""Connections: what a client may hold open, and for how long, before and after the application is asked.

uvicorn parses HTTP and bounds neither heads nor waiting, so a client could send one endless header, a byte a
minute, or read nothing of an answer, and keep its connection and memory for ever. Here every state of a
connection has a bound: the number of connections, the size of a head and the time until it is complete, the
requests sent ahead of their turn, and the time in which some of an answer must be taken. What a body may be,
and how slowly it may come, is the gate's (``middleware``).
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
from asyncio.events import TimerHandle
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from runner import environment
from runner.telemetry.logs import logger

MAX_PIPELINED: Final = 32
MAX_HEADERS: Final = 128
MAX_CONNECTIONS: Final = "SANDBOX_MAX_CONNECTIONS"
HEAD_TIMEOUT: Final = "SANDBOX_HEAD_TIMEOUT_SECONDS"
SEND_TIMEOUT: Final = "SANDBOX_SEND_TIMEOUT_SECONDS"
MAX_HEAD: Final = "SANDBOX_MAX_HEAD_BYTES"
log = logger("http")


@dataclass(frozen=True, slots=True)
class ConnectionsConfig:
    """``head_timeout_s``: from the first byte of a request, or the opening, to the end of its head.

    ``send_timeout_s``: how long a client may take nothing of an answer that waits for it.
    """

    max_connections: int = 1000
    max_head_bytes: int = 64 << 10
    head_timeout_s: float = 20.0
    send_timeout_s: float = 60.0

    @classmethod
    def from_env(cls, env: environment.Env) -> ConnectionsConfig:
        """``SANDBOX_MAX_CONNECTIONS``, ``_MAX_HEAD_BYTES``, ``_HEAD_TIMEOUT_SECONDS``, ``_SEND_TIMEOUT_SECONDS``."""
        return cls(
            max_connections=environment.integer(env, "SANDBOX_MAX_CONNECTIONS", 1000, minimum=8, maximum=1_000_000),
            max_head_bytes=environment.size(env, "SANDBOX_MAX_HEAD_BYTES", 64 << 10, minimum=1024),
            head_timeout_s=environment.number(env, "SANDBOX_HEAD_TIMEOUT_SECONDS", 20.0, minimum=0.1),
            send_timeout_s=environment.number(env, "SANDBOX_SEND_TIMEOUT_SECONDS", 60.0, minimum=0.1),
        )


class Refused(Exception):
    """A request that is answered here, after which its connection is closed."""

    def __init__(self, status: int, code: str, title: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.code, self.title, self.detail = status, code, title, detail


class _Timer:
    """Calls back once after a time, unless it is stopped; starting it while it runs changes nothing."""

    def __init__(self, loop: asyncio.AbstractEventLoop, delay_s: float, callback: Callable[[], None]) -> None:
        self._loop, self._delay_s, self._callback = loop, delay_s, callback
        self._handle: TimerHandle | None = None

    def start(self) -> None:
        if self._handle is None:
            self._handle = self._loop.call_later(self._delay_s, self._expire)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _expire(self) -> None:
        self._handle = None
        self._callback()


class Connection(HttpToolsProtocol):
    """One connection of a client, with bounds on all that it can hold."""

    def __init__(self, limits: ConnectionsConfig, **given: Any) -> None:
        super().__init__(**given)
        self._limits = limits
        self._head_timer = _Timer(self.loop, limits.head_timeout_s, self._head_is_late)
        self._send_timer = _Timer(self.loop, limits.send_timeout_s, self._reader_is_late)
        self._head_bytes = 0
        self._in_head = False
        self._refused: Refused | None = None
        self._deaf = False  # what comes now is no request any more, or one that was refused
        self._active: RequestResponseCycle | None = None  # the request that is being served; ``cycle`` is the newest

    # -- opening and closing -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected; one beyond the limit is told so and let go."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.max_connections:
            self.refuse(
                Refused(
                    503,
                    "too_many_connections",
                    "Too many connections",
                    f"{self._limits.max_connections} connections are open, which is the limit ({MAX_CONNECTIONS}): "
                    "close idle ones, or send this later",
                )
            )
        else:
            self._head_timer.start()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended; so have its timers."""
        self._head_timer.stop()
        self._send_timer.stop()
        super().connection_lost(exc)

    def refuse(self, why: Refused) -> None:
        """Answer without asking the application and close; where other answers are under way, after those and
        without one: it could not be told from the rest of them.
        """
        self._head_timer.stop()
        if self.transport.is_closing() or self._deaf:
            return
        self._deaf = True
        if self._answers_first():
            self.flow.resume_reading()  # what else comes is dropped; unread, it would make closing a reset
            log.info("refused after other answers", status=why.status, code=why.code)
            return
        body = {
            "type": f"urn:foliobox:error:{why.code}",
            "title": why.title,
            "status": why.status,
            "detail": why.detail,
            "code": why.code,
            "request_id": secrets.token_hex(8),
        }
        self.transport.write(_answer(why.status, body))
        self.transport.close()
        log.info("refused", status=why.status, code=why.code, request_id=body["request_id"])

    def _answers_first(self) -> bool:
        """Whether there are answers to finish; the last of them then closes the connection.

        A request of which the rest cannot come any more is given up, unless its answer has begun.
        """
        last = self.cycle
        if last is None or last.response_complete:
            return False
        if last.more_body and not last.response_started:
            last.disconnected = True
            last.message_event.set()
            if last is self._active or self._active is None:
                return False
            self.pipeline.popleft()
            last = self.pipeline[0][0] if self.pipeline else self._active
        last.keep_alive = False
        return True

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._active = cycle
        super()._start_asgi_task(cycle, app)

    # -- heads -------------------------------------------------------------------------------------------------

    def _head_is_late(self) -> None:
        if self._answering:
            self._head_timer.start()  # reading may be paused meanwhile, so it need not be the client who is late
        elif not self._in_head:
            self.transport.close()  # nothing was asked, so nothing is answered
        else:
            self.refuse(
                Refused(
                    408,
                    "timeout",
                    "Request timeout",
                    f"the head was not complete after {self._limits.head_timeout_s:g} s ({HEAD_TIMEOUT})",
                )
            )

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        """More bytes. A head is counted as it comes: the parser itself would gather it without end."""
        if self.transport.is_closing() or self._deaf:
            return
        begun = self._in_head
        super().data_received(data)
        if self.transport.is_closing() or self._deaf:
            return
        if begun and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > self._limits.max_head_bytes:
                self.refuse(self._too_large())
        elif not self._answering:
            self._head_timer.start()  # whatever came was no request yet

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        self._head_timer.start()

    def on_headers_complete(self) -> None:
        """The head is complete: its size and the requests that wait are bounded before anything is done."""
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self._limits.max_head_bytes or len(self.headers) > MAX_HEADERS:
            self._refused = self._too_large()
            raise self._refused
        if len(self.pipeline) >= MAX_PIPELINED:
            self._refused = Refused(429, "queue_full", "Too many requests", "wait for answers before sending more")
            raise self._refused
        if any(name == b"transfer-encoding" and value.strip().lower() != b"chunked" for name, value in self.headers):
            detail = "Transfer-Encoding: only chunked is understood; send the bytes as they are"
            self._refused = Refused(400, "invalid_arguments", "Unknown transfer coding", detail)
            raise self._refused
        self._in_head = False
        self._head_timer.stop()
        super().on_headers_complete()

    def _too_large(self) -> Refused:
        return Refused(
            431,
            "too_large",
            "Request head too large",
            f"address and headers may have {self._limits.max_head_bytes} bytes ({MAX_HEAD}) and {MAX_HEADERS} fields: "
            "put long values into the body",
        )

    def send_400_response(self, msg: str) -> None:
        """What could not be parsed, or was refused while it was parsed."""
        wrong = Refused(400, "invalid_arguments", "Not HTTP", "what came is no HTTP request: see RFC 9112")
        self.refuse(self._refused or wrong)

    # -- answers -----------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """The client does not take what was written: wait a bounded time for it."""
        super().pause_writing()
        self._send_timer.start()

    def resume_writing(self) -> None:
        """The client has taken most of it."""
        self._send_timer.stop()
        super().resume_writing()

    def _reader_is_late(self) -> None:
        log.info("a client did not take its answer", seconds=self._limits.send_timeout_s)
        self.transport.abort()


def protocol(limits: ConnectionsConfig) -> Callable[..., Connection]:
    """What uvicorn makes a connection with."""
    return partial(Connection, limits)


def prepare(listener: socket.socket, limits: ConnectionsConfig) -> None:
    """Options that accepted connections inherit: small answers leave at once, and the kernel ends a connection
    whose client is gone or takes nothing, also when all was handed over to it (tcp(7), TCP_USER_TIMEOUT).
    """
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(limits.send_timeout_s * 1000))


def _answer(status: int, body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    head = (
        b"content-type: application/problem+json\r\n"
        b"content-length: %d\r\n"
        b"x-content-type-options: nosniff\r\n"
        b"x-request-id: %s\r\n"
        b"connection: close\r\n" % (len(content), body["request_id"].encode())
    )
    if status in (429, 503):
        head += b"retry-after: 1\r\n"
    return STATUS_LINE[status] + head + b"\r\n" + content


assert issubclass(httptools.HttpParserCallbackError, httptools.HttpParserError)  # else a refusal would not be caught
