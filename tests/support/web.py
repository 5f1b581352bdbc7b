"""A web server on loopback for tests of fetching, a canary beside it, and a network that leads to both.

The client under test is the real one; only where names and addresses lead is told here: a public address leads to the
server, every other one to the canary, which counts who comes.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

import httpcore

from runner.egress.addresses import IPAddress, refusal

PUBLIC = "93.184.216.34"
PUBLIC6 = "2606:2800:220:1::1"
SITE = "pictures.example"
Answer = bytes | Callable[[socket.socket, str], None]


def reply(
    body: bytes = b"", status: str = "200 OK", headers: Mapping[str, str] | None = None, *, length: bool = True
) -> bytes:
    """A whole answer; without ``length`` the end of the connection is its end."""
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in (headers or {}).items())]
    lines += [f"Content-Length: {len(body)}"] if length else []
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode() + body


def redirect(to: str, status: str = "302 Found") -> bytes:
    """An answer that leads elsewhere."""
    return reply(status=status, headers={"Location": to})


class Web:
    """Answers by path. ``requests`` are the heads of all that came; ``connections`` counts them, asked or not."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.pages: dict[str, Answer] = {}
        self.requests: list[str] = []
        self.connections = 0
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), self._handler(tls), bind_and_activate=True)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]

    def _handler(self, tls: ssl.SSLContext | None) -> type[socketserver.BaseRequestHandler]:
        web = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                web.connections += 1
                with contextlib.suppress(OSError):
                    sock = tls.wrap_socket(self.request, server_side=True) if tls else self.request
                    with contextlib.closing(sock):
                        web.answer(sock)

        return Handler

    def answer(self, sock: socket.socket) -> None:
        """Read one request and answer it."""
        sock.settimeout(20)
        head = b""
        while b"\r\n\r\n" not in head:
            piece = sock.recv(65536)
            if not piece:
                return
            head += piece
        text = head.decode("latin-1")
        self.requests.append(text)
        page = self.pages.get(text.split(" ")[1], reply(b"nothing", "404 Not Found"))
        if callable(page):
            page(sock, text)
        else:
            sock.sendall(page)

    @contextlib.contextmanager
    def running(self) -> Iterator[Web]:
        """Serve for the length of a block."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join(5)


class LabNetwork:
    """Leads public addresses to one port of loopback and all others to the canary's.

    ``names`` gives the answers of the resolver by host, one list for each time it is asked; the last one stays.
    """

    def __init__(self, port: int, canary: int, names: Mapping[str, Sequence[Sequence[str]]]) -> None:
        self._port, self._canary = port, canary
        self._names = {host: list(answers) for host, answers in names.items()}
        self._backend = httpcore.AnyIOBackend()
        self.asked: list[str] = []
        self.connected: list[tuple[str, int]] = []

    async def resolve(self, host: str) -> list[IPAddress]:
        """The next answer for a host."""
        self.asked.append(host)
        answers = self._names.get(host)
        if answers is None:
            raise OSError("no such name")
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return [ip_address(address) for address in answer]

    async def connect(self, address: IPAddress, port: int, timeout_s: float) -> httpcore.AsyncNetworkStream:
        """To the server or the canary."""
        self.connected.append((str(address), port))
        where = self._canary if refusal(address) else self._port
        return await self._backend.connect_tcp("127.0.0.1", where, timeout_s)

    def is_own(self, address: IPAddress) -> bool:
        """None is, here."""
        return False


def lab_config(web: Web, canary: Web, names: Mapping[str, Sequence[Sequence[str]]]) -> dict[str, Any]:
    """What ``tests.support.web_service`` needs to make the same network in another process."""
    return {"port": web.port, "canary": canary.port, "names": {k: [list(a) for a in v] for k, v in names.items()}}
