"""Reading whole files: wrong bytes never end well, wherever they are wrong and however long the file is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from runner.errors import StoreFailed
from runner.workspace import keys
from runner.workspace.base import CHUNK_BYTES
from runner.workspace.history import Workspace
from tests.unit.workspace.workspace_lab import get, memory_lab, put, run
from tests.unit.workspace.workspace_memory import MemoryStore

SIZES = [1, 1000, 40_000, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES, 3 * CHUNK_BYTES + 7]
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "first bit": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "last bit": lambda data: data[:-1] + bytes([data[-1] ^ 0x80]),
    "cut": lambda data: data[:-1],
    "nothing left": lambda data: b"",
    "other content": lambda data: bytes(len(data)),
}


async def stored(size: int) -> tuple[Workspace, MemoryStore, bytes, str]:
    at, store = memory_lab()
    space = await at.space()
    data = bytes(range(1, 252)) * (size // 251 + 1)
    entry = await put(space, "f", data[:size])
    return space, store, data[:size], keys.blob("t", entry.blob)


async def received(space: Workspace) -> tuple[bytes, StoreFailed | None]:
    """What a reader got before the end, and how it ended."""
    got = b""
    try:
        stream = await space.open(space.files["f"])
        async for chunk in stream:
            got += chunk
    except StoreFailed as error:
        return got, error
    return got, None


@pytest.mark.parametrize("size", [0, *SIZES])
def test_right_bytes_are_given_whole(size: int) -> None:
    async def scenario() -> None:
        space, _, data, _ = await stored(size)
        assert await received(space) == (data, None)
        blob = await space.open_blob(space.files["f"].blob, size)
        assert b"".join([chunk async for chunk in blob]) == data
        assert [chunk async for chunk in blob] == []

    run(scenario())


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("size", SIZES)
def test_wrong_bytes_never_end_well(size: int, damage: str) -> None:
    async def scenario() -> None:
        space, store, data, key = await stored(size)
        store.objects_now[key] = DAMAGES[damage](data)
        got, error = await received(space)
        assert error is not None
        assert key.rpartition("/")[2] in (error.cause or "")
        assert len(got) < size
        if size <= CHUNK_BYTES:
            assert got == b""  # found before any byte: an answer can still say so
        with pytest.raises(StoreFailed):
            blob = await space.open_blob(space.files["f"].blob, size)
            await anext(blob)
            while True:
                await anext(blob)

    run(scenario())


def test_a_failed_stream_stays_failed() -> None:
    async def scenario() -> None:
        space, store, data, key = await stored(2 * CHUNK_BYTES)
        store.objects_now[key] = data[:-1] + b"\0"
        stream = await space.open(space.files["f"])
        assert len(await anext(stream)) == CHUNK_BYTES
        for _ in range(3):
            with pytest.raises(StoreFailed):
                await anext(stream)

    run(scenario())


def test_a_part_is_given_as_it_is() -> None:
    async def scenario() -> None:
        space, store, _, key = await stored(1000)
        store.objects_now[key] = bytes(1000)
        assert await get(space, "f", 1) == bytes(999)
        assert await get(space, "f", 0, 999) == bytes(999)
        with pytest.raises(StoreFailed):
            await get(space, "f", 0, 1000)

    run(scenario())


def test_a_reader_who_leaves() -> None:
    async def scenario() -> None:
        space, _, _, _ = await stored(4 * CHUNK_BYTES)
        stream = await space.open(space.files["f"])
        await anext(stream)
        await stream.aclose()
        await stream.aclose()
        assert [chunk async for chunk in stream] == []
        slow = await space.open(space.files["f"])
        task = asyncio.create_task(anext(slow))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await slow.aclose()

    run(scenario())
