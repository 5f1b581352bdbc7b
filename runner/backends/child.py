"""A child process with real pipes at its stdio, on any event loop.

Loops bring their own ways to start processes; uvloop's gives the child socket pairs and leaves copies of them
inheritable, so that everything in a sandbox could write to the host's stream. Here the child gets descriptors
0, 1, 2 and those named, and each pipe goes one way only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from asyncio import StreamReader, StreamReaderProtocol, StreamWriter
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

from runner.backends.base import BackendReport, Permission, as_it_is, hand_over
from runner.errors import BackendUnavailable, SandboxLost

S = TypeVar("S", bound="Destroyable")

_STDERR_KEEP = 4096


class Destroyable(Protocol):
    """What can be undone."""

    async def destroy(self) -> None:
        """End it; never raises."""
        ...


class Child:
    """A started process; ``last_words`` is the end of its standard error."""

    def __init__(self, process: subprocess.Popen[bytes], reader: StreamReader, writer: StreamWriter) -> None:
        self.pid = process.pid
        self.reader, self.writer = reader, writer
        self.last_words = b""
        self._process = process
        self._ended = asyncio.Event()
        self._transports: list[asyncio.BaseTransport] = [writer.transport]
        self._listener: asyncio.Task[None] | None = None
        self._pidfd = os.pidfd_open(process.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._reap)

    @classmethod
    async def start(cls, command: Sequence[str], fds: Sequence[int], env: Mapping[str, str]) -> Child:
        """Start a program in the calling thread, which it may be bound to. Raises OSError."""
        process = _open(command, fds, env)
        try:
            return await cls._connected(process)
        except BaseException:
            process.kill()
            process.wait()
            raise

    @classmethod
    async def _connected(cls, process: subprocess.Popen[bytes]) -> Child:
        loop = asyncio.get_running_loop()
        reader, errors = StreamReader(), StreamReader()
        out, _ = await loop.connect_read_pipe(lambda: StreamReaderProtocol(reader), process.stdout)
        err, _ = await loop.connect_read_pipe(lambda: StreamReaderProtocol(errors), process.stderr)
        into, protocol = await loop.connect_write_pipe(lambda: StreamReaderProtocol(StreamReader()), process.stdin)
        child = cls(process, reader, StreamWriter(into, protocol, None, loop))
        child._transports += [out, err]
        child._listener = asyncio.create_task(child._listen(errors))
        return child

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._process.wait()
        self._ended.set()

    async def _listen(self, errors: StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await errors.read(_STDERR_KEEP):
                self.last_words = (self.last_words + data)[-_STDERR_KEEP:]

    @property
    def running(self) -> bool:
        """Whether it has not been seen to end."""
        return not self._ended.is_set()

    def kill(self) -> None:
        """SIGKILL, unless it has ended."""
        if self.running:
            self._process.send_signal(signal.SIGKILL)

    async def ended(self, limit_s: float) -> bool:
        """Whether it ends within a time."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), limit_s)
        return not self.running

    async def hand_over(self, data: bytes, limit_s: float) -> None:
        """Write and see it taken. Raises OSError when the child ends first or takes too long."""
        await hand_over(self.writer, data, limit_s)

    async def close(self) -> None:
        """Hear the last words, then close the pipes; call after the end of everything that holds them."""
        if self._listener is not None:
            await asyncio.wait([self._listener], timeout=1.0)
            self._listener.cancel()
        for transport in self._transports:
            transport.close()


def _open(command: Sequence[str], fds: Sequence[int], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        pass_fds=fds, env=env, cwd="/", bufsize=0,
    )  # fmt: skip


class ChildSandbox:
    """What sandboxes that are child processes of the runner share; how they end is up to each."""

    def __init__(self, sandbox_id: str) -> None:
        self._id = sandbox_id
        self._child: Child | None = None
        self._destroyed: asyncio.Task[None] | None = None

    @property
    def sandbox_id(self) -> str:
        """The id given in the specification."""
        return self._id

    @property
    def reader(self) -> StreamReader:
        """What the agent says."""
        assert self._child is not None
        return self._child.reader

    @property
    def writer(self) -> StreamWriter:
        """What the agent hears."""
        assert self._child is not None
        return self._child.writer

    @property
    def last_words(self) -> str:
        """The end of what the launch wrote to its standard error; complete once the sandbox is destroyed."""
        return self._child.last_words.decode("utf-8", "replace").strip() if self._child is not None else ""

    @property
    def orphan_s(self) -> float | None:
        """It ends with its host."""
        return None

    async def detach(self) -> None:
        """It ends with its host."""
        await self.destroy()

    async def destroy(self) -> None:
        """End it once, however often and by however many this is asked."""
        if self._destroyed is None:
            self._destroyed = asyncio.create_task(self._destroy())
        await asyncio.shield(self._destroyed)

    async def _destroy(self) -> None:
        raise NotImplementedError


class WithoutSurvivors:
    """What backends share whose sandboxes die with their runner, and which have no engine beside them."""

    async def trouble(self) -> str:
        """Nothing that could come and go."""
        return ""

    async def renewed(self, allowed: Permission = as_it_is) -> BackendReport | None:
        """Nothing that is looked up once."""
        return None

    async def survivors(self) -> list[str]:
        """None."""
        return []

    async def attach(self, sandbox_id: str) -> NoReturn:
        """Raises SandboxLost."""
        raise SandboxLost("the sandbox ended with its runner; send the request again", cause=sandbox_id)


async def started_or_undone(start: Coroutine[Any, Any, S]) -> S:
    """What ``start`` gives. A caller who goes away meanwhile leaves nothing: the start is finished and undone."""
    starting = asyncio.create_task(start)
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with contextlib.suppress(BackendUnavailable):
            await (await starting).destroy()
        raise
