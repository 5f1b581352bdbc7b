"""Many more conversations than sandboxes: everybody is served, in order, also beside one that floods."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.runner import Runner, running
from tests.support.waiting import until

CAP, STARTS = 4, 2  # sandboxes at once, and of these how many are being started at once
MANY = min(100, 16 * int(os.environ.get("FOLIOBOX_REPEAT", "1")))
NEW = re.compile("/v1/conversations/new-([0-9]+)/execute")
PATIENT = {"SANDBOX_QUEUE_TIMEOUT_SECONDS": "900"}  # how fast this machine is now is not the question


@dataclass
class Answer:
    """When a request was sent and answered, and what it got."""

    number: int
    sent: float
    done: float
    status: int
    body: dict[str, Any]


async def ask(http: httpx.AsyncClient, number: int, name: str, code: str) -> Answer:
    """One execute."""
    sent = time.monotonic()
    response = await http.post(f"/v1/conversations/{name}/execute", json={"code": code})
    return Answer(number, sent, time.monotonic(), response.status_code, response.json())


def overtaking(service: Runner, count: int) -> int:
    """How many that had come before it any one overtook, at most: with a fair queue only those that had a sandbox,
    or were being given one, when it got its own. The service's log says in which order they were answered.
    """
    ended: list[int] = []

    def all_told() -> bool:
        lines = [json.loads(line) for line in service.log.read_text().splitlines() if line.startswith("{")]
        ended[:] = [int(found[1]) for line in lines if (found := NEW.fullmatch(str(line.get("path"))))]
        return len(ended) == count

    until(all_told, "the log tells of all")
    return max(sum(earlier < number for earlier in ended[place:]) for place, number in enumerate(ended))


def client(service: Runner) -> httpx.AsyncClient:
    """A client with as many connections as it likes."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    headers = {"Authorization": f"Bearer {service.key}"}
    return httpx.AsyncClient(base_url=service.url, headers=headers, timeout=600, limits=limits)


async def burst(http: httpx.AsyncClient, count: int) -> list[Answer]:
    """New conversations, each with one run, all waiting together. Each is sent once the one before has come: on many
    connections at once, the order in which a client sends is not that in which requests arrive.
    """
    tasks = []
    for number in range(count):
        name = f"new-{number:03d}"
        tasks.append(asyncio.create_task(ask(http, number, name, f"print({number})")))
        async with asyncio.timeout(60):
            while (await http.get(f"/v1/conversations/{name}")).status_code == 404:
                continue
    return await asyncio.gather(*tasks)


@pytest.mark.timeout(600)
async def test_many_new_conversations_at_once_all_answer_in_their_order(tmp_path: Path) -> None:
    with running(tmp_path, SANDBOX_POOL_SIZE="2", SANDBOX_MAX_SESSIONS=str(CAP), **PATIENT) as service:
        async with client(service) as http:
            began = time.monotonic()
            answers = await burst(http, MANY)
            took_s = time.monotonic() - began
        assert {answer.status for answer in answers} == {200}
        assert [answer.body["stdout"] for answer in answers] == [f"{n}\n" for n in range(MANY)]
        found = overtaking(service, MANY)
        print(f"{MANY} in {took_s:.1f} s, none overtook more than {found}")
        assert found <= CAP + STARTS


@pytest.mark.timeout(600)
async def test_one_that_floods_its_own_queue_costs_the_others_nothing_but_its_sandbox(tmp_path: Path) -> None:
    count, cap = MANY // 2, 3
    assert count > cap + STARTS + 1, "too few for one to be overtaken too often"
    with running(tmp_path, SANDBOX_POOL_SIZE="0", SANDBOX_MAX_SESSIONS=str(cap), **PATIENT) as service:
        async with client(service) as http:
            await ask(http, 0, "hostile", "import time")
            over = asyncio.Event()
            refused: list[Answer] = []

            async def flood() -> None:
                while not over.is_set():
                    answer = await ask(http, 0, "hostile", "time.sleep(0.1)")
                    if answer.status == 429:
                        refused.append(answer)
                        await asyncio.sleep(0.05)

            hostile = [asyncio.create_task(flood()) for _ in range(20)]
            answers = await burst(http, count)
            over.set()
            await asyncio.gather(*hostile)
        assert {answer.status for answer in answers} == {200}
        assert overtaking(service, count) <= cap + STARTS
        assert {answer.body["code"] for answer in refused} == {"queue_full"}
        assert all(answer.body["limit"] == 16 and answer.body["retry_after_ms"] >= 1000 for answer in refused)


async def test_when_all_stay_busy_the_answer_says_when_to_come_again(tmp_path: Path) -> None:
    env = {"SANDBOX_QUEUE_TIMEOUT_SECONDS": "1", "SANDBOX_MAX_SESSIONS": "1", "SANDBOX_POOL_SIZE": "0"}
    with running(tmp_path, **env) as service:
        async with client(service) as http:
            await http.put("/v1/conversations/long")
            long = asyncio.create_task(ask(http, 1, "long", "import time; time.sleep(5)"))
            await until_live(http, "long")
            answer, busy = await asyncio.gather(ask(http, 2, "other", "1"), ask(http, 3, "long", "1"))
            assert (answer.status, answer.body["code"]) == (429, "capacity_reached")
            assert (busy.status, busy.body["code"]) == (429, "busy")
            assert all(one.body["retry_after_ms"] >= 1000 for one in (answer, busy))
            assert answer.done - answer.sent > 0.9
            assert (await long).status == 200


async def until_live(http: httpx.AsyncClient, name: str) -> None:
    """Until the first run of a conversation has got its sandbox."""
    async with asyncio.timeout(20):
        while not (await http.get(f"/v1/conversations/{name}")).json()["live"]:
            continue
