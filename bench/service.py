"""A service of our own for the length of some rows: a real ``foliobox serve`` on loopback."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.wire import Address, Client, WireError

START_S = 90.0
_KEPT = (
    "PATH", "HOME", "LANG", "FOLIOBOX_CACHE_DIR", "SANDBOX_ROOTFS", "SANDBOX_ALLOW_UNISOLATED", "SANDBOX_BACKEND",
    "DOCKER_HOST", "SANDBOX_IMAGE",
)  # fmt: skip
_REPOSITORY = Path(__file__).resolve().parent.parent


class ServiceFailed(Exception):
    """The service did not start, ended, or cannot start sandboxes; the text says why."""


class Service:
    """A running service. ``pool`` is its number of warm spares; with a ``runtime`` it is on Docker."""

    def __init__(self, data: Path, pool: int, runtime: str = "", max_live: int = 24) -> None:
        self.pool, self.runtime = pool, runtime
        self.address = Address(_free_port(), secrets.token_hex(8))
        data.mkdir(parents=True)
        self._log = data / "serve.log"
        env = {name: os.environ[name] for name in _KEPT if name in os.environ}
        if "SANDBOX_ALLOW_UNISOLATED" not in env:
            env.setdefault("SANDBOX_BACKEND", "bubblewrap")
        if runtime:
            env |= {"SANDBOX_BACKEND": "docker", "SANDBOX_RUNTIME": runtime}
        env |= {
            "SANDBOX_DATA_DIR": str(data),
            "SANDBOX_API_KEY": self.address.key,
            "SANDBOX_POOL_SIZE": str(pool),
            "SANDBOX_MAX_SESSIONS": str(max_live),
        }
        self._env = env
        self.start()

    def start(self) -> None:
        """Start it, again with the same data after ``kill``. Raises ServiceFailed."""
        command = [sys.executable, "-m", "runner", "serve", "--host", "127.0.0.1", "--port", str(self.address.port)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=self._env, cwd=_REPOSITORY, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        try:
            self._await_start()
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """Process id of the service."""
        return self._process.pid

    def client(self) -> Client:
        """A connection to it."""
        return Client(self.address)

    def health(self) -> dict[str, Any]:
        """What ``/healthz`` says."""
        with self.client() as client:
            return client.call("GET", "/healthz").json()

    def await_spares(self, limit_s: float = 120.0) -> None:
        """Until every spare is ready, so that no start of one disturbs what is measured next."""
        deadline = time.monotonic() + limit_s
        with self.client() as client:
            while client.call("GET", "/healthz").json()["pool"]["ready"] < self.pool:
                if time.monotonic() > deadline:
                    raise ServiceFailed(f"its {self.pool} spares did not become ready: {self._last_words()}")
                time.sleep(0.02)

    def stop(self) -> None:
        """End it and all its sandboxes."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()

    def _await_start(self) -> None:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(OSError):
                try:
                    self.health()
                except WireError as error:
                    raise ServiceFailed(f"it cannot start sandboxes: {error}") from error
                return
            time.sleep(0.05)
        raise ServiceFailed(f"the service did not start: {self._last_words()}")

    def _last_words(self) -> str:
        return "; ".join(self._log.read_text(errors="replace").splitlines()[-2:])[-400:]


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
