"""What does not fit a model, in plain words: which field, what is wrong with it, and what may stand there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from pydantic import BaseModel

MAX_TOLD: Final = 20
_OBJECT: Final = "must be an object, like {{…}}"
_WHOLE: Final = "must be a whole number"
_BOOL: Final = "must be true or false"
_PLAIN: Final[Mapping[str, str]] = {
    "missing": "is required",
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "list_type": "must be a list, like […]",
    "string_type": "must be a string",
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "int_parsing_size": "is too large",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": _BOOL,
    "bool_parsing": _BOOL,
    "string_too_short": "must have {min_length} characters or more",
    "string_too_long": "must have {max_length} characters or fewer",
    "string_pattern_mismatch": "must match {pattern}",
    "too_short": "must have {min_length} entries or more",
    "too_long": "must have {max_length} entries or fewer",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be {le} or less",
}
_NAME: Final = "[key]"  # pydantic's last step to the name of an entry


def told(errors: Sequence[Mapping[str, Any]], body: object) -> tuple[str, list[dict[str, str]]]:
    """The detail for a person, and the same field by field. ``body`` is what the route takes as its body."""
    places = [_place(item, body) for item in errors[:MAX_TOLD]]
    lines = [item["message"] if kind else f"{item['field']}: {item['message']}" for item, kind in places]
    return "; ".join(lines) or "the body is not usable", [item for item, _ in places]


def _place(item: Mapping[str, Any], body: object) -> tuple[dict[str, str], bool]:
    """One fault, and whether its message names the field."""
    steps = [_short(step) for step in item["loc"]]
    where, inside = (steps[1:], True) if steps[:1] == ["body"] else (steps, False)
    if item["type"] == "extra_forbidden" and inside and where:
        known = fields_at(body, [str(step) for step in item["loc"][1:-1]])
        folder = f" in {'.'.join(where[:-1])}" if where[:-1] else ""
        message = f"unknown field {where[-1]!a}{folder}; known: {', '.join(known)}"
        return {"field": ".".join(where), "message": message}, True
    message = _message(item)
    if where[-1:] == [_NAME] and len(where) > 1:
        message, where = f"the name {where[-2]!a} {message}", where[:-2]
    return {"field": ".".join(where) or "body", "message": message}, False


def _message(item: Mapping[str, Any]) -> str:
    kind, context = item["type"], item.get("ctx") or {}
    if kind in _PLAIN:
        return _PLAIN[kind].format_map({name: _number(value) for name, value in context.items()})
    if kind == "literal_error":
        expected = str(context["expected"]).replace("False", "false").replace("True", "true")
        return f"must be {expected}"
    return str(item["msg"]).removeprefix("Value error, ")


def fields_at(kind: object, steps: Sequence[str]) -> list[str]:
    """Names of the fields of the model that ``steps`` lead to from a model (or a model or None)."""
    model = _model(kind)
    if model is None:
        return []
    names = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    if not steps:
        return list(names)
    return fields_at(names.get(steps[0]), steps[1:])


def _model(kind: object) -> type[BaseModel] | None:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    if get_origin(kind) in (Union, UnionType):
        return next((found for part in get_args(kind) if (found := _model(part)) is not None), None)
    return None


def _number(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _short(step: object) -> str:
    text = str(step)
    return text if len(text) <= 80 else f"{text[:60]}…({len(text)} characters)"
