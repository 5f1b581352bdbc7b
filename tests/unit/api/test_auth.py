"""Who is let in: headers, scopes, quotas, and routes that are open; without HTTP and without a sandbox."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import structlog
from fastapi import Depends, FastAPI, Request
from starlette.types import Message

from runner.api import auth, errors, key_file, scopes
from runner.api.config import ApiConfig
from runner.api.keyring import Keyring
from runner.api.keys import Key, KeyLimits, hashed, new_secret
from runner.api.middleware import Gate
from runner.api.quotas import Quota
from runner.errors import RateLimited

SECRET = "the-key-of-the-environment"
Answer = tuple[int, dict[str, str], Any]


class Site:
    """An application with a gate, called in process."""

    def __init__(self, folder: Path, *keys: Key, **config: Any) -> None:
        if keys:
            (folder / "keys.json").write_bytes(key_file.render(keys))
            (folder / "keys.json").chmod(0o600)
            config["keys_file"] = folder / "keys.json"
        self.app = FastAPI()
        self.app.state.api_config = ApiConfig(**config)
        self.app.state.keyring = Keyring(self.app.state.api_config)
        errors.install(self.app)
        self.app.add_middleware(Gate, config=self.app.state.api_config)
        guarded = [Depends(auth.SCHEME)]

        @self.app.get("/v1/conversations", dependencies=guarded)
        async def read(request: Request, tenant: auth.Tenant) -> list[Any]:
            return [tenant, auth.upload_limit(request)]

        @self.app.post("/v1/conversations/{id}/execute", dependencies=guarded)
        async def run(tenant: auth.Tenant, id: str) -> str:
            return tenant

        @self.app.post("/v1/forgotten", dependencies=guarded)
        async def forgotten(tenant: auth.Tenant) -> str:
            return tenant

    async def call(self, method: str, path: str, *authorization: bytes) -> Answer:
        headers = [(b"authorization", value) for value in authorization]
        scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b""}
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        await self.app({**scope, "headers": headers, "http_version": "1.1"}, receive, send)
        body = b"".join(message.get("body", b"") for message in sent[1:])
        told = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], told, json.loads(body) if body[:1] in b'{["' else body

    async def status(self, method: str, path: str, secret: str) -> int:
        return (await self.call(method, path, b"Bearer " + secret.encode()))[0]


def made(name: str = "one", **fields: Any) -> tuple[str, Key]:
    secret = new_secret()
    return secret, Key(name, fields.pop("tenant", "acme"), hashed(secret.encode()), **fields)


GOOD = [b"Bearer %s", b"bearer %s", b"BEARER   %s", b" Bearer %s "]
BAD: list[list[bytes]] = [
    [],
    [b""],
    [b"%s"],
    [b"Bearer"],
    [b"Bearer "],
    [b"Basic %s"],
    [b"Bearer\t%s"],
    [b"Bearer x%s"],
    [b"Bearer %s %s"],
    [b"Bearer %s,"],
    [b"Bearer \xff\xfe%s"],
    [b"Bearer \xe2\x80\x8b%s"],
    [b"Bearer \x00"],
    [b"Bearer " + b"a" * 100_000],
    [b"Bearer %s" + b" " * 100_000],
    [b"Bearer %s", b"Bearer %s"],
    [b"Bearer %s", b"Bearer wrong"],
    [b"Bearer wrong", b"Bearer %s"],
    [b"Bearer %s"] * 1000,
]


@pytest.mark.parametrize("header", GOOD)
async def test_headers_that_are_taken(tmp_path: Path, header: bytes) -> None:
    site = Site(tmp_path, key=SECRET)
    given = header.replace(b"%s", SECRET.encode())
    assert (await site.call("GET", "/v1/conversations", given))[::2] == (200, ["default", 256 << 20])


@pytest.mark.parametrize("headers", BAD, ids=[str(n) for n in range(len(BAD))])
async def test_headers_that_are_refused(tmp_path: Path, headers: list[bytes]) -> None:
    site = Site(tmp_path, key=SECRET)
    given = [value.replace(b"%s", SECRET.encode()) for value in headers]
    status, told, body = await site.call("GET", "/v1/conversations", *given)
    assert (status, body["code"], told["www-authenticate"]) == (401, "unauthorized", "Bearer")
    assert SECRET not in json.dumps(body)


async def test_a_key_in_another_script_works(tmp_path: Path) -> None:
    site = Site(tmp_path, key="ключ-от-песочницы")
    assert await site.status("GET", "/v1/conversations", "ключ-от-песочницы") == 200


async def test_each_key_has_its_tenant_and_limits(tmp_path: Path) -> None:
    (one, first), (two, second) = made(), made("two", tenant="other", limits=KeyLimits(upload_bytes=7))
    site = Site(tmp_path, first, second, key=SECRET, max_upload_bytes=1000)
    for secret, seen in ((one, ["acme", 1000]), (two, ["other", 7]), (SECRET, ["default", 1000])):
        assert (await site.call("GET", "/v1/conversations", b"Bearer " + secret.encode()))[2] == seen


async def test_no_key_needed_where_that_was_allowed(tmp_path: Path) -> None:
    site = Site(tmp_path, allow_no_auth=True)
    assert (await site.call("GET", "/v1/conversations"))[::2] == (200, ["default", 256 << 20])
    assert (await Site(tmp_path, allow_no_auth=True, key=SECRET).call("GET", "/v1/conversations"))[0] == 401


async def test_scopes(tmp_path: Path) -> None:
    allowed = {"read": "GET /v1/conversations", "run": "POST /v1/conversations/x/execute"}
    for scope in scopes.SCOPES:
        secret, key = made(scopes=frozenset((scope,)))
        site = Site(tmp_path, key)
        for needed, route in allowed.items():
            method, path = route.split()
            status, _, body = await site.call(method, path, b"Bearer " + secret.encode())
            assert status == (200 if scope == needed else 403)
            if status == 403:
                assert (body["code"], body["scope"]) == ("forbidden", needed)
                assert needed in body["detail"]


async def test_a_route_that_was_forgotten_is_closed(tmp_path: Path) -> None:
    for scope in scopes.SCOPES:
        secret, key = made(scopes=frozenset(scopes.SCOPES) - {scope})
        assert await Site(tmp_path, key).status("POST", "/v1/forgotten", secret) == 403
    assert await Site(tmp_path, key=SECRET).status("POST", "/v1/forgotten", SECRET) == 200


@pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
async def test_the_documentation_is_open_on_loopback_only(tmp_path: Path, path: str) -> None:
    secret, key = made(scopes=frozenset(("metrics",)))
    assert (await Site(tmp_path, key).call("GET", path))[0] == 200
    reachable = Site(tmp_path, key, host="0.0.0.0")
    assert (await reachable.call("GET", path))[0] == 401
    assert await reachable.status("GET", path, secret) == 200
    assert (await Site(tmp_path, key, host="0.0.0.0", public_docs=True).call("GET", path))[0] == 200


async def test_requests_beyond_the_rate_wait_as_long_as_they_are_told(tmp_path: Path) -> None:
    secret, key = made(limits=KeyLimits(requests_per_minute=2))
    site = Site(tmp_path, key, key=SECRET)
    clock = [100.0]
    quota = Quota(key.limits, lambda: clock[0])
    site.app.state.keyring.find(secret.encode()).quota = quota
    statuses = [await site.status("GET", "/v1/conversations", secret) for _ in range(3)]
    assert statuses == [200, 200, 429]
    clock[0] += 0.5
    _, told, body = await site.call("GET", "/v1/conversations", b"Bearer " + secret.encode())
    assert (body["code"], body["retry_after_ms"], told["retry-after"]) == ("rate_limited", 29_500, "30")
    clock[0] += body["retry_after_ms"] / 1000
    assert await site.status("GET", "/v1/conversations", secret) == 200
    assert await site.status("GET", "/v1/conversations", secret) == 429
    assert await site.status("GET", "/v1/conversations", SECRET) == 200
    clock[0] += 1e6  # a bucket does not grow beyond its size
    assert [await site.status("GET", "/v1/conversations", secret) for _ in range(3)] == [200, 200, 429]


def test_requests_at_a_time() -> None:
    quota = Quota(KeyLimits(concurrent_requests=2, requests_per_minute=3))
    with quota.held(), quota.held():
        for _ in range(50):  # a refusal takes nothing from the rate
            with pytest.raises(RateLimited, match="concurrent_requests"), quota.held():
                pass
    with pytest.raises(ZeroDivisionError), quota.held():
        _ = 1 / 0
    assert quota.under_way == 0
    with pytest.raises(RateLimited, match="requests_per_minute"), quota.held():
        pass
    assert quota.under_way == 0


async def test_no_secret_is_logged(tmp_path: Path) -> None:
    secret, key = made()
    site = Site(tmp_path, key, key=SECRET)
    wrong = new_secret()
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        for given in (secret, SECRET, wrong, secret[:-1]):
            await site.status("GET", "/v1/conversations", given)
    assert [line.get("key") for line in lines] == ["one", "SANDBOX_API_KEY", None, None]
    for given in (secret, SECRET, wrong, key.sha256):
        assert given not in str(lines)


async def test_wrong_keys_are_cheap_and_leave_nothing(tmp_path: Path) -> None:
    secret, key = made()
    site = Site(tmp_path, key)
    keyring = site.app.state.keyring
    began = time.process_time()
    for _ in range(300):
        assert await site.status("GET", "/v1/conversations", new_secret()) == 401
    assert (time.process_time() - began) / 300 < 0.01
    assert len(keyring) == 1
    assert await site.status("GET", "/v1/conversations", secret) == 200
