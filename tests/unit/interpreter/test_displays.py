"""Displays as the host reads them: every value can be written as JSON, however the sandbox nested or spelt it."""

from __future__ import annotations

import json

import pytest

from runner.agent.protocol import MAX_NESTING, Json
from runner.errors import ProtocolError
from runner.interpreter.events import Event, EventReader
from runner.interpreter.stream import Item

DISPLAY: Json = {"seq": 1, "type": "display", "kind": "display", "binary": [], "texts": [], "metadata": {}}


def shown(attachments: tuple[bytes, ...] = (), **fields: object) -> Event:
    event = EventReader("python", 0).read(Item({**DISPLAY, **fields}, attachments))
    assert isinstance(event, Event)
    return event


def nested(levels: int) -> object:
    return json.loads("[" * levels + "1" + "]" * levels)


def test_numbers_that_json_has_not_become_null() -> None:
    data = json.loads('{"application/json": {"a": NaN, "b": [1.5, Infinity, {"c": -Infinity}], "d": 1e999, "e": 7}}')
    event = shown(data=data, metadata=json.loads('{"x": [NaN]}'))
    assert event.body["data"] == {"application/json": {"a": None, "b": [1.5, None, {"c": None}], "d": None, "e": 7}}
    assert event.body["metadata"] == {"x": [None]}
    json.dumps(event.body, allow_nan=False)


def test_as_deep_as_allowed_is_shown() -> None:
    value = nested(MAX_NESTING)
    assert shown(data={"application/json": value}).body["data"] == {"application/json": value}


@pytest.mark.parametrize("levels", [MAX_NESTING + 1, 900])
@pytest.mark.parametrize("where", ["data", "metadata"])
def test_deeper_is_dropped_and_says_so(levels: int, where: str) -> None:
    fields: Json = {"data": {"text/plain": "x"}, "binary": ["image/png"], where: {"application/json": nested(levels)}}
    event = shown((b"png",), **fields)
    assert "nested too deep" in event.body["data"].pop("text/plain")
    assert (event.body["data"], event.body["metadata"], event.body["binary"]) == ({}, {}, [])
    assert event.attachments == ()


def test_long_texts_are_put_back() -> None:
    event = shown((b"png", b"long"), data={"text/html": "x"}, binary=["image/png"], texts=["text/plain"])
    assert event.body["data"] == {"text/html": "x", "text/plain": "long"}
    assert event.attachments == (b"png",)


def test_no_display_at_all_is_still_an_error() -> None:
    with pytest.raises(ProtocolError):
        shown(data=7)
