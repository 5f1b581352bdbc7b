"""The one way out of a jail with network: connections to a port of its loopback go to the proxy, nowhere else.

The jail keeps its own network namespace with ``lo`` alone. The agent, before any user code runs, makes a listening
socket there, hands it out over a socket pair and keeps neither (``runner/agent/egress.py``): a socket belongs to the
namespace that it was made in, whoever holds it. So nothing of the host is bound into the jail, and nothing within it
can be stopped or talked into another address.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from asyncio import StreamReader, StreamWriter
from typing import Final

from runner.backends.bubblewrap.share import Held, Share
from runner.telemetry import metrics
from runner.telemetry.logs import logger

PORT: Final = 3128
HERE: Final = ("127.0.0.1", PORT)
MOST: Final = 32  # connections of one sandbox at a time
MOST_OF_ALL: Final = 512
IDLE_S: Final = 300.0
_CONNECT_S: Final = 10.0
_CHUNK: Final = 1 << 16
_SHARE: Final = Share(MOST_OF_ALL)
log = logger("egress")


async def listener_of(door: socket.socket, limit_s: float) -> socket.socket:
    """The socket that the agent hands out. Raises OSError for none, or another than it is to be."""
    loop, came = asyncio.get_running_loop(), asyncio.Event()
    door.setblocking(False)
    loop.add_reader(door.fileno(), came.set)
    try:
        await asyncio.wait_for(came.wait(), limit_s)
    except TimeoutError:
        raise OSError(f"the agent gave no way to the proxy within {limit_s:.0f} s") from None
    finally:
        loop.remove_reader(door.fileno())
    _, fds, _, _ = socket.recv_fds(door, 16, 1, socket.MSG_CMSG_CLOEXEC)
    if not fds:
        raise OSError("the agent ended before it gave a way to the proxy")
    try:
        listener = socket.socket(fileno=fds[0])
    except OSError:
        os.close(fds[0])
        raise
    listens = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if listener.family != socket.AF_INET or not listens or listener.getsockname() != HERE:
        listener.close()
        raise OSError("the agent gave another socket than it was asked for")
    return listener


class Relay:
    """Serves one sandbox's listener until it is closed; ``refused`` counts what was beyond a bound, and told of."""

    def __init__(self, target: tuple[str, int], name: str = "", share: Share = _SHARE) -> None:
        self._target, self._name, self._share = target, name, share
        self._server: asyncio.Server | None = None
        self._going: set[asyncio.Task[None]] = set()
        self.refused = 0

    async def start(self, listener: socket.socket) -> None:
        """Begin to take connections. Raises OSError."""
        self._server = await asyncio.start_server(self._serve, sock=listener, backlog=MOST)

    def close(self) -> None:
        """Take no more, and cut what is open."""
        if self._server is not None:
            self._server.close()
        for task in self._going:
            task.cancel()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._going) >= MOST:
            return self._refuse(writer, "sandbox")
        held = self._share.take(self, asyncio.get_running_loop().time(), lambda: self._cut(task))
        if held is None:
            return self._refuse(writer, "all")
        self._going.add(task)
        try:
            await self._connect(reader, writer, held)
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass  # the sandbox sees its connection end; a cancelled one is being closed
        finally:
            writer.transport.abort()
            self._going.discard(task)
            self._share.give_back(held)

    def _refuse(self, writer: StreamWriter, bound: metrics.Bound) -> None:
        self._tell(bound)
        writer.transport.abort()

    def _cut(self, task: asyncio.Task[None]) -> None:
        self._tell("shared")
        task.cancel()

    def _tell(self, bound: metrics.Bound) -> None:
        """Each is counted; the log has the first, second, fourth and so on: how many there are is up to a sandbox."""
        self.refused += 1
        metrics.egress_refused(bound)
        if self.refused & (self.refused - 1) == 0:
            log.warning("connections to the proxy refused", sandbox=self._name, bound=bound, so_far=self.refused)

    async def _connect(self, reader: StreamReader, writer: StreamWriter, held: Held) -> None:
        async with asyncio.timeout(_CONNECT_S):
            from_proxy, to_proxy = await asyncio.open_connection(*self._target)
        try:
            async with asyncio.timeout(IDLE_S) as patience:
                await asyncio.gather(
                    _pump(reader, to_proxy, patience, held),
                    _pump(from_proxy, writer, patience, held),
                )
            with contextlib.suppress(OSError):
                writer.close()
                await asyncio.wait_for(writer.wait_closed(), _CONNECT_S)
        finally:
            to_proxy.transport.abort()


async def _pump(reader: StreamReader, writer: StreamWriter, patience: asyncio.Timeout, held: Held) -> None:
    """One direction, to its end; what moves keeps the connection from being idle. Raises OSError."""
    loop = asyncio.get_running_loop()
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
        held.moved = loop.time()
        if not patience.expired():
            patience.reschedule(loop.time() + IDLE_S)
    if writer.can_write_eof():
        writer.write_eof()
