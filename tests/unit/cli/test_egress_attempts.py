"""What ``foliobox egress check`` makes of answers, which come out of a sandbox and may be anything."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest
from typer.testing import CliRunner

from runner.cli import egress
from runner.cli.egress_attempts import CODE, Attempt, Way, judge, plan

OPEN, DENIED, DIRECT = (
    Attempt("allowed host", "tunnel", "a.example", open=True),
    Attempt("denied host", "get", "b.example"),
    Attempt("direct", "tcp", "192.0.2.1:80"),
)


def right(attempt: Attempt, state: str) -> bool:
    return judge([attempt], json.dumps([[state, "why"]]))[0].right


def test_what_must_be_open_is_open_and_nothing_else() -> None:
    assert [right(OPEN, state) for state in ("open", "refused", "failed", "closed")] == [True, False, False, False]


def test_through_the_proxy_only_its_own_word_counts_as_closed() -> None:
    """Any other answer, an error of the proxy's too, means that it had tried; silence proves nothing."""
    assert [right(DENIED, state) for state in ("open", "refused", "failed", "closed")] == [False, True, False, False]


def test_past_the_proxy_nothing_may_answer() -> None:
    assert [right(DIRECT, state) for state in ("open", "closed")] == [False, True]


@pytest.mark.parametrize(
    "said", ["", "[]", "{}", '[["open"]]', '[["fine", ""]]', "[1]", '[["open", ""], ["open", ""]]', "no"]
)
def test_what_is_no_answer_is_refused(said: str) -> None:
    with pytest.raises(ValueError):
        judge([OPEN], said)


def test_words_of_a_sandbox_are_cut_and_cannot_move_the_cursor() -> None:
    row = judge([OPEN], json.dumps([["open", "\x1b[2Jx" * 500]]))[0]
    assert len(row.detail) <= 200
    assert "\x1b" not in row.detail


def test_a_sandbox_without_network_tries_what_one_with_it_tries_directly() -> None:
    attempts = plan(["a.example"], ["b.example"], ["10.0.0.1"], ["192.0.2.1:80"], ["192.0.2.1"])
    without = {(one.way, one.target) for one in attempts if not one.network}
    assert without == {("tcp", "192.0.2.1:80"), ("dns", "192.0.2.1"), ("lookup", "b.example"), ("proxy", "")}
    assert [one.name for one in attempts if one.open] == ["proxy variables", "allowed host"]


def answered(way: Way, reply: bytes) -> str:
    """What the program of the sandbox makes of a proxy's answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as line:
                line.recv(1 << 16)
                line.sendall(reply)

        threading.Thread(target=serve, daemon=True).start()
        done = subprocess.run(
            [sys.executable, "-I", "-c", CODE],
            input=json.dumps([(way, "a.example:443")]),
            env={**os.environ, "HTTP_PROXY": f"http://127.0.0.1:{listener.getsockname()[1]}"},
            capture_output=True, check=True, text=True, timeout=30,
        )  # fmt: skip
    found: list[list[str]] = json.loads(done.stdout)
    return found[0][0]


@pytest.mark.parametrize(
    ("way", "status", "state"),
    [
        ("tunnel", "200 OK", "open"), ("tunnel", "403 Forbidden", "refused"), ("tunnel", "407 Who", "refused"),
        ("tunnel", "503 Service: Unavailable", "failed"), ("tunnel", "400 Bad Request", "failed"),
        ("tunnel", "204 No Content", "failed"), ("tunnel", "302 Found", "failed"), ("tunnel", "504", "failed"),
        ("get", "200 OK", "open"), ("get", "302 Found", "open"), ("get", "403 Forbidden", "refused"),
        ("get", "502 Bad Gateway", "failed"), ("get", "400 Bad Request", "failed"),
    ],
)  # fmt: skip
def test_a_proxy_that_tried_in_vain_is_neither_open_nor_a_refusal(way: Way, status: str, state: str) -> None:
    assert answered(way, f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode()) == state


@pytest.mark.parametrize(
    ("option", "target"),
    [
        ("--allowed", "h:99999999"), ("--allowed", "h:0"), ("--allowed", "h:70000"), ("--allowed", "h:"),
        ("--allowed", ""), ("--allowed", "http://h"), ("--denied", "h/path"), ("--private", "fd00::1"),
        ("--private", "[fd00]"), ("--direct", "name.example:80"), ("--resolver", "name.example"),
        ("--resolver", "999.1.1.1"), ("--direct", "1.1.1.1:x"),
    ],
)  # fmt: skip
def test_what_cannot_be_tried_is_refused_before_any_sandbox(
    option: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def started(*_: Any) -> Any:
        raise AssertionError("a sandbox was started")

    monkeypatch.setattr(egress, "_tried", started)
    done = CliRunner().invoke(egress.egress, ["check", "--allowed", "a.example", option, target])
    assert (done.exit_code, "cannot be tried" in " ".join(done.output.split())) == (2, True), done.output
