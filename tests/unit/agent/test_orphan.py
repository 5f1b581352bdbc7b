"""An agent whose stream outlives its host ends by itself when it has not heard of one for too long."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from runner.interpreter.client import SandboxClient
from tests.unit.agent.lab import local_agent

ORPHAN_S = 1.0


async def test_it_ends_though_its_input_is_open(tmp_path: Path) -> None:
    async with local_agent(tmp_path / "work", orphan_s=ORPHAN_S) as (ends, process):
        client = SandboxClient(ends)
        await client.attach(30)
        async with asyncio.timeout(30):
            assert await process.wait() == 0
        await client.stream.close()


async def test_any_frame_keeps_it(tmp_path: Path) -> None:
    async with local_agent(tmp_path / "work", orphan_s=ORPHAN_S) as (ends, process):
        client = SandboxClient(ends)
        await client.attach(30)
        until = time.monotonic() + 3 * ORPHAN_S
        while time.monotonic() < until:
            client.stream.tell({"op": "beat"})
            await client.ping()
        assert process.returncode is None
        await client.destroy()


async def test_without_a_limit_it_waits(tmp_path: Path) -> None:
    async with local_agent(tmp_path / "work") as (ends, process):
        client = SandboxClient(ends)
        await client.attach(30)
        await client.wait_ready(30)
        assert process.returncode is None
        await client.destroy()
