"""Results are written as JSON that every parser takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runner.api.encoding import Json, encode
from runner.api.v1 import translate
from runner.conversations.result import RunEvent


def refuse(constant: str) -> Any:
    raise AssertionError(constant)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_does_not_have_become_null(number: float) -> None:
    content = {"a": [1.5, number, {"b": (number, "x")}], "c": number}
    expected = {"a": [1.5, None, {"b": [None, "x"]}], "c": None}
    assert json.loads(encode(content), parse_constant=refuse) == expected
    assert json.loads(bytes(Json(content).body), parse_constant=refuse) == expected


def test_events_hold_no_such_numbers_either() -> None:
    event = translate.event(RunEvent(3, "display", {"data": {"application/json": {"x": float("nan")}}}), "e" * 32)
    head, _, data = event.decode().partition("data: ")
    assert head == "event: display\nid: 3\n"
    assert json.loads(data, parse_constant=refuse)["data"] == {"application/json": {"x": None}}


def test_lone_surrogates_do_not_break_an_answer() -> None:
    assert encode({"a": "é\ud800"}) == '{"a":"é?"}'.encode()
