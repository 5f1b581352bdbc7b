"""What a row gets to measure with: how often, a temporary folder, and a service with the pool it asks for."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from bench.service import Service
from bench.wire import Client, WireError

T = TypeVar("T")

DEFAULT_POOL = 2


class Lab:
    """Keeps one service at a time: rows that ask for the same pool and runtime share it."""

    def __init__(self, folder: Path, *, quick: bool = False) -> None:
        self.folder, self.quick = folder, quick
        self.backends: dict[str, dict[str, Any]] = {}
        self._service: Service | None = None
        self._starts = 0
        self._kept: dict[str, Any] = {}

    def count(self, usual: int, quick: int) -> int:
        """How often to repeat."""
        return quick if self.quick else usual

    def service(self, pool: int = DEFAULT_POOL, runtime: str = "") -> Service:
        """A running service with all its spares ready, with a ``runtime`` on Docker. Raises ServiceFailed."""
        if self._service is None or (self._service.pool, self._service.runtime) != (pool, runtime):
            self.close()
            self._starts += 1
            self._service = Service(self.folder / f"data-{self._starts}", pool, runtime)
            health = self._service.health()
            facts = {name: health[name] for name in ("backend", "isolation", "image", "walls", "version")}
            self.backends[runtime or health["backend"]] = facts
        self._service.await_spares()
        return self._service

    def once(self, name: str, work: Callable[[], T]) -> T:
        """What ``work`` gives, done at the first call only: rows that are two views of one measurement share it."""
        if name not in self._kept:
            self._kept[name] = work()
        kept: T = self._kept[name]
        return kept

    def close(self) -> None:
        """End the service."""
        if self._service is not None:
            self._service.stop()
            self._service = None


class Chat:
    """One conversation."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.id = new_id()

    def send(self, code: str) -> bytes:
        """Run a cell and give the answer unread; this is what is timed."""
        return self.client.call("POST", execute_path(self.id), cell(code)).body

    def ok(self, code: str) -> dict[str, Any]:
        """Run a cell that must succeed."""
        return check(self.send(code))

    def put(self, path: str, content: bytes) -> None:
        """Store a file."""
        self.client.call("PUT", f"/v1/conversations/{self.id}/files/{path}", content).json()

    def get(self, path: str) -> bytes:
        """Fetch a file."""
        return self.client.call("GET", f"/v1/conversations/{self.id}/files/{path}").body

    def purge(self) -> None:
        """Delete it with its sandbox."""
        self.client.call("DELETE", f"/v1/conversations/{self.id}").json()


def new_id() -> str:
    """An id for a conversation that does not exist yet."""
    return f"bench-{secrets.token_hex(6)}"


def execute_path(identifier: str) -> str:
    """Where a cell of a conversation is sent."""
    return f"/v1/conversations/{identifier}/execute"


def cell(code: str) -> bytes:
    """The body that runs some code."""
    return json.dumps({"code": code}).encode()


def check(body: bytes) -> dict[str, Any]:
    """The result of a run. Raises WireError unless its outcome is ``ok``."""
    result: dict[str, Any] = json.loads(body)
    if result.get("outcome") != "ok":
        raise WireError(f"a cell did not succeed: {json.dumps(result)[:500]}")
    return result
