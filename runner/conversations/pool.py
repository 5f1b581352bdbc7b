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
from runner.limits.config import QUEUE_TIMEOUT
from runner.model import SandboxLimits, SandboxSpec
from runner.telemetry.logs import logger

_RETRY_S = (0.5, 2.0, 10.0, 30.0)
_LULL_S = 0.25
COME_AGAIN_MS = 5000  # by then an engine that stopped may be back
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
        self._held = ""  # why nothing may be started
        self._patience: set[asyncio.Timeout] = set()  # of those who wait for their turn to start one
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
        """What new sandboxes are made of: where that is another than before, spares of the old one are replaced.

        They may be started again where they were not.
        """
        if self._held:
            self._held = ""
            self._wanted.set()
        if image == self._image:
            return
        self._image = image
        if self._spares:
            log.info("spares are replaced", count=len(self._spares), image=image)
        while self._spares:
            self._end(self._spares.popleft())
        self._wanted.set()

    def hold(self, why: str) -> None:
        """Start nothing until ``use`` says of what, and send away who waits for a start."""
        self._held = why or "no backend is available"
        for patience in self._patience:
            if not patience.expired():
                patience.reschedule(0.0)

    def check(self) -> None:
        """Whether anything may be started. Raises BackendUnavailable."""
        if self._held:
            raise BackendUnavailable(self._held, retry_after_ms=COME_AGAIN_MS)

    async def create(
        self, limits: SandboxLimits | None = None, deadline: float | None = None, *, network: bool = False
    ) -> SandboxClient:
        """A new sandbox, with limits of its own or those of the spares, which have no network.

        Its turn to be started is waited for until ``deadline`` (monotonic). Raises BackendUnavailable.
        """
        self._last_take = time.monotonic()
        return await self._start(limits or self._limits, deadline, network=network)

    async def _start(
        self, limits: SandboxLimits, deadline: float | None = None, *, network: bool = False
    ) -> SandboxClient:
        self.check()
        await self._turn(deadline)
        try:
            self.check()
            return await start_sandbox(self._backend, limits, self._ready_timeout_s, network=network)
        finally:
            self._starts.release()

    async def _turn(self, deadline: float | None) -> None:
        """A start keeps a core busy: more at once would only make all of them late."""
        patience = asyncio.timeout(None if deadline is None else deadline - time.monotonic())
        self._patience.add(patience)
        try:
            async with patience:
                await self._starts.acquire()
        except TimeoutError:
            self.check()
            raise BackendUnavailable(
                "sandboxes start too slowly: this one's turn did not come for as long as a request waits "
                f"({QUEUE_TIMEOUT}); try again",
                retry_after_ms=COME_AGAIN_MS,
            ) from None
        finally:
            self._patience.discard(patience)

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

    def _may_start(self) -> bool:
        return not self._held and self._may_grow()

    async def _refill(self) -> None:
        failures, delay = 0, 0.0
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while len(self._spares) < self._size and self._may_start():
                # A start costs a second of CPU, which the first cells of the newest conversations need now.
                await asyncio.sleep(max(self._last_take + _LULL_S, self._not_before) - time.monotonic())
                if not self._may_start():
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


async def start_sandbox(
    backend: Backend, limits: SandboxLimits, ready_timeout_s: float, *, network: bool = False
) -> SandboxClient:
    """A new sandbox whose interpreter waits for its first cell. Raises BackendUnavailable, leaving nothing."""
    sandbox = await backend.create(SandboxSpec(secrets.token_hex(8), limits, network))
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
            retry_after_ms=COME_AGAIN_MS,
        ) from error
    except BaseException:
        await client.destroy()
        raise
    if client.preload_failed:
        log.warning("libraries could not be loaded beforehand", failed=client.preload_failed)
    return client
