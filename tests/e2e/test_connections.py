"""What one client can hold open: heads, connections, answers that are not taken, bodies that drip."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from runner.api.connections import MAX_PIPELINED
from tests.support.runner import Chat, Runner, running
from tests.support.waiting import until

MAX_CONNECTIONS = 40
HEAD_TIMEOUT_S = 1.0


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """A service with low limits for connections."""
    settings = {
        "SANDBOX_MAX_CONNECTIONS": str(MAX_CONNECTIONS),
        "SANDBOX_HEAD_TIMEOUT_SECONDS": str(HEAD_TIMEOUT_S),
        "SANDBOX_SEND_TIMEOUT_SECONDS": "2",
        "SANDBOX_BODY_TIMEOUT_SECONDS": "1",
        "SANDBOX_MIN_BODY_RATE": "1k",
        "SANDBOX_POOL_SIZE": "0",
    }
    with running(tmp_path_factory.mktemp("strict"), **settings) as service:
        yield service


def connect(runner: Runner) -> socket.socket:
    """A connection on which nothing was sent."""
    return socket.create_connection(("127.0.0.1", runner.port), timeout=20)


def head(runner: Runner, method: str, path: str, *headers: str) -> bytes:
    """The head of a request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {runner.key}", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def until_closed(sock: socket.socket) -> bytes:
    """All that comes before the other side closes, however it does."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := sock.recv(1 << 16):
            received += piece
    return received


def problem(answer: bytes) -> tuple[int, str, str]:
    """Status, code and detail of a problem document as it came over the wire."""
    start, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in start.lower(), answer
    document = json.loads(body)
    assert document["status"] == int(start.split()[1])
    assert document["request_id"]
    return document["status"], document["code"], document["detail"]


def sockets_of(runner: Runner) -> int:
    """Sockets that the service has open."""
    found = 0
    for fd in os.listdir(f"/proc/{runner.pid}/fd"):
        with contextlib.suppress(OSError):
            found += os.readlink(f"/proc/{runner.pid}/fd/{fd}").startswith("socket:")
    return found


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param([f"X-Long: {'x' * (70 << 10)}"], id="one long header"),
        pytest.param([f"X-Long: {'x' * (400 << 10)}"], id="one very long header"),
        pytest.param([f"X-{n}: 1" for n in range(200)], id="many headers"),
        pytest.param([f"X-{n}: {'x' * 1000}" for n in range(90)], id="many long headers"),
    ],
)
def test_a_large_head_is_answered_431(strict: Runner, headers: list[str]) -> None:
    with connect(strict) as sock:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            sock.sendall(head(strict, "GET", "/v1/conversations", *headers))
        status, code, detail = problem(until_closed(sock))
    assert (status, code) == (431, "too_large")
    assert "65536 bytes (SANDBOX_MAX_HEAD_BYTES)" in detail


def test_a_long_address_is_answered_431(strict: Runner) -> None:
    with connect(strict) as sock:
        sock.sendall(head(strict, "GET", "/v1/conversations?after=" + "x" * (70 << 10)))
        assert problem(until_closed(sock))[:2] == (431, "too_large")


def test_an_endless_head_takes_no_memory(strict: Runner) -> None:
    sent = 0
    with connect(strict) as sock, contextlib.suppress(ConnectionResetError, BrokenPipeError):
        sock.sendall(b"GET / HTTP/1.1\r\nX-Endless: ")
        for _ in range(1000):
            sock.sendall(b"x" * (64 << 10))
            sent += 64 << 10
    assert sent < 16 << 20, "the service went on reading"


@pytest.mark.parametrize("part", [b"G", b"GET / HTTP/1.1\r\nHost: x\r\n", b"GET / HTTP/1.1\r\nHost"])
def test_half_a_head_is_answered_408(strict: Runner, part: bytes) -> None:
    began = time.monotonic()
    with connect(strict) as sock:
        sock.sendall(part)
        assert problem(until_closed(sock))[:2] == (408, "timeout")
    assert HEAD_TIMEOUT_S * 0.9 < time.monotonic() - began < HEAD_TIMEOUT_S + 10


@pytest.mark.parametrize("part", [b"", b"\r\n"])
def test_a_connection_on_which_nothing_is_asked_is_closed(strict: Runner, part: bytes) -> None:
    with connect(strict) as sock:
        sock.sendall(part)
        assert until_closed(sock) == b""


def test_half_a_second_head_on_a_kept_connection_is_answered_408(strict: Runner) -> None:
    with connect(strict) as sock:
        sock.sendall(head(strict, "GET", "/livez"))
        first = b""
        while b'"ok"}' not in first:
            first += sock.recv(4096)
        sock.sendall(b"GET /livez HT")
        assert problem(until_closed(sock))[:2] == (408, "timeout")


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"nonsense\r\n\r\n", b"GET  \r\n\r\n\r\n"]
)
def test_what_is_not_http_is_answered_400(strict: Runner, garbage: bytes) -> None:
    with connect(strict) as sock:
        sock.sendall(garbage)
        assert problem(until_closed(sock))[:2] == (400, "invalid_arguments")


def test_a_connection_too_many_is_told_so_and_room_comes_back(strict: Runner) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(MAX_CONNECTIONS):
            stack.enter_context(connect(strict))
        with connect(strict) as sock:
            answer = until_closed(sock)
        status, code, detail = problem(answer)
        assert (status, code) == (503, "too_many_connections")
        assert "SANDBOX_MAX_CONNECTIONS" in detail
        assert b"retry-after: 1" in answer.lower()

    def answers() -> bool:
        try:
            return httpx.get(f"{strict.url}/livez", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    until(answers, "there is room again")


def test_requests_sent_ahead_are_served_in_order_and_bounded(strict: Runner) -> None:
    with connect(strict) as sock:
        sock.sendall(head(strict, "GET", "/livez") * 10 + head(strict, "GET", "/livez", "Connection: close"))
        assert until_closed(sock).count(b"HTTP/1.1 200 OK") == 11
    with connect(strict) as sock:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            sock.sendall(head(strict, "GET", "/livez") * (MAX_PIPELINED * 20))
        assert until_closed(sock).count(b"HTTP/1.1 200 OK") < MAX_PIPELINED * 20


SLOW = json.dumps({"code": "import time; time.sleep(1); print('slow')"}).encode()


def slow(runner: Runner, conversation: str) -> bytes:
    """A request that takes a second to answer."""
    path = f"/v1/conversations/{conversation}/execute"
    return head(runner, "POST", path, "Content-Type: application/json", f"Content-Length: {len(SLOW)}") + SLOW


def test_what_was_asked_before_too_much_is_answered(strict: Runner) -> None:
    with connect(strict) as sock:
        sock.sendall(slow(strict, "ahead") + head(strict, "GET", "/livez") * (MAX_PIPELINED * 3))
        answers = until_closed(sock)
    assert b'"slow\\n"' in answers
    assert answers.count(b"HTTP/1.1 ") == answers.count(b"HTTP/1.1 200 OK") == 1 + MAX_PIPELINED
    assert answers.count(b"connection: close") == 1
    assert answers.endswith(b'{"status":"ok"}')


CHUNKED = "Transfer-Encoding: chunked"


@pytest.mark.parametrize("part", [b"zz\r\n", b"3\r\nabcd\r\n", b"3\r\nabc\r\n-1\r\n"])
def test_a_malformed_chunk_is_answered_400_and_nothing_is_stored(strict: Runner, part: bytes) -> None:
    path = "/v1/conversations/chunks/files/a"
    with connect(strict) as sock:
        sock.sendall(head(strict, "PUT", path, CHUNKED) + part)
        assert problem(until_closed(sock))[:2] == (400, "invalid_arguments")
    with connect(strict) as sock:
        sock.sendall(head(strict, "PUT", path, CHUNKED) + b"3\r\nabc\r\n")
        sock.sendall(part)
        assert problem(until_closed(sock))[:2] == (400, "invalid_arguments")
    with strict.client() as http:
        assert http.get("/v1/conversations/chunks").status_code == 404


@pytest.mark.parametrize("then", ["chunk", "garbage", "coding"])
def test_answers_under_way_are_finished_before_a_refusal_closes(strict: Runner, then: str) -> None:
    path = "/v1/conversations/chunks/files/a"
    wrong = {
        "chunk": head(strict, "PUT", path, CHUNKED) + b"zz\r\n",
        "garbage": b"\x16\x03\x01",
        "coding": head(strict, "PUT", path, "Transfer-Encoding: gzip, chunked"),
    }[then]
    with connect(strict) as sock:
        sock.sendall(slow(strict, "under-way") + wrong + head(strict, "GET", "/livez"))
        answers = until_closed(sock)
    assert answers.count(b"HTTP/1.1 ") == 1
    assert b'"slow\\n"' in answers
    assert b"connection: close" in answers
    with strict.client() as http:
        assert http.get("/v1/conversations/chunks").status_code == 404


@pytest.mark.parametrize("coding", ["gzip, chunked", "gzip", "chunked, chunked", "identity"])
def test_transfer_codings_that_nobody_here_decodes_are_refused(strict: Runner, coding: str) -> None:
    with connect(strict) as sock:
        sock.sendall(head(strict, "PUT", "/v1/conversations/chunks/files/a", f"Transfer-Encoding: {coding}"))
        sock.sendall(b"3\r\nabc\r\n0\r\n\r\n")
        status, code, _ = problem(until_closed(sock))
        assert (status, code) == (400, "invalid_arguments")


def test_a_client_who_takes_nothing_of_its_answer_is_cut_off(strict: Runner) -> None:
    with strict.client() as http:
        chat = Chat(http)
        assert chat.put("uploads/large", b"x" * (32 << 20)).status_code == 201
        before = sockets_of(strict)
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", strict.port))
            sock.sendall(head(strict, "GET", f"/v1/conversations/{chat.id}/files/uploads/large"))
            until(lambda: sockets_of(strict) == before + 1, "it is connected")
            until(lambda: sockets_of(strict) == before, "it is cut off")
        assert chat.get("uploads/large").content == b"x" * (32 << 20)


def test_a_body_that_drips_is_answered_408(strict: Runner) -> None:
    began = time.monotonic()
    with connect(strict) as sock:
        sock.sendall(head(strict, "PUT", "/v1/conversations/drip/files/b", "Content-Length: 100000"))
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            while time.monotonic() - began < 8:
                sock.sendall(b"xx")
                time.sleep(0.05)
                if select.select([sock], [], [], 0)[0]:
                    break
        status, code, detail = problem(until_closed(sock))
    assert (status, code) == (408, "timeout")
    assert "SANDBOX_MIN_BODY_RATE" in detail
    assert time.monotonic() - began < 6


def test_slow_clients_do_not_keep_others_waiting(runner: Runner) -> None:
    """Case 97 of the reference: 500 clients who send a byte a second."""
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connect(runner)) for _ in range(500)]
        text = head(runner, "GET", "/v1/conversations", "X-Long: " + "x" * 100)
        stop = threading.Event()

        def drip() -> None:
            for byte in text:
                for sock in slow:
                    with contextlib.suppress(OSError):
                        sock.send(bytes([byte]))
                if stop.wait(1):
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with runner.client() as http:
                chat, times = Chat(http), []
                for _ in range(50):
                    began = time.monotonic()
                    assert chat.put("uploads/a", b"1").status_code in (200, 201)
                    times.append(time.monotonic() - began)
        finally:
            stop.set()
            thread.join()
    assert sorted(times)[45] < 0.8  # who waits for a byte of one of them waits for a second
