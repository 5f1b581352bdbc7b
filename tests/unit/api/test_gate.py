"""The gate alone: the key before the body, stalled and broken-off bodies, and an answer to every fault."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
import structlog
from fastapi import FastAPI, Request
from starlette.responses import StreamingResponse
from starlette.types import Message

from runner.api import errors
from runner.api.auth import Tenant
from runner.api.config import ApiConfig
from runner.api.keyring import Keyring
from runner.api.middleware import Gate


def application() -> FastAPI:
    """Routes that stand for the real ones."""
    app = FastAPI()
    app.state.api_config = ApiConfig(key="right", body_timeout_s=0.1, max_body_bytes=1000, body_memory_bytes=1500)
    app.state.keyring = Keyring(app.state.api_config)
    errors.install(app)
    app.add_middleware(Gate, config=app.state.api_config)

    @app.get("/healthz")
    async def healthz() -> str:
        return "ok"

    @app.post("/json")
    async def take(tenant: Tenant, body: dict[str, Any]) -> str:
        return tenant

    @app.put("/v1/conversations/x/files/y")
    async def put(request: Request, tenant: Tenant) -> int:
        return sum([len(chunk) async for chunk in request.stream()])

    @app.get("/fault")
    async def fault(tenant: Tenant) -> None:
        raise RuntimeError("secret of the service")

    @app.get("/slow")
    async def slow() -> StreamingResponse:
        async def parts() -> Any:
            for _ in range(4):
                await asyncio.sleep(0.1)
                yield b"x"

        return StreamingResponse(parts())

    return app


@dataclass
class Call:
    """One request, given piece by piece; ``None`` stands for a client that leaves."""

    method: str
    path: str
    pieces: list[bytes | None] = field(default_factory=list)
    ends: bool = True
    pause_s: float = 0
    key: str = "right"
    read: int = 0
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    async def receive(self) -> Message:
        self.read += 1
        await asyncio.sleep(self.pause_s)
        if self.read <= len(self.pieces):
            piece = self.pieces[self.read - 1]
            if piece is None:
                return {"type": "http.disconnect"}
            more = self.read < len(self.pieces) or not self.ends
            return {"type": "http.request", "body": piece, "more_body": more}
        if self.pieces or self.read > 1 or not self.ends:
            await asyncio.sleep(3600)
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            assert not self.status
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message.get("body", b"")

    async def made(self, app: FastAPI | None = None) -> Call:
        headers = [(b"authorization", f"Bearer {self.key}".encode()), (b"content-type", b"application/json")]
        if self.pieces or not self.ends:
            headers.append((b"transfer-encoding", b"chunked"))
        scope = {"type": "http", "method": self.method, "path": self.path, "raw_path": self.path.encode()}
        scope |= {"query_string": b"", "headers": headers, "http_version": "1.1"}
        async with asyncio.timeout(5):
            await (app or application())(scope, self.receive, self.send)
        return self

    def problem(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.body)
        assert self.headers["content-type"] == "application/problem+json"
        assert body["request_id"] == self.headers["x-request-id"]
        assert self.headers["x-content-type-options"] == "nosniff"
        return body


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/json"), ("PUT", "/v1/conversations/x/files/y"), ("GET", "/no")]
)
async def test_without_the_key_nothing_of_the_body_is_read(method: str, path: str) -> None:
    call = await Call(method, path, [b"{", b"}"], key="wrong").made()
    assert (call.status, call.problem()["code"], call.read) == (401, "unauthorized", 0)
    assert (call.headers["connection"], call.headers["www-authenticate"]) == ("close", "Bearer")


async def test_health_needs_no_key_and_a_right_key_passes() -> None:
    assert (await Call("GET", "/healthz", key="wrong").made()).status == 200
    call = await Call("POST", "/json", [b"{", b"}"]).made()
    assert (call.status, call.body, call.headers.get("connection")) == (200, b'"default"', None)


@pytest.mark.parametrize(("method", "path"), [("POST", "/json"), ("PUT", "/v1/conversations/x/files/y")])
async def test_a_body_without_progress_is_answered_408(method: str, path: str) -> None:
    call = await Call(method, path, [b"{"], ends=False).made()
    assert (call.status, call.problem()["code"], call.headers["connection"]) == (408, "timeout", "close")


async def test_the_deadline_of_the_body_does_not_touch_a_long_answer() -> None:
    call = await Call("GET", "/slow").made()
    assert (call.status, call.body) == (200, b"xxxx")
    call = await Call("GET", "/slow", ends=False).made()
    assert (call.status, call.body) == (200, b"xxxx")


async def test_too_large_a_body_is_answered_413() -> None:
    call = await Call("POST", "/json", [b"{" * 999, b"{" * 2], ends=False).made()
    assert (call.status, call.problem()["code"], call.problem()["limit"]) == (413, "too_large", 1000)


async def test_bodies_of_all_requests_together_are_bounded() -> None:
    app = application()
    first = Call("POST", "/json", [b"{" + b" " * 900], ends=False)
    holding = asyncio.create_task(first.made(app))
    while first.read < 2:
        await asyncio.sleep(0)
    call = await Call("POST", "/json", [b"{" + b" " * 700], ends=False).made(app)
    assert (call.status, call.problem()["code"], call.problem()["limit"]) == (429, "queue_full", 1500)
    assert call.headers["retry-after"] == "1"
    await holding
    assert (await Call("POST", "/json", [b"{" + b" " * 900 + b"}"]).made(app)).status == 200


async def test_a_body_that_comes_too_slowly_on_the_whole_is_answered_408() -> None:
    call = Call("POST", "/json", [b"{", *[b" "] * 100], pause_s=0.02, ends=False)
    await call.made()
    assert (call.status, call.problem()["code"]) == (408, "timeout")
    assert "SANDBOX_MIN_BODY_RATE" in call.problem()["detail"]
    assert call.read < 20


async def test_a_fault_is_answered_with_the_id_and_logged_with_it() -> None:
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        call = await Call("GET", "/fault").made()
    assert (call.status, call.problem()["code"]) == (500, "internal")
    assert b"secret" not in call.body
    (line,) = [line for line in lines if line["log_level"] == "error"]
    assert line["request_id"] == call.headers["x-request-id"]
    assert isinstance(line["exc_info"], RuntimeError)


@pytest.mark.parametrize(("method", "path"), [("POST", "/json"), ("PUT", "/v1/conversations/x/files/y")])
async def test_a_client_who_leaves_is_no_fault(method: str, path: str) -> None:
    with structlog.testing.capture_logs() as lines:
        call = await Call(method, path, [b"{", None], ends=False).made()
    assert call.status == 0
    assert {line["log_level"] for line in lines} == {"info"}
    assert lines[-1]["status"] == 499
