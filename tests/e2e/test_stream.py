"""Runs as event streams: order, keep-alive, listeners who leave, interrupts."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

from tests.support.runner import Chat, running


def events(chat: Chat, code: str, stop_after: int | None = None, **fields: Any) -> list[tuple[str, dict[str, Any]]]:
    """Events of a run, in order."""
    seen = []
    body = {"code": code, **fields}
    headers = {"Accept": "text/event-stream"}
    with chat.http.stream("POST", f"/v1/conversations/{chat.id}/execute", json=body, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        name = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                seen.append((name, json.loads(line[6:])))
                if stop_after is not None and len(seen) >= stop_after:
                    return seen
            elif line.startswith(": "):
                seen.append(("keep-alive", {}))
    return seen


def test_events_come_in_order_and_end_with_the_result(chat: Chat) -> None:
    code = "print('a')\nfrom IPython.display import display\ndisplay(7)\nprint('b')\nopen('f.txt','w').write('1');"
    seen = [told for told in events(chat, code) if told[0] != "keep-alive"]
    assert [name for name, _ in seen] == ["started", "stdout", "display", "stdout", "file", "done"]
    assert [body["seq"] for _, body in seen] == [1, 2, 3, 4, 5, 6]
    assert len({body["execution_id"] for _, body in seen}) == 1
    result = seen[-1][1]["result"]
    assert (result["outcome"], result["stdout"], result["version"]) == ("ok", "a\nb\n", 1)


def test_output_arrives_while_the_cell_runs(chat: Chat) -> None:
    chat.ok("import time")
    code = "print('first')\ntime.sleep(2)\nprint('second')"
    began = time.monotonic()
    assert events(chat, code, stop_after=2)[-1][1]["text"] == "first\n"
    assert time.monotonic() - began < 1.9


def test_a_silent_run_keeps_the_connection_alive(chat: Chat) -> None:
    assert "keep-alive" in [name for name, _ in events(chat, "import time; time.sleep(5.6)")]


def test_the_first_byte_comes_while_the_conversation_is_busy(chat: Chat) -> None:
    chat.ok("import time")
    thread = threading.Thread(target=lambda: chat.run("time.sleep(3)"))
    thread.start()
    time.sleep(0.3)
    began = time.monotonic()
    headers = {"Accept": "text/event-stream"}
    url = f"/v1/conversations/{chat.id}/execute"
    with chat.http.stream("POST", url, json={"code": "print('mine')"}, headers=headers) as answer:
        lines = answer.iter_lines()
        assert next(lines) == ": keep-alive"
        assert time.monotonic() - began < 1.2
        assert "event: done" in list(lines)
    thread.join(10)


def test_a_refused_request_stays_an_ordinary_answer(chat: Chat) -> None:
    headers = {"Accept": "text/event-stream"}
    for name, body in ((chat.id, {"code": "1", "env": {"LD_X": "1"}}), (".hidden", {"code": "1"})):
        answer = chat.http.post(f"/v1/conversations/{name}/execute", json=body, headers=headers)
        assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")


def test_a_failure_after_the_first_byte_is_an_event(tmp_path: Path) -> None:
    settings = {"SANDBOX_QUEUE_TIMEOUT_SECONDS": "2", "SANDBOX_POOL_SIZE": "0"}
    with running(tmp_path, **settings) as service, service.client() as http:
        chat = Chat(http)
        chat.ok("import time")
        thread = threading.Thread(target=lambda: chat.run("time.sleep(5)"))
        thread.start()
        time.sleep(0.3)
        seen = events(chat, "1")
        thread.join(15)
    assert [name for name, _ in seen] == ["keep-alive", "error"]
    assert (seen[1][1]["code"], "still running" in seen[1][1]["detail"]) == ("busy", True)
    assert seen[1][1]["request_id"]
    assert len(seen[1][1]["execution_id"]) == 32


def test_a_listener_who_leaves_does_not_stop_the_run(chat: Chat) -> None:
    chat.ok("import time")
    events(chat, "print('x')\ntime.sleep(1)\nopen('done.txt','w').write('1')", stop_after=2)
    assert chat.ok("print(open('done.txt').read())")["stdout"] == "1\n"


def test_interrupt_keeps_the_interpreter(chat: Chat) -> None:
    chat.ok("x = 5\nimport time")
    results = []
    thread = threading.Thread(target=lambda: results.append(chat.run("print('on', flush=True)\ntime.sleep(60)")))
    thread.start()
    deadline = time.monotonic() + 10
    answer = {"interrupted": False}
    while not answer["interrupted"] and time.monotonic() < deadline:
        answer = chat.http.post(f"/v1/conversations/{chat.id}/interrupt").json()
    thread.join(10)
    assert (results[0]["outcome"], results[0]["interpreter"]) == ("interrupted", "kept")
    assert chat.ok("print(x)")["stdout"] == "5\n"
    assert chat.http.post(f"/v1/conversations/{chat.id}/interrupt").json() == {"interrupted": False}


def test_long_output_shows_head_and_tail_and_keeps_the_whole(chat: Chat) -> None:
    result = chat.ok("for i in range(100_000): print('line', i)")
    assert result["stdout_truncated"]
    assert result["stdout"].startswith("line 0\n")
    assert result["stdout"].endswith("line 99999\n")
    whole = chat.http.get(f"/v1/conversations/{chat.id}/executions/{result['execution_id']}/stdout")
    assert whole.text == "".join(f"line {i}\n" for i in range(100_000))
    assert result["stdout_bytes"] == len(whole.content)
