"""JSON bodies as RFC 8259 means them: what parsers read in different ways is refused before anybody reads it.

UTF-8 without a byte order mark, no name twice in one object, finite numbers, whole surrogate pairs. How many
fields and items there are is counted before a value is made of any: an empty list of two bytes takes 64.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from email.message import Message
from typing import Any, Final

from fastapi import Request

from runner.errors import InvalidRequest, TooLarge, UnsupportedMedia

MAX_ITEMS: Final = 10_000  # fields of all objects and items of all lists of a body together
MAX_BYTES: Final = 1 << 20  # of a body that holds no code
_FEW: Final = 200
_MAX_DIGITS: Final = 20
_INLINE: Final = 256 << 10  # what is longer is read in a thread
_PIECE: Final = 64 << 10  # is counted at once: no other thread runs meanwhile
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_DEPTH: Final = "the JSON is nested too deeply"


async def checked(request: Request, max_bytes: int | None, *, typed: bool = True) -> Request:
    """The request, its body checked and parsed; without ``typed`` its type may be left out. Raises InvalidRequest,
    UnsupportedMedia, TooLarge.
    """
    body = await request.body()
    if max_bytes is not None and len(body) > max_bytes:
        raise TooLarge(f"the body of this call may have {max_bytes} bytes; files are sent to …/files", limit=max_bytes)
    if body:
        content_type = request.headers.get("content-type")
        if typed or content_type:
            check_type(content_type)
        # where Request.json() looks first
        request._json = parse(body) if len(body) <= _INLINE else await asyncio.to_thread(parse, body)
    return request


def check_type(content_type: str | None) -> None:
    """Whether a body is sent as JSON. Other types are refused: browsers send those to any site unasked."""
    message = Message()
    message["content-type"] = content_type or "missing/missing"
    charset = message.get_content_charset("utf-8")
    if message.get_content_type() != "application/json" or charset not in ("utf-8", "utf8"):
        given = f"not {ascii(content_type)[:100]}" if content_type else "which is missing"
        raise UnsupportedMedia(
            f"send the body as JSON in UTF-8, with the header Content-Type: application/json, {given}"
        )


def parse(body: bytes) -> Any:
    """What a JSON text says. Raises InvalidRequest."""
    _check_structure(body)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the body is not UTF-8 at byte {error.start}: send JSON in UTF-8") from None
    if text.startswith("\ufeff"):
        raise InvalidRequest("the body begins with a byte order mark: send JSON without one")
    try:
        value = _DECODER.decode(text)
        if b"\\" in body and (b"\\ud" in body or b"\\uD" in body) and _SURROGATE.search(body):
            _check_text(value)
    except json.JSONDecodeError as error:
        raise InvalidRequest(
            f"the body is not JSON: {error.msg.removesuffix(' at')} at character {error.pos}"
        ) from None
    except RecursionError:
        raise InvalidRequest(_DEPTH) from None
    return value


def _check_structure(body: bytes) -> None:
    """Refuse too many fields and items: each has a comma or an opening bracket before it, outside of all strings."""
    if _few(body):
        return
    found, inside, rest = 0, 0, b""
    for start in range(0, len(body), _PIECE):
        piece = rest + body[start : start + _PIECE]
        kept = piece.rstrip(b"\\")
        rest = b"\\" * ((len(piece) - len(kept)) % 2)  # an escape may be cut in two here; pairs mean nothing
        parts = kept.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[inside::2])
        found += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        if found > MAX_ITEMS:
            raise InvalidRequest(f"the body has more than {MAX_ITEMS} fields and items of lists", limit=MAX_ITEMS)
        inside = (inside + len(parts) - 1) % 2


def _few(body: bytes) -> bool:
    """Whether there are few of them even with those inside of strings: a long file in Base64 has none."""
    found = 0
    for mark in (b",", b"[", b"{"):
        at = -1
        while (at := body.find(mark, at + 1)) >= 0:
            found += 1
            if found > _FEW:
                return False
    return True


def _pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(found)
    if len(made) != len(found):
        raise InvalidRequest(f"the body gives {_repeated(found)} twice in one object")
    return made


def _repeated(found: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    for name, _ in found:
        if name in seen:
            return ascii(name)[:80]
        seen.add(name)
    raise AssertionError("unreachable")


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise InvalidRequest(f"the body holds a number of {len(digits)} digits; at most {_MAX_DIGITS} are read")
    return int(digits)


def _real(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise InvalidRequest("the body holds a number that is too large")
    return value


def _constant(name: str) -> None:
    raise InvalidRequest(f"{name} is not JSON: send a number or null")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_int=_integer, parse_float=_real, parse_constant=_constant
)


def _check_text(value: Any) -> None:
    """Refuse halves of surrogate pairs, in names too; no encoding can carry them."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            shown = ascii(value)[:80]
            raise InvalidRequest(f"{shown} contains lone surrogates, which no Unicode text can carry") from None
    elif isinstance(value, dict):
        for name, item in value.items():
            _check_text(name)
            _check_text(item)
    elif isinstance(value, list):
        for item in value:
            _check_text(item)
