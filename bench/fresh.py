"""Rows of conversations that are new: their first cell, ten at once, and what one costs while it idles."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from bench.lab import DEFAULT_POOL, Chat, Lab, cell, check, execute_path, new_id
from bench.processes import anonymous_kib, children, tree
from bench.service import Service
from bench.stats import Sample, timed
from bench.warm import PRINT
from bench.wire import Address, AsyncClient

LARGE_POOL = 12
_AT_ONCE = 10
_CONVERSATIONS = 6
_IMPORT = "import pandas, matplotlib.pyplot"
_PDF = """
from weasyprint import CSS, HTML
text = "这是一份用来衡量速度的报告。它只有一页，写的是中文。" * 12
style = CSS(string="@page { size: A4; margin: 2cm } body { font-family: 'Noto Sans CJK SC' }")
rows = "<tr><th>项目</th><th>金额</th></tr><tr><td>收入</td><td>100</td></tr>"
HTML(string=f"<h1>季度报告</h1><p>{text}</p><table>{rows}</table>").write_pdf("outputs/report.pdf", stylesheets=[style])
"""


def first_prints(service: Service, count: int) -> Sample:
    """First cells of new conversations."""
    return _first(service, PRINT, count)[0]


def _first(service: Service, code: str, count: int) -> tuple[Sample, dict[str, Any]]:
    """A first cell in conversation after conversation, each begun when every spare is ready again."""
    values = []
    result: dict[str, Any] = {}
    with service.client() as client:
        for _ in range(count):
            service.await_spares()
            chat = Chat(client)
            answers: list[bytes] = []
            values.append(timed(lambda chat=chat, answers=answers: answers.append(chat.send(code))))  # type: ignore[misc]
            result = check(answers[0])
            chat.purge()
    return Sample(tuple(values)), result


def new(lab: Lab) -> Sample:
    """A conversation that did not exist, until its first cell is done."""
    return first_prints(lab.service(), lab.count(12, 4))


def first_import(lab: Lab) -> Sample:
    """The import that most sessions begin with, in a new conversation."""
    return _first(lab.service(), _IMPORT, lab.count(8, 3))[0]


def first_pdf(lab: Lab) -> Sample:
    """A finished page as the first thing that a conversation does."""
    sample, result = _first(lab.service(), _PDF, lab.count(8, 3))
    assert [file["path"] for file in result["files"]] == ["outputs/report.pdf"], result
    return sample


def new_10(lab: Lab) -> Sample:
    """Ten new conversations at once, with a spare for each."""
    return _burst(lab, LARGE_POOL, lab.count(3, 1))


def new_10_default(lab: Lab) -> Sample:
    """The same with the default pool: all but two wait for a sandbox to be started."""
    return _burst(lab, DEFAULT_POOL, 1)


def _burst(lab: Lab, pool: int, rounds: int) -> Sample:
    values: list[float] = []
    for _ in range(rounds):
        service = lab.service(pool)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
            values += loop.run(at_once(service.address, _AT_ONCE))
    return Sample(tuple(values), f"{rounds} times {_AT_ONCE}")


async def at_once(address: Address, count: int) -> list[float]:
    """Milliseconds of the first cells of ``count`` new conversations, all sent at the same moment."""
    clients = [await AsyncClient.connect(address) for _ in range(count)]
    ids = [new_id() for _ in clients]

    async def begin(client: AsyncClient, identifier: str) -> float:
        began = time.perf_counter()
        answer = await client.call("POST", execute_path(identifier), cell(PRINT))
        took = (time.perf_counter() - began) * 1000
        answer.json()
        check(answer.body)
        return took

    values = await asyncio.gather(*(begin(client, identifier) for client, identifier in zip(clients, ids, strict=True)))
    for client, identifier in zip(clients, ids, strict=True):
        (await client.call("DELETE", f"/v1/conversations/{identifier}")).json()
        await client.close()
    return values


def memory(lab: Lab) -> Sample:
    """What the machine has less for each idle conversation that has run a cell, a spare having taken its place."""
    return Sample((_idle(lab).available,), f"mean of {_CONVERSATIONS}; whatever else the machine does shows in it")


def memory_own(lab: Lab) -> Sample:
    """Anonymous memory of everything below each sandbox's first process. Raises PermissionError."""
    return Sample(_idle(lab).own, "anonymous PSS; pages of program files are one copy for all sandboxes")


def idle_mib(service: Service) -> float:
    """What the machine has less for each of some idle conversations, in MiB."""
    return _measure_idle(service)[0]


def _idle(lab: Lab) -> _Idle:
    return lab.once("idle", lambda: _Idle(*_measure_idle(lab.service(), own=True)))


@dataclass(frozen=True, slots=True)
class _Idle:
    """Both views of the same idle conversations, in MiB each."""

    available: float
    own: tuple[float, ...]


def _measure_idle(service: Service, *, own: bool = False) -> tuple[float, tuple[float, ...]]:
    before = _available_mib()
    with service.client() as client:
        chats = [Chat(client) for _ in range(_CONVERSATIONS)]
        try:
            for chat in chats:
                chat.ok(PRINT)
                service.await_spares()
            taken = before - _available_mib()
            # Spares are handed out in the order in which they started.
            used = children(service.pid)[:_CONVERSATIONS] if own else []
            each = tuple(sum(anonymous_kib(pid) for pid in tree(root)) / 1024 for root in used)
        finally:
            for chat in chats:
                chat.purge()
    return taken / _CONVERSATIONS, each


def _available_mib() -> float:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, value = line.split(":")
        if name == "MemAvailable":
            return int(value.split()[0]) / 1024
    raise LookupError("the kernel does not say MemAvailable")
