"""Requests made to break parsers: each gets a problem document that says what to send, and changes nothing."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.support.runner import Chat, Runner

JSON = {"Content-Type": "application/json"}
ROUTES: dict[str, dict[str, Any]] = {
    "PUT ": {"labels": {"a": "b"}},
    "POST /execute": {"code": "1"},
    "POST /moves": {"from": "a", "to": "b"},
    "POST /links": {"path": "a"},
    "POST /restore": {"version": 0},
    "POST /fork": {"id": "never-made"},
}
_NAMES = (b"code", b"path", b"from", b"to", b"version", b"id", b"labels")
HOSTILE: dict[str, bytes] = {
    "nothing but space": b"  ",
    "cut": b'{"a": ',
    "deep": b"[" * 100_000,
    "deep and whole": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a million names": b"{" + b",".join(b'"%d":0' % n for n in range(1_000_000)) + b"}",
    "a long number": b'{"version": ' + b"9" * 100_000 + b"}",
    "NaN": b'{"version": NaN}',
    "a name twice": b'{"version": 0, "version": 0}',
    "lone surrogates": b'{"path": "\\ud800", "from": "\\ud800", "to": "\\ud800", "code": "\\ud800", "id": "\\ud800"}',
    "lone surrogate as a name": b'{"\\ud800": 1}',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"version": 0}'.encode("utf-16"),
    "not UTF-8": b'{"path": "\xff"}',
    "a list": b"[]",
    "a word": b'"x"',
    "null": b"null",
    "an unknown field": b'{"unknown": 1}',
    "null for all": b"{%s}" % b", ".join(b'"%s": null' % name for name in _NAMES),
}


def send(chat: Chat, route: str, content: bytes, headers: dict[str, str]) -> httpx.Response:
    method, _, rest = route.partition(" ")
    return chat.http.request(method, f"/v1/conversations/{chat.id}{rest}", content=content, headers=headers)


@pytest.fixture
def before(chat: Chat) -> Chat:
    """A conversation with a file and a label."""
    assert chat.http.put(f"/v1/conversations/{chat.id}", json={"labels": {"kept": "yes"}}).status_code == 201
    chat.put("a", b"x")
    return chat


def state(chat: Chat) -> Any:
    shown = chat.http.get(f"/v1/conversations/{chat.id}").json()
    return {**shown, "live": None}, chat.files()


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_json(before: Chat, case: str) -> None:
    was = state(before)
    for route in ROUTES:
        answer = send(before, route, HOSTILE[case], JSON)
        if (route, case) in (("PUT ", "null"),):  # a body that may be left out
            assert answer.status_code == 200
            continue
        if case == "a million names" and route != "POST /execute":
            assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
            continue
        assert answer.status_code in (400, 422), (route, answer.status_code, answer.text[:300])
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert problem["code"] == "invalid_arguments", (route, problem)
        assert problem["detail"] and len(answer.content) < 20_000
    assert state(before) == was
    assert before.http.get("/v1/conversations/never-made").status_code == 404


def test_bodies_that_hold_no_code_are_short(before: Chat) -> None:
    was = state(before)
    for route, body in ROUTES.items():
        if route != "POST /execute":
            answer = send(before, route, json.dumps({**body, "x": "x" * (1 << 20)}).encode(), JSON)
            assert (answer.status_code, answer.json()["code"]) == (413, "too_large"), route
    assert state(before) == was


@pytest.mark.parametrize(
    "kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
             "application/json; charset=utf-16", "application/xml"],
)  # fmt: skip
def test_other_types_than_json(before: Chat, kind: str | None) -> None:
    was = state(before)
    for route, body in ROUTES.items():
        answer = send(before, route, json.dumps(body).encode(), {} if kind is None else {"Content-Type": kind})
        assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type"), (route, answer.text)
        assert "Content-Type: application/json" in answer.json()["detail"]
    assert state(before) == was


METHODS: dict[str, str] = {
    "": "GET, HEAD, PUT, DELETE",
    "/files": "GET, HEAD, POST",
    "/files/a": "GET, HEAD, PUT, DELETE",
    "/execute": "POST",
    "/moves": "POST",
    "/links": "POST",
    "/archive": "GET, HEAD",
    "/versions": "GET, HEAD",
    "/versions/0": "GET, HEAD",
    "/restore": "POST",
    "/fork": "POST",
}


@pytest.mark.parametrize("rest", METHODS)
def test_wrong_methods_are_told_the_right_ones(before: Chat, rest: str) -> None:
    answer = before.http.patch(f"/v1/conversations/{before.id}{rest}")
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    allowed = METHODS[rest]
    assert answer.headers["allow"] == allowed
    assert all(method in answer.json()["detail"] for method in allowed.split(", "))


QUERIES: dict[str, str] = {
    "GET ?": "sha",
    "GET /files?prefix=a&": "perfix",
    "PUT /files/a?": "sha",
    "DELETE /files/a?": "version",
    "GET /files/a?": "verison",
    "POST /execute?": "language",
    "POST /files?": "path",
    "PUT ?": "labels",
    "DELETE ?": "recursive",
    "GET /archive?": "from",
    "POST /reset?": "hard",
}


@pytest.mark.parametrize("route", QUERIES)
def test_unknown_query_parameters_are_refused(before: Chat, route: str) -> None:
    was = state(before)
    method, _, rest = route.partition(" ")
    url = f"/v1/conversations/{before.id}{rest}{QUERIES[route]}=1"
    answer = before.http.request(method, url, json={"code": "1"} if method == "POST" else None)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_arguments"), answer.text
    assert f"unknown query parameter '{QUERIES[route]}'" in answer.json()["detail"]
    assert isinstance(answer.json()["known"], list)
    assert state(before) == was


def test_what_is_known_is_told_and_given_once(before: Chat) -> None:
    url = f"/v1/conversations/{before.id}/files/a"
    assert before.http.put(f"{url}?sha=0").json()["detail"].endswith("known: sha256")
    assert before.http.get("/v1/conversations?lable=a=b").json()["known"] == ["after", "limit", "label"]
    assert before.http.get(f"{url}?version=0&version=1").status_code == 422
    assert before.http.get("/v1/conversations?label=a=b&label=c=d").status_code == 200
    assert before.http.get("/v1/links/x.y?utm=1").status_code == 422


@pytest.mark.parametrize("path", ["/v1/conversations/", "/v1/conversations/x/", "/healthz/", "/docs/", "/v1/links/s/"])
def test_a_slash_too_many_is_told_and_never_redirected(before: Chat, path: str) -> None:
    answer = before.http.get(path)
    assert (answer.status_code, answer.json()["code"], "location" in answer.headers) == (404, "not_found", False)
    shown = "/v1/links/…" if "links" in path else path.rstrip("/")
    assert ascii(shown)[1:-1] in answer.json()["detail"]


@pytest.mark.parametrize("path", ["/healthz/", "/livez/", "/metrics/", "/nothing"])
def test_what_is_not_an_open_address_asks_for_a_key(runner: Runner, path: str) -> None:
    assert httpx.get(runner.url + path).status_code == 401


def test_head_is_answered_wherever_get_is(before: Chat) -> None:
    base = f"/v1/conversations/{before.id}"
    cut = before.ok("open('outputs/b', 'w').write('x')\nprint('y' * 200_000)")
    run = f"{base}/executions/{cut['execution_id']}"
    opened = ["/healthz", "/livez", "/readyz", "/docs", "/openapi.json", "/metrics", "/v1/conversations", base]
    files = [
        "/files",
        "/files/a",
        "/files/none",
        "/versions",
        "/versions/1",
        "/archive",
        "/archive?format=tar.gz",
        "/no",
    ]
    runs = ["", "/events", "/events?after=1000000", "/stdout", "/results/9"]
    for url in (*opened, *(base + rest for rest in files), *(run + rest for rest in runs)):
        got, head = before.http.get(url), before.http.head(url)
        assert (head.status_code, head.content) == (got.status_code, b""), url
        for name in ("content-type", "etag", "content-disposition", "x-execution-id"):
            assert head.headers.get(name) == got.headers.get(name), (url, name)
        if "content-length" in got.headers and got.status_code == 200 and url not in ("/healthz", "/metrics"):
            assert head.headers["content-length"] == got.headers["content-length"], url
    assert before.http.head(f"{base}/moves").status_code == 405


def test_head_of_a_run_that_goes_on_does_not_wait_for_it(before: Chat) -> None:
    url = f"/v1/conversations/{before.id}"
    with before.http.stream(
        "POST", f"{url}/execute", json={"code": "while True: pass", "timeout_ms": 60_000},
        headers={"Accept": "text/event-stream"},
    ) as running:  # fmt: skip
        events = f"{url}/executions/{running.headers['x-execution-id']}/events"
        head = before.http.head(events, params={"after": 1}, timeout=20)
        assert (head.status_code, head.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
        assert before.http.post(f"{url}/interrupt").json() == {"interrupted": True}
        running.read()


def test_unsatisfiable_ranges_say_the_size(before: Chat) -> None:
    answer = before.get("a", Range="bytes=5-")
    assert (answer.status_code, answer.json()["code"]) == (416, "range_not_satisfiable")
    assert answer.headers["content-range"] == "bytes */1"


def test_many_ranges_cost_nothing(before: Chat) -> None:
    many = before.get("a", Range="bytes=" + ",".join(f"{n}-{n}" for n in range(5000)))
    assert (many.status_code, many.content) == (200, b"x")


def test_settings_are_shown_as_they_hold(chat: Chat) -> None:
    url = f"/v1/conversations/{chat.id}"
    chat.http.put(url)
    wide = chat.http.get(url).json()
    body = {"labels": {"user": "ada"}, "idle_ttl_ms": 60_000, "limits": {"timeout_ms": 1000, "memory_bytes": 1 << 60}}
    shown = chat.http.put(url, json=body).json()
    assert shown == chat.http.get(url).json()
    assert (shown["labels"], shown["idle_ttl_ms"], shown["network"]) == ({"user": "ada"}, 60_000, False)
    assert shown["limits"] == {**wide["limits"], "timeout_ms": 1000}
    assert chat.run("while True: pass")["outcome"] == "timeout"
    again = chat.http.put(url, json={"limits": None}).json()
    assert (again["labels"], again["limits"]) == ({"user": "ada"}, wide["limits"])


@pytest.mark.parametrize(
    "body",
    [
        {"limits": {"memory": 1}}, {"limits": {"pids": 0}}, {"limits": {"cpus": "1"}}, {"limits": {"pids": True}},
        {"limits": []}, {"idle_ttl_ms": 0}, {"idle_ttl_ms": 1.5}, {"network": 1}, {"labels": {"a b": "c"}},
        {"labels": {"a": 1}}, {"labels": {"a": "x" * 257}}, {"labels": {str(n): "" for n in range(33)}},
    ],
)  # fmt: skip
def test_settings_that_cannot_be_make_no_conversation(chat: Chat, body: dict[str, Any]) -> None:
    answer = chat.http.put(f"/v1/conversations/{chat.id}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_arguments")
    assert chat.http.get(f"/v1/conversations/{chat.id}").status_code == 404


def test_network_that_there_is_none_of_makes_no_conversation(chat: Chat) -> None:
    answer = chat.http.put(f"/v1/conversations/{chat.id}", json={"network": True})
    assert (answer.status_code, answer.json()["code"]) == (422, "egress_unavailable")
    assert chat.http.get(f"/v1/conversations/{chat.id}").status_code == 404


def test_lists_are_filtered_by_label_and_paged(http: httpx.Client) -> None:
    chats = [Chat(http, f"list-{number}") for number in range(6)]
    for number, chat in enumerate(chats):
        labels = {"kind": "even" if number % 2 == 0 else "odd", "all": "x=y"}
        http.put(f"/v1/conversations/{chat.id}", json={"labels": labels})

    def listed(**params: Any) -> list[str]:
        found: list[str] = []
        after: str | None = None
        while True:
            query = {**params, "limit": 2, **({} if after is None else {"after": after})}
            page = http.get("/v1/conversations", params=query).json()
            found += [item["id"] for item in page["conversations"]]
            after = page["next"]
            if after is None:
                return found

    ids = [chat.id for chat in chats]
    assert listed(label="kind=even") == ids[::2]
    assert listed(label=["kind=odd", "all=x=y"]) == ids[1::2]
    assert listed(label=["kind=odd", "all=other"]) == []
    assert [name for name in listed() if name in ids] == ids
    for bad in ("kind", "=x", "", ["kind=a", "kind=b"]):
        assert http.get("/v1/conversations", params={"label": bad}).status_code == 422
    for chat in chats:
        chat.purge()
