"""One session over HTTP, in the words of tests."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import httpx

GONE = {"detail": "session not found or not running"}


def detail(response: httpx.Response) -> tuple[int, Any]:
    """Status and the text of an error."""
    return response.status_code, response.json()["detail"]


def b64(content: bytes) -> str:
    """Standard base64."""
    return base64.b64encode(content).decode()


@dataclass
class Session:
    """A session of the sessions surface."""

    http: httpx.Client
    id: str
    created: dict[str, Any]

    @classmethod
    def new(cls, http: httpx.Client, **fields: Any) -> Session:
        """Create one; the status must be 200."""
        response = http.post("/sessions", json=fields)
        assert response.status_code == 200, response.text
        body: dict[str, Any] = response.json()
        return cls(http, body["session_id"], body)

    @property
    def conversation(self) -> str:
        """The path of its conversation under ``/v1``."""
        return f"/v1/conversations/{self.created['conversation']}"

    def post(self, where: str, /, **fields: Any) -> httpx.Response:
        """Any call of it."""
        return self.http.post(where, json={"session_id": self.id, **fields})

    def exec(self, code: str, **fields: Any) -> dict[str, Any]:
        """Run code; the status must be 200."""
        response = self.post("/exec", code=code, **fields)
        assert response.status_code == 200, response.text
        body: dict[str, Any] = response.json()
        return body

    def out(self, code: str, **fields: Any) -> str:
        """What code prints; it must end well."""
        body = self.exec(code, **fields)
        assert body["exit_code"] == 0, body
        return str(body["stdout"])

    def put(self, path: str, content: bytes) -> httpx.Response:
        """Write a file."""
        return self.post("/files", path=path, data_base64=b64(content))

    def get(self, path: str) -> bytes:
        """Read a file; the status must be 200."""
        response = self.post("/files/get", path=path)
        assert response.status_code == 200, response.text
        return base64.b64decode(response.json()["data_base64"], validate=True)

    def paths(self) -> list[str]:
        """Paths of all files."""
        return [item["path"] for item in self.post("/files/list").json()["files"]]

    def delete(self, **fields: Any) -> dict[str, Any]:
        """End it; the status must be 200."""
        response = self.http.request("DELETE", f"/sessions/{self.id}", json=fields)
        assert response.status_code == 200, response.text
        body: dict[str, Any] = response.json()
        return body
