"""Who gets a sandbox next: one fair queue over all conversations, bounded in length and in time.

Tenants take turns and within a tenant the order is that of arrival. Whoever is first is served by a spare that is
ready, by room below the cap, or by the end of the sandbox that has been idle longest. Nothing here waits but
the callers: every change calls ``kick``, which serves as many as can be served.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

from runner.conversations.pace import Pace, retry_ms
from runner.conversations.pool import Pool
from runner.errors import CapacityReached, FolioboxError, QueueFull, Stopping
from runner.interpreter.client import SandboxClient
from runner.limits.config import MAX_QUEUE, MAX_QUEUE_PER_CONVERSATION, QUEUE_TIMEOUT, QueueLimits
from runner.limits.pressure import EVICTABLE, Pressure, Shortage, refusal
from runner.model import SandboxLimits
from runner.telemetry import metrics
from runner.telemetry.logs import logger

STOP_RETRY_MS: Final = 5000
log = logger("admission")


class Holder(Protocol):
    """What admission needs of a conversation."""

    last_used: float

    @property
    def key(self) -> tuple[str, str]:
        """Tenant and id."""
        ...

    @property
    def alive(self) -> bool:
        """Whether its sandbox answers."""
        ...

    @property
    def evictable(self) -> bool:
        """Whether it has a sandbox that nobody uses or waits for."""
        ...

    async def evict(self) -> None:
        """End the sandbox; the next run is told."""
        ...


@dataclass(eq=False)
class _Waiter:
    """``own`` is None for limits that spares have. The future's result: a spare, or None to start one."""

    holder: Holder
    own: SandboxLimits | None
    since: float
    network: bool = False
    grant: asyncio.Future[SandboxClient | None] = field(default_factory=asyncio.Future)


class Admission:
    """``tenant_limit`` gives how many sandboxes a tenant may have, None for as many as there are."""

    def __init__(
        self,
        pool: Pool,
        max_live: int,
        limits: QueueLimits,
        pressure: Pressure | None = None,
        tenant_limit: Callable[[str], int | None] = lambda tenant: None,
    ) -> None:
        self._pool, self._max_live, self._limits = pool, max_live, limits
        self._pressure, self._tenant_limit = pressure, tenant_limit
        self._queues: OrderedDict[str, deque[_Waiter]] = OrderedDict()
        self._slots: dict[Holder, bool] = {}  # has or is being given a sandbox; whether it is there already
        self._evicting: dict[Holder, asyncio.Task[None]] = {}
        self._discarding: set[asyncio.Task[None]] = set()
        self._turns: Counter[str] = Counter()  # who waits for the turn of a conversation, by tenant
        self._pace = Pace()
        self.stopping = False

    # -- what is going on --------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Requests that wait, for a sandbox or for the conversation's turn."""
        return self.queued + self._turns.total()

    @property
    def queued(self) -> int:
        """Conversations that wait for a sandbox."""
        return sum(map(len, self._queues.values()))

    @property
    def live(self) -> int:
        """Sandboxes of conversations."""
        return sum(self._slots.values())

    def may_grow(self) -> bool:
        """Whether there is room for a spare: below the cap, nobody waits, and the host is not short."""
        room = self._used() < self._max_live and not self.stopping
        return room and not self.queued and not (self._pressure and self._pressure.shortages(self._starting()))

    @property
    def overfull(self) -> bool:
        """Whether there are more sandboxes than there may be: an earlier start of the service might have more."""
        return self._used() > self._max_live

    @property
    def exhausted(self) -> bool:
        """Whether a request for a sandbox would have to wait for a run to end: all are in use, none is spare."""
        idle = any(there and holder.evictable for holder, there in self._slots.items())
        return self._used() >= self._max_live and not idle and not self._pool.ready and not self._evicting

    def _used(self) -> int:
        return len(self._slots) + self._pool.count + len(self._discarding)

    def _starting(self) -> int:
        return len(self._slots) - self.live + self._pool.count - self._pool.ready

    # -- waiting -----------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raises Stopping once no new work is taken."""
        if self.stopping:
            raise self.stopped()

    @staticmethod
    def stopped() -> Stopping:
        """What a request is told that comes too late."""
        return Stopping("the service is being stopped; send the request again soon", retry_after_ms=STOP_RETRY_MS)

    @contextlib.contextmanager
    def place(self, tenant: str, others: int, mean_s: float) -> Iterator[None]:
        """A place among those who wait for the turn of a conversation, as ``others`` do, each for about ``mean_s``.

        Raises QueueFull.
        """
        if others >= self._limits.per_conversation:
            raise QueueFull(
                f"{others} requests wait for this conversation already; send fewer at once, or raise "
                f"{MAX_QUEUE_PER_CONVERSATION}",
                limit=self._limits.per_conversation,
                retry_after_ms=retry_ms((others + 1) * mean_s),
            )
        self._turns[tenant] += 1
        try:
            self._check_length(tenant)
            yield
        finally:
            self._turns[tenant] -= 1

    def _check_length(self, tenant: str) -> None:
        """Whether one who has just been counted may wait. A tenant that has filled the queue gives way to one that has
        not: its newest is sent away. Raises QueueFull.
        """
        if self.waiting <= self._limits.total:
            return
        greedy = max(self._queues, key=self._places, default=tenant)
        if self._places(greedy) <= self._places(tenant):
            raise self._full()
        self.refuse(self._queues[greedy][-1].holder, self._full())

    def _places(self, tenant: str) -> int:
        return len(self._queues.get(tenant, ())) + self._turns[tenant]

    def _full(self) -> QueueFull:
        return QueueFull(
            f"{self._limits.total} requests wait already; send this later, or raise {MAX_QUEUE}",
            limit=self._limits.total,
            retry_after_ms=retry_ms(self._wait_s(self.waiting)),
        )

    async def acquire(
        self,
        holder: Holder,
        deadline: float,
        *,
        since: float | None = None,
        own: SandboxLimits | None = None,
        entitled: bool = False,
        network: bool = False,
    ) -> SandboxClient:
        """A sandbox, waited for until ``deadline`` (monotonic). ``own``: limits that no spare has, as none has network.

        ``since``: when the request came, where that is earlier than now: it stands before those that came later.
        ``entitled``: it has waited already, so that a full queue is no reason to send it away.

        Raises CapacityReached, QueueFull, HostPressure, BackendUnavailable, Stopping. ``release`` gives it back.
        """
        self.check_open()
        self._pool.check()
        waiter = _Waiter(holder, own, time.monotonic() if since is None else since, network)
        queue = self._queues.setdefault(holder.key[0], deque())
        queue.insert(sum(other.since <= waiter.since for other in queue), waiter)
        self.kick()
        try:
            if not waiter.grant.done():
                if not entitled:
                    self._check_length(holder.key[0])
                await self._wait(waiter, deadline)
            client = waiter.grant.result()
            if client is None:
                client = await self._pool.create(own, deadline, network=network)
        except BaseException:
            self._undo(waiter)
            raise
        self._slots[holder] = True
        return client

    async def _wait(self, waiter: _Waiter, deadline: float) -> None:
        ahead = self._ahead(waiter)
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + deadline - time.monotonic()):
                await asyncio.shield(waiter.grant)
        except TimeoutError:
            if waiter.grant.done():
                return
            tenant = waiter.holder.key[0]
            limit = self._tenant_limit(tenant)
            mine = limit is not None and self._of(tenant) >= limit
            what = f"all {limit} sandboxes that this key may have" if mine else f"all {self._max_live} sandboxes"
            change = "the limit of the key" if mine else "SANDBOX_MAX_SESSIONS"
            raise CapacityReached(
                f"{what} stayed busy for as long as a request waits ({QUEUE_TIMEOUT}); try again, or raise {change}",
                limit=limit if mine else self._max_live,
                retry_after_ms=retry_ms(self._wait_s(min(ahead, self._ahead(waiter)) + 1)),
            ) from None

    def _wait_s(self, position: int) -> float:
        first = min((queue[0].since for queue in self._queues.values()), default=time.monotonic())
        return self._pace.wait_s(position, first)

    def _ahead(self, waiter: _Waiter) -> int:
        """How many are served before this one if no others come: its own tenant's, and one of each other a round."""
        queue = self._queues.get(waiter.holder.key[0], ())
        position = next((index for index, one in enumerate(queue) if one is waiter), 0)
        others = (min(len(q), position + 1) for tenant, q in self._queues.items() if tenant != waiter.holder.key[0])
        return position + sum(others)

    def _undo(self, waiter: _Waiter) -> None:
        """The caller has gone, or the start failed: as if it had never asked."""
        if waiter.grant.done() and not waiter.grant.cancelled():
            error = waiter.grant.exception()
            client = None if error is not None else waiter.grant.result()
            if error is None and self._slots.pop(waiter.holder, None) is not None and client is not None:
                self._discard(client)
        waiter.grant.cancel()
        self._forget(waiter)
        self.kick()

    def _forget(self, waiter: _Waiter) -> None:
        queue = self._queues.get(waiter.holder.key[0])
        if queue is not None and waiter in queue:
            queue.remove(waiter)
        if queue is not None and not queue:
            del self._queues[waiter.holder.key[0]]

    def adopt(self, holder: Holder) -> None:
        """It has a sandbox already, from an earlier start of the service."""
        self._slots[holder] = True

    def release(self, holder: Holder) -> None:
        """Its sandbox has ended."""
        if self._slots.pop(holder, None) is not None:
            self.kick()

    def refuse(self, holder: Holder, error: Exception) -> None:
        """Send a conversation's request away that waits for a sandbox."""
        for waiter in self._queues.get(holder.key[0], ()):
            if waiter.holder is holder and not waiter.grant.done():
                waiter.grant.set_exception(error)
                self._forget(waiter)
                break

    def stop(self) -> None:
        """Take no new work, and send away everybody who waits for a sandbox."""
        self.stopping = True
        self.refuse_all(self.stopped)

    def refuse_all(self, error: Callable[[], FolioboxError]) -> None:
        """Send away everybody who waits for a sandbox."""
        for waiter in [one for queue in self._queues.values() for one in queue]:
            self.refuse(waiter.holder, error())

    async def settle(self) -> None:
        """Until every end of a sandbox that was begun here is done."""
        await asyncio.gather(*self._evicting.values(), *self._discarding, return_exceptions=True)

    # -- serving -----------------------------------------------------------------------------------------------

    def kick(self) -> None:
        """Something changed: serve as many as can be served now. Whoever was served goes behind the other tenants."""
        while any(self._serve(queue[0]) for queue in list(self._queues.values())):
            continue
        if not self._queues:
            self._pool.wake()

    def _serve(self, waiter: _Waiter) -> bool:
        """Whether this one is done with: it has what it needs, or an error."""
        tenant = waiter.holder.key[0]
        limit = self._tenant_limit(tenant)
        if limit is not None and self._of(tenant) >= limit:
            self._make_room(tenant)
            return False
        spare = self._pool.pop() if waiter.own is None and not waiter.network else None
        if spare is not None:
            self._grant(waiter, spare)
            return True
        if self._used() >= self._max_live:
            self._make_room(None)
            return False
        short = self._pressure.shortages(self._starting()) if self._pressure else ()
        if not short:
            self._grant(waiter, None)
            return True
        if all(one.resource in EVICTABLE for one in short) and self._make_room(None):
            return False
        self._refuse_for(short, waiter)
        return True

    def _refuse_for(self, short: tuple[Shortage, ...], waiter: _Waiter) -> None:
        log.warning("no sandbox was started", short=[one.resource for one in short])
        waiter.grant.set_exception(refusal(short))
        self._forget(waiter)

    def _grant(self, waiter: _Waiter, client: SandboxClient | None) -> None:
        tenant = waiter.holder.key[0]
        self._slots[waiter.holder] = False
        self._forget(waiter)
        if tenant in self._queues:
            self._queues.move_to_end(tenant)
        self._pace.note(waiter.since)
        if waiter.own is None and not waiter.network:
            metrics.pool(hit=client is not None)
        waiter.grant.set_result(client)

    def _of(self, tenant: str) -> int:
        return sum(holder.key[0] == tenant for holder in self._slots)

    # -- making room -------------------------------------------------------------------------------------------

    def _make_room(self, tenant: str | None) -> bool:
        """See to it that sandboxes end, as many as there are waiters for; False when none can."""
        wanted = len(self._queues.get(tenant, ())) if tenant else self.queued
        coming = sum(tenant in (None, holder.key[0]) for holder in self._evicting) + len(self._discarding)
        coming += 0 if tenant else self._pool.count - self._pool.ready
        while coming < wanted and (self._evict_one(tenant) or (tenant is None and self._discard_spare())):
            coming += 1
        return coming > 0

    def _evict_one(self, tenant: str | None) -> bool:
        """End the sandbox that is dead, or has been idle longest."""
        idle = [
            holder
            for holder, there in self._slots.items()
            if there and tenant in (None, holder.key[0]) and holder not in self._evicting and holder.evictable
        ]
        if not idle:
            return False
        victim = min(idle, key=lambda holder: (holder.alive, holder.last_used))
        task = asyncio.ensure_future(victim.evict())
        self._evicting[victim] = task
        task.add_done_callback(lambda done: self._evicted(victim, done))
        log.info("evicted", conversation=victim.key[1])
        return True

    def _evicted(self, victim: Holder, task: asyncio.Task[None]) -> None:
        self._evicting.pop(victim, None)
        if not task.cancelled() and task.exception() is not None:
            log.error("could not evict", conversation=victim.key[1], exc_info=task.exception())
        if self._pressure is not None:
            self._pressure.look(anew=True)
        self.kick()

    def _discard_spare(self) -> bool:
        """End a spare that nobody who waits can use."""
        spare = self._pool.pop()
        if spare is not None:
            self._discard(spare)
        return spare is not None

    def _discard(self, client: SandboxClient) -> None:
        task = asyncio.ensure_future(client.destroy())
        self._discarding.add(task)
        task.add_done_callback(self._discarded)

    def _discarded(self, task: asyncio.Task[None]) -> None:
        self._discarding.discard(task)
        if not task.cancelled():
            task.exception()
        self.kick()
