"""A host that dies in the middle of a run, and the one that comes after it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from runner.agent.protocol import DATA, encode_frame
from runner.errors import SandboxLost
from runner.interpreter.client import RunEnd, SandboxClient
from runner.model import RunRequest
from tests.unit.agent.lab import Ends, collect, local_agent, printed, run

COUNT = """
import sys, time, os
for i in range(300):
    if i == 20: open('go', 'w').close()
    print('line', i, flush=True)
    if i == 20:
        while os.path.exists('go'): time.sleep(0.002)
open('made.txt', 'w').write('x')
"""


async def second_host(ends: Ends) -> tuple[SandboxClient, dict[str, object]]:
    client = SandboxClient(ends)
    welcome = await client.attach(15, padding=True)
    return client, welcome["run"]


async def test_the_next_host_adopts_the_run_and_loses_nothing(tmp_path: Path) -> None:
    root = tmp_path / "work"
    async with local_agent(root) as (ends, _):
        first = SandboxClient(ends)
        assert (await first.attach(30))["run"] is None
        await first.wait_ready(30)
        before, _ = await collect(first.run("r1", RunRequest(code=COUNT)), "line 20\n")
        known = before[: len(before) // 2 + 1]
        seen = known[-1].seq
        first.stream.tell({"op": "ack", "run": "r1", "seq": seen})
        ends.writer.write(encode_frame(first.stream._outbox.epoch, 9, DATA, b"x" * 60_000)[:50_000])
        await first.stream.close()

        second, told = await second_host(ends)
        assert told["run"] == "r1"
        assert not told["done"]
        assert told["acknowledged"] == seen
        assert int(str(told["seq"])) >= before[-1].seq
        (root / "go").unlink()
        after, end = await collect(second.adopt("r1", seen))
        assert printed([*known, *after]) == "".join(f"line {i}\n" for i in range(300))
        assert end is not None
        assert {change.path for change in end.changes} == {"made.txt"}
        await second.stream.close()

        third, told = await second_host(ends)
        assert (told["run"], told["done"]) == ("r1", True)
        again, end = await collect(third.adopt("r1", seen))
        assert printed(again) == printed(after)
        assert isinstance(end, RunEnd)
        third.acknowledge("r1")
        await third.ping()
        with pytest.raises(SandboxLost):
            await collect(third.adopt("r1", 0))
        assert (await run(third, "r2", "print(i)"))[0] == "299\n"
        await third.destroy()
        fourth, told = await second_host(ends)
        assert told is None
        await fourth.destroy()


async def test_output_waits_for_a_host_that_comes_late(tmp_path: Path) -> None:
    async with local_agent(tmp_path / "work") as (ends, _):
        first = SandboxClient(ends)
        await first.attach(30)
        await first.wait_ready(30)
        flood = "for i in range(60_000): print('x' * 95, i)\nprint('end')"
        before, _ = await collect(first.run("r1", RunRequest(code=flood)), " 9\n")
        await first.stream.close()
        second, told = await second_host(ends)
        assert told["run"] == "r1"
        after, end = await collect(second.adopt("r1", before[-1].seq))
        text = printed(before) + printed(after)
        assert text == "".join(f"{'x' * 95} {i}\n" for i in range(60_000)) + "end\n"
        assert end is not None
        assert end.streams["stdout"]["total"] == len(text)
        await second.destroy()


async def test_a_half_sent_file_of_a_dead_host_leaves_nothing(tmp_path: Path) -> None:
    root = tmp_path / "work"
    async with local_agent(root) as (ends, _):
        first = SandboxClient(ends)
        await first.attach(30)
        number, _ = first.stream.expect()
        channel = first.stream.open_channel()
        first.stream.tell({
            "op": "upload", "id": number, "channel": channel.number, "path": "big", "mode": 0o644, "modified_ns": 0,
        })  # fmt: skip
        first.stream._outbox.data(channel.number, b"y" * 300_000)
        first.stream._kick()
        await first.ping()
        await first.stream.close()
        second, _ = await second_host(ends)
        await second.ping()
        assert sorted(p.name for p in root.iterdir()) == ["downloads", "outputs", "skills", "uploads"]
        await second.wait_ready(30)
        await second.destroy()


async def test_the_agent_answers_wrong_requests_and_goes_on(tmp_path: Path) -> None:
    async with local_agent(tmp_path / "work") as (ends, _):
        client = SandboxClient(ends)
        await client.attach(30)
        bodies: list[dict[str, object]] = [
            {}, {"op": "nonsense"}, {"op": "put"}, {"op": "put", "files": [{"path": "x"}]}, {"op": "run"},
            {"op": "get", "path": "no", "channel": 5, "limit": 1},
            {"op": "get", "path": "outputs", "channel": 5, "limit": 1},
            {"op": "resume", "run": "x"}, {"op": "remove", "paths": [5]}, {"op": []},
        ]  # fmt: skip
        for body in bodies:
            assert (await client.stream.request(body))["ok"] is False, body
        ends.writer.write(b"garbage" * 1000)
        await client.ping()
        assert not await client.interrupt("nothing")
        await client.destroy()


async def test_the_agent_ends_with_its_host(tmp_path: Path) -> None:
    async with local_agent(tmp_path / "work") as (ends, process):
        client = SandboxClient(ends)
        await client.attach(30)
        await client.wait_ready(30)
        await client.stream.close()
        ends.writer.close()
        async with asyncio.timeout(10):
            assert await process.wait() == 0
