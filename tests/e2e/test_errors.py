"""Bad requests over HTTP: a clear answer that says what to change, and no side effect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from runner.cli.local_service import LocalService, ServiceFailed
from tests.support.runner import Chat, Runner

BAD_BODIES: tuple[tuple[Any, str], ...] = (
    ({}, "code"),
    ({"code": 1}, "code"),
    ({"code": "1", "language": "ruby"}, "language"),
    ({"code": "1", "timeout_ms": 0}, "timeout_ms"),
    ({"code": "1", "timeout_ms": "soon"}, "timeout_ms"),
    ({"code": "1", "env": {"LD_PRELOAD": "x"}}, "LD_PRELOAD"),
    ({"code": "1", "env": {"A=B": "x"}}, "A=B"),
    ({"code": "1", "env": {"A": "x\0y"}}, "A"),
    ({"code": "1", "network": True}, "network"),
    ({"code": "x" * (1 << 20) + "x"}, "code"),
    ({"code": "1", "cdoe": "2"}, "cdoe"),
    (b'{"code": "1", "env": {"a\\ud800": "x"}}', "ud800"),
    (b'{"code": "1", "env": {"a": "\\ud800"}}', "surrogates"),
    (b'{"code": "1", "a\\ud800": "x"}', "surrogates"),
)


@pytest.mark.parametrize(("body", "mentioned"), BAD_BODIES, ids=[m + str(i) for i, (_, m) in enumerate(BAD_BODIES)])
def test_bad_run_requests(http: httpx.Client, body: Any, mentioned: str) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    answer = http.post("/v1/conversations/never-made/execute", content=content, headers=headers)
    assert answer.status_code == 422
    problem = answer.json()
    assert mentioned in problem["detail"]
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert http.get("/v1/conversations/never-made").status_code == 404


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"code": "\\ud800"}', b"null"])
def test_broken_json_is_no_server_error(http: httpx.Client, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    answer = http.post("/v1/conversations/never-made/execute", content=body, headers=headers)
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("id", ["-x", ".hidden", "a" * 129, "a%20b", "%C3%A9"])
def test_bad_conversation_ids(http: httpx.Client, id: str) -> None:
    answer = http.put(f"/v1/conversations/{id}")
    assert answer.status_code == 422
    assert "1 to 128" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("method", "rest"),
    [
        ("PUT", "%2Ffiles/files/a"),
        ("PUT", "%2Ffiles%2Fa"),
        ("GET", "%2ffiles"),
        ("POST", "%2Fexecute"),
        ("GET", "%2Fx"),
    ],
)
def test_an_encoded_slash_does_not_cut_an_id(chat: Chat, method: str, rest: str) -> None:
    chat.put("kept", b"x")
    answer = chat.http.request(method, f"/v1/conversations/{chat.id}{rest}", json={"code": "1"})
    assert answer.status_code in ((404,) if rest == "%2Fx" else (422,)), answer.text
    assert rest == "%2Fx" or "1 to 128" in answer.json()["detail"]
    assert chat.files() == ["kept"]


def test_an_encoded_address_is_not_ambiguous(chat: Chat) -> None:
    assert chat.http.put(f"/v1%2Fconversations/{chat.id}/files/a", content=b"x").status_code == 422
    assert chat.http.put(f"/v1/conversations/{chat.id}/%66iles/a%2Fb", content=b"x").status_code == 201
    assert chat.files() == ["a/b"]


@pytest.mark.parametrize("name", ["uploads", "downloads", "skills", "outputs", "/workspace/outputs"])
def test_a_standing_folder_is_no_file(chat: Chat, name: str) -> None:
    answer = chat.put(name, b"x")
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert "is a folder" in answer.json()["detail"]


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic abc", "bearer"])
def test_every_route_but_health_and_links_wants_the_key(runner: Runner, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    with httpx.Client(base_url=runner.url, headers=headers) as http:
        paths = http.get("/openapi.json").json()["paths"]
        routes = [(method, path) for path, methods in paths.items() for method in methods]
        assert len(routes) > 12
        for method, path in routes:
            url = path.replace("{id}", "nobody").replace("{execution_id}", "0" * 32).replace("{number}", "0")
            answer = http.request(method, url.replace("{stream}", "stdout").replace("{path}", "x"), json={"code": "1"})
            open_to_all = {"/healthz": {200, 503}, "/livez": {200}, "/readyz": {200, 503}, "/v1/links/{token}": {404}}
            expected = open_to_all.get(path, {401})
            assert answer.status_code in expected, (method, path, answer.text)
        assert http.get("/healthz").status_code == 200


def test_a_body_without_end_is_cut_off(http: httpx.Client) -> None:
    def endless() -> Any:
        yield b'{"code": "'
        while True:
            yield b"x" * (1 << 20)

    answer = http.post("/v1/conversations/never-made/execute", content=endless())
    assert answer.status_code == 413
    assert answer.json()["code"] == "too_large"


def test_unknown_things_do_not_exist(chat: Chat) -> None:
    chat.ok("1")
    base = f"/v1/conversations/{chat.id}"
    for url in (
        f"{base}/executions/{'0' * 32}/stdout",
        f"{base}/executions/{'0' * 32}/results/0",
        f"{base}/files/no",
        "/x",
    ):
        answer = chat.http.get(url)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert chat.http.get(f"{base}/executions/xyz/stdout").status_code == 422


@pytest.mark.parametrize(
    ("env", "mentioned"),
    [
        ({"SANDBOX_MEMROY": "1g"}, "SANDBOX_MEMORY"),
        ({"SANDBOX_MEMORY": "lots"}, "512m"),
        ({"SANDBOX_MEMORY": "1g"}, "SANDBOX_WORKSPACE_SIZE"),
        ({"SANDBOX_API_KEY": ""}, "SANDBOX_API_KEY"),
        ({"SANDBOX_BACKEND": "magic"}, "bubblewrap"),
    ],
)
def test_settings_that_cannot_work_stop_the_start(tmp_path: Path, env: dict[str, str], mentioned: str) -> None:
    service = LocalService(tmp_path, {"PATH": "/usr/bin:/bin", **env})
    if "SANDBOX_API_KEY" in env:
        service.key = ""
    with pytest.raises(ServiceFailed, match=mentioned):
        service.start()


def test_other_unknown_settings_only_warn(tmp_path: Path, runner: Runner) -> None:
    service = LocalService(tmp_path, {**runner.env, "SANDBOX_SOMETHING_ELSE": "1", "SANDBOX_POOL_SIZE": "0"}).start()
    service.stop()
    assert "SANDBOX_SOMETHING_ELSE" in service.log.read_text()
