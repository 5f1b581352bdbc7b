"""JSON bodies that parsers read in different ways, or that cost a parser much: refused, and quickly."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from typing import Any

import pytest
from fastapi import Request
from starlette.types import Message

from runner.api import strict_json
from runner.errors import InvalidRequest, UnsupportedMedia

GOOD: tuple[tuple[bytes, Any], ...] = (
    (b"null", None),
    (b' {"a": [1, -2.5, "\\u00e9", "\\ud83d\\ude00", true]} ', {"a": [1, -2.5, "é", "😀", True]}),
    ('{"名": "値"}'.encode(), {"名": "値"}),
    (b"12345678901234567890", 12345678901234567890),
)
BAD: dict[str, tuple[bytes, str]] = {
    "nothing": (b" ", "not JSON"),
    "cut": (b'{"a": ', "not JSON"),
    "two": (b"1 2", "not JSON"),
    "deep list": (b"[" * 9_000, "deeply"),
    "deep object": (b'{"a":' * 9_000, "deeply"),
    "deep and whole": (b"[" * 9_000 + b"]" * 9_000, "deeply"),
    "many names": (b"{" + b",".join(b'"%d":""' % n for n in range(1_000_000)) + b"}", "10000 fields and items"),
    "many objects": (b"[" + b",".join(b'{"a":""}' for _ in range(20_000)) + b"]", "10000 fields and items"),
    "many empty lists": (b'{"code":"1","x":[' + b"[]," * 5_600_000 + b"[]]}", "10000 fields and items"),
    "very deep": (b"[" * 100_000, "10000 fields and items"),
    "many behind a long string": (b'["' + b"\\\\" * 99_999 + b'",' + b"[]," * 20_000 + b"1]", "10000 fields and items"),
    "long number": (b"1" * 100_000, "100000 digits"),
    "long negative": (b"-" + b"1" * 100_000, "digits"),
    "large real": (b"1e999", "too large"),
    "many numbers": (b"[" + b"1," * 5_000_000 + b"1]", "10000 fields and items"),
    "many reals": (b"[" + b"1.5," * 1_000_000 + b"1]", "10000 fields and items"),
    "NaN": (b'{"a": NaN}', "NaN"),
    "Infinity": (b"[-Infinity]", "-Infinity"),
    "a name twice": (b'{"a": 1, "\\u0061": 2}', "'a' twice"),
    "half a pair": (b'["\\ud800"]', "surrogates"),
    "half a pair in a name": (b'{"\\udfff": 1}', "surrogates"),
    "pair in the wrong order": (b'["\\ude00\\ud83d"]', "surrogates"),
    "byte order mark": (b'\xef\xbb\xbf{"a": 1}', "byte order mark"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "UTF-8"),
    "UTF-16 without mark": ('{"a": 1}'.encode("utf-16-le"), "not JSON"),
    "UTF-32": ('{"a": 1}'.encode("utf-32"), "UTF-8"),
    "Latin-1": ('{"ä": 1}'.encode("latin-1"), "UTF-8"),
    "surrogate bytes": (b'"\xed\xa0\x80"', "UTF-8"),
    "control character": (b'"\x01"', "not JSON"),
}


@pytest.mark.parametrize(("body", "value"), GOOD)
def test_good(body: bytes, value: Any) -> None:
    assert strict_json.parse(body) == value


@pytest.mark.parametrize("case", BAD)
def test_bad(case: str) -> None:
    body, mentioned = BAD[case]
    began = time.perf_counter()
    with pytest.raises(InvalidRequest, match=mentioned):
        strict_json.parse(body)
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"']
)
def test_types_that_are_read(kind: str) -> None:
    strict_json.check_type(kind)


@pytest.mark.parametrize(
    "kind",
    [None, "", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16", "json", "\0"],
)
def test_types_that_are_not(kind: str | None) -> None:
    with pytest.raises(UnsupportedMedia, match="application/json"):
        strict_json.check_type(kind)


@pytest.mark.parametrize("text", ['"', "\\", '\\"', '"\\', "[,", '",[', "\\u0022,", "é,"])
@pytest.mark.parametrize("length", [1, (64 << 10) - 9, (64 << 10) - 8, (64 << 10) - 7, (64 << 10) - 6, (64 << 10) - 5])
def test_nothing_within_strings_counts(text: str, length: int) -> None:
    """Wherever a piece of the count ends: within an escape, before a quote, behind one."""
    code = "x" * length + text * 30_000
    body = json.dumps({"c": code, "d": [1] * 100}).encode()
    assert strict_json.parse(body) == {"c": code, "d": [1] * 100}
    with pytest.raises(InvalidRequest, match="10000 fields and items"):
        strict_json.parse(json.dumps([code, *[1] * 10_000]).encode())


def test_the_most_that_is_read() -> None:
    assert strict_json.parse(b"[" + b"1," * 9_999 + b"1]") == [1] * 10_000
    with pytest.raises(InvalidRequest):
        strict_json.parse(b"[" + b"1," * 10_000 + b"1]")


async def test_a_large_body_keeps_nobody_waiting() -> None:
    """It is read in a thread, which gives way to others; what is refused is refused before values are made."""
    bodies = [b'{"x":[' + b"[]," * 5_000_000 + b"[]]}", json.dumps({"code": "a = [1, 2]\n" * 1_000_000}).encode()]
    threads: list[int] = []
    parse = strict_json.parse

    def noting(body: bytes) -> Any:
        threads.append(threading.get_ident())
        return parse(body)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strict_json, "parse", noting)
        for body in bodies:
            with contextlib.suppress(InvalidRequest):
                await strict_json.checked(request_of(body), None)
    assert len(threads) == 2
    assert threading.get_ident() not in threads


def request_of(body: bytes) -> Request:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request({"type": "http", "method": "POST", "headers": [(b"content-type", b"application/json")]}, receive)
