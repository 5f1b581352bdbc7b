"""A real sandbox with a client, driven from plain tests: an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from runner.backends.bubblewrap.backend import BubblewrapBackend, BubblewrapSandbox
from runner.backends.bubblewrap.config import BubblewrapConfig
from runner.interpreter.client import Event, Outgoing, RunEnd, SandboxClient
from runner.interpreter.outcomes import decide
from runner.model import FileEntry, Outcome, RunRequest, SandboxLimits, SandboxSpec

START_S = 60.0
T = TypeVar("T")


@dataclass
class Ran:
    """One run: its events and its end."""

    events: list[Event] = field(default_factory=list)
    end: RunEnd | None = None
    seconds: float = 0.0

    def text(self, kind: str = "stdout") -> str:
        """All that was printed."""
        return "".join(event.body["text"] for event in self.events if event.kind == kind)

    @property
    def out(self) -> str:
        """Standard output without the white space around it."""
        return self.text().strip()

    @property
    def shown(self) -> list[Event]:
        """What was displayed."""
        return [event for event in self.events if event.kind == "display"]

    @property
    def pictures(self) -> list[bytes]:
        """PNG files among what was displayed, in order."""
        return [
            content
            for event in self.shown
            for mime, content in zip(event.body["binary"], event.attachments, strict=True)
            if mime == "image/png"
        ]

    @property
    def over(self) -> RunEnd:
        """The end, which there must be."""
        assert self.end is not None
        return self.end

    @property
    def outcome(self) -> Outcome:
        """As the service decides it."""
        return decide(self.over.observed)

    @property
    def error(self) -> dict[str, Any]:
        """The error, which there must be."""
        assert self.over.error is not None, self
        return self.over.error

    def changed(self, change: str) -> set[str]:
        """Paths with this kind of change."""
        return {entry.path for entry in self.over.changes if entry.change == change}


class Jail:
    """One sandbox. Every call blocks until it is done."""

    def __init__(self, state: Path, limits: SandboxLimits | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._limits = limits or SandboxLimits()
        env = {**os.environ, "SANDBOX_DATA_DIR": str(state)}
        self.backend = BubblewrapBackend(BubblewrapConfig.from_env(env))
        self.sandbox: BubblewrapSandbox
        self.client: SandboxClient
        self.unhandled: list[dict[str, Any]] = []
        self._loop.set_exception_handler(lambda _, context: self.unhandled.append(context))

    def wait(self, work: Coroutine[Any, Any, T], limit_s: float = 90.0) -> T:
        """Do something in the loop's thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(limit_s)

    def start(self) -> Jail:
        """Start the sandbox and wait for its interpreter."""
        self.wait(self._start())
        return self

    async def _start(self) -> None:
        self.sandbox = await self.backend.create(SandboxSpec(secrets.token_hex(8), self._limits))
        self.client = SandboxClient(self.sandbox)
        await self.client.attach(START_S)
        await self.client.wait_ready(START_S)

    def stop(self) -> None:
        """End the sandbox; nothing may be left in the loop."""
        try:
            self.wait(self.client.destroy())
            left = self.wait(self._others())
            assert not left, left
            assert not self.unhandled, self.unhandled
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()

    async def _others(self) -> set[str]:
        await asyncio.sleep(0)
        return {repr(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()}

    def run(self, code: str, *, during: Callable[[str, Ran], Any] | None = None, **fields: Any) -> Ran:
        """Run a cell to its end. ``during`` is called in the loop with the run's id once it has started."""
        return self.wait(self._run(code, during, fields), 300)

    async def _run(self, code: str, during: Callable[[str, Ran], Any] | None, fields: dict[str, Any]) -> Ran:
        ran, run_id, began = Ran(), secrets.token_hex(8), time.monotonic()
        side: asyncio.Task[Any] | None = None
        async for event in self.client.run(run_id, RunRequest(code=code, **fields)):
            if isinstance(event, RunEnd):
                ran.end = event
            else:
                ran.events.append(event)
                if event.kind == "started" and during is not None:
                    began = time.monotonic()
                    side = asyncio.create_task(during(run_id, ran))
        ran.seconds = time.monotonic() - began
        if side is not None:
            await side
        self.client.acknowledge(run_id)
        return ran

    def ok(self, code: str, **fields: Any) -> Ran:
        """Run a cell that must end well."""
        ran = self.run(code, **fields)
        assert ran.outcome is Outcome.OK, (ran.over.error, ran.over.failure, ran.text("stderr")[-2000:])
        return ran

    def put(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Write a file."""
        entry = FileEntry(path, len(content), "", "", mode, 0)
        self.wait(self.client.put([Outgoing(entry, content=content)], {}, ()))

    def get(self, path: str, limit: int = 1 << 26) -> bytes:
        """Read a file."""
        return self.wait(self._get(path, limit))

    async def _get(self, path: str, limit: int) -> bytes:
        return b"".join([chunk async for chunk in self.client.fetch(path, limit)])

    def renew(self) -> None:
        """A new interpreter and an empty workspace."""
        self.wait(self.client.reset())
        self.wait(self.client.clear())

    def interrupt_when(self, text: str) -> Callable[[str, Ran], Any]:
        """For ``during``: interrupt once ``text`` was printed."""

        async def interrupt(run_id: str, ran: Ran) -> None:
            deadline = time.monotonic() + 20
            while text not in ran.text() and time.monotonic() < deadline:
                await asyncio.sleep(0.005)
            self.interrupted_at = time.monotonic()
            await self.client.interrupt(run_id)

        return interrupt


@contextlib.contextmanager
def jail_at(state: Path, limits: SandboxLimits | None = None) -> Iterator[Jail]:
    """A sandbox for the length of a block."""
    jail = Jail(state, limits)
    try:
        yield jail.start()
    finally:
        jail.stop()
