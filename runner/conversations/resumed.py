"""A run that an earlier start of the service began: what is known of it, and how it goes on."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final, Self

from runner.agent.protocol import Json
from runner.conversations.execution import Execution, Owner
from runner.conversations.marks import Mark, RunMark
from runner.conversations.output import MAX_RESULT_BLOBS, MAX_RESULTS, StreamRecorder
from runner.conversations.records import version_of
from runner.conversations.runs import Running
from runner.conversations.sync import Mirror
from runner.errors import ProtocolError
from runner.interpreter.client import Event, RunEnd
from runner.model import FileChange, RunRequest, SandboxUsage
from runner.workspace.history import Workspace

_ID: Final = re.compile(r"[0-9a-f]{32}")
_MOST: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run that a sandbox has: going on, or ended and never acknowledged.

    ``after`` is the last of its events that an earlier start took in; it told ``events`` of them, among them
    ``results`` with ``blobs``. ``version``: of which the sandbox had the files when it began. ``begun`` and ``end``
    are what the store has of it, ``committed`` the version that it made.
    """

    mark: RunMark
    done: bool
    after: int
    events: int
    results: int
    blobs: int
    started: str | None
    version: int
    begun: bool
    end: Json | None
    committed: int | None

    @classmethod
    async def read(cls, workspace: Workspace, welcome: Json, mark: Mark | None) -> Self | None:
        """From what an agent says when it is attached to; None when it has no run. Raises ProtocolError."""
        told = welcome.get("run")
        if told is None:
            return None
        if mark is None or mark.run is None or not _fits(told, mark.run.id):
            raise ProtocolError("the sandbox misbehaved and was ended", cause=f"welcome: {welcome!r}"[:500])
        after, started = told["acknowledged"], told.get("interpreter")
        events, results, blobs = _told(told.get("note"), after)
        record = await workspace.read_execution(mark.run.id)
        return cls(
            mark.run,
            bool(told.get("done")),
            after,
            events,
            results,
            blobs,
            started if started in ("new", "kept") else None,
            mark.version,
            record is not None,
            None if record is None else record.end,
            await version_of(workspace, mark.run.id, mark.version),
        )


def _fits(told: Any, run_id: str) -> bool:
    if not isinstance(told, dict) or told.get("run") != run_id or not _ID.fullmatch(run_id):
        return False
    after = told.get("acknowledged")
    return type(after) is int and 0 <= after <= _MOST


def _told(note: object, after: int) -> list[int]:
    """How many events, results and blobs an earlier start told of, within what ``after`` events can be."""
    most = (after, MAX_RESULTS, MAX_RESULT_BLOBS)
    if not isinstance(note, list) or len(note) != 3:
        return [after, 0, 0]
    return [min(max(0, one), limit) if type(one) is int else 0 for one, limit in zip(note, most, strict=True)]


class ResumedExecution(Execution):
    """The rest of a run, to its recorded result. What was told of it before is not told again."""

    def __init__(
        self, conversation: Owner, mirror: Mirror, running: Running, request: RunRequest, found: FoundRun
    ) -> None:
        super().__init__(conversation, mirror, running, request)
        self._found = found
        self.started = found.started or self.started
        self.results.skip(found.results, found.blobs)

    async def _prepare(self) -> None:
        self.before = SandboxUsage(oom_kills=self._found.mark.oom_kills)
        if not self._found.begun:
            await self.record.begin(self._found.version)

    def _events(self) -> AsyncIterator[Event | RunEnd]:
        return self.mirror.client.adopt(
            self.id,
            self._found.after,
            language=self.request.language,
            timeout_s=self.request.timeout_ms / 1000,
            note=self._told,
        )

    def _streams(self, stack: AsyncExitStack) -> dict[str, StreamRecorder]:
        shows, partial = self.limits.output_bytes or 0, self._found.after > 0
        names = ("stdout", "stderr")
        return {name: StreamRecorder(self.mirror.workspace, shows, stack, partial=partial) for name in names}

    async def _pull(self, end: RunEnd) -> tuple[list[FileChange], Mapping[str, str]]:
        if self._found.committed is None:
            return await super()._pull(end)
        return await self.mirror.pulled(end, self._found.committed), {}
