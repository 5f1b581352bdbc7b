"""A container with the agent as its PID 1, as the rest of the service sees it."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import StreamReader, StreamWriter

from runner.backends.base import hand_over
from runner.backends.counters import Counters
from runner.backends.docker.attach import Attached
from runner.backends.docker.door import Door
from runner.backends.docker.removal import Removal
from runner.errors import FolioboxError
from runner.model import SandboxUsage

_END_S = 3.0
_KILLED = 128 + 9


class DockerSandbox:
    """``counters`` is None where the host's control groups cannot be seen: then only its end tells of memory."""

    def __init__(
        self,
        sandbox_id: str,
        container: str,
        attached: Attached,
        door: Door,
        removal: Removal,
        counters: Counters | None,
        orphan_s: float,
    ) -> None:
        self.container = container
        self._id, self._attached = sandbox_id, attached
        self._door, self._removal, self._counters = door, removal, counters
        self._orphan_s = orphan_s
        self._last = SandboxUsage()
        self._dead: SandboxUsage | None = None
        self._destroyed: asyncio.Task[None] | None = None

    @property
    def sandbox_id(self) -> str:
        return self._id

    @property
    def reader(self) -> StreamReader:
        return self._attached.reader

    @property
    def writer(self) -> StreamWriter:
        return self._attached.writer

    @property
    def orphan_s(self) -> float | None:
        return self._orphan_s

    @property
    def last_words(self) -> str:
        """The end of what its main process wrote to standard error."""
        return self._attached.outputs.last_words.decode("utf-8", "replace").strip()

    async def hand_over(self, data: bytes, limit_s: float) -> None:
        """Write and see it taken. Raises OSError."""
        await hand_over(self.writer, data, limit_s)

    async def usage(self) -> SandboxUsage:
        if self._dead is None and self._attached.ended:
            await self._look_at_its_end()
        if self._dead is not None:
            return self._dead
        if self._counters is not None:
            seen = self._counters.usage()
            if seen.oom_kills is not None:
                self._last = seen
            return seen
        return SandboxUsage()

    async def _look_at_its_end(self) -> None:
        """A runtime whose kernel ends with the memory (gVisor) leaves no counter; the daemon tells how it ended."""
        with contextlib.suppress(FolioboxError, KeyError, TypeError):
            await self._door.call("wait", self.container, condition="not-running", timeout=_END_S, limit_s=_END_S)
            state = (await self._door.call("inspect_container", self.container, limit_s=_END_S))["State"]
            before = self._last.oom_kills
            # Once a process of it has been killed for memory the daemon says so for good: then the end has to look it.
            by_memory = state["OOMKilled"] and (not before or state["ExitCode"] == _KILLED)
            self._dead = SandboxUsage(oom_kills=(before or 0) + 1 if by_memory else before)

    async def reset_peak(self) -> None:
        if self._counters is not None:
            self._counters.reset_peak()

    async def detach(self) -> None:
        self._let_go()

    async def destroy(self) -> None:
        if self._destroyed is None:
            self._destroyed = asyncio.create_task(self._destroy())
        await asyncio.shield(self._destroyed)

    async def _destroy(self) -> None:
        self._let_go()
        await self._removal.remove(self.container)

    def _let_go(self) -> None:
        self._attached.close()
        if self._counters is not None:
            self._counters.close()
