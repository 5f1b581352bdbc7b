"""The agent's loop holds nothing that the kernel counts by uid: sandboxes that share one could take it from another."""

from __future__ import annotations

import os
from pathlib import Path

from runner.interpreter.client import SandboxClient
from tests.unit.agent.lab import local_agent


async def test_an_agent_watches_without_epoll(tmp_path: Path) -> None:
    async with local_agent(tmp_path / "work") as (ends, process):
        client = SandboxClient(ends)
        await client.attach(30)
        await client.wait_ready(30)
        folder = f"/proc/{process.pid}/fd"
        held = {os.readlink(f"{folder}/{number}") for number in os.listdir(folder)}
        await client.destroy()
    assert len(held) > 6
    assert "anon_inode:[eventpoll]" not in held
