"""A real service on loopback, as a process of its own that is ended with the test."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from runner.cli.local_service import LocalService
from tests.support import sandboxes

# What names the parts of a service: tools, trees and images, and the column of this test process.
KEPT = (
    "PATH", "HOME", "LANG", "FOLIOBOX_CACHE_DIR", "SANDBOX_ROOTFS", "SANDBOX_ALLOW_UNISOLATED",
    "SANDBOX_BACKEND", "SANDBOX_RUNTIME", "SANDBOX_IMAGE", "DOCKER_HOST",
)  # fmt: skip


Runner = LocalService


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


@contextlib.contextmanager
def running(data: Path, **env: str) -> Iterator[Runner]:
    """A service for the length of a block, with nothing of the caller's environment but what names its parts."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    runner = Runner(data, {**kept, **env}).start()
    try:
        yield runner
    finally:
        runner.stop()
        sandboxes.discard(runner)
