"""The daemon's stream taken apart, wherever it is cut, and a daemon that answers wrongly."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from runner.backends.docker.attach import STDERR_KEEP, Demultiplexer, attach
from runner.backends.docker.door import ContainerGone, NameTaken
from runner.errors import BackendUnavailable

UPGRADED = b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n"


def piece(kind: int, data: bytes) -> bytes:
    return struct.pack(">BxxxI", kind, len(data)) + data


WHOLE = piece(1, b"one") + piece(2, b"oops") + piece(1, b"") + piece(1, b"two" * 100) + piece(2, b"!")


@pytest.mark.parametrize("step", [1, 2, 7, 8, 9, 64, 1000])
def test_any_cut_gives_the_same(step: int) -> None:
    outputs = Demultiplexer()
    found = b"".join(part for at in range(0, len(WHOLE), step) for part in outputs.feed(WHOLE[at : at + step]))
    assert found == b"one" + b"two" * 100
    assert outputs.last_words == b"oops!"


def test_of_standard_error_the_end_is_kept() -> None:
    outputs = Demultiplexer()
    assert outputs.feed(piece(2, b"x" * 100_000 + b"end")) == []
    assert len(outputs.last_words) == STDERR_KEEP
    assert outputs.last_words.endswith(b"xend")


@pytest.mark.parametrize("kind", [0, 3, 72])
def test_what_is_no_such_stream_is_refused(kind: int) -> None:
    with pytest.raises(ValueError, match="no such stream"):
        Demultiplexer().feed(piece(kind, b"x"))


@contextlib.asynccontextmanager
async def daemon(folder: Path, answer: bytes, then: bytes = b"") -> AsyncIterator[tuple[dict[str, str], list[bytes]]]:
    """A socket that gives every caller the same answer, and notes what it was asked and sent."""
    heard: list[bytes] = []

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer + then)
        heard.append(await reader.read(100))

    async with serving(folder, serve) as where:
        yield where, heard


@contextlib.asynccontextmanager
async def serving(
    folder: Path, serve: Callable[[StreamReader, StreamWriter], Awaitable[None]]
) -> AsyncIterator[dict[str, str]]:
    """A socket with a daemon behind it; whoever it talked to is heard to the end."""
    talks: list[asyncio.Task[None]] = []

    async def talk(reader: StreamReader, writer: StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            await serve(reader, writer)
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    def accept(reader: StreamReader, writer: StreamWriter) -> None:
        talks.append(asyncio.create_task(talk(reader, writer)))

    async with await asyncio.start_unix_server(accept, folder / "daemon.sock"):
        yield {"DOCKER_HOST": f"unix://{folder}/daemon.sock"}
        await asyncio.gather(*talks)


async def test_both_ways(tmp_path: Path) -> None:
    async with daemon(tmp_path, UPGRADED, WHOLE) as (where, heard):
        attached = await attach(where, "name", 5)
        assert await attached.reader.readexactly(303) == b"one" + b"two" * 100
        assert not attached.ended
        attached.writer.write(b"hello")
        assert await attached.reader.read() == b""
        assert attached.ended
        assert b"/containers/name/attach?stream=1&stdin=1&stdout=1&stderr=1 " in heard[0]
        assert heard[1] == b"hello"
        attached.close()


async def test_a_slow_reader_holds_up_the_daemon(tmp_path: Path) -> None:
    sent = 0

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(UPGRADED)
        while sent < 64 << 20:
            writer.write(piece(1, b"x" * 65_536))
            await writer.drain()
            sent += 65_536

    async with serving(tmp_path, serve) as where:
        attached = await attach(where, "name", 5)
        before = -1
        while sent != before:  # until a round trip through the same loop changes nothing any more
            before = sent
            for _ in range(1000):
                await asyncio.sleep(0)
        assert sent < 4 << 20
        await attached.reader.readexactly(16 << 20)
        assert sent > before
        attached.close()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\n{}", ContainerGone),
        (b"HTTP/1.1 409 Conflict\r\n\r\n{}", NameTaken),
        (b"HTTP/1.1 500 Oh\r\n\r\n{}", BackendUnavailable),
        (b"SSH-2.0-OpenSSH\r\n\r\n", BackendUnavailable),
        (b"x" * 20_000, BackendUnavailable),
    ],
)
async def test_a_refusal_is_told(tmp_path: Path, answer: bytes, kind: type[Exception]) -> None:
    async with daemon(tmp_path, answer) as (where, _):
        with pytest.raises(kind):
            await attach(where, "name", 5)


@pytest.mark.parametrize(
    "where", ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:1", "ssh://host", "npipe:////./pipe"]
)
async def test_where_nobody_is(where: str) -> None:
    with pytest.raises(BackendUnavailable):
        await attach({"DOCKER_HOST": where}, "name", 5)
