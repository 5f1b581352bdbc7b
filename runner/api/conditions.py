"""Headers that make a request conditional or partial (RFC 9110), and digests of bodies (RFC 9530). Pure."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Final

from starlette.datastructures import Headers

from runner.errors import InvalidRequest, PreconditionFailed, RangeNotSatisfiable

_READ: Final = ("if-match", "if-none-match", "if-range", "range", "content-digest", "repr-digest", "digest")
_RANGE: Final = re.compile(r"bytes=[ \t]*(\d{0,19})-(\d{0,19})[ \t]*", re.IGNORECASE)
_OURS: Final = re.compile(r'"[0-9a-f]{64}"')
_CONTENT_DIGEST: Final = re.compile(r"([a-z0-9*._-]+)=:([A-Za-z0-9+/=]*):(?:;[^,]*)?")
_OLD_DIGEST: Final = re.compile(r"([A-Za-z0-9-]+)=([A-Za-z0-9+/=]+)")


def of(headers: Headers) -> dict[str, str]:
    """The headers that are read here, by their names in lower case; one that came several times is one list."""
    return {name: ", ".join(values) for name in _READ if (values := headers.getlist(name))}


def etag(sha256: str) -> str:
    """The entity tag of a content."""
    return f'"{sha256}"'


def matches(header: str | None, sha256: str) -> bool:
    """Whether ``If-None-Match`` (or ``If-Match``) names this content."""
    if header is None:
        return False
    tags = {tag.strip().removeprefix("W/") for tag in header.split(",")}
    return "*" in tags or etag(sha256) in tags


def for_change(headers: Mapping[str, str]) -> tuple[str | None, bool]:
    """``If-Match`` as ``*`` or hashes with commas between, and whether the file must not exist yet.

    Raises InvalidRequest, and PreconditionFailed where no tag can be that of a file: weak ones never match.
    """
    none_match = headers.get("if-none-match")
    if none_match is not None and none_match.strip() != "*":
        raise InvalidRequest("If-None-Match: only * is understood here, to refuse replacing a file")
    match = headers.get("if-match")
    if match is None:
        return None, none_match is not None
    if match.strip() == "*":
        return "*", none_match is not None
    tags = [tag.strip() for tag in match.split(",")]
    ours = [tag.strip('"') for tag in tags if _OURS.fullmatch(tag)]
    if not ours:
        raise PreconditionFailed("If-Match must hold an ETag of this service, or be *")
    return ",".join(ours), none_match is not None


def byte_range(headers: Mapping[str, str], size: int, sha256: str) -> tuple[int, int, bool]:
    """First byte, end (exclusive), and whether that is a part. Several ranges, and units but bytes, give the whole.

    Raises RangeNotSatisfiable.
    """
    match = _RANGE.fullmatch(headers.get("range", "").strip())
    guard = headers.get("if-range")
    if match is None or match.groups() == ("", "") or (guard is not None and guard.strip() != etag(sha256)):
        return 0, size, False
    first, last = match.groups()
    if first and last and int(last) < int(first):
        return 0, size, False  # not a range at all
    start = int(first) if first else max(0, size - int(last))
    end = min(size, int(last) + 1) if first and last else size
    if start >= end or (not first and int(last) == 0):
        raise RangeNotSatisfiable(f"the file has {size} bytes: ask for a range within them", size=size)
    return start, end, True


def declared_sha256(headers: Mapping[str, str]) -> str | None:
    """The SHA-256 in hex that ``Content-Digest``, ``Repr-Digest`` or ``Digest`` gives. Raises InvalidRequest."""
    found: set[str] = set()
    for name, pattern in (
        ("content-digest", _CONTENT_DIGEST),
        ("repr-digest", _CONTENT_DIGEST),
        ("digest", _OLD_DIGEST),
    ):
        header = headers.get(name)
        if header is None:
            continue
        given = {}
        for item in header.split(","):
            match = pattern.fullmatch(item.strip())
            if match is None:
                raise InvalidRequest(f"{name} cannot be read: send sha-256=:<base64>:, as RFC 9530 says")
            given[match[1].lower()] = match[2]
        if "sha-256" not in given:
            raise InvalidRequest(f"{name}: only sha-256 can be checked here; send that, or leave the header out")
        found.add(_hex(given["sha-256"], name))
    if len(found) > 1:
        raise InvalidRequest("the digest headers contradict each other")
    return found.pop() if found else None


def _hex(encoded: str, name: str) -> str:
    try:
        value = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        value = b""
    if len(value) != 32:
        raise InvalidRequest(f"{name}: a sha-256 is 32 bytes in base64, not hex")
    return value.hex()
