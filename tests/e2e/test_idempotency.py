"""Idempotency-Key over HTTP: one run for one key, also at the same moment, after a restart and after a kill."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx

from tests.support import events
from tests.support.runner import Chat, running
from tests.support.waiting import aside

COUNT = "open('runs.txt', 'a').write('x')\nprint(open('runs.txt').read())"


def send(chat: Chat, key: str, code: str = COUNT, accept: str = "application/json", **fields: Any) -> httpx.Response:
    headers = {"Idempotency-Key": key, "Accept": accept}
    body = {"code": code, **fields}
    return chat.http.post(f"/v1/conversations/{chat.id}/execute", json=body, headers=headers)


def replayed(answer: httpx.Response) -> bool:
    assert answer.status_code == 200, answer.text
    return bool(answer.headers.get("idempotent-replayed") == "true")


def test_a_key_runs_once(chat: Chat) -> None:
    first, again = send(chat, "k1"), send(chat, "k1")
    assert (replayed(first), replayed(again)) == (False, True)
    assert first.json() == again.json()
    assert first.headers["x-execution-id"] == again.headers["x-execution-id"] == first.json()["execution_id"]
    assert send(chat, "k2").json()["stdout"] == "xx\n"
    other = Chat(chat.http)
    assert send(other, "k1").json()["stdout"] == "x\n"  # a key belongs to its conversation
    other.purge()


def test_a_key_with_another_request_is_refused(chat: Chat) -> None:
    send(chat, "k")
    for changed in ({"code": "1"}, {"timeout_ms": 5000}, {"fresh": True}, {"env": {"a": "1"}}, {"stdin": "x"}):
        answer = send(chat, "k", **changed)
        assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")
    assert chat.ok("print(open('runs.txt').read())")["stdout"] == "x\n"


def test_what_is_no_key(chat: Chat) -> None:
    for key in ("", "a b", "x" * 256):
        assert (answer := send(chat, key)).status_code == 422
        assert "Idempotency-Key" in answer.json()["detail"]
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    url = f"/v1/conversations/{chat.id}/execute"
    assert chat.http.post(url, json={"code": "1"}, headers=headers).status_code == 422
    assert send(chat, "x" * 255, "1").status_code == 200


def test_the_same_key_at_the_same_moment_runs_once(chat: Chat) -> None:
    asked = [aside(lambda: send(chat, "k", "import time; time.sleep(0.5)\n" + COUNT)) for _ in range(6)]
    answers = [one.result(60) for one in asked]
    assert [answer.json()["stdout"] for answer in answers] == ["x\n"] * 6
    assert sorted(map(replayed, answers)) == [False] + [True] * 5
    assert len({answer.json()["execution_id"] for answer in answers}) == 1


def test_a_stream_under_a_key_follows_the_run_that_goes_on(chat: Chat) -> None:
    chat.ok("import time")
    code = "print('on')\ntime.sleep(1)\n" + COUNT
    headers, url = {"Idempotency-Key": "k", **events.EVENTS}, f"/v1/conversations/{chat.id}/execute"
    with chat.http.stream("POST", url, json={"code": code}, headers=headers) as first:
        told = events.read(first)
        seen = [next(told), next(told)]
        assert [name for name, _ in seen] == ["started", "stdout"]
        with chat.http.stream("POST", url, json={"code": code}, headers=headers) as second:
            assert replayed(second)
            again = list(events.read(second))
        seen += told
    assert again == seen
    assert seen[-1][0] == "done"
    assert send(chat, "k", code).json() == seen[-1][1]["result"]


def test_a_refused_run_does_not_burn_its_key(tmp_path: Path) -> None:
    settings = {"SANDBOX_QUEUE_TIMEOUT_SECONDS": "1", "SANDBOX_POOL_SIZE": "0"}
    with running(tmp_path, **settings) as service, service.client() as http:
        chat = Chat(http)
        held = events.begin(chat, "import time; time.sleep(100)")
        assert send(chat, "k").status_code == 429
        events.interrupt(chat, held)
        assert send(chat, "free", "1", env={"LD_PRELOAD": "x"}).status_code == 422
        assert not replayed(send(chat, "free", "1"))
        after = send(chat, "k")
        assert (replayed(after), after.json()["outcome"]) == (False, "ok")


def test_a_run_that_its_sandbox_refuses_does_not_burn_its_key(tmp_path: Path) -> None:
    """The key is claimed by then; what no process can be given is found out by the one who starts it."""
    with running(tmp_path, SANDBOX_MAX_ENV_BYTES="2m", SANDBOX_POOL_SIZE="0") as service:
        for times in (3, 1):
            with service.client() as http:
                for _ in range(times):
                    refused = send(Chat(http, "c"), "k", "echo", language="bash", env={"A": "x" * 200_000})
                    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_arguments"), refused.text
                    assert "env" in refused.json()["detail"]
            if times > 1:
                service.kill()
                service.start()
        with service.client() as http:
            chat = Chat(http, "c")
            first, again = send(chat, "k"), send(chat, "k")
            assert (replayed(first), replayed(again)) == (False, True)
            assert first.json()["stdout"] == "x\n"


def test_a_key_is_remembered_by_the_next_service_and_a_killed_run_is_never_repeated(tmp_path: Path) -> None:
    with running(tmp_path, SANDBOX_POOL_SIZE="0") as service:
        with service.client() as http:
            chat = Chat(http)
            first = send(chat, "done").json()
            headers = {"Idempotency-Key": "killed", **events.EVENTS}
            body = {"code": "import time\nprint('on')\ntime.sleep(60)"}
            with http.stream("POST", f"/v1/conversations/{chat.id}/execute", json=body, headers=headers) as answer:
                begun = next(told for name, told in events.read(answer) if name == "stdout")
                service.kill()
        service.start()
        with service.client() as http:
            chat = Chat(http, chat.id)
            again = send(chat, "done")
            assert (replayed(again), again.json()) == (True, first)
            began = time.monotonic()
            for _ in range(2):
                lost = send(chat, "killed", body["code"])
                assert replayed(lost)
                assert (lost.json()["outcome"], lost.json()["execution_id"]) == ("lost", begun["execution_id"])
            with http.stream("POST", f"/v1/conversations/{chat.id}/execute", json=body, headers=headers) as answer:
                assert replayed(answer)
                assert [(n, b["result"]["outcome"]) for n, b in events.read(answer)] == [("done", "lost")]
            assert time.monotonic() - began < 50  # no run of 60 s
            assert chat.files() == ["runs.txt"]
            assert send(chat, "killed", "1").status_code == 422
