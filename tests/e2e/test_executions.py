"""What became of a run: followed again, asked for later, after a kill of the service, and beside slow listeners."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.support import events
from tests.support.events import begin, executing, interrupt
from tests.support.runner import Chat, running
from tests.support.waiting import until


def url(chat: Chat, execution_id: str, rest: str = "") -> str:
    return f"/v1/conversations/{chat.id}/executions/{execution_id}{rest}"


def status(chat: Chat, execution_id: str) -> dict[str, Any]:
    answer = chat.http.get(url(chat, execution_id))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def follow(
    chat: Chat, execution_id: str, after: int | None = None, headers: dict[str, str] | None = None
) -> list[events.Told]:
    params = {} if after is None else {"after": str(after)}
    with chat.http.stream("GET", url(chat, execution_id, "/events"), params=params, headers=headers) as answer:
        assert answer.status_code == 200
        return list(events.read(answer))


def test_a_run_is_followed_again_while_it_goes_on_and_afterwards(chat: Chat) -> None:
    chat.ok("import time")
    run = begin(chat, "print('one')\ntime.sleep(60)", until="stdout")
    assert status(chat, run) == {"execution_id": run, "status": "running", "events": 2, "result": None}
    following = chat.http.stream("GET", url(chat, run, "/events"), params={"after": "1"})
    with following as answer:  # that is while the run goes on
        interrupt(chat, run)
        seen = list(events.read(answer))
    assert [(name, body["seq"]) for name, body in seen][:1] == [("stdout", 2)]
    assert seen[-1][0] == "done"
    result = seen[-1][1]["result"]
    assert result["outcome"] == "interrupted"
    assert follow(chat, run, 1) == seen
    assert follow(chat, run, headers={"Last-Event-ID": "1"}) == seen
    assert [name for name, _ in follow(chat, run)] == ["started", *(name for name, _ in seen)]
    ended = status(chat, run)
    assert (ended["status"], ended["result"], ended["events"]) == ("ended", result, seen[-1][1]["seq"])
    answer = chat.http.get(url(chat, run, "/events"), params={"after": ended["events"]})
    assert (answer.status_code, answer.content) == (204, b"")


def test_what_a_run_shows_can_be_fetched_while_it_goes_on(chat: Chat) -> None:
    chat.ok("import time, matplotlib.pyplot as plt")
    with executing(chat, "plt.plot([1, 2]); plt.show()\ntime.sleep(60)") as answer:
        shown = next(body for name, body in events.read(answer) if name == "display")
        picture = chat.http.get(shown["data"]["image/png"])
        assert picture.content.startswith(b"\x89PNG")
        chat.http.post(f"/v1/conversations/{chat.id}/interrupt")


def test_unknown_executions_and_bad_places(chat: Chat) -> None:
    chat.ok("1")
    for rest in ("", "/events", "/stdout"):
        assert chat.http.get(url(chat, "0" * 32, rest)).status_code == 404
    run = chat.ok("2")["execution_id"]
    assert chat.http.get(url(chat, run, "/events"), params={"after": "-1"}).status_code == 422
    assert chat.http.get(url(chat, run, "/events"), headers={"Last-Event-ID": "x"}).status_code == 422
    assert chat.http.get(url(Chat(chat.http), run)).status_code == 404


def test_a_run_that_waits_says_so_and_can_be_interrupted_by_its_id(chat: Chat) -> None:
    chat.ok("import time")
    first = begin(chat, "time.sleep(60)")
    with executing(chat, "open('ran', 'w')") as answer:
        waiting = answer.headers["x-execution-id"]
        assert status(chat, waiting)["status"] == "waiting"
        body = {"execution_id": waiting}
        assert chat.http.post(f"/v1/conversations/{chat.id}/interrupt", json=body).json() == {"interrupted": True}
        body = {"execution_id": first}
        chat.http.post(f"/v1/conversations/{chat.id}/interrupt", json=body)
        name, told = list(events.read(answer))[-1]
    assert (name, told["result"]["outcome"], told["result"]["interpreter_reason"]) == (
        "done", "interrupted", "not_started",
    )  # fmt: skip
    assert status(chat, waiting)["result"] == told["result"]
    assert chat.files() == []


def test_a_listener_who_does_not_read_neither_slows_the_run_nor_gets_a_gap(chat: Chat) -> None:
    chat.ok("import os")
    code = "line = 'x' * 1023\nfor _ in range(12_000): print(line)"  # 12 MiB, thrice what is kept
    began = time.monotonic()
    alone = chat.ok(code)
    usual = time.monotonic() - began
    with executing(chat, code) as answer:
        run = answer.headers["x-execution-id"]
        began = time.monotonic()
        until(lambda: status(chat, run)["status"] == "ended", "the run ends", 60)
        took = time.monotonic() - began
        seen = list(events.read(answer))
    assert took < 3 * usual + 2  # the listener had read nothing yet
    assert status(chat, run)["result"]["stdout_bytes"] == alone["stdout_bytes"] == 12_000 * 1024
    name, body = seen[-1]
    assert (name, body["code"]) == ("error", "events_dropped")
    numbers = [told["seq"] for _, told in seen[:-1]]
    assert numbers == list(range(1, len(seen)))
    rest = follow(chat, run, body["oldest"] - 1)
    assert rest[0][1]["seq"] == body["oldest"] > numbers[-1]
    assert rest[-1][0] == "done"


def test_after_a_kill_a_run_is_lost_and_an_ended_one_is_told(tmp_path: Path) -> None:
    with running(tmp_path, SANDBOX_POOL_SIZE="0") as service:
        with service.client() as http:
            chat = Chat(http)
            ended = chat.ok("import matplotlib.pyplot as plt, time\nplt.plot([1]); print('x' * 100_000)")
            lost = begin(chat, "print('on')\ntime.sleep(60)", until="stdout")
            service.kill()
        service.start()
        with service.client() as http:
            chat = Chat(http, chat.id)
            for _ in range(2):
                found = status(chat, lost)
                assert (found["status"], found["result"]["outcome"]) == ("ended", "lost")
                assert (found["result"]["interpreter"], found["result"]["interpreter_reason"]) == (
                    "lost", "runner_restarted",
                )  # fmt: skip
            assert [(n, b["result"]["outcome"]) for n, b in follow(chat, lost)] == [("done", "lost")]
            run = ended["execution_id"]
            assert status(chat, run)["result"] == ended
            assert [(n, b["result"]) for n, b in follow(chat, run)] == [("done", ended)]
            assert http.get(url(chat, run, "/stdout")).text == "x" * 100_000 + "\n"
            assert http.get(ended["results"][0]["data"]["image/png"]).content.startswith(b"\x89PNG")
            assert chat.http.get(url(chat, run, "/stderr")).status_code == 404


def test_limits_of_a_call(chat: Chat) -> None:
    result = chat.ok("print('x' * 5000)", limits={"output_bytes": 1024})
    assert len(result["stdout"]) < 1200
    assert result["stdout_truncated"]
    assert len(chat.http.get(url(chat, result["execution_id"], "/stdout")).content) == 5001
    assert len(chat.ok("print('x' * 200_000)", limits={"output_bytes": 1 << 30})["stdout"]) < 70_000
    three = "for n in 'abc': open(n, 'w').write(n * 10)"
    for limits, mentioned in (
        ({"artifacts": 2}, "SANDBOX_MAX_ARTIFACTS"),
        ({"artifact_bytes": 9}, "SANDBOX_MAX_ARTIFACT_BYTES"),
    ):
        result = chat.ok(three, limits=limits)
        assert (result["files"], result["files_error"]["code"]) == ([], "quota_exceeded")
        assert mentioned in result["files_error"]["detail"]
        assert chat.files() == []
        assert chat.ok("import os; print([n for n in 'abc' if os.path.exists(n)])")["stdout"] == "[]\n"
    assert len(chat.ok(three, limits={"artifacts": 3, "artifact_bytes": 10})["files"]) == 3
    assert (
        chat.http.post(f"/v1/conversations/{chat.id}/execute", json={"code": "1", "limits": {"memory": 1}}).status_code
        == 422
    )


def test_what_a_run_shows_is_bounded_in_its_result(chat: Chat) -> None:
    code = "from IPython.display import display\nfor n in range(30): display({'text/plain': 'x' * 100_000}, raw=True)"
    result = chat.ok(code)
    inline = [shown["data"]["text/plain"] for shown in result["results"]]
    whole = [text for text in inline if not text.startswith("/v1/")]
    assert sum(map(len, whole)) <= 1 << 20
    assert len(inline) == 30
    assert len(whole) == 10
    assert chat.http.get(inline[-1]).text == "x" * 100_000
