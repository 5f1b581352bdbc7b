"""Cases 49, 51, 52, 53 and 55: bodies without end, odd JSON, odd ranges, parameters that are none, dangerous files.

Elsewhere: keys (47, 48, 54) in ``test_auth.py``, multipart (50) in ``tests/e2e/test_bulk.py``, the fuzzer (56) in
``test_fuzz.py``, heads and connections in ``tests/e2e/test_connections.py``. Each refusal has the request beside
it that differs in that one thing and is taken.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.hostile.support.place import Place
from tests.hostile.test_file_cases import forget_peak, peak
from tests.support.runner import Runner

MOST_GROWTH = 32 << 20


def sent(
    runner: Runner, path: str, pieces: Iterator[bytes], *headers: str, method: str = "POST"
) -> tuple[int, Any, int]:
    """Status, body and bytes sent of a request whose body may be cut off by its answer."""
    count = 0
    with socket.create_connection(("127.0.0.1", runner.port), timeout=30) as sock:
        lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {runner.key}", *headers]
        sock.sendall("\r\n".join([*lines, "", ""]).encode())
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            for piece in pieces:
                sock.sendall(piece)
                count += len(piece)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := sock.recv(1 << 16):
                answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]) if head else 0, json.loads(body) if body else None, count


def endless(chunked: bool) -> Iterator[bytes]:
    """Spaces, which JSON allows anywhere, up to 1 GiB."""
    piece = b" " * (64 << 10)
    for _ in range((1 << 30) // len(piece)):
        yield b"10000\r\n" + piece + b"\r\n" if chunked else piece


@pytest.mark.parametrize(
    "how", ["Transfer-Encoding: chunked", f"Content-Length: {1 << 30}", f"Content-Length: {10**18}"]
)
@pytest.mark.parametrize("route", ["execute", "interrupt"])
def test_a_body_without_end_is_cut_off_and_takes_no_memory(strong: Place, how: str, route: str) -> None:
    before = forget_peak(strong.runner.pid)
    path = f"/v1/conversations/{strong.chat.id}/{route}"
    pieces = endless("chunked" in how)
    status, body, count = sent(strong.runner, path, pieces, how, "Content-Type: application/json")
    assert (status, body and body["code"]) in ((413, "too_large"), (0, None))  # 0: reset before the answer was read
    assert count < 80 << 20
    assert peak(strong.runner.pid) - before < 56 * 2 << 20
    assert strong.say("print(1)") == "1\n"


def test_an_upload_without_end_is_cut_off_and_leaves_nothing(strong: Place) -> None:
    before = forget_peak(strong.runner.pid)
    path = f"/v1/conversations/{strong.chat.id}/files/uploads/x"
    pieces = endless(chunked=True)
    status, body, count = sent(strong.runner, path, pieces, "Transfer-Encoding: chunked", method="PUT")
    assert (status, body and body["code"]) in ((413, "too_large"), (0, None))
    assert count < 300 << 20
    assert peak(strong.runner.pid) - before < MOST_GROWTH
    assert strong.chat.http.get(f"/v1/conversations/{strong.chat.id}").status_code == 404
    assert list((strong.runner.data / "store" / "staging").iterdir()) == []


def nested(depth: int) -> bytes:
    """Lists in lists."""
    return b"[" * depth + b"]" * depth


ODD = {
    "deep": b'{"code":"1","env":%s}' % nested(100_000),
    "wide": b'{"code":"1","env":{%s}}' % b",".join(b'"k%d":"1"' % n for n in range(1_000_000)),
    "long number": b'{"code":"1","timeout_ms":%s}' % (b"9" * 100_000),
    "negative zero": b'{"code":"1","timeout_ms":-0}',
    "exponent": b'{"code":"1","timeout_ms":1e400}',
    "NaN": b'{"code":"1","timeout_ms":NaN}',
    "infinity": b'{"code":"1","timeout_ms":-Infinity}',
    "twice": b'{"code":"1","code":"2"}',
    "lone surrogate": b'{"code":"\\ud800"}',
    "lone surrogate as a name": b'{"code":"1","env":{"\\udfff":"1"}}',
    "byte order mark": b'\xef\xbb\xbf{"code":"1"}',
    "UTF-16": '{"code":"1"}'.encode("utf-16"),
    "latin-1": b'{"code":"\xe4"}',
    "NUL": b'{"code":"1"}\x00',
    "two documents": b'{"code":"1"}{"code":"2"}',
    "a list": b'[{"code":"1"}]',
    "a string": b'"code"',
    "nothing": b"",
    "null": b"null",
    "comments": b'{"code":"1" /* no */}',
}


@pytest.mark.parametrize("name", ODD)
def test_odd_json_is_refused_with_what_to_change(strong: Place, name: str) -> None:
    http, path = strong.chat.http, f"/v1/conversations/{strong.chat.id}/execute"
    began = time.monotonic()
    answer = http.post(path, content=ODD[name], headers={"Content-Type": "application/json"})
    assert time.monotonic() - began < 5
    assert answer.status_code in (400, 413, 422), answer.text[:300]
    assert answer.json()["code"] in ("invalid_arguments", "too_large")
    assert len(answer.json()["detail"]) > 10
    assert len(answer.content) < 10_000


def test_control_plain_json_is_taken(strong: Place) -> None:
    http, path = strong.chat.http, f"/v1/conversations/{strong.chat.id}/execute"
    body = b' {"code" : "print(\\"\\ud83d\\ude00\\")", "timeout_ms": 5000 }\n'
    answer = http.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.json()["stdout"] == "\U0001f600\n"


@pytest.mark.parametrize(
    "value",
    ["bytes=" + ",".join(["0-"] * 5000), "bytes=" + "0-1," * 5000, "bytes=-" + "9" * 5000, "bytes=" + "9" * 5000 + "-",
     "bytes=1-0", "bytes=--1", "bytes=a-b", "items=0-1", "bytes=0-0,-1", "bytes= 0 - 1", "bytes=\u0660-\u0661", "="],
)  # fmt: skip
def test_odd_ranges_cost_no_time_and_no_more_than_the_file(strong: Place, value: str) -> None:
    strong.chat.put("uploads/x", b"0123456789")
    began = time.monotonic()
    answer = strong.chat.http.get(
        f"/v1/conversations/{strong.chat.id}/files/uploads/x", headers={b"Range": value.encode()}
    )
    assert time.monotonic() - began < 1
    assert answer.status_code in (200, 206, 416)
    assert len(answer.content) <= 10 or answer.status_code == 416


def test_control_a_plain_range_is_served(strong: Place) -> None:
    strong.chat.put("uploads/x", b"0123456789")
    answer = strong.chat.get("uploads/x", Range="bytes=2-4")
    assert (answer.status_code, answer.content) == (206, b"234")


PRIVILEGED: list[dict[str, Any]] = [
    {"image": "evil"}, {"mounts": ["/:/host"]}, {"volumes": {}}, {"privileged": True}, {"user": "root"}, {"uid": 0},
    {"runtime": "runc"}, {"command": ["sh"]}, {"cap_add": ["ALL"]}, {"network": "host"},
    {"env": {"LD_PRELOAD": "/tmp/x.so"}}, {"env": {"ld_library_path": "/tmp"}}, {"env": {"PYTHONPATH": "/tmp"}},
    {"env": {"PYTHONSTARTUP": "x"}}, {"env": {"A=B": "1"}}, {"env": {"": "1"}}, {"env": {"A": "\x00"}},
    {"env": {"A": 1}}, {"env": [["A", "1"]]}, {"timeout_ms": -1}, {"timeout_ms": 0}, {"timeout_ms": "1000"},
    {"timeout_ms": 1.5}, {"timeout_ms": True}, {"language": "perl"}, {"language": ["python"]}, {"fresh": "yes"},
    {"stdin": 1},
    {"limits": {"memory_bytes": 1 << 50}}, {"limits": {"output_bytes": -1}}, {"limits": []}, {"code": None},
]  # fmt: skip


@pytest.mark.parametrize("field", PRIVILEGED, ids=lambda field: json.dumps(field)[:40])
def test_what_only_operators_may_set_is_refused(strong: Place, field: dict[str, Any]) -> None:
    """Unknown fields and values of another type are errors, never ignored and never guessed at."""
    path = f"/v1/conversations/{strong.chat.id}/execute"
    answer = strong.chat.http.post(path, json={"code": "open('outputs/ran', 'w').close()", **field})
    assert answer.status_code == 422, answer.text[:300]
    assert answer.json()["code"] == "invalid_arguments"
    assert next(iter(field)) in answer.json()["detail"]
    strong.chat.put("uploads/there", b"")
    assert strong.chat.files() == ["uploads/there"]


def test_a_network_that_the_operator_has_not_granted_is_refused(strong: Place) -> None:
    strong.chat.put("uploads/there", b"")
    path = f"/v1/conversations/{strong.chat.id}/execute"
    answer = strong.chat.http.post(path, json={"code": "open('outputs/ran', 'w').close()", "network": True})
    assert (answer.status_code, answer.json()["code"]) == (422, "egress_unavailable")
    assert strong.chat.files() == ["uploads/there"]


def test_control_what_callers_may_set_is_taken_and_clamped(strong: Place) -> None:
    result = strong.run("import os; print(os.environ['A'])", env={"A": "1"}, timeout_ms=10**9, network=False)
    assert (result["outcome"], result["stdout"]) == ("ok", "1\n")


DANGEROUS = {
    "uploads/a.html": b"<script>alert(1)</script>",
    "uploads/a.svg": b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
    "uploads/a.xhtml": b"<html xmlns='http://www.w3.org/1999/xhtml'/>",
    "uploads/a.xml": b"<?xml-stylesheet href='x'?><a/>",
    "uploads/a.js": b"alert(1)",
    "uploads/a.pdf": b"%PDF-1.4",
    "uploads/none": b"<html>",
    'uploads/quote".html': b"x",
    "uploads/line\r\nX-Evil: 1.txt": b"x",
    "uploads/\u202egpj.exe": b"x",
    "uploads/;filename=evil.exe": b"x",
    "uploads/\u00e4\u00f6 %41.txt": b"x",
}


@pytest.mark.parametrize("path", DANGEROUS, ids=ascii)
def test_no_browser_runs_what_is_downloaded(strong: Place, path: str) -> None:
    assert strong.chat.put(path, DANGEROUS[path]).status_code == 201
    answer = strong.chat.get(path)
    assert answer.content == DANGEROUS[path]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    disposition = answer.headers["content-disposition"]
    assert disposition.startswith('attachment; filename="')
    assert disposition.isascii()
    assert disposition.isprintable()
    assert disposition.count('"') == 2
    assert "x-evil" not in answer.headers


@pytest.mark.parametrize(
    "path", ["/v1/conversations/x/files/none", "/v1/conversations/x", "/v1/none", "/", "/v1/conversations/%00/files/a"]
)
def test_errors_tell_nothing_of_the_host(strong: Place, path: str) -> None:
    for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        answer = strong.chat.http.request(method, path, content=b"{", headers={"Content-Type": "application/json"})
        if answer.status_code < 400:
            continue
        text = answer.text + str(answer.headers)
        for word in (str(strong.runner.data), "site-packages", "Traceback", strong.runner.key, "uvicorn"):
            assert word not in text
        assert answer.headers["content-type"] == "application/problem+json"
    strong.chat.http.delete("/v1/conversations/x")
