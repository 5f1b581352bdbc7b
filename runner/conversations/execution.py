"""One run on the host side: collects what it says, stores what it made, and decides what to tell."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Protocol

from runner.agent.protocol import MAX_ENTRIES, Json
from runner.conversations.marks import RunMark
from runner.conversations.output import ResultRecorder, StreamRecorder, StreamText
from runner.conversations.records import RunRecord, payload_of
from runner.conversations.result import Artifact, RunResult, bounded_error, bounded_files, nothing_ran
from runner.conversations.runs import Running
from runner.conversations.sync import Mirror, Unstored
from runner.errors import CallerError, FolioboxError, ProtocolError, SandboxLost
from runner.interpreter.client import Event, RunEnd
from runner.interpreter.outcomes import Observed, decide
from runner.model import FileChange, InterpreterState, Outcome, RunLimits, RunRequest, SandboxUsage
from runner.telemetry.logs import logger
from runner.workspace.history import Workspace

_TOO_MANY = f"the workspace holds more than {MAX_ENTRIES} files, links and folders: what is beyond was not stored"
_FILES_AT_ONCE = 100
log = logger("execution")
_NOTHING: Json = {"total": 0, "forwarded": 0, "tail": ""}


class Owner(Protocol):
    """What an execution needs of its conversation."""

    workspace: Workspace
    closing: bool  # it is being deleted: nothing more is stored

    def run_limits(self, request: RunRequest) -> RunLimits:
        """What this run may give back; nothing is None."""
        ...

    def base_url(self, execution_id: str) -> str:
        """Where what a run showed can be fetched from."""
        ...

    def mark(self, run: RunMark | None = None) -> Json | None:
        """What the sandbox is to remember for the next start of the service."""
        ...

    async def drop(self, reason: str | None) -> None:
        """End the sandbox."""
        ...

    async def interrupt(self, execution_id: str | None) -> bool:
        """Stop a run; the interpreter is kept if it obeys."""
        ...

    def interpreter_state(
        self, request: RunRequest, end: RunEnd | None, started: str
    ) -> tuple[InterpreterState, str | None]:
        """Whether variables are still there after a run, and if not, why."""
        ...


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a run's sandbox and streams tell of it."""

    observed: Observed
    peak: int | None
    shown: dict[str, StreamText]
    state: InterpreterState
    reason: str | None


class Execution:
    """A run from its start to its recorded result. Use once: ``await Execution(…).go()``."""

    def __init__(self, conversation: Owner, mirror: Mirror, running: Running, request: RunRequest) -> None:
        self.conversation, self.mirror = conversation, mirror
        self.id, self.request, self.log = running.execution_id, request, running.log
        self.url = conversation.base_url(self.id)
        self.limits = conversation.run_limits(request)
        self.record = RunRecord(conversation.workspace, self.id, running.claim, announced=running.announced)
        self.results = ResultRecorder(conversation.workspace, self.url, running.blobs)
        self.before = SandboxUsage()
        self.started = "new"
        self.began = time.monotonic()
        self.end: RunEnd | None = None
        self.failure: str | None = None
        self.unrecorded: FolioboxError | None = None  # that it began could not be written: it must not have run
        self.files_error: Json | None = None
        self.facts: _Facts | None = None
        self.recorded = False  # the outcome is durable, as it became with the version that the run made

    async def go(self) -> RunResult:
        """Run, store, record, tell. A lost sandbox is an outcome, and files that could not be stored are told of."""
        await self._prepare()
        try:
            result = await self._run()
        except Exception as error:
            if isinstance(error, CallerError) and not self.log.seq:  # not even begun: its key may be taken again
                await self.record.refuse(error)
            elif self.unrecorded is None:
                version = self.mirror.workspace.version
                reason = "a fault of the service ended it"
                await self.record.lose(nothing_ran(self.id, Outcome.LOST, version, InterpreterState.LOST, reason))
            raise
        if self.recorded:
            await self.record.ended()
        else:
            result = await self.record.end(result, self.results.blobs, self.log.seq + 1)
        self.mirror.client.acknowledge(self.id, self.conversation.mark())
        self.log.add("done", {}, result=result)
        return result

    async def _prepare(self) -> None:
        """What comes before the run is sent."""
        client = self.mirror.client
        self.before = await client.usage()
        await client.sandbox.reset_peak()
        await self.record.begin()

    def _events(self) -> AsyncIterator[Event | RunEnd]:
        """Send the run; what its sandbox tells of it."""
        mark = self.conversation.mark(RunMark.of(self.id, self.request, self.before.oom_kills or 0))
        return self.mirror.client.run(self.id, self.request, mark, self._told)

    def _told(self) -> list[int]:
        """For the next start of the service: how much was told of the run when its events were acknowledged."""
        return [self.log.seq, len(self.results.results), len(self.results.blobs)]

    def _streams(self, stack: AsyncExitStack) -> dict[str, StreamRecorder]:
        shows = self.limits.output_bytes or 0
        return {name: StreamRecorder(self.mirror.workspace, shows, stack) for name in ("stdout", "stderr")}

    async def _run(self) -> RunResult:
        client = self.mirror.client
        files: list[Artifact] = []
        async with AsyncExitStack() as stack:
            streams = self._streams(stack)
            try:
                await self._listen(streams)
                await self._note_begun()
                usage = await client.usage()
                if self.end is not None and self.unrecorded is None:
                    if not (self.end.survivors or self.end.unusable or self.end.truncated):
                        self.facts = await self._facts(usage, streams)
                    files = await self._commit(self.end)
            except (SandboxLost, ProtocolError) as error:
                self.end, self.facts, self.failure = None, None, error.cause or error.detail
                usage = await client.usage()
            except BaseException as error:
                if not isinstance(error, CallerError) or self.log.seq:  # else refused before it began
                    await self.conversation.drop("sandbox_lost")
                raise
            if self.end is None or self.end.survivors or self.end.unusable:
                await self.conversation.drop("sandbox_lost")
            await self._check_recorded()
            facts = self.facts or await self._facts(usage, streams)
        return self._result(facts, files, self.mirror.workspace.version)

    async def _facts(self, usage: SandboxUsage, streams: dict[str, StreamRecorder]) -> _Facts:
        """What is known of the run whatever becomes of its files. Ask once: it decides what the next run is told."""
        counts = self.end.streams if self.end is not None else dict.fromkeys(streams, _NOTHING)
        shown = {name: await s.finish(counts[name], f"{self.url}/{name}") for name, s in streams.items()}
        killed = max(0, (usage.oom_kills or 0) - (self.before.oom_kills or 0))
        observed = _observed(self.end, self.request, killed)
        state, reason = self.conversation.interpreter_state(self.request, self.end, self.started)
        return _Facts(observed, usage.peak_memory_bytes, shown, state, reason)

    async def _listen(self, streams: dict[str, StreamRecorder]) -> None:
        async for event in self._events():
            if isinstance(event, RunEnd):
                self.end = event
            elif self.unrecorded is None:
                await self._on_event(event, streams)

    async def _note_begun(self) -> None:
        """Wait until it is durable that the run began, or has failed to become so."""
        if self.unrecorded is None:
            try:
                await self.record.durable()
            except FolioboxError as error:
                self.unrecorded = error

    async def _check_recorded(self) -> None:
        """Raises when it is not durable that the run began; what it changed is then undone."""
        await self._note_begun()
        if self.unrecorded is not None:
            if self.end is not None:
                self.conversation.interpreter_state(self.request, self.end, self.started)
                self.mirror.reject(self.end)
            raise self.unrecorded

    def _result(self, facts: _Facts, files: list[Artifact], version: int) -> RunResult:
        end, observed, outcome = self.end, facts.observed, decide(facts.observed)
        listed, left_out = bounded_files(files)
        return RunResult(
            execution_id=self.id,
            outcome=outcome,
            exit_code=observed.exit_code,
            signal=observed.signal,
            duration_ms=end.duration_ms if end else int((time.monotonic() - self.began) * 1000),
            peak_memory_bytes=facts.peak,
            stdout=facts.shown["stdout"],
            stderr=facts.shown["stderr"],
            results=self.results.results,
            error=bounded_error(end.error) if end else None,
            interpreter=facts.state,
            interpreter_reason=facts.reason or _why_lost(facts.state, end, self.failure, outcome),
            version=version,
            files=listed,
            files_error=self.files_error,
            skipped=end.skipped if end else [],
            results_dropped=self.results.dropped + (end.displays_dropped if end else 0),
            files_dropped=left_out,
            rewritten=self.mirror.rewritten,
        )

    async def _on_event(self, event: Event, streams: dict[str, StreamRecorder]) -> None:
        if event.kind == "started":
            self.started = str(event.body.get("interpreter"))
            await self._note_begun()
            if self.unrecorded is None:
                self.log.add("started", {})
            else:
                await self.conversation.interrupt(self.id)
        elif event.kind in streams:
            await streams[event.kind].add(event.body["text"])
            self.log.add(event.kind, {"text": event.body["text"]})
        elif event.kind == "display":
            shown = await self.results.add(event.body, event.attachments)
            if shown is not None:
                self.log.add("display", shown)

    async def _commit(self, end: RunEnd) -> list[Artifact]:
        try:
            if self.conversation.closing:
                raise Unstored("interrupted", "the conversation is being deleted")
            changes, renamed = await self._pull(end)
        except (SandboxLost, ProtocolError):
            raise
        except (FolioboxError, Unstored) as error:
            self.mirror.reject(end)
            self._not_stored(error)
            return []
        if end.truncated:
            self.files_error = {"code": "quota_exceeded", "detail": _TOO_MANY}
        artifacts: list[Artifact] = []
        for number, change in enumerate(changes, 1):
            artifact = _artifact(change, renamed)
            artifacts.append(artifact)
            if artifact.change != "deleted":
                self.log.add("file", {}, artifact=artifact)
            if number % _FILES_AT_ONCE == 0:
                await asyncio.sleep(0)  # listeners who keep up are not to fall behind by our doing
        return artifacts

    async def _pull(self, end: RunEnd) -> tuple[list[FileChange], Mapping[str, str]]:
        """Store what the run changed; gives it, and which paths were renamed."""
        result, changes = await self.mirror.pull(end, self.id, self.limits, self._closing if self.facts else None)
        self.recorded = result.recorded
        return changes, result.renamed

    def _closing(self, version: int, renamed: Mapping[str, str], changes: list[FileChange]) -> Json:
        """The outcome as it will be told once the version is stored."""
        assert self.facts is not None
        files = [_artifact(change, renamed) for change in changes]
        result = self._result(self.facts, files, version)
        told = sum(file.change != "deleted" for file in files)
        return payload_of(result, self.results.blobs, self.log.seq + told + 1)

    def _not_stored(self, error: FolioboxError | Unstored) -> None:
        detail = f"{error.detail.rstrip('.')}. Nothing of this run was stored: its files are as they were before it."
        self.files_error = {"code": error.code, "detail": detail}
        log.warning("files of a run were not stored", code=error.code, detail=error.detail, cause=error.cause)


async def stop_before_it_begins(workspace: Workspace, running: Running) -> RunResult:
    """The result of a run that was interrupted while it waited; nothing of it was executed."""
    execution_id = running.execution_id
    record = RunRecord(workspace, execution_id, running.claim, announced=running.announced)
    await record.begin()
    await record.durable()
    kept = InterpreterState.KEPT
    result = nothing_ran(execution_id, Outcome.INTERRUPTED, workspace.version, kept, "not_started")
    result = await record.end(result, [], 1)
    running.log.add("done", {}, result=result)
    return result


def _observed(end: RunEnd | None, request: RunRequest, killed: int) -> Observed:
    if end is None:
        return Observed(request.language, None, None, None, None, killed, sandbox_lost=True)
    seen = end.observed
    return Observed(seen.language, seen.status, seen.exit_code, seen.signal, seen.stopped_by, killed)


def _why_lost(state: InterpreterState, end: RunEnd | None, failure: str | None, outcome: Outcome) -> str | None:
    if state is not InterpreterState.LOST:
        return None
    if outcome is Outcome.OOM:
        return "it ran out of memory"
    if end is None:
        return f"the sandbox ended: {failure}"[:300]
    if end.observed.stopped_by:
        return "it did not obey the interrupt and was ended"
    if end.failure:
        return end.failure[:300]
    if end.observed.signal is not None:
        return f"its process was ended by signal {end.observed.signal}"
    return f"its process ended with exit code {end.observed.exit_code}"


def _artifact(change: FileChange, renamed: Mapping[str, str]) -> Artifact:
    path = renamed.get(change.path)
    if path is None:
        return Artifact(change.path, change.change, change.entry)
    return Artifact(path, "created", change.entry, renamed_from=change.path)
