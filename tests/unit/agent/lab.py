"""An agent without a sandbox: a plain process over pipes, and a host for it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

from runner.agent import loader
from runner.interpreter.client import Event, RunEnd, SandboxClient
from runner.model import RunRequest, SandboxUsage


def repeat(small: int) -> int:
    """How often a long test repeats: ``FOLIOBOX_REPEAT``, or a small number."""
    return int(os.environ.get("FOLIOBOX_REPEAT") or small)


class Ends:
    """What a client needs of a sandbox, over any pair of streams."""

    sandbox_id = "lab"
    orphan_s: float | None = None

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.destroyed = False

    async def usage(self) -> SandboxUsage:
        """Unknown."""
        return SandboxUsage()

    async def reset_peak(self) -> None:
        """Nothing to reset."""

    async def detach(self) -> None:
        """Nothing to let go of."""

    async def destroy(self) -> None:
        """Only noted."""
        self.destroyed = True


@contextlib.asynccontextmanager
async def local_agent(root: Path, **more: object) -> AsyncIterator[tuple[Ends, Process]]:
    """An agent with its workspace in ``root`` and ``more`` in its configuration; ended with the block."""
    config = json.dumps({"root": str(root), "python": sys.executable, **more})
    env = {"PATH": os.environ["PATH"], "HOME": str(root.parent), "MPLBACKEND": "Agg", "PYTHONUTF8": "1"}
    command = [sys.executable, "-I", "-S", "-c", loader.LOADER, "foliobox_agent.server", config]
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=env)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(loader.bundle())
    try:
        yield Ends(process.stdout, process.stdin), process
    finally:
        process.stdin.close()
        async with asyncio.timeout(15):
            await process.wait()
        process._transport.close()  # type: ignore[attr-defined]
        await asyncio.sleep(0)


async def collect(events: AsyncIterator[Event | RunEnd], until: str | None = None) -> tuple[list[Event], RunEnd | None]:
    """All events and the end; or the events until one's text contains ``until``."""
    seen: list[Event] = []
    async for event in events:
        if isinstance(event, RunEnd):
            return seen, event
        seen.append(event)
        if until is not None and until in event.body.get("text", ""):
            break
    return seen, None


async def run(client: SandboxClient, run_id: str, code: str, **fields: object) -> tuple[str, RunEnd]:
    """Run a cell; gives its output and its end."""
    request = RunRequest(code=code, **fields)  # type: ignore[arg-type]
    events, end = await collect(client.run(run_id, request))
    assert end is not None
    client.acknowledge(run_id)
    return printed(events), end


def printed(events: list[Event]) -> str:
    """Standard output."""
    return "".join(event.body["text"] for event in events if event.kind == "stdout")
