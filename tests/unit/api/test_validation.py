"""What does not fit a body, in words that name the field and say what may stand there."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from runner.api.v1.schemas import ConversationIn, ExecuteIn, LinkIn, MoveIn
from runner.api.validation import MAX_TOLD, fields_at, told

JARGON = ("Input should", "dictionary", "Extra inputs", "permitted", "Value error", "object to extract")


def fault(model: type[BaseModel], body: Any) -> tuple[str, list[dict[str, str]]]:
    """What a caller is told of a body."""
    try:
        model.model_validate(body)
    except ValidationError as error:
        items = [{**item, "loc": ("body", *item["loc"])} for item in error.errors()]
        return told(items, model | None)
    raise AssertionError("the body fits")


@pytest.mark.parametrize(
    ("model", "body", "detail"),
    [
        (ExecuteIn, {}, "code: is required"),
        (ExecuteIn, {"code": 1}, "code: must be a string"),
        (ExecuteIn, [], "body: must be an object, like {…}"),
        (ExecuteIn, {"code": "", "env": []}, "env: must be an object, like {…}"),
        (ExecuteIn, {"code": "", "fresh": 1}, "fresh: must be true or false"),
        (ExecuteIn, {"code": "", "timeout_ms": "1"}, "timeout_ms: must be a whole number"),
        (ExecuteIn, {"code": "", "timeout_ms": 1.5}, "timeout_ms: must be a whole number"),
        (ExecuteIn, {"code": "", "timeout_ms": 0}, "timeout_ms: must be 1 or more"),
        (ExecuteIn, {"code": "", "network": 1}, "network: must be true or false"),
        (ExecuteIn, {"code": "", "language": "ruby"}, "language: must be 'python' or 'bash'"),
        (ExecuteIn, {"code": "", "env": {str(n): "" for n in range(257)}}, "env: must have 256 entries or fewer"),
        (LinkIn, {"path": "a", "expires_in_ms": 1 << 60}, "expires_in_ms: must be 604800000 or less"),
        (ConversationIn, {"limits": {"cpus": 0}}, "limits.cpus: must be more than 0"),
        (ConversationIn, {"limits": {"cpus": "1"}}, "limits.cpus: must be a number"),
        (ConversationIn, {"labels": {"a": "x" * 257}}, "labels.a: must have 256 characters or fewer"),
        (ConversationIn, {"labels": {"a b": ""}}, "labels: the name 'a b' must match ^[A-Za-z0-9._/-]+$"),
    ],
)
def test_plain_words(model: type[BaseModel], body: Any, detail: str) -> None:
    assert fault(model, body)[0] == detail


def test_an_unknown_field_is_told_the_known_ones() -> None:
    detail, places = fault(ExecuteIn, {"code": "", "timeout": 1})
    assert detail.startswith("unknown field 'timeout'; known: code, language, timeout_ms, ")
    assert places[0]["field"] == "timeout"
    detail, places = fault(ConversationIn, {"limits": {"memory": 1}})
    assert detail.startswith("unknown field 'memory' in limits; known: memory_bytes, cpus, ")
    assert places[0]["field"] == "limits.memory"


def test_the_names_are_those_that_are_sent() -> None:
    assert fields_at(MoveIn, []) == ["from", "to", "overwrite"]
    assert fields_at(ConversationIn | None, ["limits"])[:2] == ["memory_bytes", "cpus"]
    assert fields_at(ConversationIn, ["labels"]) == fields_at(None, []) == []


def test_long_and_many_faults_are_cut() -> None:
    detail, places = fault(ExecuteIn, {"code": "", **{"x" * 5000 + str(n): 1 for n in range(50)}})
    assert len(places) == MAX_TOLD
    assert len(detail) < 10_000


def test_no_jargon_is_left() -> None:
    bodies: list[Any] = [None, 1, [], {"code": None, "stdin": 1, "env": {"a": 1}, "limits": 1, "language": 1}]
    bodies += [{"code": "", "limits": {"artifacts": -1, "output_bytes": None, "artifact_bytes": True, "x": 1}}]
    for body in bodies:
        detail, _ = fault(ExecuteIn, body)
        assert not any(word in detail for word in JARGON), detail
