"""One conversation in this process: its lock, its live sandbox, and the way a run goes."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from runner.agent.protocol import Json
from runner.conversations.output import ResultRecorder, StreamRecorder
from runner.conversations.result import Artifact, RunEvent, RunResult
from runner.conversations.sync import Mirror
from runner.errors import Busy, ProtocolError, SandboxLost
from runner.interpreter.client import Event, RunEnd, SandboxClient
from runner.interpreter.outcomes import Observed, decide
from runner.limits.config import LimitsConfig
from runner.model import FileChange, InterpreterState, Outcome, RunRequest
from runner.telemetry.logs import logger
from runner.workspace.history import Workspace
from runner.workspace.workspaces import Workspaces

Listener = Callable[[RunEvent], Awaitable[None]]
Acquire = Callable[["Conversation"], Awaitable[SandboxClient]]
log = logger("conversation")


class Conversation:
    """A conversation that this process serves. At most one run at a time; files may be put meanwhile."""

    def __init__(self, workspace: Workspace, workspaces: Workspaces, limits: LimitsConfig, *, known: bool) -> None:
        self.workspace = workspace
        self.lock = asyncio.Lock()
        self.mirror: Mirror | None = None
        self.last_used = time.monotonic()
        self.execution_id: str | None = None
        self._workspaces, self._limits = workspaces, limits
        self._lost_reason: str | None = "restored" if known else None
        self._fresh_sandbox = True

    @property
    def key(self) -> tuple[str, str]:
        """Tenant and id."""
        return self.workspace.tenant, self.workspace.id

    @property
    def busy(self) -> bool:
        """Whether something holds the conversation now."""
        return self.lock.locked()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """The conversation's lock, waited for a bounded time. Raises Busy."""
        limit = self._limits.queue_timeout_s
        try:
            await asyncio.wait_for(self.lock.acquire(), limit)
        except TimeoutError:
            raise Busy(
                "the conversation is still running something else; wait, interrupt it, or send this later",
                retry_after_ms=1000,
            ) from None
        try:
            yield
        finally:
            self.last_used = time.monotonic()
            self.lock.release()

    # -- sandbox ---------------------------------------------------------------------------------------------

    async def live(self, acquire: Acquire) -> Mirror:
        """The sandbox with all files in place; a new one when there is none. Call with the lock held."""
        for attempt in (1, 2):
            if self.mirror is None or not self.mirror.client.alive:
                await self.drop("sandbox_lost" if self.mirror is not None else None)
                self.mirror = Mirror(self.workspace, await acquire(self))
                self._fresh_sandbox = True
            try:
                await self.mirror.push()
                return self.mirror
            except (SandboxLost, ProtocolError):
                await self.drop("sandbox_lost")
                if attempt == 2:
                    raise
        raise AssertionError("unreachable")

    async def drop(self, reason: str | None) -> None:
        """End the sandbox; files stay in the store. ``reason`` is told with the next run."""
        mirror, self.mirror = self.mirror, None
        if reason is not None:
            self._lost_reason = reason
        if mirror is not None:
            await mirror.client.destroy()

    async def reset(self) -> None:
        """A new interpreter, same files. Call with the lock held."""
        if self.mirror is not None:
            self._lost_reason = "reset"
            self._fresh_sandbox = True
            try:
                await self.mirror.client.reset()
            except (SandboxLost, ProtocolError):
                await self.drop("reset")

    async def interrupt(self, execution_id: str | None) -> bool:
        """Interrupt the run going on (or only the one named); False when there is none. Needs no lock."""
        running, mirror = self.execution_id, self.mirror
        if running is None or mirror is None or (execution_id is not None and execution_id != running):
            return False
        try:
            return await mirror.client.interrupt(running)
        except (SandboxLost, ProtocolError):
            return False

    # -- runs ------------------------------------------------------------------------------------------------

    async def run(
        self, execution_id: str, request: RunRequest, acquire: Acquire, listener: Listener | None = None
    ) -> RunResult:
        """Run a cell and store what it made. Only an impossible request or a broken service raises."""
        async with self.held():
            mirror = await self.live(acquire)
            self.execution_id = execution_id
            try:
                return await _Execution(self, mirror, execution_id, request, listener).go()
            finally:
                self.execution_id = None

    def base_url(self, execution_id: str) -> str:
        """Where what a run showed can be fetched from."""
        return f"/v1/conversations/{self.workspace.id}/executions/{execution_id}"

    def interpreter_state(self, end: RunEnd | None, started: str) -> tuple[InterpreterState, str | None]:
        """What to tell about variables, and why."""
        reason, self._lost_reason = self._lost_reason, None
        fresh, self._fresh_sandbox = self._fresh_sandbox, False
        if end is None or end.interpreter == "lost":
            self._lost_reason = "lost_in_previous_run"
            self._fresh_sandbox = True
            return InterpreterState.LOST, None
        if started == "new" or fresh:
            return InterpreterState.NEW, reason
        return InterpreterState.KEPT, None

    async def record(self, execution_id: str, payload: Json) -> None:
        """Keep what a result refers to."""
        await self._workspaces.put_record(self.workspace.tenant, "execution", execution_id, payload)

    @property
    def output_limit(self) -> int:
        """Bytes of a stream that a result shows."""
        return self._limits.max_output_bytes


class _Execution:
    """The state of one run on the host side."""

    def __init__(
        self,
        conversation: Conversation,
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

    async def go(self) -> RunResult:
        client = self.mirror.client
        ooms = (await client.usage()).oom_kills
        await client.sandbox.reset_peak()
        end: RunEnd | None = None
        failure: str | None = None
        async with AsyncExitStack() as stack:
            limit = self.conversation.output_limit
            streams = {name: StreamRecorder(self.mirror.workspace, limit, stack) for name in ("stdout", "stderr")}
            try:
                async for event in client.run(self.id, self.request):
                    if isinstance(event, RunEnd):
                        end = event
                    else:
                        await self._on_event(event, streams)
            except (SandboxLost, ProtocolError) as error:
                failure = error.cause or error.detail
            usage = await client.usage()
            killed = max(0, (usage.oom_kills or 0) - (ooms or 0))
            commit_files: list[Artifact] = []
            if end is not None:
                try:
                    commit_files = await self._commit(end)
                except (SandboxLost, ProtocolError) as error:
                    end, failure = None, error.cause or error.detail
            if end is None or end.survivors:
                await self.conversation.drop("sandbox_lost")
            empty: Json = {"total": 0, "forwarded": 0, "tail": ""}
            counts = end.streams if end is not None else dict.fromkeys(streams, empty)
            shown = {name: await s.finish(counts[name], f"{self.url}/{name}") for name, s in streams.items()}
        observed = _observed(end, self.request, killed)
        state, reason = self.conversation.interpreter_state(end, self.started)
        outcome = decide(observed)
        if self.request.fresh or self.request.language == "bash":
            reason = None
        result = RunResult(
            execution_id=self.id,
            outcome=outcome,
            exit_code=observed.exit_code,
            signal=observed.signal,
            duration_ms=end.duration_ms if end else int((time.monotonic() - self.began) * 1000),
            peak_memory_bytes=usage.peak_memory_bytes,
            stdout=shown["stdout"],
            stderr=shown["stderr"],
            results=self.results.results,
            error=end.error if end else None,
            interpreter=state,
            interpreter_reason=_why(state, reason, end, failure, outcome),
            version=self.mirror.workspace.version,
            files=commit_files,
            skipped=end.skipped if end else [],
            results_dropped=self.results.dropped,
        )
        await self._record(result)
        client.acknowledge(self.id)
        await self._tell("done", {}, result=result)
        return result

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
        result, changes = await self.mirror.pull(end, self.id)
        artifacts = [_artifact(change, result.renamed) for change in changes]
        for artifact in artifacts:
            if artifact.change != "deleted":
                await self._tell("file", {}, artifact=artifact)
        return artifacts

    async def _record(self, result: RunResult) -> None:
        full = {name: s.full for name, s in (("stdout", result.stdout), ("stderr", result.stderr)) if s.full}
        if not full and not self.results.blobs:
            return
        await self.conversation.record(self.id, {
            "conversation": self.conversation.workspace.id,
            "results": [[b.blob, b.size, b.media_type] for b in self.results.blobs],
            "streams": {name: [b.blob, b.size, b.media_type] for name, b in full.items()},
        })  # fmt: skip

    async def _tell(
        self, kind: str, data: Json, artifact: Artifact | None = None, result: RunResult | None = None
    ) -> None:
        if self.listener is not None:
            self.seq += 1
            await self.listener(RunEvent(self.seq, kind, data, artifact, result))


def _observed(end: RunEnd | None, request: RunRequest, killed: int) -> Observed:
    if end is None:
        return Observed(request.language, None, None, None, None, killed, sandbox_lost=True)
    seen = end.observed
    return Observed(seen.language, seen.status, seen.exit_code, seen.signal, seen.stopped_by, killed)


def _why(
    state: InterpreterState, reason: str | None, end: RunEnd | None, failure: str | None, outcome: Outcome
) -> str | None:
    if state is not InterpreterState.LOST:
        return reason
    if failure is not None:
        return f"the sandbox ended: {failure}"[:300]
    if end is not None and end.failure:
        return end.failure[:300]
    if outcome is Outcome.OOM:
        return "it ran out of memory"
    if end is not None and end.observed.stopped_by:
        return "it did not obey the interrupt and was ended"
    return "its process ended"


def _artifact(change: FileChange, renamed: Mapping[str, str]) -> Artifact:
    path = renamed.get(change.path)
    if path is None:
        return Artifact(change.path, change.change, change.entry)
    return Artifact(path, "created", change.entry, renamed_from=change.path)


def new_execution_id() -> str:
    """128 random bits in hex."""
    return secrets.token_hex(16)
