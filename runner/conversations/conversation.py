"""One conversation in this process: its lock, its live sandbox, and the way a run goes."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from runner.agent.protocol import Json
from runner.conversations.execution import Execution, Listener, stop_before_it_begins
from runner.conversations.result import RunResult
from runner.conversations.sync import Mirror
from runner.errors import Busy, NotFound, ProtocolError, SandboxLost
from runner.interpreter.client import RunEnd, SandboxClient
from runner.limits.config import LimitsConfig
from runner.model import InterpreterState, RunRequest
from runner.workspace.history import Workspace
from runner.workspace.workspaces import Workspaces

_INTERRUPT_TRIES, _INTERRUPT_PAUSE_S = 5, 0.02
Acquire = Callable[[], Awaitable[SandboxClient]]


@dataclass
class _Run:
    """A run from its request to its result: waiting, then ``current`` (has the lock), then ``executing``."""

    id: str
    current: bool = False
    executing: bool = False
    cancelled: bool = False


class Conversation:
    """A conversation that this process serves. At most one run at a time; files may be put meanwhile."""

    def __init__(self, workspace: Workspace, workspaces: Workspaces, limits: LimitsConfig, *, known: bool) -> None:
        self.workspace = workspace
        self.lock = asyncio.Lock()
        self.mirror: Mirror | None = None
        self.last_used = time.monotonic()
        self.closing = False
        self._runs: dict[str, _Run] = {}
        self._workspaces, self._limits = workspaces, limits
        self._has_variables = False
        self._lost_reason: str | None = "restored" if known else None

    @property
    def key(self) -> tuple[str, str]:
        """Tenant and id."""
        return self.workspace.tenant, self.workspace.id

    @property
    def alive(self) -> bool:
        """Whether there is a sandbox that answers."""
        return self.mirror is not None and self.mirror.client.alive

    @property
    def busy(self) -> bool:
        """Whether something holds the conversation now."""
        return self.lock.locked()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """The conversation's lock, waited for a bounded time. Raises Busy."""
        try:
            async with asyncio.timeout(self._limits.queue_timeout_s):
                await self.lock.acquire()
        except TimeoutError:
            raise Busy(
                "the conversation is still running something else; wait, interrupt it, or send this later",
                retry_after_ms=1000,
            ) from None
        try:
            if self.closing or self.workspace.purged:
                raise NotFound("the conversation was deleted meanwhile; send the request again to make a new one")
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
                self.mirror = Mirror(self.workspace, await acquire())
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
        self._forget_variables(reason)
        if mirror is not None:
            await mirror.client.destroy()

    async def reset(self) -> None:
        """A new interpreter, same files. Call with the lock held."""
        if self.mirror is not None:
            try:
                await self.mirror.client.reset()
            except (SandboxLost, ProtocolError):
                await self.drop("reset")
        self._forget_variables("reset")

    def _forget_variables(self, reason: str | None) -> None:
        """Variables are gone; the next run is told why, if there were any."""
        if reason is not None and self._has_variables:
            self._lost_reason = reason
        self._has_variables = False

    async def interrupt(self, execution_id: str | None) -> bool:
        """Stop the run going on (or the one named, also while it waits); False when there is none. Needs no lock."""
        run = self._current() if execution_id is None else self._runs.get(execution_id)
        if run is None:
            return False
        run.cancelled = True
        mirror = self.mirror
        if run.executing and mirror is not None:
            try:
                return await self._interrupt(run, mirror.client)
            except (SandboxLost, ProtocolError):
                await mirror.client.destroy()  # it does not even answer: the run ends as crashed
        return True

    async def _interrupt(self, run: _Run, client: SandboxClient) -> bool:
        """Interrupt in the sandbox; a run that was just sent may not have arrived there yet."""
        for _ in range(_INTERRUPT_TRIES):
            if await client.interrupt(run.id):
                return True
            if run.id not in self._runs:
                break
            await asyncio.sleep(_INTERRUPT_PAUSE_S)
        return False

    def _current(self) -> _Run | None:
        """The run that has the sandbox or waits for it; runs behind it in the queue are not meant."""
        return next((run for run in self._runs.values() if run.current), None)

    async def close(self) -> None:
        """Let no further run begin, stop the one going on, and end the sandbox once it is done. Raises Busy."""
        self.closing = True
        for run in list(self._runs.values()):
            await self.interrupt(run.id)

    # -- runs ------------------------------------------------------------------------------------------------

    async def run(
        self, execution_id: str, request: RunRequest, acquire: Acquire, listener: Listener | None = None
    ) -> RunResult:
        """Run a cell and store what it made. Only an impossible request or a broken service raises."""
        run = self._runs[execution_id] = _Run(execution_id)
        try:
            async with self.held():
                run.current = True
                mirror = None if run.cancelled else await self.live(acquire)
                if mirror is None or run.cancelled:
                    return await stop_before_it_begins(execution_id, self.workspace.version, listener)
                run.executing = True
                return await Execution(self, mirror, execution_id, request, listener).go()
        finally:
            del self._runs[execution_id]

    def base_url(self, execution_id: str) -> str:
        """Where what a run showed can be fetched from."""
        return f"/v1/conversations/{self.workspace.id}/executions/{execution_id}"

    def interpreter_state(
        self, request: RunRequest, end: RunEnd | None, started: str
    ) -> tuple[InterpreterState, str | None]:
        """Whether the conversation's variables are still there after a run, and if not, why."""
        if end is None or end.interpreter == "lost":
            self._has_variables = True  # the run itself may have set some
            self._forget_variables("lost_in_previous_run")
            return InterpreterState.LOST, None
        had = self._has_variables
        if request.fresh or request.language == "bash":
            return (InterpreterState.KEPT if had else InterpreterState.NEW), None
        if had and started == "new":
            self._forget_variables("interpreter_lost")
            had = False
        self._has_variables = True
        reason, self._lost_reason = self._lost_reason, None
        return (InterpreterState.KEPT, None) if had else (InterpreterState.NEW, reason)

    async def record(self, execution_id: str, payload: Json) -> None:
        """Keep what a result refers to, for as long as this incarnation of the conversation lives."""
        workspace = self.workspace
        payload = {**payload, "conversation": workspace.id, "incarnation": workspace.incarnation}
        await self._workspaces.put_record(workspace.tenant, "execution", execution_id, payload)

    @property
    def output_limit(self) -> int:
        """Bytes of a stream that a result shows."""
        return self._limits.max_output_bytes


def new_execution_id() -> str:
    """128 random bits in hex."""
    return secrets.token_hex(16)
