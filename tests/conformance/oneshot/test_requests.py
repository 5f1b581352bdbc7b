"""Sections 1 and 2: what a request may be, and each way in which one is refused."""

from __future__ import annotations

import base64
import contextlib
import json
import select
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.conformance.kit import Place
from tests.conformance.oneshot import shapes
from tests.conformance.oneshot.client import Failed, OneshotClient
from tests.conformance.shapes import hold
from tests.support.waiting import aside

BODY_CAP = 100_663_296
RUN = {"language": "python", "code": "print(1)"}
NO_REQUEST: dict[str, Any] = {
    "nothing": {},
    "a list": [],
    "null": None,
    "no language": {"code": "1"},
    "no code": {"language": "python"},
    "another language": {**RUN, "language": "ruby"},
    "language in capitals": {**RUN, "language": "Python"},
    "code a number": {**RUN, "code": 1},
    "code null": {**RUN, "code": None},
    "files an object": {**RUN, "files": {}},
    "a file without name": {**RUN, "files": [{"content_b64": ""}]},
    "a file without bytes": {**RUN, "files": [{"name": "a"}]},
    "a file's name a number": {**RUN, "files": [{"name": 1, "content_b64": ""}]},
    "limit a string": {**RUN, "timeout_secs": "5"},
    "limit below zero": {**RUN, "timeout_secs": -1},
    "limit a fraction": {**RUN, "timeout_secs": 1.5},
    "network a string": {**RUN, "network": "yes"},
    "network a number": {**RUN, "network": 1},
    "keep_alive null": {**RUN, "keep_alive": None},
    "container_id a number": {**RUN, "container_id": 7},
}


@pytest.mark.parametrize("name", list(NO_REQUEST))
def test_a_body_that_is_no_request_is_400(client: OneshotClient, name: str) -> None:
    answer = client.post(NO_REQUEST[name])
    assert answer.status_code == 400, answer.text
    hold(shapes.ERROR, answer.json(), name)


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe", b'{"language":"python"', b"print(1)"])
def test_a_body_that_cannot_be_read_is_400(client: OneshotClient, raw: bytes) -> None:
    answer = client.post(None, raw)
    assert answer.status_code == 400, answer.text
    hold(shapes.ERROR, answer.json())


def test_defaults_and_unknown_fields(client: OneshotClient) -> None:
    for body in (
        RUN,
        {**RUN, "timeout_secs": None, "container_id": None},
        {**RUN, "tomorrow": {"x": [1]}, "files": []},
    ):
        answer = client.post(body)
        assert answer.status_code == 200, answer.text
        made = hold(shapes.RAN, answer.json())
        assert (made["exit_code"], made["stdout"], made["stderr"], made["artifacts"]) == (0, "1\n", "", [])
        assert (made["timed_out"], made["output_truncated"], made["artifacts_truncated"]) == (False, False, False)
        assert made.get("container_id") is None


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../a", "/a", "a\\b"])
def test_the_agent_refuses_unsafe_names(client: OneshotClient, name: str) -> None:
    ran = client.run("python", "print('ran')", {name: b"x"})
    assert (ran.raw["exit_code"], ran.raw["stdout"], ran.raw["artifacts"], ran.raw["duration_ms"]) == (2, "", [], 0)
    assert ran.raw["stderr"]
    assert ran.raw["timed_out"] is False


def test_the_agent_refuses_bytes_that_cannot_be_decoded_and_is_lenient_with_others(client: OneshotClient) -> None:
    bad = client.post({**RUN, "files": [{"name": "a", "content_b64": "A"}]})
    assert bad.status_code == 200
    refused = hold(shapes.RAN, bad.json())
    assert (refused["exit_code"], refused["stdout"], refused["duration_ms"]) == (2, "", 0)
    body = {
        "language": "python",
        "code": "print(open('a').read())",
        "files": [{"name": "a", "content_b64": "aGV\nsb G8="}],
    }
    assert client.post(body).json()["stdout"] == "hello\n"


def test_a_refusal_keeps_a_lease(client: OneshotClient) -> None:
    lease = client.run("bash", "echo 1 > kept", keep_alive=True).container
    refused = client.run("bash", "echo 2", {"a/b": b""}, container_id=lease, keep_alive=True)
    assert refused.raw["exit_code"] == 2
    assert client.run("bash", "cat kept", container_id=lease, keep_alive=True).raw["stdout"] == "1\n"
    assert lease
    client.release(lease)


def test_no_egress_is_400_with_what_to_do(client: OneshotClient) -> None:
    assert client.probe() is False
    with pytest.raises(Failed) as refused:
        client.run("python", "print(1)", network=True)
    assert (refused.value.kind, refused.value.status) == ("refused", 400)
    assert "network" in str(refused.value)
    assert "install" in str(refused.value)


def test_no_egress_and_an_unknown_lease(client: OneshotClient) -> None:
    with pytest.raises(Failed) as refused:
        client.run("python", "print(1)", network=True, container_id="sbx-1-2-3")
    assert refused.value.status in (400, 502)


def test_network_is_not_asked_of_a_lease_that_is_there(client: OneshotClient) -> None:
    lease = client.run("bash", "echo 1 > kept", keep_alive=True).container
    assert lease
    again = client.run("bash", "cat kept", network=True, container_id=lease, keep_alive=True)
    assert (again.raw["stdout"], again.container) == ("1\n", lease)
    client.release(lease)


def test_delete_is_204_for_anything_and_takes_only_what_was_issued(client: OneshotClient) -> None:
    lease = client.run("bash", "echo 1 > kept", keep_alive=True).container
    assert lease
    for name in ("sbx-1-2-3", "nothing", "x" * 300, "%2e%2e", "foliobox", "a%20b"):
        client.release(name)
    assert client.run("bash", "cat kept", container_id=lease, keep_alive=True).raw["stdout"] == "1\n"
    client.release(lease)
    client.release(lease)
    assert client.run("bash", "find . -type f", container_id=lease).raw["stdout"] == ""


def test_delete_ends_a_busy_lease(client: OneshotClient) -> None:
    lease = client.run("bash", "true", keep_alive=True).container
    assert lease
    long = aside(lambda: client.run("bash", "sleep 60", container_id=lease, keep_alive=True, timeout_secs=8))
    client.release(lease)
    with contextlib.suppress(Failed):
        assert long.result(90).container != lease


def test_health_satisfies_the_probe(client: OneshotClient) -> None:
    answer = client.http.get("/healthz")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/json")
    assert hold(shapes.HEALTH, answer.json())["status"] == "ok"
    assert len(answer.content) < 64 << 10


def test_the_surface_alone_is_open(place: Place) -> None:
    with httpx.Client(base_url=place.url, timeout=30) as http:
        for path in ("/sessions", "/exec", "/v1/conversations"):
            assert http.post(path, json={}).status_code in (401, 405), path
        assert http.get("/v1/conversations").status_code == 401


def read_while_sending(sock: socket.socket, block: bytes, times: int) -> bytes:
    """Send until all is sent or the answer is there."""
    sock.setblocking(False)
    left, view = times, memoryview(block)
    offset = 0
    while left:
        readable, writable, _ = select.select([sock], [sock], [], 30)
        if readable:
            break
        assert writable, "neither sent nor answered"
        with contextlib.suppress(BlockingIOError):
            offset += sock.send(view[offset:])
        if offset == len(block):
            offset, left = 0, left - 1
    select.select([sock], [], [], 30)
    return sock.recv(65536)


def test_a_body_above_its_cap_is_413_by_its_declared_length(place: Place) -> None:
    url = httpx.URL(place.url)
    with socket.create_connection((url.host, url.port or 80), timeout=30) as sock:
        sock.sendall(f"POST /run HTTP/1.1\r\nHost: x\r\nContent-Length: {BODY_CAP + 1}\r\n\r\n".encode())
        answer = sock.recv(65536)
    assert answer.startswith(b"HTTP/1.1 413"), answer
    assert b'{"error":' in answer.replace(b": ", b":"), answer


def test_a_body_above_its_cap_is_413_in_chunks_too(place: Place) -> None:
    url = httpx.URL(place.url)
    block = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    with socket.create_connection((url.host, url.port or 80), timeout=30) as sock:
        sock.sendall(b"POST /run HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        answer = read_while_sending(sock, block, 98)
    assert answer.startswith(b"HTTP/1.1 413"), answer[:200]


def test_fifty_mib_of_files_go_in(client: OneshotClient) -> None:
    data = bytes(range(256)) * (50 << 12)
    ran = client.run("python", "import os; print(os.path.getsize('big.bin'))", {"big.bin": data})
    assert ran.raw["stdout"] == f"{len(data)}\n"
    assert ran.artifacts == {}


def test_one_permit_too_few_is_503_with_its_reason(small: OneshotClient) -> None:
    long = aside(lambda: small.run("bash", "sleep 30", timeout_secs=4))
    told: list[str] = []
    while not long.done():
        try:
            small.run("python", "print(1)")
        except Failed as refused:
            told.append(f"{refused.kind} {refused.status}")
            break
    assert long.result(60).raw["timed_out"] is True
    assert told in ([], ["refused 503"])
    assert told or small.run("python", "print(1)").raw["exit_code"] == 0


def test_seven_parallel_runs_all_come_out(client: OneshotClient) -> None:
    with ThreadPoolExecutor(7) as pool:
        ran = list(pool.map(lambda n: client.run("python", f"print({n})"), range(7)))
    assert [each.raw["stdout"] for each in ran] == [f"{n}\n" for n in range(7)]


def test_every_answer_is_json(client: OneshotClient) -> None:
    for answer in (client.post(RUN), client.post({}), client.post(None, b"{")):
        assert answer.headers["content-type"].split(";")[0] == "application/json"
        json.loads(answer.content)
    assert base64.b64decode(client.run("bash", "printf hi > a").raw["artifacts"][0]["content_b64"]) == b"hi"
