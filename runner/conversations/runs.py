"""Runs of this process: those going on, and for a while those that have ended, with their events."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Final

from runner.conversations.events import EventLog, LogMemory
from runner.conversations.output import StoredBlob
from runner.conversations.records import Claim, Stored
from runner.conversations.result import RunResult
from runner.errors import FolioboxError, Stopping
from runner.telemetry import metrics
from runner.telemetry.logs import logger
from runner.workspace.history import Workspace
from runner.workspace.manifest import now

KEEP_S: Final = 600.0
Home = tuple[str, str, str]
_STOPPED: Final = Stopping("the service was stopped while this ran: fetch the execution for its outcome")
log = logger("runs")


@dataclass(frozen=True, slots=True)
class Running:
    """A run as a caller sees it, waiting, going on or ended. A caller who leaves stops nothing.

    ``blobs`` are what its results refer to. ``replayed``: an earlier request under the same key began it.
    ``announced``: somebody may know its id before its outcome.
    """

    execution_id: str
    log: EventLog
    claim: Claim | None = None
    blobs: list[StoredBlob] = field(default_factory=list)
    since: str = field(default_factory=now)
    replayed: bool = False
    announced: bool = True

    @classmethod
    def stored(cls, execution_id: str, outcome: Stored, *, replayed: bool = False) -> Running:
        """A run of which the store has the outcome."""
        return cls(execution_id, EventLog.of(outcome.result, outcome.seq), blobs=outcome.blobs, replayed=replayed)

    @property
    def began(self) -> bool:
        """Whether it has been told that it began."""
        return self.log.seq > 0

    async def result(self) -> RunResult:
        """The result, waited for. Raises what refused the run."""
        return await self.log.result()

    def shown(self, number: int) -> StoredBlob | None:
        """What it showed and was too large or too binary for its result."""
        return self.blobs[number] if 0 <= number < len(self.blobs) and self.blobs[number].kept else None

    def output(self, stream: str) -> StoredBlob | None:
        """The whole of a stream, where the result of an ended run shows only a part."""
        result = self.log.ended_with
        text = result and {"stdout": result.stdout, "stderr": result.stderr}[stream]
        return text.full if text else None

    def again(self) -> Running:
        """The same run for a request that did not begin it."""
        return replace(self, replayed=True)


class Runs:
    """All runs of a service, by conversation and id. Logs of ended ones are kept ``keep_s`` seconds."""

    def __init__(self, memory: LogMemory | None = None, keep_s: float = KEEP_S) -> None:
        self._memory, self._keep_s = memory or LogMemory(), keep_s
        self._memory.relieve = self._forget_oldest
        self._known: dict[tuple[Home, str], Running] = {}
        self._by_key: dict[tuple[Home, str], Running] = {}
        self._tasks: set[asyncio.Task[RunResult]] = set()
        self._ended: OrderedDict[tuple[Home, str], asyncio.TimerHandle] = OrderedDict()

    def active(self) -> int:
        """How many have not ended, those that wait for a sandbox included."""
        return len(self._tasks)

    async def wait(self, limit_s: float | None = None) -> bool:
        """Until all that are going on now have ended; False when they have not within ``limit_s``."""
        if not self._tasks:
            return True
        _, left = await asyncio.wait(set(self._tasks), timeout=limit_s)
        return not left

    def find(self, workspace: Workspace, execution_id: str) -> Running | None:
        """A run of this incarnation of a conversation."""
        return self._known.get((home(workspace), execution_id))

    def find_claim(self, workspace: Workspace, claim: Claim) -> Running | None:
        """The run that was begun under a key. Raises KeyReused."""
        running = self._by_key.get((home(workspace), claim.key))
        if running is not None and running.claim is not None:
            claim.check(running.claim.request)
        return running

    def start(
        self,
        workspace: Workspace,
        execution_id: str,
        claim: Claim | None,
        work: Callable[[Running], Coroutine[Any, Any, RunResult]],
        *,
        announced: bool = True,
        gone: int = 0,
    ) -> Running:
        """Begin ``work`` as a task of its own. Its log ends when it does. ``gone``: events told of it before."""
        running = Running(execution_id, EventLog(self._memory, gone=gone), claim, announced=announced)
        place = home(workspace)
        self._known[place, execution_id] = running
        if claim is not None:
            self._by_key[place, claim.key] = running
        task = asyncio.create_task(work(running))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._end(place, running, done))
        return running

    def _end(self, place: Home, running: Running, task: asyncio.Task[RunResult]) -> None:
        self._tasks.discard(task)
        error = _STOPPED if task.cancelled() else task.exception()
        if error is None:
            result = task.result()
            metrics.run(result.outcome.value, result.duration_ms / 1000)
            running.log.end(result)
            timer = asyncio.get_running_loop().call_later(self._keep_s, self._forget, place, running)
            self._ended[place, running.execution_id] = timer
            return
        if not isinstance(error, FolioboxError):
            log.error("a run failed", execution=running.execution_id, exc_info=error)
        elif error.blame == "service":
            log.error("a run failed", execution=running.execution_id, code=error.code, cause=error.cause)
        running.log.end(None, error)
        self._forget(place, running)  # what the store has of it counts, if it has anything

    def _forget_oldest(self) -> bool:
        if not self._ended:
            return False
        place, execution_id = next(iter(self._ended))
        self._forget(place, self._known[place, execution_id])
        return True

    def _forget(self, place: Home, running: Running) -> None:
        timer = self._ended.pop((place, running.execution_id), None)
        if timer is not None:
            timer.cancel()
            running.log.forget()
        self._known.pop((place, running.execution_id), None)
        if running.claim is not None and self._by_key.get((place, running.claim.key)) is running:
            del self._by_key[place, running.claim.key]


def home(workspace: Workspace) -> Home:
    """What names one incarnation of a conversation."""
    return workspace.tenant, workspace.id, workspace.incarnation


def not_there(running: Running, name: str, number: int | None) -> str:
    """Why there is nothing to fetch of a run under this name."""
    result = running.log.ended_with
    if number is not None:
        return f"this execution has no result {number} to fetch: its `results` name those that there are"
    if result is None:
        return f"this execution has not ended; its events tell {name} as it comes"
    if {"stdout": result.stdout, "stderr": result.stderr}[name].truncated:
        return f"the whole {name} of this execution was not kept: its result has what is left of it"
    return f"nothing of the {name} of this execution was cut: its result holds all of it"
