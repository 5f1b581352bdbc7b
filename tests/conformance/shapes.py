"""Exact JSON types of answers: a number is no boolean, a missing field is not null; fields beyond these are allowed."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any

Shape = Callable[[object, str], list[str]]


class Unlike(AssertionError):
    """An answer that is not what the contract promises."""


def _of(kind: type, word: str) -> Shape:
    def look(value: object, where: str) -> list[str]:
        return [] if type(value) is kind else [f"{where}: {word} expected, not {type(value).__name__}"]

    return look


text = _of(str, "a string")
whole = _of(int, "an integer")
truth = _of(bool, "a boolean")
null = _of(type(None), "null")


def true(value: object, where: str) -> list[str]:
    """Nothing but ``true``."""
    return [] if value is True else [f"{where}: true expected, not {value!r}"]


def count(value: object, where: str) -> list[str]:
    """An integer that is not negative."""
    return whole(value, where) or ([] if value >= 0 else [f"{where}: below zero"])  # type: ignore[operator]


def base64_text(value: object, where: str) -> list[str]:
    """Standard alphabet, padded, nothing around it."""
    if type(value) is not str:
        return text(value, where)
    try:
        base64.b64decode(value.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        return [f"{where}: not Base64 ({error})"]
    return []


def like(pattern: str) -> Shape:
    """A string that the whole pattern matches."""

    def look(value: object, where: str) -> list[str]:
        if type(value) is not str:
            return text(value, where)
        return [] if re.fullmatch(pattern, value, re.S) else [f"{where}: {value[:120]!r} is not like {pattern}"]

    return look


def either(*shapes: Shape) -> Shape:
    """One of several."""

    def look(value: object, where: str) -> list[str]:
        found = [shape(value, where) for shape in shapes]
        return [] if any(not each for each in found) else found[0]

    return look


def many(shape: Shape) -> Shape:
    """An array whose elements are all alike."""

    def look(value: object, where: str) -> list[str]:
        if type(value) is not list:
            return [f"{where}: an array expected, not {type(value).__name__}"]
        return [problem for index, each in enumerate(value) for problem in shape(each, f"{where}[{index}]")]

    return look


def record(fields: Mapping[str, Shape], optional: Mapping[str, Shape] | None = None) -> Shape:
    """An object with these fields; ``optional`` ones may be absent, never of another type."""

    def look(value: object, where: str) -> list[str]:
        if type(value) is not dict:
            return [f"{where}: an object expected, not {type(value).__name__}"]
        found = [f"{where}.{name}: missing" for name in fields if name not in value]
        for name, shape in {**fields, **(optional or {})}.items():
            if name in value:
                found += shape(value[name], f"{where}.{name}")
        return found

    return look


def hold(shape: Shape, value: object, where: str = "answer") -> Any:
    """The value, when it has the shape. Raises Unlike with everything that is wrong."""
    if found := shape(value, where):
        raise Unlike("; ".join(found))
    return value
