"""A real service on loopback, as a process of its own that is ended with the test."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

START_S = 60.0
KEPT = ("PATH", "HOME", "LANG", "FOLIOBOX_CACHE_DIR", "SANDBOX_ROOTFS", "SANDBOX_ALLOW_UNISOLATED", "SANDBOX_BACKEND")


@dataclass
class Runner:
    """A running ``foliobox serve`` with its own data folder, port and key."""

    data: Path
    env: dict[str, str] = field(default_factory=dict)
    key: str = field(default_factory=lambda: secrets.token_hex(8))
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Base address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Process id of the service."""
        assert self.process is not None
        return self.process.pid

    @property
    def log(self) -> Path:
        """Where the service logs to."""
        return self.data / "serve.log"

    def start(self) -> Runner:
        """Start, and wait until health answers. The port is chosen anew at every start."""
        self.data.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        env = {name: os.environ[name] for name in KEPT if name in os.environ}
        env |= {"SANDBOX_DATA_DIR": str(self.data), "SANDBOX_API_KEY": self.key, **self.env}
        command = [sys.executable, "-m", "runner", "serve", "--host", "127.0.0.1", "--port", str(self.port)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/livez", timeout=5).status_code == 200:
                    return self
            time.sleep(0.05)
        raise RuntimeError(f"the service did not start:\n{self.log.read_text()[-4000:]}")

    def stop(self, number: int = signal.SIGTERM, limit_s: float = 30) -> int:
        """Send a signal and wait for the end; gives the exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
            raise

    def client(self, **options: Any) -> httpx.Client:
        """An HTTP client with the right key."""
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=120, **options)


@dataclass
class Chat:
    """One conversation over HTTP, in the words of tests."""

    http: httpx.Client
    id: str = field(default_factory=lambda: f"t-{secrets.token_hex(6)}")

    def run(self, code: str, **fields: Any) -> dict[str, Any]:
        """Execute and give the result; the HTTP status must be 200."""
        response = self.http.post(f"/v1/conversations/{self.id}/execute", json={"code": code, **fields})
        assert response.status_code == 200, response.text
        result: dict[str, Any] = response.json()
        return result

    def ok(self, code: str, **fields: Any) -> dict[str, Any]:
        """Execute; the outcome must be ``ok``."""
        result = self.run(code, **fields)
        assert result["outcome"] == "ok", result
        return result

    def put(self, path: str, content: bytes, **headers: str) -> httpx.Response:
        """Store a file."""
        return self.http.put(f"/v1/conversations/{self.id}/files/{quote(path)}", content=content, headers=headers)

    def get(self, path: str, **headers: str) -> httpx.Response:
        """Fetch a file."""
        return self.http.get(f"/v1/conversations/{self.id}/files/{quote(path)}", headers=headers)

    def files(self) -> list[str]:
        """Paths of all files."""
        response = self.http.get(f"/v1/conversations/{self.id}/files")
        assert response.status_code == 200, response.text
        return [entry["path"] for entry in response.json()["files"]]

    def purge(self) -> None:
        """Delete the conversation."""
        assert self.http.delete(f"/v1/conversations/{self.id}").status_code == 204


def quote(path: str) -> str:
    """A path percent-encoded for a URL, slashes kept."""
    from urllib.parse import quote as encode

    return encode(path, safe="/")


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def running(data: Path, **env: str) -> Iterator[Runner]:
    """A service for the length of a block."""
    runner = Runner(data, env).start()
    try:
        yield runner
    finally:
        runner.stop()
