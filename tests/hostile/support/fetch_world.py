"""A small internet in network namespaces, with the service as it is shipped in the middle, and a count of hits.

    unshare -n -m python -m tests.hostile.support.fetch_world FOLDER < CASES

Here, and only here, live: canaries on ports 80 and 443 of every address of this namespace, among them those of clouds'
metadata and one that is public; a name server, whose answers change; and, in a namespace of its own, a public web
server that redirects to wherever it is asked to. Reads cases from standard input, prints what became of them.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support import sandboxes
from tests.support.pictures import picture
from tests.support.runner import KEPT, Chat, Runner

ORIGIN, OWN = "93.184.216.34", "93.184.216.1"
INSIDE = ("10.0.0.1", "169.254.169.254", "172.17.0.1", "192.168.0.1", "192.168.1.1", "100.100.100.200", "192.0.0.192",
          "168.63.129.16", "198.18.0.1", "203.0.113.7")  # fmt: skip
INSIDE6 = ("fd00:ec2::254", "fec0::1", "2001:db8::1", "64:ff9b:1::7f00:1", "2002:7f00:1::", "64:ff9b::a9fe:a9fe")
NAMES = {
    "origin.example": [[ORIGIN]],
    "inside.example": [["127.0.0.1"]],
    "metadata.example": [["169.254.169.254"]],
    "mixed.example": [[ORIGIN, "10.0.0.1"]],
    "own.example": [[OWN]],
    "rebind.example": [[ORIGIN], ["127.0.0.1"]],
}


def command(*words: str) -> None:
    """Run a command that must succeed."""
    subprocess.run(words, check=True, capture_output=True)


class Counter(threading.Thread):
    """Accepts on one address and port, and counts; answers with a picture, so that a hit is also a success."""

    def __init__(self, family: int, address: str, port: int) -> None:
        super().__init__(daemon=True)
        self.hits = 0
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            self._listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        self._listener.bind((address, port))
        self._listener.listen(256)

    def run(self) -> None:
        """Until the process ends."""
        body = picture("PNG")
        while True:
            sock, _ = self._listener.accept()
            self.hits += 1
            with contextlib.suppress(OSError), sock:
                sock.settimeout(0.5)
                sock.recv(4096)
                sock.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + body)


class Names(socketserver.BaseRequestHandler):
    """A name server; the answers of a name take turns. ``asked`` holds every question."""

    asked: list[str] = []  # noqa: RUF012
    turns: dict[str, int] = {}  # noqa: RUF012

    def handle(self) -> None:
        """One question."""
        packet, sock = self.request
        at, labels = 12, []
        while packet[at]:
            labels.append(packet[at + 1 : at + 1 + packet[at]].decode("latin-1").lower())
            at += 1 + packet[at]
        name, kind = ".".join(labels), struct.unpack(">H", packet[at + 1 : at + 3])[0]
        self.asked.append(name)
        answers: list[str] = []
        if kind == 1 and name in NAMES:
            turn = self.turns[name] = self.turns.get(name, -1) + 1
            answers = NAMES[name][turn % len(NAMES[name])]
        code = 0x8180 if name in NAMES else 0x8183
        reply = packet[:2] + struct.pack(">HHHHH", code, 1, len(answers), 0, 0) + packet[12 : at + 5]
        for address in answers:
            reply += b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + socket.inet_aton(address)
        sock.sendto(reply, self.client_address)


def serve_origin() -> None:
    """The public server: ``/p.png`` is a picture, ``/r/<base64 of an address>`` leads there. Prints each request."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            path = self.rfile.readline().decode("latin-1").split(" ")[1]
            while self.rfile.readline().strip():
                pass
            sys.stdout.write(path[:20] + "\n")
            sys.stdout.flush()
            if path.startswith("/r/"):
                to = base64.urlsafe_b64decode(path[3:])
                self.wfile.write(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + to + b"\r\n\r\n")
            else:
                self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + picture("PNG"))

    socketserver.ThreadingTCPServer.allow_reuse_address = True
    server = socketserver.ThreadingTCPServer(("0.0.0.0", 80), Handler)
    server.daemon_threads = True
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    server.serve_forever()


@contextlib.contextmanager
def world(folder: Path) -> Iterator[tuple[list[Counter], list[str]]]:
    """The namespaces, wired and served; the canaries, and what the public server was asked for."""
    command("mount", "--make-rprivate", "/")
    resolv = folder / "resolv.conf"
    resolv.write_text("nameserver 127.0.0.1\noptions attempts:1 timeout:2\n")
    command("mount", "--bind", str(resolv), os.path.realpath("/etc/resolv.conf"))
    command("ip", "link", "set", "lo", "up")
    for address in INSIDE:
        command("ip", "address", "add", f"{address}/32", "dev", "lo")
    for address in INSIDE6:
        command("ip", "-6", "address", "add", f"{address}/128", "dev", "lo", "nodad")
    words = ["unshare", "-n", sys.executable, "-m", "tests.hostile.support.fetch_world", "--origin"]
    origin = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert origin.stdout is not None and origin.stdout.readline() == "ready\n"
        command("ip", "link", "add", "out", "type", "veth", "peer", "name", "in", "netns", str(origin.pid))
        for words in (["address", "add", f"{ORIGIN}/24", "dev", "in"], ["link", "set", "in", "up"]):
            command("nsenter", "-t", str(origin.pid), "-n", "ip", *words)
        command("ip", "address", "add", f"{OWN}/24", "dev", "out")
        command("ip", "link", "set", "out", "up")
        names = socketserver.ThreadingUDPServer(("127.0.0.1", 53), Names)
        threading.Thread(target=names.serve_forever, daemon=True).start()
        canaries = [
            Counter(family, address, port)
            for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"))
            for port in (80, 443)
        ]
        for canary in canaries:
            canary.start()
        asked: list[str] = []
        stream = origin.stdout
        threading.Thread(target=lambda: asked.extend(iter(stream.readline, "")), daemon=True).start()
        yield canaries, asked
    finally:
        origin.kill()
        origin.wait()


@contextlib.contextmanager
def service(data: Path) -> Iterator[Chat]:
    """The service as it is shipped, with the one setting that lets it fetch."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    runner = Runner(data, {**kept, "SANDBOX_FETCH": "1", "SANDBOX_POOL_SIZE": "0"}).start()
    try:
        with runner.client() as http:
            yield Chat(http)
    finally:
        runner.stop()
        sandboxes.discard(runner)


def attempt(chat: Chat, tool: str, url: str) -> str:
    """The code of what a tool answers, ``ok`` where it fetched."""
    body, kind = json.dumps({"url": url}), {"Content-Type": "application/json"}  # lone surrogates as escapes
    answer = chat.http.post(f"/v1/conversations/{chat.id}/tools/{tool}", content=body, headers=kind)
    return "ok" if answer.status_code == 200 else str(answer.json()["code"])


def unguarded(url: str) -> None:
    """The control: what any program does that just fetches an address."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with contextlib.suppress(Exception):
        opener.open(url, timeout=1).read(100)


def redirected(url: str) -> str:
    """An address of the public server that leads to another."""
    to = url.encode("utf-8", "surrogatepass")
    return f"http://origin.example/r/{base64.urlsafe_b64encode(to).decode()}"


def main(folder: Path) -> dict[str, Any]:
    """Try every case by every route, then the controls."""
    cases: list[str] = json.load(sys.stdin)
    told: dict[str, Any] = {"codes": {}}
    with world(folder) as (canaries, asked), service(folder / "data") as chat:

        def hits() -> int:
            return sum(canary.hits for canary in canaries)

        told["allowed"] = attempt(chat, "fetch_image", "http://origin.example/p.png")
        told["redirect"] = attempt(chat, "fetch_image", redirected("/p.png"))
        for url in cases:
            routes = {
                "image": ("fetch_image", url),
                "file": ("fetch_file", url),
                "redirect": ("fetch_file", redirected(url)),
            }
            told["codes"][url] = {name: attempt(chat, tool, to) for name, (tool, to) in routes.items()}
        told["hits"], told["asked"] = hits(), sorted(set(Names.asked))
        rebinding = [attempt(chat, "fetch_image", "http://rebind.example/p.png") for _ in range(200)]
        told["rebinding"] = {code: rebinding.count(code) for code in set(rebinding)}
        told["rebinding_hits"], told["origin"] = hits() - told["hits"], len(asked)
        told["controls"] = {}
        for url in [*cases, redirected("http://127.0.0.1/")]:
            before = hits()
            unguarded(url)
            deadline = time.monotonic() + 0.05  # a connection that was made is counted within this
            while hits() == before and time.monotonic() < deadline:
                time.sleep(0.005)
            told["controls"][url] = hits() - before
    return told


if __name__ == "__main__":
    if sys.argv[1] == "--origin":
        serve_origin()
    else:
        sys.stdout.write(json.dumps(main(Path(sys.argv[1]))))
