"""A pool and conversations that cost nothing, for tests of who gets a sandbox when."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, cast

from runner.conversations.admission import Admission
from runner.conversations.pool import Pool
from runner.interpreter.client import SandboxClient
from runner.limits.config import QueueLimits
from runner.limits.pressure import Pressure
from runner.model import SandboxLimits


class Client:
    """As much of a sandbox as admission looks at."""

    adoptable = False

    def __init__(self, box: Sandboxes) -> None:
        self._box = box
        self.alive = True

    async def destroy(self) -> None:
        """End, once."""
        if self.alive:
            self.alive = False
            self._box.live -= 1


class Sandboxes:
    """Stands in for the pool: spares are put in by the test, starts take until ``go`` is set."""

    def __init__(self) -> None:
        self.spares: list[Client] = []
        self.starting = 0
        self.live = self.most = self.starts = 0
        self.go = asyncio.Event()
        self.go.set()
        self.fail: Exception | None = None
        self.held: Exception | None = None
        self.deadlines: list[float | None] = []
        self.own: list[SandboxLimits | None] = []
        self.networks: list[bool] = []

    @property
    def ready(self) -> int:
        return len(self.spares)

    @property
    def count(self) -> int:
        return self.ready + self.starting

    def wake(self) -> None:
        """Spares are the test's business."""

    def check(self) -> None:
        """Something may be started, unless the test says otherwise."""
        if self.held is not None:
            raise self.held

    def add_spare(self) -> Client:
        """A spare that is ready."""
        self.live += 1
        self.spares.append(Client(self))
        return self.spares[-1]

    def pop(self) -> Client | None:
        return self.spares.pop(0) if self.spares else None

    async def create(
        self, limits: SandboxLimits | None = None, deadline: float | None = None, *, network: bool = False
    ) -> Client:
        self.own.append(limits)
        self.networks.append(network)
        self.deadlines.append(deadline)
        self.starts += 1
        await self.go.wait()
        if self.fail is not None:
            raise self.fail
        self.live += 1
        self.most = max(self.most, self.live)
        return Client(self)


class Talk:
    """A conversation: gets a sandbox and keeps it until it is evicted. ``using``: somebody runs something."""

    def __init__(self, admission: Admission, name: str, tenant: str = "t") -> None:
        self.admission, self.key = admission, (tenant, name)
        self.client: Client | None = None
        self.last_used = time.monotonic()
        self.using = False
        self.evicted = 0

    @property
    def alive(self) -> bool:
        return self.client is not None and self.client.alive

    @property
    def evictable(self) -> bool:
        return self.client is not None and not self.using

    async def evict(self) -> None:
        """End the sandbox."""
        client, self.client = self.client, None
        if client is not None:
            self.evicted += 1
            await client.destroy()
            self.admission.release(self)

    async def ask(
        self,
        wait_s: float = 5.0,
        own: SandboxLimits | None = None,
        since: float | None = None,
        network: bool = False,
    ) -> Talk:
        """Get a sandbox and begin to use it."""
        deadline = time.monotonic() + wait_s
        got = await self.admission.acquire(self, deadline, since=since, own=own, network=network)
        self.client, self.using = cast(Any, got), True
        return self

    def done(self) -> None:
        """Use it no longer."""
        self.using, self.last_used = False, time.monotonic()
        self.admission.kick()


class Lab:
    """An admission with what it needs."""

    def __init__(
        self,
        cap: int = 2,
        limits: QueueLimits | None = None,
        pressure: Pressure | None = None,
        tenant_limit: Callable[[str], int | None] = lambda tenant: None,
    ) -> None:
        self.box = Sandboxes()
        self.admission = Admission(cast(Pool, self.box), cap, limits or QueueLimits(), pressure, tenant_limit)

    def talk(self, name: str, tenant: str = "t") -> Talk:
        """A conversation."""
        return Talk(self.admission, name, tenant)

    async def settled(self) -> None:
        """Until everything that can go on has gone on."""
        for _ in range(20):
            await asyncio.sleep(0)


def start(work: Coroutine[Any, Any, Talk]) -> asyncio.Task[Talk]:
    """A request under way."""
    return asyncio.create_task(work)


__all__ = ["Client", "Lab", "SandboxClient", "Talk", "start"]
