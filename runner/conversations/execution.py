"""One run on the host side: collects what it says, stores what it made, and decides what to tell."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Protocol

from runner.agent.protocol import MAX_ENTRIES, Json
from runner.conversations.output import ResultRecorder, StreamRecorder, StreamText
from runner.conversations.result import Artifact, RunEvent, RunResult
from runner.conversations.sync import Mirror
from runner.errors import CallerError, FolioboxError, ProtocolError, SandboxLost
from runner.interpreter.client import Event, RunEnd
from runner.interpreter.outcomes import Observed, decide
from runner.model import FileChange, InterpreterState, Outcome, RunRequest
from runner.telemetry.logs import logger
from runner.workspace.history import Workspace

Listener = Callable[[RunEvent], Awaitable[None]]
_TOO_MANY = f"the workspace holds more than {MAX_ENTRIES} files, links and folders: what is beyond was not stored"
log = logger("execution")
_NOTHING: Json = {"total": 0, "forwarded": 0, "tail": ""}


class Owner(Protocol):
    """What an execution needs of its conversation."""

    workspace: Workspace

    @property
    def output_limit(self) -> int:
        """Bytes of a stream that a result shows."""
        ...

    def base_url(self, execution_id: str) -> str:
        """Where what a run showed can be fetched from."""
        ...

    async def drop(self, reason: str | None) -> None:
        """End the sandbox."""
        ...

    async def record(self, execution_id: str, payload: Json) -> None:
        """Keep what a result refers to."""
        ...

    def interpreter_state(
        self, request: RunRequest, end: RunEnd | None, started: str
    ) -> tuple[InterpreterState, str | None]:
        """Whether variables are still there after a run, and if not, why."""
        ...


class Execution:
    """A run from its start to its stored result. Use once: ``await Execution(…).go()``."""

    def __init__(
        self,
        conversation: Owner,
        mirror: Mirror,
        execution_id: str,
        request: RunRequest,
        listener: Listener | None,
    ) -> None:
        self.conversation, self.mirror = conversation, mirror
        self.id, self.request, self.listener = execution_id, request, listener
        self.url = conversation.base_url(execution_id)
        self.results = ResultRecorder(conversation.workspace, self.url)
        self.started = "new"
        self.seq = 0
        self.began = time.monotonic()
        self.end: RunEnd | None = None
        self.failure: str | None = None
        self.files_error: Json | None = None

    async def go(self) -> RunResult:
        """Run, store, tell. A lost sandbox is an outcome, and files that could not be stored are told of."""
        client = self.mirror.client
        before = await client.usage()
        await client.sandbox.reset_peak()
        files: list[Artifact] = []
        async with AsyncExitStack() as stack:
            limit = self.conversation.output_limit
            streams = {name: StreamRecorder(self.mirror.workspace, limit, stack) for name in ("stdout", "stderr")}
            try:
                await self._listen(streams)
                usage = await client.usage()
                if self.end is not None:
                    files = await self._commit(self.end)
            except (SandboxLost, ProtocolError) as error:
                self.end, self.failure = None, error.cause or error.detail
                usage = await client.usage()
            except CallerError:
                raise  # refused before it began
            except BaseException:
                await self.conversation.drop("sandbox_lost")
                raise
            if self.end is None or self.end.survivors:
                await self.conversation.drop("sandbox_lost")
            counts = self.end.streams if self.end is not None else dict.fromkeys(streams, _NOTHING)
            shown = {name: await s.finish(counts[name], f"{self.url}/{name}") for name, s in streams.items()}
        killed = max(0, (usage.oom_kills or 0) - (before.oom_kills or 0))
        result = self._result(_observed(self.end, self.request, killed), usage.peak_memory_bytes, shown, files)
        await self._record(result)
        client.acknowledge(self.id)
        await self._tell("done", {}, result=result)
        return result

    async def _listen(self, streams: dict[str, StreamRecorder]) -> None:
        async for event in self.mirror.client.run(self.id, self.request):
            if isinstance(event, RunEnd):
                self.end = event
            else:
                await self._on_event(event, streams)

    def _result(
        self, observed: Observed, peak: int | None, shown: dict[str, StreamText], files: list[Artifact]
    ) -> RunResult:
        end, outcome = self.end, decide(observed)
        state, reason = self.conversation.interpreter_state(self.request, end, self.started)
        return RunResult(
            execution_id=self.id,
            outcome=outcome,
            exit_code=observed.exit_code,
            signal=observed.signal,
            duration_ms=end.duration_ms if end else int((time.monotonic() - self.began) * 1000),
            peak_memory_bytes=peak,
            stdout=shown["stdout"],
            stderr=shown["stderr"],
            results=self.results.results,
            error=end.error if end else None,
            interpreter=state,
            interpreter_reason=reason or _why_lost(state, end, self.failure, outcome),
            version=self.mirror.workspace.version,
            files=files,
            files_error=self.files_error,
            skipped=end.skipped if end else [],
            results_dropped=self.results.dropped,
        )

    async def _on_event(self, event: Event, streams: dict[str, StreamRecorder]) -> None:
        if event.kind == "started":
            self.started = str(event.body.get("interpreter"))
            await self._tell("started", {})
        elif event.kind in streams:
            await streams[event.kind].add(event.body["text"])
            await self._tell(event.kind, {"text": event.body["text"]})
        elif event.kind == "display":
            shown = await self.results.add(event.body, event.attachments)
            if shown is not None:
                await self._tell("display", shown)

    async def _commit(self, end: RunEnd) -> list[Artifact]:
        try:
            result, changes = await self.mirror.pull(end, self.id)
        except (SandboxLost, ProtocolError):
            raise
        except FolioboxError as error:
            self.mirror.reject(end)
            self._not_stored(error)
            return []
        if end.truncated:
            self.files_error = {"code": "quota_exceeded", "detail": _TOO_MANY}
        artifacts = [_artifact(change, result.renamed) for change in changes]
        for artifact in artifacts:
            if artifact.change != "deleted":
                await self._tell("file", {}, artifact=artifact)
        return artifacts

    def _not_stored(self, error: FolioboxError) -> None:
        detail = f"{error.detail}. Nothing of this run was stored: its files are as they were before it."
        self.files_error = {"code": error.code, "detail": detail}
        log.warning("files of a run were not stored", code=error.code, detail=error.detail, cause=error.cause)

    async def _record(self, result: RunResult) -> None:
        full = {name: s.full for name, s in (("stdout", result.stdout), ("stderr", result.stderr)) if s.full}
        if not full and not self.results.blobs:
            return
        payload: Json = {
            "results": [[b.blob, b.size, b.media_type] for b in self.results.blobs],
            "streams": {name: [b.blob, b.size, b.media_type] for name, b in full.items()},
        }
        try:
            await self.conversation.record(self.id, payload)
        except FolioboxError as error:
            log.warning("pictures and long output of a run were not stored", code=error.code, cause=error.cause)

    async def _tell(
        self, kind: str, data: Json, artifact: Artifact | None = None, result: RunResult | None = None
    ) -> None:
        if self.listener is not None:
            self.seq += 1
            await self.listener(RunEvent(self.seq, kind, data, artifact, result))


async def stop_before_it_begins(execution_id: str, version: int, listener: Listener | None) -> RunResult:
    """The result of a run that was interrupted while it waited; nothing of it was executed."""
    nothing = StreamText("", False, 0, None)
    result = RunResult(
        execution_id=execution_id,
        outcome=Outcome.INTERRUPTED,
        exit_code=None,
        signal=None,
        duration_ms=0,
        peak_memory_bytes=None,
        stdout=nothing,
        stderr=nothing,
        results=[],
        error=None,
        interpreter=InterpreterState.KEPT,
        interpreter_reason="not_started",
        version=version,
    )
    if listener is not None:
        await listener(RunEvent(1, "done", {}, result=result))
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
