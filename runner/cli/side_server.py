"""A second listener of the same process, for one surface alone; it starts after the first and ends with it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from runner.telemetry import logs

_START_S, _STOP_S = 10.0, 10.0
log = logs.logger("serve")


class SideServer(uvicorn.Server):
    """Serves within another server's loop; signals are the other one's."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket, address: str) -> None:
        super().__init__(config)
        self._listener, self._address = listener, address
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and tell who waits for it."""
        await super().startup(sockets)
        self._ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them alone."""
        yield

    async def begin(self) -> None:
        """Start to serve. Raises RuntimeError where that does not come about."""
        self._task = asyncio.create_task(self.serve(sockets=[self._listener]))
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait([self._task, ready], timeout=_START_S, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if not self.started:
            raise RuntimeError("the second listener could not start")
        log.info("bound", address=self._address, surface="one-shot")

    async def end(self) -> None:
        """Stop to serve; what is being answered is, within seconds."""
        self.should_exit = True
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_STOP_S)
