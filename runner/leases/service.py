"""Single runs and leases over the service of conversations: permits, the table of leases, and their end.

A run without a lease has a conversation of its own, which is purged once its answer was delivered. A lease is one
that stays until its caller lets go of it, it was idle for too long, a run in it ran out of time, or it failed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from runner.conversations.result import RunResult
from runner.conversations.service import ConversationService
from runner.errors import (
    CapacityReached,
    FolioboxError,
    NotFound,
    ProtocolError,
    SandboxLost,
    StoreFailed,
    TooLarge,
)
from runner.leases.answers import Reader
from runner.leases.clamp import SAVED_ABOVE
from runner.leases.config import LeasesConfig
from runner.leases.nouns import Answer, Ask, nothing
from runner.leases.places import Places
from runner.leases.staging import stage
from runner.leases.table import Lease, Table
from runner.model import Outcome, RunLimits, RunRequest
from runner.telemetry.logs import logger
from runner.workspace.history import Workspace

# Caches and profiles of programs lie outside the work folder, though HOME is that: they are no files of a caller.
ENVIRONMENT: Final = {
    "HOME": "/work",
    "PWD": "/work",  # what a shell says of the folder, under the name that this protocol has for it
    "XDG_CACHE_HOME": "/home/sandbox/.cache",
    "XDG_CONFIG_HOME": "/home/sandbox/.config",
    "XDG_DATA_HOME": "/home/sandbox/.local/share",
    "XDG_STATE_HOME": "/home/sandbox/.local/state",
}
_RETRY_MS: Final = 1000
_RELEASE_S, _CLOSE_S = 5.0, 10.0
_LONGEST_SWEEP_S: Final = 30.0
_SPOILING: Final = (SandboxLost, ProtocolError, StoreFailed)  # a run that had begun: nobody knows what it left
log = logger("leases")


class Leases:
    """``start`` before the first run, ``close`` before the service of conversations ends."""

    def __init__(self, service: ConversationService, config: LeasesConfig, folder: Path | None = None) -> None:
        self._service, self.config = service, config
        self._table = Table(folder)
        self._places = Places(config.concurrent)
        self._purges: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Have the leases of an earlier start again, remove what else it left, and look for idle ones."""
        for left in self._table.recall():
            self._discard(left)
        self._sweeper = asyncio.create_task(self._sweep())

    async def close(self) -> None:
        """Sweep no more; what is being removed is. Leases stay, as far as their conversations do."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeper
        if self._purges:
            await asyncio.wait(set(self._purges), timeout=_CLOSE_S)

    # -- runs --------------------------------------------------------------------------------------------------

    async def run(self, tenant: str, ask: Ask, upload_bytes: int | None = None) -> Answer:
        """Run something; whoever gets the answer closes it. A script that fails is an answer, not an error.

        A lease ends with a run that ran out of time, or that had begun when something here broke; what is refused
        leaves it as it is. ``upload_bytes``: the most that one input may have, where there is a limit.

        Raises TooLarge, CapacityReached while as many run as may, EgressUnavailable, EgressLost, and what
        ``begin`` of the service raises.
        """
        _check_inputs(ask, upload_bytes)
        async with self._place(tenant):
            lease = self._table.find(tenant, ask.container_id)
            fresh = lease is None
            lease = lease or self._table.make(tenant, ask.network)
            lease.runs += 1
            try:
                workspace, result = await self._ran(lease, ask, fresh)
            except BaseException:
                self._settle(lease, fresh)
                raise
            finally:
                lease.runs -= 1
            return await self._answered(lease, ask, workspace, result, fresh)

    @asynccontextmanager
    async def _place(self, tenant: str) -> AsyncIterator[None]:
        """One of the places for runs, waited for a little."""
        if not await self._places.take(tenant, self.config.queue_s):
            raise CapacityReached(
                f"{self.config.concurrent} runs go on already, which is as many as may at once; send it again soon",
                limit=self.config.concurrent,
                retry_after_ms=_RETRY_MS,
            )
        try:
            yield
        finally:
            self._places.give(tenant)

    async def _ran(self, lease: Lease, ask: Ask, fresh: bool) -> tuple[Workspace, RunResult]:
        try:
            conversation, _ = await self._service.ensure(lease.tenant, lease.id)
            if fresh:
                await self._set_up(lease)
            await stage(conversation.workspace, ask.files)
            request = RunRequest(
                ask.code,
                ask.language,
                self.config.timeout_ms(ask.timeout_s),
                env=ENVIRONMENT,
                limits=RunLimits(output_bytes=SAVED_ABOVE, unbounded=True),
                network=True if lease.network else None,
                script=True,
                bare=True,
                detached=lease.kept or ask.keep_alive,
            )
            running = await self._service.begin(lease.tenant, lease.id, request, announced=False)
            try:
                return conversation.workspace, await running.result()
            except _SPOILING:
                if running.began:
                    self._table.end(lease)
                raise
        except NotFound:  # somebody let go of the lease meanwhile
            self._table.end(lease)
            raise _gone() from None

    def _settle(self, lease: Lease, fresh: bool) -> None:
        """After a run that gave no answer: one that nobody knows of goes, and so does one that was ended."""
        if fresh or lease.ended:
            self._discard(lease)
        else:
            self._table.keep(lease)

    async def _set_up(self, lease: Lease) -> None:
        """Settings of a new conversation, where this surface has some of its own."""
        conversation = await self._service.find(lease.tenant, lease.id)
        changes: dict[str, Any] = {} if self.config.limits is None else {"limits": self.config.limits}
        ttl_ms = int(self.config.lease_ttl_s * 1000)
        if ttl_ms > conversation.effective.idle_ttl_ms:
            changes["idle_ttl_ms"] = ttl_ms
        if changes:
            await self._service.configure(conversation, changes, ttl_ms)

    async def _answered(self, lease: Lease, ask: Ask, workspace: Workspace, result: RunResult, fresh: bool) -> Answer:
        """The answer, and what becomes of the lease."""
        try:
            good = not lease.ended and result.outcome is not Outcome.TIMEOUT
            wanted = good and (not fresh or ask.keep_alive)
            full = wanted and fresh and self._table.kept >= self.config.leases
            kept = wanted and not full
            if kept:
                self._table.keep(lease)
            else:
                self._table.end(lease)
            reader = Reader(workspace, result, self.config, frozenset(ask.files), kept=kept)
            close = nothing if kept else lambda: self._close(lease)
            answer = await reader.answer(lease.id if kept else None, close)
        except BaseException as error:
            if isinstance(error, _SPOILING):
                self._table.end(lease)
            self._settle(lease, fresh)
            raise
        if full:
            log.warning("as many leases as may be; a run was not kept", limit=self.config.leases)
            answer.notes.append(
                f"the container was not kept: there are {self.config.leases} leases already; release one, or send "
                "everything that the next run needs"
            )
        return answer

    # -- the end of leases -------------------------------------------------------------------------------------

    async def release(self, tenant: str, identifier: str) -> None:
        """Let go of a lease, busy or not; nothing happens for an id that this surface has not given."""
        lease = self._table.find(tenant, identifier)
        if lease is not None:
            await asyncio.wait({self._discard(lease)}, timeout=_RELEASE_S)

    def _close(self, lease: Lease) -> None:
        self._discard(lease)

    def _discard(self, lease: Lease) -> asyncio.Task[None]:
        """End a lease in the background."""
        self._table.end(lease)
        task = asyncio.create_task(self._purge(lease))
        self._purges.add(task)
        task.add_done_callback(self._purges.discard)
        return task

    async def _purge(self, lease: Lease) -> None:
        try:
            await self._service.purge(lease.tenant, lease.id)
        except FolioboxError as error:  # its note stays: the next start tries again
            log.warning("a lease could not be removed", lease=lease.id, code=error.code, cause=error.cause)
        else:
            self._table.forget(lease)

    async def _sweep(self) -> None:
        ttl_s = self.config.lease_ttl_s
        while True:
            await asyncio.sleep(max(1.0, min(ttl_s, _LONGEST_SWEEP_S)))
            for lease in self._table.overdue(ttl_s):
                log.info("a lease was idle for too long", lease=lease.id)
                self._discard(lease)


def _gone() -> SandboxLost:
    return SandboxLost("the container was removed during the run", cause="its lease was released")


def _check_inputs(ask: Ask, most: int | None) -> None:
    for name, content in ask.files.items():
        if most is not None and len(content) > most:
            raise TooLarge(
                f"the input {name[:200]!r} has {len(content)} bytes, and with this key a file may have {most}: send "
                "less of it, or raise the key's upload_bytes",
                limit=most,
            )
