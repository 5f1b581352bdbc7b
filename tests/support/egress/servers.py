"""What answers in the outer namespace: web servers, a resolver and canaries; each hit is a line of a file.

Runs by itself: ``python servers.py HITS ZONE RESOLVER``, ``ZONE`` being a file with ``{"name": [["address", …], …]}``:
the answers that a name gives, one after the other, always with a time to live of nothing.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import socket
import struct
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

WEB = (80, 443, 8080)
CANARIES = (22, 8443)
_A, _AAAA = 1, 28
_lock = threading.Lock()
_asked: Counter[str] = Counter()


def note(**hit: object) -> None:
    """One line."""
    with _lock, open(sys.argv[1], "a") as file:
        file.write(json.dumps(hit) + "\n")


class Web(BaseHTTPRequestHandler):
    """Says which address it was reached at; ``/to?URL`` redirects, ``/files/NAME`` gives a file of ``HITS.files``."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Every request is a hit."""
        here = self.connection.getsockname()
        at = here[0].removeprefix("::ffff:")
        note(kind="http", at=at, port=here[1], host=self.headers.get("Host"), path=self.path)
        parts = urlsplit(self.path)
        if parts.path == "/to":
            self._answer(302, b"", Location=parse_qs(parts.query)["url"][0])
            return
        body = f"hello from {at}\n".encode()
        kind = "text/plain"
        if parts.path.startswith("/simple/"):
            body, kind = _index(parts.path), "text/html"
        if parts.path.startswith("/files/"):
            body, kind = (_folder() / os.path.basename(parts.path)).read_bytes(), "application/octet-stream"
        self._answer(200, body, **{"Content-Type": kind})

    do_HEAD = do_POST = do_GET  # noqa: N815

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """The hits are enough."""


class Server(ThreadingHTTPServer):
    """On every address, of both kinds."""

    address_family = socket.AF_INET6
    daemon_threads = True

    def server_bind(self) -> None:
        """Not IPv6 alone."""
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def _folder() -> Path:
    return Path(sys.argv[1] + ".files")


def _index(path: str) -> bytes:
    """A package index, as pip reads one."""
    wanted = path.strip("/").removeprefix("simple").strip("/").replace("-", "_")
    names = [file.name for file in _folder().glob("*.whl") if file.name.startswith(wanted)]
    return "".join(f'<a href="/files/{name}">{name}</a>\n' for name in names).encode()


def canary(port: int) -> None:
    """Takes connections and says so."""
    with socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        while True:
            connection, _ = server.accept()
            note(kind="tcp", at=connection.getsockname()[0].removeprefix("::ffff:"), port=port)
            connection.close()


def resolver(zone: dict[str, list[list[str]]]) -> None:
    """Answers by a zone; every question is a hit."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((sys.argv[3], 53))
    while True:
        data, sender = sock.recvfrom(4096)
        with contextlib.suppress(ValueError, IndexError, struct.error):
            sock.sendto(_reply(data, zone), sender)


def _reply(data: bytes, zone: dict[str, list[list[str]]]) -> bytes:
    labels, at = [], 12
    while data[at]:
        labels.append(data[at + 1 : at + 1 + data[at]].decode("ascii", "replace"))
        at += data[at] + 1
    kind = struct.unpack_from(">H", data, at + 1)[0]
    name = ".".join(labels).lower()
    note(kind="dns", name=name, type=kind)
    answers = _next(name, kind, zone)
    head = data[:2] + struct.pack(">HHHHH", 0x8180 if name in zone else 0x8183, 1, len(answers), 0, 0)
    body = b""
    for answer in answers:
        packed = ipaddress.ip_address(answer).packed
        body += b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 0, len(packed)) + packed
    return head + data[12 : at + 5] + body


def _next(name: str, kind: int, zone: dict[str, list[list[str]]]) -> list[str]:
    """What a name has of a kind, this time."""
    version = {_A: 4, _AAAA: 6}.get(kind)
    turns = zone.get(name, [])
    fitting = [
        found for turn in turns if (found := [one for one in turn if ipaddress.ip_address(one).version == version])
    ]
    if not fitting:
        return []
    with _lock:
        turn = _asked[f"{name} {kind}"]
        _asked[f"{name} {kind}"] += 1
    return fitting[turn % len(fitting)]


def main() -> None:
    """Serve until killed; says so once everything listens."""
    zone = json.loads(Path(sys.argv[2]).read_text())
    servers = [Server(("::", port), Web) for port in WEB]
    threads = [threading.Thread(target=server.serve_forever, daemon=True) for server in servers]
    threads += [threading.Thread(target=canary, args=(port,), daemon=True) for port in CANARIES]
    threads.append(threading.Thread(target=resolver, args=(zone,), daemon=True))
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
