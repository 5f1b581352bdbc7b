"""Rows of a conversation that is already warm: cells, files, output, and eight conversations at once."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import uvloop

from bench.lab import Chat, Lab, cell, check, execute_path
from bench.service import Service
from bench.stats import Sample, repeat
from bench.wire import Address, AsyncClient

PRINT = "print(1)"
_FILES = """
from pathlib import Path
for i in range({count}):
    place = Path(f"scratch/{{i // 100}}")
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{{i}}.txt").write_text(str(i))
"""
_SIZE = 10 << 20
_CONVERSATIONS = 8


def warm_chat(lab: Lab) -> AbstractContextManager[Chat]:
    """A warm conversation, and no spare being started meanwhile."""
    return chat_of(lab.service())


@contextmanager
def chat_of(service: Service) -> Iterator[Chat]:
    """The same at any service."""
    with service.client() as client:
        chat = Chat(client)
        chat.ok(PRINT)
        service.await_spares()
        try:
            yield chat
        finally:
            chat.purge()


def prints(service: Service, count: int) -> Sample:
    """Warm cells of a conversation without files."""
    with chat_of(service) as chat:
        return repeat(lambda: chat.send(PRINT), count, 10)


def _prints(lab: Lab, files: int, usual: int, quick: int) -> Sample:
    with warm_chat(lab) as chat:
        if files:
            chat.ok(_FILES.format(count=files))
        sample = repeat(lambda: chat.send(PRINT), lab.count(usual, quick), 10)
        chat.ok(PRINT)
    return sample


def warm(lab: Lab) -> Sample:
    """A cell when the workspace is empty."""
    return _prints(lab, 0, 300, 60)


def warm_100(lab: Lab) -> Sample:
    """A cell beside 100 files."""
    return _prints(lab, 100, 300, 60)


def warm_10000(lab: Lab) -> Sample:
    """A cell beside 10,000 files, all of which are looked at when it ends."""
    return _prints(lab, 10_000, 40, 10)


def commit(lab: Lab) -> Sample:
    """A cell that writes a small file: its bytes and a version are durable when it answers."""
    code = "from pathlib import Path; import uuid; Path('outputs/note.txt').write_text(uuid.uuid4().hex)"
    with warm_chat(lab) as chat:
        sample = repeat(lambda: chat.send(code), lab.count(100, 20), 5)
        files = [file["path"] for file in chat.ok(code)["files"]]
    assert files == ["outputs/note.txt"]
    return sample


def print_10mb(lab: Lab) -> Sample:
    """A cell with far more output than a result shows; all of it is kept."""
    code = "line = 'x' * 99\nfor _ in range(100_000): print(line)"
    with warm_chat(lab) as chat:
        sample = repeat(lambda: chat.send(code), lab.count(10, 3), 1)
        printed = chat.ok(code)["stdout_bytes"]
    assert printed == 10_000_000
    return sample


def put_10mib(lab: Lab) -> Sample:
    """An upload whose content is new each time."""
    with warm_chat(lab) as chat:
        contents = [os.urandom(_SIZE) for _ in range(lab.count(12, 4))]
        waiting = iter(contents)
        return repeat(lambda: chat.put("uploads/data.bin", next(waiting)), len(contents) - 1, 1)


def get_10mib(lab: Lab) -> Sample:
    """A download."""
    content = os.urandom(_SIZE)
    with warm_chat(lab) as chat:
        chat.put("uploads/data.bin", content)
        sample = repeat(lambda: chat.get("uploads/data.bin"), lab.count(12, 4), 1)
        assert chat.get("uploads/data.bin") == content
    return sample


def throughput(lab: Lab) -> Sample:
    """Calls a second over eight conversations, each of which sends its next call when it has an answer.

    The client is one event loop in one process; it shares the machine with the service.
    """
    return rounds_of(lab, PRINT)


def rounds_of(lab: Lab, code: str) -> Sample:
    """Calls a second that run ``code`` in eight conversations at once, a value a round."""
    service = lab.service()
    with service.client() as client:
        chats = [Chat(client) for _ in range(_CONVERSATIONS)]
        try:
            for chat in chats:
                chat.ok(PRINT)
            service.await_spares()
            ids = [chat.id for chat in chats]
            rounds, calls = lab.count(5, 2), lab.count(60, 20)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
                values = loop.run(_rounds(service.address, ids, code, rounds, calls))
        finally:
            for chat in chats:
                chat.purge()
    return Sample(tuple(values), f"rounds of {_CONVERSATIONS} × {calls} calls")


async def _rounds(address: Address, ids: list[str], code: str, rounds: int, calls: int) -> list[float]:
    clients = [await AsyncClient.connect(address) for _ in ids]
    body = cell(code)

    async def talk(client: AsyncClient, identifier: str) -> None:
        path = execute_path(identifier)
        for _ in range(calls):
            answer = await client.call("POST", path, body)
            answer.json()

    rates = []
    for _ in range(rounds):
        began = time.perf_counter()
        await asyncio.gather(*(talk(client, identifier) for client, identifier in zip(clients, ids, strict=True)))
        rates.append(calls * len(ids) / (time.perf_counter() - began))
    for client, identifier in zip(clients, ids, strict=True):
        check((await client.call("POST", execute_path(identifier), body)).body)
        await client.close()
    return rates
