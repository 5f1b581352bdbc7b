"""A small server that answers as a contract says, or with one thing wrong: it shows that the kits can fail."""

from __future__ import annotations

import contextlib
import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Answer = tuple[int, Any]  # a body of None is no body at all
Mutation = Callable[[str, int, Any], Answer]  # of the route, the status and the body


class Model(Protocol):
    """A surface, told without HTTP. The route is the method and the first part of the path."""

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        """Status and JSON."""


@dataclass(frozen=True)
class Wrong:
    """One wrong thing: on ``route``, where ``when`` holds for status and body, ``make`` makes another answer."""

    route: str
    make: Callable[[int, Any], Answer]
    when: Callable[[int, Any], bool] = lambda status, body: status == 200

    def __call__(self, route: str, status: int, body: Any) -> Answer:
        return self.make(status, body) if route == self.route and self.when(status, body) else (status, body)


def as_is(route: str, status: int, body: Any) -> Answer:
    """The control: nothing is wrong."""
    return status, body


@contextlib.contextmanager
def serving(model: Model, mutation: Mutation = as_is) -> Iterator[str]:
    """The base URL of a model, for the length of a block."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one piece: else each answer waits for an acknowledgement
        disable_nagle_algorithm = True

        def go(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, made = model.answer(self.command, self.path, headers, body)
            status, made = mutation(f"{self.command} {self.path}", status, made)
            data = b"" if made is None else json.dumps(made).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            if status != 204:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = go  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is logged."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def run(root: Path, command: str, code: str, limit_s: float, name: str) -> tuple[int, str, str, bool]:
    """A script of the kit itself, in a folder that stands for ``name``: status, streams and whether time ran out.

    It is not confined in any way and is given nothing but what the kits hold.
    """
    program = [sys.executable, "-I", "-S", "-c"] if command == "python" else ["bash", "-c"]
    try:
        done = subprocess.run(
            [*program, code.replace(name, str(root))], cwd=root, capture_output=True, timeout=limit_s, check=False,
            stdin=subprocess.DEVNULL, env={"PATH": "/usr/bin:/bin", "HOME": str(root)},
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        return -1, (error.stdout or b"").decode(), (error.stderr or b"").decode(), True
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"), False
