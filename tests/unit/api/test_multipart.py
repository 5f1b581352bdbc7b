"""Forms read while they come: what libraries and browsers send, and forms made to harm."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import httpx
import pytest

from runner.api import multipart
from runner.errors import CallerError, InvalidRequest, TooLarge

B = b"xYz"


def read(
    data: bytes, *, piece: int = 1000, boundary: bytes = B, max_parts: int = 10, max_bytes: int = 1 << 20
) -> list[tuple[str, bytes]]:
    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(data), piece):
            yield data[at : at + piece]

    async def collect() -> list[tuple[str, bytes]]:
        form = multipart.Form(pieces(), boundary, max_parts, max_bytes)
        return [(part.filename, b"".join([c async for c in part.content])) async for part in form.parts()]

    return asyncio.run(collect())


def part(content: bytes = b"1", disposition: str = 'form-data; name="file"; filename="a"', extra: str = "") -> bytes:
    return f"--xYz\r\nContent-Disposition: {disposition}\r\n{extra}\r\n".encode() + content + b"\r\n"


END = b"--xYz--\r\n"


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1000])
def test_contents_that_look_like_boundaries(piece: int) -> None:
    contents = [
        b"",
        b"\r\n",
        b"--xYz",
        b"\r\n--xY",
        b"\r\n-",
        b"x\r\n\r\n--xYYz\r\n" * 50,
        b"--\r\n--",
        bytes(range(256)),
    ]
    data = b"".join(part(content) for content in contents) + END
    assert [content for _, content in read(data, piece=piece)] == contents


@pytest.mark.parametrize(
    "name", ["plain.txt", "with space;.txt", 'quo"te.txt', "uploads/bericht ü.txt", "表.csv", "a%41.txt"]
)
def test_what_httpx_sends(name: str) -> None:
    request = httpx.Request("POST", "http://x", files=[("file", (name, b"content")), ("file", ("b", b"\0\xff"))])
    boundary = multipart.boundary(request.headers["content-type"])
    assert read(request.read(), boundary=boundary) == [(name, b"content"), ("b", b"\0\xff")]


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        ('form-data; name="f"; filename="a\\"b"', 'a"b'),
        ('form-data; name="f"; filename="a\\\\b"', "a\\b"),
        ('form-data; name="f"; filename="C:\\dir\\b"', "C:\\dir\\b"),
        ('form-data; name="f"; filename="a%22%0D%0Ab%41"', 'a"\r\nb%41'),
        ("form-data; name=f; filename=a.txt", "a.txt"),
        ('FORM-DATA;filename="é";name="f"', "é"),
        ("form-data; name=f; filename=x; filename*=UTF-8''%e2%82%ac%22%0A", '€"\n'),
    ],
)
def test_names_as_clients_write_them(disposition: str, name: str) -> None:
    assert read(part(disposition=disposition) + END) == [(name, b"1")]


BAD: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "ends early"),
    "no end": (part(), "ends early"),
    "half a boundary": (part() + b"--xY", "ends early"),
    "no boundary": (b"x" * 10_000, "begin with its boundary"),
    "a field": (part(disposition='form-data; name="a"'), "no file"),
    "an endless field": (part(b"x" * (8 << 20), disposition='form-data; name="a"'), "no file"),
    "an empty name": (part(disposition='form-data; name="a"; filename=""') + END, "no file"),
    "no disposition": (b"--xYz\r\nX: y\r\n\r\n1\r\n" + END, "Content-Disposition"),
    "another disposition": (part(disposition="attachment; filename=a") + END, "Content-Disposition"),
    "endless headers": (b"--xYz\r\nX: " + b"y" * 100_000, "more than 16384"),
    "headers not UTF-8": (b"--xYz\r\nX: \xff\r\n\r\n1\r\n" + END, "UTF-8"),
    "a name in base64": (part(extra="Content-Transfer-Encoding: base64\r\n") + END, "as they are"),
    "a name twice": (part(disposition="form-data; filename=a; filename=b") + END, "twice"),
    "a name that does not end": (part(disposition='form-data; filename="a') + END, "cannot be read"),
    "another charset": (part(disposition="form-data; filename*=latin-1''a") + END, "UTF-8"),
    "broken UTF-8": (part(disposition="form-data; filename*=UTF-8''%ff") + END, "UTF-8"),
    "a boundary that goes on": (b"--xYzzz\r\n" + part() + END, "end its line"),
    "an endless boundary": (b"--xYz" + b" " * 100_000, "end its line"),
    "something behind the end": (part() + END + b"x" * 10_000, "follows the end"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_forms_are_refused_and_say_why(case: str) -> None:
    data, mentioned = BAD[case]
    for piece in (1, 4096) if len(data) < 200_000 else (65536,):
        with pytest.raises(InvalidRequest, match=mentioned):
            read(data, piece=piece, max_bytes=16 << 20)


def test_limits() -> None:
    assert len(read(part() * 10 + END)) == 10
    with pytest.raises(TooLarge, match="SANDBOX_MAX_UPLOAD_FILES"):
        read(part() * 100_000 + END, max_bytes=16 << 20, piece=65536)
    with pytest.raises(TooLarge, match="1048576"):
        read(part(b"x" * (1 << 20)) + END)


@pytest.mark.parametrize(
    "kind", ["multipart/form-data", "multipart/form-data; boundary=", 'multipart/form-data; boundary="a\nb"',
             f"multipart/form-data; boundary={'x' * 71}", "multipart/form-data; boundary=a; boundary=b"],
)  # fmt: skip
def test_bad_boundaries(kind: str) -> None:
    with pytest.raises(InvalidRequest):
        multipart.boundary(kind)


def test_damaged_forms_never_raise_anything_else() -> None:
    """2,000 forms, each with a few bytes changed: read, or refused as the caller's fault."""
    whole = part(b"x" * 50, extra="Content-Type: text/plain\r\n") + part(b"", "form-data; filename*=UTF-8''%41") + END
    rng = random.Random(7)
    refused = 0
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            read(bytes(data), piece=64)
        except CallerError:
            refused += 1
    assert refused > 500
