"""Deleting a conversation while everything else goes on in it: one winner, nothing half there, no sandbox left."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import wait

import httpx
import pytest

from tests.support import events
from tests.support.runner import Chat, Runner, running
from tests.support.waiting import aside, gauge, until

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
            others = [aside(lambda: other(chat)) for _ in range(3)]  # noqa: B023
            wait([others[0]], delay * 0.004)  # how far the others get is different each time
            assert delete(chat).status_code == 204
            answers = [one.result(60) for one in others]
            assert {answer.status_code for answer in answers} <= FINE, [answer.text for answer in answers]
            known = http.get(f"/v1/conversations/{chat.id}")
            assert known.status_code in (200, 404)
            if known.status_code == 200:  # made anew by what came after the deletion, and with nothing of before
                assert all("before" not in path for path in chat.files())
            for _ in range(2):
                assert delete(chat).status_code == 204
            assert http.get(f"/v1/conversations/{chat.id}").status_code == 404
            http.delete(f"/v1/conversations/{chat.id}-fork")
        assert gauge(http, "foliobox_sandboxes_live") == 0
        listed = http.get("/v1/conversations").json()["conversations"]
        assert listed == []


def test_a_deletion_whose_caller_leaves_is_done_all_the_same(service: Runner) -> None:
    code = "import time\ntry:\n print('on', flush=True)\n time.sleep(100)\nexcept KeyboardInterrupt:\n"
    code += " print('off', flush=True)\n time.sleep(2)"
    with service.client() as http:
        chat = Chat(http)
        head = f"DELETE /v1/conversations/{chat.id} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.key}\r\n\r\n"
        with events.executing(chat, code) as answer:
            told = events.read(answer)
            assert any(name == "stdout" for name, _ in told)
            with socket.create_connection(("127.0.0.1", service.port), timeout=30) as caller:
                caller.sendall(head.encode())
                assert any(name == "stdout" and "off" in body["text"] for name, body in told)  # the deletion goes on
                assert select.select([caller], [], [], 0) == ([], [], [])  # and is not answered yet
            last = [name for name, _ in told][-1]
        assert last in ("done", "error")
        until(lambda: http.get(f"/v1/conversations/{chat.id}").status_code == 404, "the conversation is deleted")
        until(lambda: gauge(http, "foliobox_sandboxes_live") == 0, "no sandbox is left")
