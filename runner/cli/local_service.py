"""Starts ``foliobox serve`` as a process of its own on loopback, waits until it answers, and ends it."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

START_S = 60.0


class ServiceFailed(Exception):
    """The service ended or did not answer in time; the text holds the end of its log."""


@dataclass
class LocalService:
    """A service with a data folder and a key of its own. ``env`` is the whole environment but those two.

    ``prefix`` is a command that is put before the service's own and becomes it, such as a tracer.
    """

    data: Path
    env: Mapping[str, str] = field(default_factory=dict)
    key: str = field(default_factory=lambda: secrets.token_hex(16))
    port: int = 0
    prefix: Sequence[str] = ()
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

    def start(self) -> LocalService:
        """Start, and wait until it answers; every start has a new port. Raises ServiceFailed."""
        self.data.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        env = {**self.env, "SANDBOX_DATA_DIR": str(self.data), "SANDBOX_API_KEY": self.key}
        # -P: what is called `runner` in the current folder is not this package.
        command = [*self.prefix, sys.executable, "-P", "-m", "runner", "serve"]
        command += ["--host", "127.0.0.1", "--port", str(self.port)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/livez", timeout=5).status_code == 200:
                    return self
            time.sleep(0.05)
        self.kill()
        end = self.log.read_text(encoding="utf-8", errors="replace")[-2000:]
        raise ServiceFailed(f"the service did not start; its log ends with:\n{end}")

    def stop(self, limit_s: float = 30.0) -> int:
        """SIGTERM, and wait for the end; gives the exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def client(self, **options: Any) -> httpx.Client:
        """An HTTP client with the right key."""
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=180, **options)


def inherited_env() -> dict[str, str]:
    """The caller's environment, but its keys and data folder: those belong to another service."""
    own = ("SANDBOX_API_KEY", "SANDBOX_API_KEYS_FILE", "SANDBOX_DATA_DIR")
    return {name: value for name, value in os.environ.items() if name not in own}


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
