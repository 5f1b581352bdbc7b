"""The one-shot surface in the words of tests, and a service that serves it without a key."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from runner.cli.local_service import LocalService
from tests.support.runner import running


def b64(content: bytes) -> str:
    """As the protocol has bytes."""
    return base64.b64encode(content).decode()


@dataclass
class OneShot:
    """Runs and leases over HTTP; leases that were given are let go of at the end."""

    http: httpx.Client
    leases: set[str] = field(default_factory=set)

    def post(
        self, code: str, language: str = "python", files: dict[str, bytes] | None = None, **more: Any
    ) -> httpx.Response:
        """The response, whatever its status."""
        body = {"language": language, "code": code, **more}
        if files is not None:
            body["files"] = [{"name": name, "content_b64": b64(content)} for name, content in files.items()]
        return self.http.post("/run", json=body)

    def run(
        self, code: str, language: str = "python", files: dict[str, bytes] | None = None, **more: Any
    ) -> dict[str, Any]:
        """The answer to a run that the runner could do."""
        response = self.post(code, language, files, **more)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        if answer["container_id"] is not None:
            self.leases.add(answer["container_id"])
        return answer

    def out(self, code: str, language: str = "python", **more: Any) -> str:
        """What a run that ends well prints."""
        answer = self.run(code, language, **more)
        assert answer["exit_code"] == 0, answer
        text: str = answer["stdout"]
        return text

    def lease(self, code: str = "pass", **more: Any) -> str:
        """A lease in which that was run."""
        found = self.run(code, keep_alive=True, **more)["container_id"]
        assert isinstance(found, str)
        return found

    def release(self, identifier: str) -> None:
        """Let go of a lease."""
        assert self.http.delete(f"/container/{identifier}").status_code == 204
        self.leases.discard(identifier)

    def close(self) -> None:
        """Let go of all of them."""
        for identifier in list(self.leases):
            self.release(identifier)


def files_of(answer: dict[str, Any]) -> dict[str, bytes]:
    """Delivered files by name."""
    return {each["name"]: base64.b64decode(each["content_b64"], validate=True) for each in answer["artifacts"]}


def sleepers(seconds: str) -> int:
    """Processes ``sleep <seconds>`` as the host sees them, in whatever sandbox."""
    wanted = f"sleep\0{seconds}\0".encode()
    found = 0
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += entry.read_bytes() == wanted
    return found


@contextlib.contextmanager
def serving(data: Path, **env: str) -> Iterator[tuple[LocalService, OneShot]]:
    """A service of its own whose one-shot surface asks for no key."""
    settings = {"SANDBOX_ONESHOT_AUTH": "none", "SANDBOX_POOL_SIZE": "1", **env}
    with running(data, **settings) as service, httpx.Client(base_url=service.url, timeout=120) as http:
        yield service, OneShot(http)


@pytest.fixture(scope="module")
def open_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    """A service whose one-shot surface asks for no key."""
    with running(tmp_path_factory.mktemp("oneshot"), SANDBOX_ONESHOT_AUTH="none", SANDBOX_POOL_SIZE="2") as service:
        yield service


@pytest.fixture
def oneshot(open_service: LocalService) -> Iterator[OneShot]:
    """Without a key."""
    with httpx.Client(base_url=open_service.url, timeout=120) as http:
        surface = OneShot(http)
        yield surface
        surface.close()
