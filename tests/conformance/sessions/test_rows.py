"""Section 3 row by row: each status with its exact text, in the shape that its layer of the service gives it."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.conformance.kit import Place
from tests.conformance.sessions import shapes
from tests.conformance.sessions.client import SessionsClient
from tests.conformance.shapes import hold

UNKNOWN = "0" * 32
GONE = "session not found or not running"
BAD_ID = "invalid session_id"
UNDER = "path must be under /workspace"
S3 = {"provider": "s3", "prefix": "p"}


@dataclass(frozen=True)
class Row:
    """A request, the status and what the body's ``detail`` is; no text: the list of a schema's errors."""

    name: str
    path: str
    body: Any
    status: int
    text: str = ""
    method: str = "POST"


def by_id(fields: dict[str, Any], path: str) -> list[Row]:
    """What each route says of ids that are not its own, and of ids that are none."""
    known_gone = path == "/files/reset-inputs"
    rows = [
        Row(f"{path} {label}", path, {**fields, "session_id": bad}, 400, BAD_ID)
        for label, bad in (("short id", "abc"), ("upper case", "A" * 32), ("path", "../" * 10), ("empty", ""))
    ]
    rows += [
        Row(f"{path} no id", path, fields, 422),
        Row(f"{path} id a number", path, {**fields, "session_id": 5}, 422),
        Row(f"{path} id null", path, {**fields, "session_id": None}, 422),
    ]
    return rows if known_gone else [*rows, Row(f"{path} unknown", path, {**fields, "session_id": UNKNOWN}, 404, GONE)]


FILE = {"path": "a.txt", "data_base64": "YQ=="}
ROWS = [
    *by_id({"code": "1"}, "/exec"),
    *by_id(FILE, "/files"),
    *by_id({"path": "a.txt"}, "/files/get"),
    *by_id({}, "/files/list"),
    *by_id({}, "/files/reset-inputs"),
    Row("create ttl a word", "/sessions", {"idle_ttl_sec": "soon"}, 422),
    Row("create key a number", "/sessions", {"archive_key": 5}, 422),
    Row("create storage a word", "/sessions", {"storage": "s3"}, 422),
    Row("create a list", "/sessions", [], 422),
    Row("exec no code", "/exec", {"session_id": UNKNOWN}, 422),
    Row("exec code a number", "/exec", {"session_id": UNKNOWN, "code": 1}, 422),
    Row("exec limit a word", "/exec", {"session_id": UNKNOWN, "code": "1", "timeout_ms": "long"}, 422),
    Row("write no data", "/files", {"session_id": UNKNOWN, "path": "a"}, 422),
    Row("write no path", "/files", {"session_id": UNKNOWN, "data_base64": ""}, 422),
    Row("read no path", "/files/get", {"session_id": UNKNOWN}, 422),
    Row("delete bad id", "/sessions/abc", None, 400, BAD_ID, "DELETE"),
    Row("delete discard a word", f"/sessions/{UNKNOWN}", {"discard": "perhaps"}, 422, "", "DELETE"),
    Row("put no storage", "/storage/put", {"key": "a", "data_base64": ""}, 422),
    Row("put not configured", "/storage/put", {"key": "a", "data_base64": "", "storage": {}}, 400,
        "storage backend not configured"),
    Row("put no bucket", "/storage/put", {"key": "a", "data_base64": "", "storage": S3}, 400,
        "storage backend not configured"),
    Row("remove not configured", "/storage/delete", {"key": "a", "storage": {}}, 400, "storage backend not configured"),
    Row("remove no key", "/storage/delete", {"storage": {}}, 422),
    Row("gc no age", "/storage/gc", {}, 422),
    Row("gc age a word", "/storage/gc", {"max_age_seconds": "old"}, 422),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_error_of_the_section_has_its_status_and_text(client: SessionsClient, row: Row) -> None:
    answer = client.send(row.method, row.path, row.body)
    assert answer.status_code == row.status, answer.text
    hold(shapes.DETAIL if row.text else shapes.INVALID, answer.json(), row.name)
    if row.text:
        assert answer.json()["detail"] == row.text


@dataclass(frozen=True)
class OnSession:
    """A request of a session that is there."""

    name: str
    path: str
    body: dict[str, Any]
    status: int
    text: str


def local(**fields: Any) -> dict[str, Any]:
    """A request that names the folder of the service as its storage."""
    return {"storage": {"provider": "local"}, **fields}


ON_SESSION = [
    OnSession("data URL", "/files", {"path": "a", "data_base64": "data:text/plain;base64,YQ=="}, 400, "invalid base64"),
    OnSession("no padding", "/files", {"path": "a", "data_base64": "YQ"}, 400, "invalid base64"),
    OnSession("line break", "/files", {"path": "a", "data_base64": "YW\nJj"}, 400, "invalid base64"),
    OnSession("URL alphabet", "/files", {"path": "a", "data_base64": "-_-_"}, 400, "invalid base64"),
    OnSession("other script", "/files", {"path": "a", "data_base64": "é==="}, 400, "invalid base64"),
    OnSession("read nothing", "/files/get", {"path": "none.txt"}, 404, "file not found"),
    OnSession("read folder", "/files/get", {"path": "uploads"}, 404, "file not found"),
    *[
        OnSession(f"{route} {path!r}", route, {"path": path, **more}, 400, UNDER)
        for route, more in (("/files", {"data_base64": "YQ=="}), ("/files/get", {}))
        for path in ("/etc/passwd", "../x", "a/../../x", "/workspace/../etc/x", "/workspaces/x", "/work", "/")
    ],
]


@pytest.mark.parametrize("row", ON_SESSION, ids=lambda row: row.name)
def test_errors_of_a_session_that_is_there(client: SessionsClient, session: str, row: OnSession) -> None:
    answer = client.send("POST", row.path, {"session_id": session, **row.body})
    assert (answer.status_code, answer.text) == (row.status, answer.text)
    assert hold(shapes.DETAIL, answer.json(), row.name)["detail"] == row.text


STORAGE = [
    *[
        OnSession(f"{route} key {key!r}", route, local(key=key, **more), 400, "invalid storage key")
        for route, more in (("/storage/put", {"data_base64": "YQ=="}), ("/storage/delete", {}))
        for key in ("", "../x", "/x", "a\0b")
    ],
    OnSession("put base64", "/storage/put", local(key="a", data_base64="?"), 400, "invalid base64"),
    OnSession("put local", "/storage/put", local(key="a", data_base64="YQ=="), 400,
              "presigned URLs are unsupported for local storage"),
]  # fmt: skip


@pytest.mark.parametrize("row", STORAGE, ids=lambda row: row.name)
def test_errors_of_storage(client: SessionsClient, row: OnSession) -> None:
    answer = client.send("POST", row.path, row.body)
    assert (answer.status_code, answer.text) == (row.status, answer.text)
    assert hold(shapes.DETAIL, answer.json(), row.name)["detail"] == row.text


def test_an_unknown_provider_is_refused(client: SessionsClient) -> None:
    answer = client.send("POST", "/storage/put", {"key": "a", "data_base64": "", "storage": {"provider": "ftp"}})
    assert answer.status_code == 400
    assert hold(shapes.DETAIL, answer.json())["detail"].startswith(
        ("unsupported storage provider: ", "storage backend not configured")
    )


@pytest.mark.parametrize("body", [{}, None, "bare"], ids=["empty", "null", "no body"])
def test_a_body_of_create_is_optional(client: SessionsClient, body: Any) -> None:
    answer = client.send("POST", "/sessions", body, bare=body == "bare")
    assert answer.status_code == 200, answer.text
    made = hold(shapes.CREATED, answer.json())["session_id"]
    gone = client.send("DELETE", f"/sessions/{made}", body, bare=body == "bare")
    assert gone.status_code == 200
    hold(shapes.DELETED, gone.json())


def test_nulls_odd_ages_and_odd_keys_of_create_are_no_errors(client: SessionsClient) -> None:
    odd: list[dict[str, Any]] = [
        {"storage": None, "idle_ttl_sec": None, "archive_key": None},
        {"idle_ttl_sec": 0}, {"idle_ttl_sec": -5}, {"idle_ttl_sec": 10**9},
        {"archive_key": "a/b"}, {"archive_key": ""}, {"archive_key": "k" * 129},
        {"storage": {}}, {"storage": {"provider": "s3"}}, {"storage": {"provider": None}},
    ]  # fmt: skip
    for fields in odd:
        client.delete(client.create(**fields), discard=True)


def test_health_is_open_and_says_what_it_says(client: SessionsClient) -> None:
    health = client.health()
    assert (health["ok"], health["image_ready"]) == (True, True)


def test_delete_of_an_unknown_session_is_well(client: SessionsClient) -> None:
    client.delete(UNKNOWN)
    client.delete(UNKNOWN, discard=True, archive_key="nothing-of-this-name")


def test_reset_of_an_unknown_session_is_one_of_two_answers(client: SessionsClient) -> None:
    answer = client.send("POST", "/files/reset-inputs", {"session_id": UNKNOWN})
    if answer.status_code == 404:
        assert hold(shapes.DETAIL, answer.json())["detail"] == GONE
    else:
        assert answer.status_code == 200
        body = hold(shapes.RESET, answer.json())
        assert (body["ok"], body["session_gone"]) == (False, True)


@pytest.mark.parametrize(
    "header", [None, "Bearer wrong", "Basic abc", "Bearer", "bearer", "Bearer é".encode("latin-1")], ids=str
)
def test_every_route_wants_the_key(place: Place, header: Any) -> None:
    headers = {} if header is None else {"Authorization": header}
    routes = [("POST", row) for row in ("/sessions", "/exec", "/files", "/files/get", "/files/list")]
    routes += [("POST", row) for row in ("/files/reset-inputs", "/storage/put", "/storage/delete", "/storage/gc")]
    with httpx.Client(base_url=place.url, timeout=30) as http:
        for method, path in [*routes, ("DELETE", f"/sessions/{UNKNOWN}")]:
            answer = http.request(method, path, headers=headers, content=b"{")
            assert answer.status_code == 401, (path, answer.text)
            assert answer.json()["error"] == "unauthorized"


def raw(place: Place, head: str) -> bytes:
    """What is answered to the head of a request that no client would send, up to the end of a JSON object."""
    url, found = httpx.URL(place.url), b""
    with socket.create_connection((url.host, url.port or 80), timeout=30) as sock:
        sock.sendall(head.encode())
        while not found.endswith(b"}") and (more := sock.recv(65536)):
            found += more
    return found


def test_a_length_that_is_no_number_is_400(place: Place) -> None:
    answer = raw(
        place, f"POST /sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {place.key}\r\nContent-Length: x\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 400"), answer


def test_the_declared_length_is_judged_before_the_key(tight: Place) -> None:
    for path, limit in (("/sessions", 20000), ("/exec", 20000), ("/storage/put", 40000)):
        answer = raw(tight, f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {limit + 1}\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 413"), answer
        assert b'"request body exceeds %d bytes"' % limit in answer, answer
        within = raw(tight, f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}")
        assert within.startswith(b"HTTP/1.1 401"), within
