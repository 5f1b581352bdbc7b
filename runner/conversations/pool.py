"""Warm spares: sandboxes whose interpreter already waits, so that a new conversation starts in milliseconds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from runner.backends.base import Backend
from runner.errors import BackendUnavailable, ProtocolError, SandboxLost
from runner.interpreter.client import SandboxClient
from runner.model import SandboxLimits, SandboxSpec
from runner.telemetry.logs import logger

_RETRY_S = (0.5, 2.0, 10.0, 30.0)
_LULL_S = 0.25
log = logger("pool")


class Pool:
    """Keeps ``size`` spares while ``may_grow`` allows; tells ``changed`` when one is ready or has failed to start."""

    def __init__(
        self,
        backend: Backend,
        limits: SandboxLimits,
        size: int,
        ready_timeout_s: float,
        may_grow: Callable[[], bool],
    ) -> None:
        self._backend, self._limits, self._size = backend, limits, size
        self._ready_timeout_s = ready_timeout_s
        self._may_grow = may_grow
        self._spares: deque[SandboxClient] = deque()
        self._starting = 0
        self._starts = asyncio.Semaphore(len(os.sched_getaffinity(0)))
        self._wanted = asyncio.Event()
        self.changed: Callable[[], None] = lambda: None
        self._last_take = 0.0
        self._refiller: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Future[None]] = set()
        self._image = ""
        self._losses = 0  # spares in a row that ended soon and unused
        self._not_before = 0.0

    @property
    def count(self) -> int:
        """Sandboxes that are spares, are about to become some, or were some and are being ended."""
        return len(self._spares) + self._starting + len(self._ending)

    @property
    def ready(self) -> int:
        """Spares that can be handed out now."""
        return len(self._spares)

    def start(self) -> None:
        """Begin to keep spares."""
        if self._size and self._refiller is None:
            self._wanted.set()
            self._refiller = asyncio.create_task(self._refill())

    def pop(self) -> SandboxClient | None:
        """A spare that is ready, or None."""
        self._last_take = time.monotonic()
        while self._spares:
            self._wanted.set()
            client = self._spares.popleft()
            if client.alive:
                self._losses = 0
                return client
            self._end(client)
        return None

    def use(self, image: str) -> None:
        """What new sandboxes are made of: where that is another than before, spares of the old one are replaced."""
        if image == self._image:
            return
        self._image = image
        if self._spares:
            log.info("spares are replaced", count=len(self._spares), image=image)
        while self._spares:
            self._end(self._spares.popleft())
        self._wanted.set()

    async def create(self, limits: SandboxLimits | None = None) -> SandboxClient:
        """A new sandbox, with limits of its own or those of the spares. Raises BackendUnavailable."""
        self._last_take = time.monotonic()
        return await self._start(limits or self._limits)

    async def _start(self, limits: SandboxLimits) -> SandboxClient:
        async with self._starts:  # a start keeps a core busy: more at once would only make all of them late
            return await start_sandbox(self._backend, limits, self._ready_timeout_s)

    def wake(self) -> None:
        """There may be room for spares again."""
        self._wanted.set()

    async def close(self) -> None:
        """End all spares."""
        if self._refiller is not None:
            self._refiller.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._refiller
        while self._spares:
            self._end(self._spares.popleft())
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _end(self, client: SandboxClient) -> None:
        ending = asyncio.ensure_future(client.destroy())
        self._ending.add(ending)
        ending.add_done_callback(self._ended)

    def _ended(self, ending: asyncio.Future[None]) -> None:
        self._ending.discard(ending)
        self.changed()

    def _keep(self, client: SandboxClient) -> None:
        client.when_ended(partial(self._lost, client, time.monotonic()))
        self._spares.append(client)
        if not client.alive:
            self._lost(client, time.monotonic())

    def _lost(self, client: SandboxClient, born: float) -> None:
        """Its stream has ended. What ends again and again soon after its start is started ever more slowly."""
        if client not in self._spares:
            return
        self._spares.remove(client)
        now = time.monotonic()
        if now >= self._not_before:  # else it ended together with another
            self._losses = self._losses + 1 if now - born < _RETRY_S[-1] else 1
            self._not_before = now + _RETRY_S[min(self._losses, len(_RETRY_S)) - 1]
        log.warning("a spare has ended", sandbox=client.sandbox_id)
        self._end(client)
        self._wanted.set()

    async def _refill(self) -> None:
        failures, delay = 0, 0.0
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while len(self._spares) < self._size and self._may_grow():
                # A start costs a second of CPU, which the first cells of the newest conversations need now.
                await asyncio.sleep(max(self._last_take + _LULL_S, self._not_before) - time.monotonic())
                if not self._may_grow():
                    break
                self._starting += 1
                image = self._image
                try:
                    client = await self._start(self._limits)
                    failures = 0
                    if image == self._image:
                        self._keep(client)
                    else:
                        self._end(client)
                except Exception as error:  # whatever it was, spares must be tried again
                    delay = _RETRY_S[min(failures, len(_RETRY_S) - 1)]
                    failures += 1
                    cause = getattr(error, "cause", None) or repr(error)
                    log.warning("spare failed", cause=cause, retry_s=delay)
                finally:
                    self._starting -= 1
                    self.changed()
                if failures:
                    await asyncio.sleep(delay)


async def start_sandbox(backend: Backend, limits: SandboxLimits, ready_timeout_s: float) -> SandboxClient:
    """A new sandbox whose interpreter waits for its first cell. Raises BackendUnavailable, leaving nothing."""
    sandbox = await backend.create(SandboxSpec(secrets.token_hex(8), limits))
    client = SandboxClient(sandbox)
    try:
        await client.attach(ready_timeout_s)
        await client.wait_ready(ready_timeout_s)
    except (SandboxLost, ProtocolError) as error:
        await client.destroy()
        words = getattr(sandbox, "last_words", "")  # complete only after the end
        raise BackendUnavailable(
            "a sandbox was started but did not come up: run `foliobox doctor` on the host",
            cause=f"{error.cause or error.detail} {words}".strip(),
        ) from error
    except BaseException:
        await client.destroy()
        raise
    if client.preload_failed:
        log.warning("libraries could not be loaded beforehand", failed=client.preload_failed)
    return client
