"""Which runner owns a conversation's live sandbox, over any store that several runners may share.

A runner renews a heartbeat, one object in all, not one a conversation. A conversation's owner is the newest
object of its folder of owners, and its number is the fencing number: taking a sandbox means creating the next
one, which only one can. A commit looks whether there is a higher number than the one its run was given.

Clocks. A runner is taken for dead when its heartbeat has not changed for ``DEADLINE_S + ALLOWANCE_S`` of the
observer's own monotonic clock, or when it is gone, as after a clean stop. Wall clocks decide nothing, so one
that is wrong or jumps makes no second owner; what is assumed is that monotonic clocks of two machines differ
by less than a sixth in speed. The price: an observer that has just started must watch for that long before it
may take over. A runner that was stopped meanwhile and wakes is kept from committing by its fencing number.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from runner.errors import Conflict, NotFound, OwnedElsewhere, StoreFailed
from runner.telemetry.logs import logger
from runner.workspace import keys
from runner.workspace.base import Store
from runner.workspace.core import Core
from runner.workspace.encoding import Json, damaged
from runner.workspace.paths import check_record_name, is_record_name
from runner.workspace.series import RETRIES, Series

TENANT: Final = "system"
KIND: Final = "runner"
DEADLINE_S: Final = 30.0
BEAT_S: Final = 10.0
ALLOWANCE_S: Final = 5.0

_FORGET_S: Final = 3600.0
_BEATS_KEPT: Final = 2  # a listing that is not a picture must not miss both
_OWNERS_LISTED: Final = 64
_OWNERS_KEPT: Final = 8
log = logger("owners")


def new_runner_id() -> str:
    """An id for a runner. Each start needs one of its own: what a former life owned is not owned now."""
    return secrets.token_hex(8)


class Owners:
    """What this runner owns, and what others do. ``clock`` gives monotonic seconds, ``wall`` only what is noted."""

    def __init__(
        self,
        store: Store,
        runner_id: str,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.runner_id = check_record_name(runner_id)
        self._store = store
        self._clock, self._wall = clock, wall
        self._exclusive = False
        self._beats = 0
        self._beaten_at: float | None = None
        self._seen: dict[str, tuple[int, float]] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self, *, exclusive: bool = False) -> None:
        """Begin to beat and to watch others.

        ``exclusive`` says that the store lets one runner in at a time, as the local one's lock does: then no
        other is alive, nobody reads a heartbeat, and none is written. Raises ``StoreFailed``.
        """
        self._exclusive = exclusive
        if not exclusive:
            await self.beat()
            await self.watch()
            self._task = asyncio.create_task(self._keep_beating())

    async def close(self) -> None:
        """Give up all that is owned: others may take it at once. May be called again."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if self._beaten_at is not None:
            self._beaten_at = None
            series = self._heartbeat(self.runner_id)
            with suppress(StoreFailed):
                await series.forget(await series.numbers())

    async def acquire(self, workspace: Core) -> int:
        """Own the live sandbox of a conversation; its fencing number, which the workspace then checks.

        Call it before every run: it is cheap where the sandbox is owned already, and where others may write
        too it takes in what they stored. Raises ``OwnedElsewhere`` (``runner``, ``retry_after_ms``),
        ``NotFound`` for a deleted conversation, ``StoreFailed``.
        """
        if workspace.purged:
            raise NotFound("The conversation was deleted.")
        workspace.exclusive = self._exclusive
        if self._exclusive and workspace.fence is not None:
            return workspace.fence
        if not self._exclusive:
            await self._stay_alive()
        series = Series(self._store, keys.owners(workspace.home))
        if workspace.fence is None or not await self._holds(series, workspace.fence):
            workspace.fence = None
            workspace.fence = await self._own(series)
        if not self._exclusive:
            await workspace.refresh()  # what others stored until now is there when the run begins
        return workspace.fence

    async def check(self, workspace: Core) -> None:
        """Take nothing, but raise ``OwnedElsewhere`` while another living runner has the live sandbox."""
        if self._exclusive:
            return
        series = Series(self._store, keys.owners(workspace.home))
        number, record = await series.newest()
        if record is not None and not record.get("released"):
            runner = self._named(record, keys.numbered(series.folder, number))
            if runner != self.runner_id:
                await self._refuse_while_alive(runner)

    async def _own(self, series: Series) -> int:
        for _ in range(RETRIES):
            number, record = await series.newest()
            if record is not None and not record.get("released"):
                runner = self._named(record, keys.numbered(series.folder, number))
                if runner == self.runner_id:
                    return number
                await self._refuse_while_alive(runner)
            if await self._take(series, number + 1, released=False):
                return number + 1
        raise Conflict("Others keep taking this conversation; send it again.")

    async def release(self, workspace: Core) -> None:
        """Own it no longer: the sandbox is gone. What cannot be noted lapses with the heartbeat."""
        fence, workspace.fence = workspace.fence, None
        if fence is None or self._exclusive or workspace.purged:
            return
        try:
            await self._take(Series(self._store, keys.owners(workspace.home)), fence + 1, released=True)
        except StoreFailed as error:
            log.warning("could not give up a conversation", conversation=workspace.id, cause=error.cause)

    # -- heartbeats --------------------------------------------------------------------------------------------

    async def beat(self) -> None:
        """Renew the heartbeat. Raises ``StoreFailed``."""
        series = self._heartbeat(self.runner_id)
        began = self._clock()
        deadline_ms = int((self._wall() + DEADLINE_S) * 1000)
        self._beats = await series.add({"runner": self.runner_id, "deadline_ms": deadline_ms})
        self._beaten_at = began
        await series.forget([number for number in await series.numbers() if number <= self._beats - _BEATS_KEPT])

    async def watch(self) -> None:
        """Note which heartbeats have changed, so that a dead runner is known for one as soon as it may be."""
        names: list[str] = []
        while page := await self._store.names(keys.records_of(TENANT, KIND), names[-1] if names else ""):
            names += page
        for runner in filter(is_record_name, names):
            if runner != self.runner_id and await self._left_s(runner) <= -_FORGET_S:
                series = self._heartbeat(runner)
                await series.forget(await series.numbers())
        for runner in self._seen.keys() - set(names):
            del self._seen[runner]

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            try:
                await self.beat()
                await self.watch()
            except Exception:  # acquire refuses when this lasts; the next beat may succeed
                log.exception("the heartbeat could not be renewed")

    async def _stay_alive(self) -> None:
        """Others must not take us for dead while we take something: beat now when the loop is late."""
        if self._beaten_at is None or self._clock() - self._beaten_at > 2 * BEAT_S:
            await self.beat()

    async def _left_s(self, runner: str) -> float:
        """Seconds until a runner may be taken for dead, if it does not beat until then; 0 or less: it is dead."""
        numbers = await self._heartbeat(runner).numbers()
        if not numbers:
            self._seen.pop(runner, None)
            return 0.0
        number, since = self._seen.get(runner, (0, 0.0))
        if number != numbers[-1]:
            since = self._clock()
            self._seen[runner] = (numbers[-1], since)
        return since + DEADLINE_S + ALLOWANCE_S - self._clock()

    def _heartbeat(self, runner: str) -> Series:
        return Series(self._store, keys.records(TENANT, KIND, check_record_name(runner)))

    # -- owners ------------------------------------------------------------------------------------------------

    @staticmethod
    def _named(record: Json, key: str) -> str:
        runner = record.get("runner")
        if not isinstance(runner, str) or not is_record_name(runner):
            raise damaged(key, "no runner")
        return runner

    async def _refuse_while_alive(self, runner: str) -> None:
        if self._exclusive:
            return
        left = await self._left_s(runner)
        if left > 0:
            raise OwnedElsewhere(
                "Another runner has this conversation's live sandbox; send this there, or again later.",
                runner=runner,
                retry_after_ms=max(1000, int(left * 1000)),
            )

    async def _holds(self, series: Series, fence: int) -> bool:
        mine, next_one = await self._store.read_many(
            [keys.numbered(series.folder, fence), keys.numbered(series.folder, fence + 1)]
        )
        return mine is not None and next_one is None

    async def _take(self, series: Series, number: int, *, released: bool) -> bool:
        """Create the next owner; False when another did. Long superseded ones are removed, oldest first."""
        deadline_ms = int((self._wall() + DEADLINE_S) * 1000)
        payload = {"runner": self.runner_id, "deadline_ms": deadline_ms, "released": released}
        if not await series.append(number, payload):
            return False
        numbers = await series.numbers()
        if len(numbers) > _OWNERS_LISTED:
            await series.forget(numbers[:-_OWNERS_KEPT])
        return numbers[-1] == number  # else we were so late that our number had been taken and removed before
