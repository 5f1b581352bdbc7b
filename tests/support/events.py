"""Server-sent events as tests read them, and runs that are begun by asking for them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import httpx

from tests.support.runner import Chat

EVENTS = {"Accept": "text/event-stream"}
Told = tuple[str, dict[str, Any]]


def read(answer: httpx.Response, *, comments: bool = False) -> Iterator[Told]:
    """Events of a streamed answer as they come: name and data; comments under the name ``keep-alive``."""
    assert answer.headers["content-type"].startswith("text/event-stream"), answer.headers
    name = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield name, json.loads(line[6:])
        elif line.startswith(": ") and comments:
            yield "keep-alive", {}


@contextlib.contextmanager
def executing(chat: Chat, code: str, **fields: Any) -> Iterator[httpx.Response]:
    """A run whose events are being told."""
    body = {"code": code, **fields}
    with chat.http.stream("POST", f"/v1/conversations/{chat.id}/execute", json=body, headers=EVENTS) as answer:
        assert answer.status_code == 200
        yield answer


def begin(chat: Chat, code: str, until: str = "started", **fields: Any) -> str:
    """Begin a run, leave after the first event of this name, and give its id: it goes on and holds the conversation."""
    with executing(chat, code, **fields) as answer:
        for name, body in read(answer):
            if name == until:
                assert answer.headers["x-execution-id"] == body["execution_id"]
                return str(body["execution_id"])
    raise AssertionError("the run ended before")


def interrupt(chat: Chat, execution_id: str) -> None:
    """Interrupt a run that goes on or waits."""
    answer = chat.http.post(f"/v1/conversations/{chat.id}/interrupt", json={"execution_id": execution_id})
    assert answer.json() == {"interrupted": True}, answer.text
