"""What the sessions gateway's HTTP client does: what it sends, how long it waits, what it takes for an error."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.conformance.sessions import shapes
from tests.conformance.shapes import Shape, hold

ANSWER_CAP = 256 << 20  # decoded answers
ERROR_CAP = 64 << 10  # bodies of errors
OVERHEAD_S = 120  # beyond the limit of a run, for every call
EXEC_S = 120  # when an operator sets none


class SandboxError(Exception):
    """An answer of 400 and above, in the words that the gateway makes of it."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"sandbox {status}: {body}")
        self.status, self.body = status, body

    @property
    def detail(self) -> object:
        """What the body says was wrong."""
        return json.loads(self.body)["detail"]


class SessionGone(Exception):
    """The later client's name for ``session_gone`` in an answer of 200."""


@dataclass
class Ran:
    """One run as the client hands it on: artifacts that cannot be decoded are dropped."""

    stdout: str
    stderr: str
    exit_code: int
    files: list[tuple[str, str, bytes]]
    raw: dict[str, Any]


@dataclass
class SessionsClient:
    """Every answer is held to its exact types before anything is made of it."""

    url: str
    key: str
    exec_s: int = EXEC_S
    later: bool = True
    http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.http = httpx.Client(base_url=self.url, timeout=self.exec_s + OVERHEAD_S)

    def close(self) -> None:
        """Let the connections go."""
        self.http.close()

    def send(self, method: str, path: str, body: Any = None, *, bare: bool = False) -> httpx.Response:
        """One request as it is, with the key; ``bare`` without any body."""
        content = None if bare else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.key}", **({} if bare else {"Content-Type": "application/json"})}
        return self.http.request(method, path, content=content, headers=headers)

    def call(self, method: str, path: str, body: Any, shape: Shape) -> dict[str, Any]:
        """A request whose answer must be 200 and of a shape. Raises SandboxError from 400 on."""
        answer = self.send(method, path, body)
        if answer.status_code >= 400:
            raise SandboxError(answer.status_code, answer.text[:ERROR_CAP])
        assert answer.status_code == 200, answer.status_code
        assert len(answer.content) <= ANSWER_CAP, "the client stops decoding here"
        made: dict[str, Any] = hold(shape, answer.json(), f"{method} {path}")
        return made

    def create(self, **fields: Any) -> str:
        """``storage``, ``idle_ttl_sec`` and ``archive_key``; the id of a new session."""
        return str(self.call("POST", "/sessions", fields, shapes.CREATED)["session_id"])

    def exec(self, session: str, code: str, timeout_ms: int | None = None) -> Ran:
        """Run a cell, with the operator's limit unless told otherwise."""
        body = {"session_id": session, "code": code, "timeout_ms": timeout_ms or self.exec_s * 1000}
        raw = self.call("POST", "/exec", body, shapes.EXEC)
        files = [(f["name"], f["mime_type"], base64.b64decode(f["data_base64"])) for f in raw["files"]]
        return Ran(raw["stdout"], raw["stderr"], raw["exit_code"], files, raw)

    def put(self, session: str, path: str, data: bytes) -> None:
        """Write one file."""
        body = {"session_id": session, "path": path, "data_base64": base64.b64encode(data).decode()}
        self.call("POST", "/files", body, shapes.DONE)

    def get(self, session: str, path: str) -> bytes:
        """Read one file."""
        answer = self.call("POST", "/files/get", {"session_id": session, "path": path}, shapes.READ)
        return base64.b64decode(answer["data_base64"])

    def list(self, session: str) -> dict[str, int]:
        """Sizes by path."""
        files = self.call("POST", "/files/list", {"session_id": session}, shapes.LISTED)["files"]
        return {entry["path"]: entry["size"] for entry in files}

    def reset_inputs(self, session: str) -> None:
        """Empty ``uploads`` and ``skills``. The later client raises SessionGone when the answer says so."""
        answer = self.call("POST", "/files/reset-inputs", {"session_id": session}, shapes.RESET)
        if answer.get("session_gone"):
            assert answer["ok"] is False, "gone and well at once"
            if self.later:
                raise SessionGone
            return  # the base client does not read the answer: its next write is told 404
        assert answer["ok"] is True, answer

    def delete(self, session: str, **fields: Any) -> None:
        """``storage``, ``discard`` and ``archive_key`` travel in the body of a DELETE."""
        self.call("DELETE", f"/sessions/{session}", fields, shapes.DELETED)

    def health(self) -> dict[str, Any]:
        """The probe, without a key."""
        answer = self.http.get("/healthz")
        assert answer.status_code in (200, 503), answer.status_code
        made: dict[str, Any] = hold(shapes.HEALTH, answer.json(), "GET /healthz")
        assert made["ok"] is (answer.status_code == 200)
        return made
