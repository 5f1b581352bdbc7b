"""Deleting a conversation while everything else goes on in it: one winner, nothing half there, no sandbox left."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.runner import Chat, Runner, running

ROUNDS = 4 * int(os.environ.get("FOLIOBOX_REPEAT", "1"))
FINE = frozenset((200, 201, 204, 404, 409, 429))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """A service with few sandboxes, so that what is left behind would soon be in the way."""
    with running(tmp_path_factory.mktemp("races"), SANDBOX_POOL_SIZE="0", SANDBOX_MAX_SESSIONS="3") as made:
        yield made


def run(chat: Chat) -> httpx.Response:
    return chat.http.post(f"/v1/conversations/{chat.id}/execute", json={"code": "open('outputs/r', 'w').write('1')"})


def upload(chat: Chat) -> httpx.Response:
    return chat.put("uploads/u", bytes(1 << 20))


def restore(chat: Chat) -> httpx.Response:
    return chat.http.post(f"/v1/conversations/{chat.id}/restore", json={"version": 0})


def fork(chat: Chat) -> httpx.Response:
    return chat.http.post(f"/v1/conversations/{chat.id}/fork", json={"id": f"{chat.id}-fork"})


def reset(chat: Chat) -> httpx.Response:
    return chat.http.post(f"/v1/conversations/{chat.id}/reset")


def delete(chat: Chat) -> httpx.Response:
    return chat.http.delete(f"/v1/conversations/{chat.id}")


@pytest.mark.parametrize("other", [run, upload, restore, fork, reset, delete])
def test_one_winner(service: Runner, other: Callable[[Chat], httpx.Response]) -> None:
    with service.client() as http:
        for delay in range(ROUNDS):
            chat = Chat(http)
            if other in (run, reset) and delay % 2:  # with a sandbox already, or without
                chat.ok("open('outputs/before', 'w').write('0')")
            else:
                chat.put("uploads/before", b"0")
            answers: list[httpx.Response] = []
            threads = [threading.Thread(target=lambda: answers.append(other(chat))) for _ in range(3)]  # noqa: B023
            for thread in threads:
                thread.start()
            threads[0].join(delay * 0.004)  # how far the others get is different each time
            assert delete(chat).status_code == 204
            for thread in threads:
                thread.join(60)
            assert len(answers) == 3
            assert {answer.status_code for answer in answers} <= FINE, [answer.text for answer in answers]
            known = http.get(f"/v1/conversations/{chat.id}")
            assert known.status_code in (200, 404)
            if known.status_code == 200:  # made anew by what came after the deletion, and with nothing of before
                assert all("before" not in path for path in chat.files())
            for _ in range(2):
                assert delete(chat).status_code == 204
            assert http.get(f"/v1/conversations/{chat.id}").status_code == 404
            http.delete(f"/v1/conversations/{chat.id}-fork")
        assert live(http) == 0
        listed = http.get("/v1/conversations").json()["conversations"]
        assert listed == []


def test_a_deletion_whose_caller_leaves_is_done_all_the_same(tmp_path: Path) -> None:
    with running(tmp_path, SANDBOX_POOL_SIZE="0") as service, service.client() as http:
        chat = Chat(http)
        body = {"code": "import time\ntry:\n time.sleep(60)\nexcept KeyboardInterrupt:\n time.sleep(2)"}
        url = f"/v1/conversations/{chat.id}"
        events: list[str] = []
        with http.stream("POST", f"{url}/execute", json=body, headers={"Accept": "text/event-stream"}) as answer:
            for line in answer.iter_lines():
                events.append(line)
                if line == "event: started":
                    with pytest.raises(httpx.ReadTimeout):
                        http.delete(url, timeout=0.2)
        assert "event: done" in events or "event: error" in events
        deadline = time.monotonic() + 20
        while http.get(url).status_code != 404:
            assert time.monotonic() < deadline
        assert live(http) == 0


def live(http: httpx.Client) -> int:
    """Sandboxes of conversations."""
    rows = http.get("/metrics").text.splitlines()
    return int(float(next(row for row in rows if row.startswith("foliobox_sandboxes_live ")).split()[1]))
