"""Ranges, entity tags and digests: what holds, what is ignored as the RFCs say, and what is refused."""

from __future__ import annotations

import base64
import hashlib

import pytest
from starlette.datastructures import Headers

from runner.api import conditions
from runner.errors import InvalidRequest, PreconditionFailed, RangeNotSatisfiable

SHA = hashlib.sha256(b"x").hexdigest()
BASE64 = base64.b64encode(hashlib.sha256(b"x").digest()).decode()


def test_a_header_that_came_twice_is_one_list() -> None:
    sent = Headers(raw=[(b"digest", b"a=b"), (b"range", b"bytes=0-1"), (b"Digest".lower(), b"c=d"), (b"other", b"x")])
    assert conditions.of(sent) == {"digest": "a=b, c=d", "range": "bytes=0-1"}


RANGES = {
    "bytes=0-0": (0, 1, True),
    "bytes=0-": (0, 100, True),
    "bytes=10-19": (10, 20, True),
    "bytes=10-1000": (10, 100, True),
    "bytes=-5": (95, 100, True),
    "bytes=-500": (0, 100, True),
    "Bytes= 10-19 ": (10, 20, True),
    "bytes=5-4": (0, 100, False),
    "bytes=-": (0, 100, False),
    "bytes=0-1,5-6": (0, 100, False),
    "bytes=a-b": (0, 100, False),
    "lines=0-1": (0, 100, False),
    "bytes=" + "0-0," * 10_000: (0, 100, False),
    "bytes=" + "9" * 40 + "-": (0, 100, False),
    "": (0, 100, False),
}


@pytest.mark.parametrize("header", RANGES, ids=lambda header: header[:20])
def test_ranges(header: str) -> None:
    assert conditions.byte_range({"range": header}, 100, SHA) == RANGES[header]


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=100-200", "bytes=-0", f"bytes={'9' * 19}-"])
def test_ranges_outside(header: str) -> None:
    with pytest.raises(RangeNotSatisfiable):
        conditions.byte_range({"range": header}, 100, SHA)
    with pytest.raises(RangeNotSatisfiable):
        conditions.byte_range({"range": "bytes=0-"}, 0, SHA)


@pytest.mark.parametrize(
    ("guard", "partial"),
    [(f'"{SHA}"', True), (f'W/"{SHA}"', False), ('"other"', False), ("Tue, 01 Jan 2030 00:00:00 GMT", False)],
)
def test_if_range(guard: str, partial: bool) -> None:
    assert conditions.byte_range({"range": "bytes=0-1", "if-range": guard}, 100, SHA)[2] is partial


@pytest.mark.parametrize(
    ("header", "holds"),
    [
        ("*", True),
        (f'"{SHA}"', True),
        (f'"a", W/"{SHA}" , "b"', True),
        (f'"{SHA}x"', False),
        ("", False),
        (None, False),
    ],
)
def test_entity_tags(header: str | None, holds: bool) -> None:
    assert conditions.matches(header, SHA) is holds


def test_conditions_of_changes() -> None:
    assert conditions.for_change({}) == (None, False)
    assert conditions.for_change({"if-none-match": " * "}) == (None, True)
    assert conditions.for_change({"if-match": "*"}) == ("*", False)
    assert conditions.for_change({"if-match": f'"{SHA}"'}) == (SHA, False)
    with pytest.raises(InvalidRequest):
        conditions.for_change({"if-none-match": f'"{SHA}"'})
    other = hashlib.sha256(b"y").hexdigest()
    assert conditions.for_change({"if-match": f'"short", "{SHA}" ,W/"{other}","{other}"'}) == (f"{SHA},{other}", False)
    for tag in (SHA, f'W/"{SHA}"', f'W/"{SHA}", "short"', f'*, W/"{SHA}"', '"short"'):
        with pytest.raises(PreconditionFailed):
            conditions.for_change({"if-match": tag})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("content-digest", f"sha-256=:{BASE64}:"),
        ("repr-digest", f"md5=:AAAA:, sha-256=:{BASE64}:;q=1"),
        ("digest", f"SHA-256={BASE64}"),
        ("digest", f"md5=abc,sha-256={BASE64}"),
    ],
)
def test_digests_that_can_be_checked(name: str, value: str) -> None:
    assert conditions.declared_sha256({name: value}) == SHA


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("content-digest", ""),
        ("content-digest", "sha-256"),
        ("content-digest", f"sha-256={BASE64}"),
        ("content-digest", "sha-512=:AAAA:"),
        ("content-digest", f"sha-256=:{base64.b64encode(SHA.encode()).decode()}:"),
        ("content-digest", "sha-256=:====:"),
        ("digest", f"SHA-256={SHA}"),
    ],
)
def test_digests_that_cannot(name: str, value: str) -> None:
    with pytest.raises(InvalidRequest):
        conditions.declared_sha256({name: value})


def test_digests_that_contradict() -> None:
    other = base64.b64encode(hashlib.sha256(b"y").digest()).decode()
    with pytest.raises(InvalidRequest, match="contradict"):
        conditions.declared_sha256({"content-digest": f"sha-256=:{BASE64}:", "digest": f"sha-256={other}"})
