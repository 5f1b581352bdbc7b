"""Runs as event streams: order, keep-alive, listeners who leave, interrupts."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support import events
from tests.support.runner import Chat, running


def whole(chat: Chat, code: str) -> list[events.Told]:
    """All events of a run, and its comments, in order."""
    with events.executing(chat, code) as answer:
        return list(events.read(answer, comments=True))


def test_events_come_in_order_and_end_with_the_result(chat: Chat) -> None:
    code = "print('a')\nfrom IPython.display import display\ndisplay(7)\nprint('b')\nopen('f.txt','w').write('1');"
    seen = [told for told in whole(chat, code) if told[0] != "keep-alive"]
    assert [name for name, _ in seen] == ["started", "stdout", "display", "stdout", "file", "done"]
    assert [body["seq"] for _, body in seen] == [1, 2, 3, 4, 5, 6]
    assert len({body["execution_id"] for _, body in seen}) == 1
    result = seen[-1][1]["result"]
    assert (result["outcome"], result["stdout"], result["version"]) == ("ok", "a\nb\n", 1)


def test_output_arrives_while_the_cell_runs(chat: Chat) -> None:
    with events.executing(chat, "import time\nprint('first')\ntime.sleep(100)\nprint('second')") as answer:
        told = events.read(answer)
        assert next(body["text"] for name, body in told if name == "stdout") == "first\n"
        events.interrupt(chat, answer.headers["x-execution-id"])
        assert "second" not in str(list(told))


def test_a_silent_run_keeps_the_connection_alive(chat: Chat) -> None:
    with events.executing(chat, "import time; time.sleep(100)") as answer:
        told = events.read(answer, comments=True)
        assert any(name == "started" for name, _ in told)
        assert next(told)[0] == "keep-alive"
        events.interrupt(chat, answer.headers["x-execution-id"])
        assert [name for name, _ in told][-1] == "done"


def test_the_first_byte_comes_while_the_conversation_is_busy(chat: Chat) -> None:
    held = events.begin(chat, "import time; time.sleep(100)")
    with events.executing(chat, "print('mine')") as answer:
        told = events.read(answer, comments=True)
        began = time.monotonic()
        assert next(told)[0] == "keep-alive"
        assert time.monotonic() - began < 10  # the run before it has 90 s to go
        events.interrupt(chat, held)
        assert [name for name, _ in told][-1] == "done"


def test_a_refused_request_stays_an_ordinary_answer(chat: Chat) -> None:
    headers = {"Accept": "text/event-stream"}
    for name, body in ((chat.id, {"code": "1", "env": {"LD_X": "1"}}), (".hidden", {"code": "1"})):
        answer = chat.http.post(f"/v1/conversations/{name}/execute", json=body, headers=headers)
        assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")


def test_a_failure_after_the_first_byte_is_an_event(tmp_path: Path) -> None:
    settings = {"SANDBOX_QUEUE_TIMEOUT_SECONDS": "1", "SANDBOX_POOL_SIZE": "0"}
    with running(tmp_path, **settings) as service, service.client() as http:
        chat = Chat(http)
        held = events.begin(chat, "import time; time.sleep(100)")
        seen = whole(chat, "1")
        events.interrupt(chat, held)
    assert [name for name, _ in seen] == ["keep-alive", "error"]
    assert (seen[1][1]["code"], "still running" in seen[1][1]["detail"]) == ("busy", True)
    assert seen[1][1]["request_id"]
    assert len(seen[1][1]["execution_id"]) == 32


def test_a_listener_who_leaves_does_not_stop_the_run(chat: Chat) -> None:
    events.begin(chat, "print('x')\nimport time; time.sleep(1)\nopen('done.txt','w').write('1')", until="stdout")
    assert chat.ok("print(open('done.txt').read())")["stdout"] == "1\n"


def test_interrupt_keeps_the_interpreter(chat: Chat) -> None:
    chat.ok("x = 5\nimport time")
    with events.executing(chat, "print('on', flush=True)\ntime.sleep(60)") as answer:
        told = events.read(answer)
        assert any(name == "stdout" for name, _ in told)
        assert chat.http.post(f"/v1/conversations/{chat.id}/interrupt").json() == {"interrupted": True}
        (result,) = [body["result"] for name, body in told if name == "done"]
    assert (result["outcome"], result["interpreter"]) == ("interrupted", "kept")
    assert chat.ok("print(x)")["stdout"] == "5\n"
    assert chat.http.post(f"/v1/conversations/{chat.id}/interrupt", json={}).json() == {"interrupted": False}


def test_long_output_shows_head_and_tail_and_keeps_the_whole(chat: Chat) -> None:
    result = chat.ok("for i in range(100_000): print('line', i)")
    assert result["stdout_truncated"]
    assert result["stdout"].startswith("line 0\n")
    assert result["stdout"].endswith("line 99999\n")
    whole = chat.http.get(f"/v1/conversations/{chat.id}/executions/{result['execution_id']}/stdout")
    assert whole.text == "".join(f"line {i}\n" for i in range(100_000))
    assert result["stdout_bytes"] == len(whole.content)
