"""Clients that misbehave on the wire: without a key, stalling, leaving, not reading."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.runner import Chat, Runner, running
from tests.support.waiting import aside, until


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """A service that waits two seconds for a body."""
    data = tmp_path_factory.mktemp("impatient")
    with running(data, SANDBOX_BODY_TIMEOUT_SECONDS="2", SANDBOX_MIN_BODY_RATE="1", SANDBOX_POOL_SIZE="0") as service:
        yield service


def connected(runner: Runner, method: str, path: str, *headers: str, key: str | None = None) -> socket.socket:
    """A connection on which the head of a request was sent."""
    sock = socket.create_connection(("127.0.0.1", runner.port), timeout=20)
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {key or runner.key}", *headers]
    sock.sendall("\r\n".join([*lines, "", ""]).encode())
    return sock


def until_closed(sock: socket.socket) -> bytes:
    """All that comes before the other side closes."""
    received = b""
    while piece := sock.recv(1 << 16):
        received += piece
    return received


def resident_bytes(runner: Runner) -> int:
    """Resident memory of the service."""
    status = Path(f"/proc/{runner.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) << 10


def test_bodies_without_a_key_take_no_memory(impatient: Runner) -> None:
    before = resident_bytes(impatient)
    body = b"x" * (49 << 20)

    def send() -> int:
        try:
            return httpx.post(f"{impatient.url}/v1/conversations/a/execute", content=body, timeout=30).status_code
        except httpx.TransportError:
            return 0  # closed in the middle of sending

    sending, peak = [aside(send) for _ in range(10)], before
    while not all(one.done() for one in sending):
        peak = max(peak, resident_bytes(impatient))
        time.sleep(0.01)
    statuses = {one.result() for one in sending}
    assert statuses <= {0, 401}
    assert 401 in statuses
    assert peak - before < 40 << 20


def test_the_refusal_comes_before_any_of_the_body(impatient: Runner) -> None:
    with connected(impatient, "PUT", "/v1/conversations/a/files/b", "Content-Length: 9", key="wrong") as sock:
        head, _, body = until_closed(sock).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 401 ")
    assert b"connection: close" in head.lower()
    assert json.loads(body)["code"] == "unauthorized"


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "/v1/conversations/a/files/b"), ("POST", "/v1/conversations/a/execute")]
)
def test_a_body_that_stalls_is_answered_408(impatient: Runner, method: str, path: str) -> None:
    began = time.monotonic()
    headers = ("Content-Length: 1000", "Content-Type: application/json")
    with connected(impatient, method, path, *headers) as sock:
        sock.sendall(b"{")
        head, _, body = until_closed(sock).partition(b"\r\n\r\n")
    assert 1.9 < time.monotonic() - began < 15
    assert head.startswith(b"HTTP/1.1 408 ")
    assert (json.loads(body)["code"], json.loads(body)["status"]) == ("timeout", 408)
    with impatient.client() as http:
        assert http.get("/v1/conversations/a/files/b").status_code == 404


def test_a_slow_body_that_makes_progress_is_taken(impatient: Runner) -> None:
    with connected(
        impatient, "PUT", "/v1/conversations/slow/files/b", "Content-Length: 6", "Connection: close"
    ) as sock:
        for _ in range(6):  # 2.4 s in all
            time.sleep(0.4)
            sock.sendall(b"x")
        assert until_closed(sock).startswith(b"HTTP/1.1 201 ")


def test_a_client_who_leaves_stores_nothing_and_is_no_fault(impatient: Runner) -> None:
    with connected(impatient, "PUT", "/v1/conversations/left/files/b", f"Content-Length: {20 << 20}") as sock:
        sock.sendall(bytes(3 << 20))  # more than is held in memory
        until(lambda: any((impatient.data / "store" / "staging").iterdir()), "the upload is under way")
    until(lambda: "the client left" in impatient.log.read_text(), "the log tells of it")
    log = impatient.log.read_text()
    assert "Traceback" not in log
    assert "unexpected" not in log
    with impatient.client() as http:
        assert http.get("/v1/conversations/left").status_code == 404  # not even a conversation


def test_a_listener_who_does_not_read_does_not_hold_the_conversation(chat: Chat, runner: Runner) -> None:
    chat.ok("1")
    both = "    print('x' * 40000, flush=True)\n    print('x' * 40000, file=sys.stderr, flush=True)\n"
    code = f"import sys\nfor i in range(400):\n{both}open('end', 'w').close()"  # more than buffers hold
    body = json.dumps({"code": code})
    headers = (f"Content-Length: {len(body)}", "Content-Type: application/json", "Accept: text/event-stream")
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", runner.port))
        head = [f"POST /v1/conversations/{chat.id}/execute HTTP/1.1", "Host: x", f"Authorization: Bearer {runner.key}"]
        sock.sendall("\r\n".join([*head, *headers, "", body]).encode())
        received = b""
        while b"event: started" not in received:  # the last that is read
            received += sock.recv(256)
        began = time.monotonic()
        assert chat.ok("print(open('end').read() == '')")["stdout"] == "True\n"
        assert time.monotonic() - began < 25  # the listener is cut off after 30 s
