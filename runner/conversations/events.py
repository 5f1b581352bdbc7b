"""Events of a run: one writer who never waits, any number of listeners, bounded memory."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self

from runner.agent.protocol import Json
from runner.conversations.result import Artifact, RunEvent, RunResult
from runner.errors import EventsDropped

LOG_BYTES: Final = 4 << 20
ALL_LOGS_BYTES: Final = 64 << 20
SHARE_BYTES: Final = 256 << 10  # of a run that goes on, however much others say
_EVENT_BYTES: Final = 500  # an event with its fields, without its texts
_FILE_BYTES: Final = 1000


@dataclass
class LogMemory:
    """Bytes that all logs together hold. ``relieve`` forgets the log that ended first; False when none has."""

    limit: int = ALL_LOGS_BYTES
    used: int = 0
    relieve: Callable[[], bool] = lambda: False

    def fits(self) -> bool:
        """Whether the limit is kept, once logs of ended runs were forgotten for it."""
        while self.used > self.limit:
            if not self.relieve():
                return False
        return True


class EventLog:
    """Events of one run, numbered from 1. Beyond ``limit`` bytes in memory the oldest are dropped.

    Adding never waits for a listener. The newest event stays whatever its size, so that ``done`` is always there.
    ``gone``: so many events were told by an earlier start of the service.
    """

    def __init__(self, memory: LogMemory | None = None, limit: int = LOG_BYTES, gone: int = 0) -> None:
        self._memory, self._limit = memory or LogMemory(), limit
        self._only_end = False
        self._events: deque[tuple[RunEvent, int]] = deque()
        self._waiting: set[asyncio.Future[None]] = set()
        self.size = 0
        self.seq = gone
        self.ended = False
        self._result: RunResult | None = None
        self._error: BaseException | None = None

    @classmethod
    def of(cls, result: RunResult, seq: int) -> Self:
        """The log of a run of which only the result is left: its last event, number ``seq``."""
        log = cls()
        log.seq, log._only_end = seq - 1, True
        log.add("done", {}, result=result)
        log.end(result)
        return log

    @property
    def oldest(self) -> int:
        """Number of the oldest event that is still there; the next one's when none is."""
        return self._events[0][0].seq if self._events else self.seq + 1

    @property
    def failed(self) -> bool:
        """Whether there is neither a result nor will there be one."""
        return self.ended and self._result is None

    @property
    def ended_with(self) -> RunResult | None:
        """The result, if there is one by now."""
        return self._result

    def add(
        self, kind: str, data: Json, *, artifact: Artifact | None = None, result: RunResult | None = None
    ) -> RunEvent:
        """Append an event."""
        self.seq += 1
        event = RunEvent(self.seq, kind, data, artifact, result)
        size = _EVENT_BYTES + weight(data) + (artifact is not None) * _FILE_BYTES + _result_weight(result)
        self._events.append((event, size))
        self._hold(size)
        while (self.size > self._limit or self._too_much()) and len(self._events) > 1:
            self._hold(-self._events.popleft()[1])
        self._wake()
        return event

    def end(self, result: RunResult | None, error: BaseException | None = None) -> None:
        """Nothing follows. Without a result, ``error`` says why there is none."""
        self._result, self._error, self.ended = result, error, True
        self._wake()

    def forget(self) -> None:
        """Give the memory back; whoever still reads is told that events are gone."""
        while self._events:
            self._hold(-self._events.popleft()[1])
        self._wake()

    def follow(self, after: int = 0) -> Follower:
        """Events above number ``after``, those to come included."""
        return Follower(self, after)

    async def result(self) -> RunResult:
        """The result, waited for. Raises what kept the run from having one."""
        while not self.ended:
            await self.changed()
        if self._result is None:
            raise self._error or RuntimeError("a run ended without a result")
        return self._result

    def next(self, after: int) -> RunEvent | None:
        """The event that follows number ``after``, if it has happened. Raises EventsDropped."""
        if after >= self.seq:
            return None
        oldest = self.oldest
        if after + 1 < oldest and self._only_end:
            after = oldest - 1
        if after + 1 < oldest:
            raise EventsDropped(
                f"the events up to {oldest - 1} are not kept any more; the run is not affected: attach again with "
                f"after={oldest - 1}, or fetch the execution for its result",
                oldest=oldest,
            )
        return self._events[after + 1 - oldest][0]

    async def changed(self) -> None:
        """Until something was added, dropped or ended."""
        news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(news)
        try:
            await news
        finally:
            self._waiting.discard(news)

    def _too_much(self) -> bool:
        """Whether all logs together hold too much and this one more than what each may keep in any case."""
        return not self._memory.fits() and self.size > SHARE_BYTES

    def _hold(self, size: int) -> None:
        self.size += size
        self._memory.used += size

    def _wake(self) -> None:
        for news in self._waiting:
            if not news.done():
                news.set_result(None)


class Follower:
    """One listener's place in a log. A wait for the next event may be cancelled and begun again."""

    def __init__(self, log: EventLog, after: int) -> None:
        self._log, self.seq = log, after

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RunEvent:
        """The next event. Raises EventsDropped for a listener who fell behind, and what ended a run without result."""
        while True:
            event = self._log.next(self.seq)
            if event is not None:
                self.seq = event.seq
                return event
            if self._log.failed:
                await self._log.result()
            if self._log.ended:
                raise StopAsyncIteration
            await self._log.changed()


def weight(value: Any) -> int:
    """About the bytes that a JSON value takes in memory; exact for texts."""
    if isinstance(value, dict):
        return sum(weight(name) + weight(inner) for name, inner in value.items()) + sys.getsizeof(value)
    if isinstance(value, list):
        return sum(map(weight, value)) + sys.getsizeof(value)
    return sys.getsizeof(value)


def _result_weight(result: RunResult | None) -> int:
    if result is None:
        return 0
    parts = [result.stdout.text, result.stderr.text, result.results, result.error, result.skipped]
    return weight(parts) + _FILE_BYTES * len(result.files)
