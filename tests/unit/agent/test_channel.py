"""The interpreter's end of a display: what is nested too deep is a note, whatever else there is to show."""

from __future__ import annotations

import json
import os
import socket

import pytest

from runner.agent.channel import Channel, Interrupts
from runner.agent.protocol import MAX_NESTING, Json, unpack_message


def sent(bundle: Json, metadata: Json) -> Json:
    ours, theirs = socket.socketpair()
    taken = os.eventfd(1)
    channel = Channel(theirs.detach(), taken, Interrupts(-1), lambda: None)
    channel.number = 5
    try:
        channel.display("display", bundle, metadata)
        data = ours.recv(1 << 20)
        return unpack_message(data[4:])[0]
    finally:
        channel.abandon()
        ours.close()
        os.close(taken)


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def test_as_deep_as_allowed_is_sent() -> None:
    value = nested(MAX_NESTING)
    assert sent({"application/json": value}, {"a": 1})["data"] == {"application/json": value}
    assert sent({"text/plain": "x"}, {"a": {"b": 1}})["metadata"] == {"a": {"b": 1}}


@pytest.mark.parametrize("levels", [MAX_NESTING + 1, 500, 100_000])
def test_deeper_is_a_note(levels: int) -> None:
    body = sent({"application/json": nested(levels), "text/html": "<b>"}, {"m": nested(levels)})
    assert body["metadata"] == {}
    assert body["data"].pop("text/html") == "<b>"
    assert body["data"] == {"text/plain": "<application/json nested too deep to show, the limit is 64 levels>"}


def test_what_json_cannot_say_is_sent_as_text() -> None:
    body = sent({"application/json": {"a": {1, 2}, "b": float("inf")}}, {})
    assert json.dumps(body["data"]) == '{"application/json": {"a": "{1, 2}", "b": Infinity}}'
