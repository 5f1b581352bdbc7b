"""Idempotency-Key over HTTP: one run for one key, also at the same moment, after a restart and after a kill."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import httpx

from tests.support import events
from tests.support.runner import Chat, running

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
    chat.ok("import time")
    answers: list[httpx.Response] = []
    threads = [
        threading.Thread(target=lambda: answers.append(send(chat, "k", "time.sleep(0.5)\n" + COUNT))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [answer.json()["stdout"] for answer in answers] == ["x\n"] * 6
    assert sorted(map(replayed, answers)) == [False] + [True] * 5
    assert len({answer.json()["execution_id"] for answer in answers}) == 1


def test_a_stream_under_a_key_follows_the_run_that_goes_on(chat: Chat) -> None:
    chat.ok("import time")
    code = "print('on')\ntime.sleep(1)\n" + COUNT
    streams: list[list[events.Told]] = [[], []]

    def listen(place: int) -> None:
        headers = {"Idempotency-Key": "k", **events.EVENTS}
        url = f"/v1/conversations/{chat.id}/execute"
        with chat.http.stream("POST", url, json={"code": code}, headers=headers) as answer:
            for told in events.read(answer):
                streams[place].append(told)

    first = threading.Thread(target=listen, args=(0,))
    first.start()
    deadline = time.monotonic() + 30
    while len(streams[0]) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    listen(1)
    first.join(30)
    assert streams[0] == streams[1]
    assert [name for name, _ in streams[0]][-1] == "done"
    assert send(chat, "k", code).json() == streams[0][-1][1]["result"]


def test_a_refused_run_does_not_burn_its_key(tmp_path: Path) -> None:
    settings = {"SANDBOX_QUEUE_TIMEOUT_SECONDS": "1", "SANDBOX_POOL_SIZE": "0"}
    with running(tmp_path, **settings) as service, service.client() as http:
        chat = Chat(http)
        chat.ok("import time")
        thread = threading.Thread(target=lambda: chat.run("time.sleep(60)"))
        thread.start()
        refused = send(chat, "k")
        while refused.status_code == 200:  # it came before the other one
            refused = send(chat, "k" + str(time.monotonic_ns()))
        assert refused.status_code == 429
        deadline = time.monotonic() + 30
        while thread.is_alive() and time.monotonic() < deadline:
            http.post(f"/v1/conversations/{chat.id}/interrupt")
            thread.join(0.1)
        assert send(chat, "free", "1", env={"LD_PRELOAD": "x"}).status_code == 422
        assert not replayed(send(chat, "free", "1"))
        key = refused.request.headers["idempotency-key"]
        after = send(chat, key)
        assert (replayed(after), after.json()["outcome"]) == (False, "ok")


def test_a_run_that_its_sandbox_refuses_does_not_burn_its_key(tmp_path: Path) -> None:
    """The key is claimed by then; what no process can be given is found out by the one who starts it."""
    with running(tmp_path, SANDBOX_MAX_ENV_BYTES="2m", SANDBOX_POOL_SIZE="0") as service:
        for _ in range(2):
            with service.client() as http:
                chat = Chat(http, "c")
                for _ in range(3):
                    refused = send(chat, "k", "echo", language="bash", env={"A": "x" * 200_000})
                    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_arguments"), refused.text
                    assert "env" in refused.json()["detail"]
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
            assert time.monotonic() - began < 20  # no run of 60 s
            assert chat.files() == ["runs.txt"]
            assert send(chat, "killed", "1").status_code == 422
