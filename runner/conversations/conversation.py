"""One conversation in this process: its lock, its live sandbox, and the way a run goes."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from runner.agent.protocol import Json
from runner.conversations.admission import Admission
from runner.conversations.assignments import Assignments
from runner.conversations.execution import Execution, stop_before_it_begins
from runner.conversations.marks import Mark, RunMark
from runner.conversations.pace import Pace, retry_ms
from runner.conversations.result import RunResult
from runner.conversations.resumed import FoundRun, ResumedExecution
from runner.conversations.runs import Running
from runner.conversations.settings import ConversationSettings
from runner.conversations.sync import Mirror
from runner.conversations.turns import Turns
from runner.conversations.variables import Variables
from runner.errors import Busy, FolioboxError, NotFound, OwnedElsewhere, ProtocolError, QuotaExceeded, SandboxLost
from runner.interpreter.client import RunEnd, SandboxClient
from runner.limits.config import LimitsConfig
from runner.model import InterpreterState, Network, RunLimits, RunRequest, SandboxLimits
from runner.workspace.history import Workspace
from runner.workspace.owners import Owners


class Withdrawn(Exception):
    """A run was interrupted while it waited for a sandbox."""


_INTERRUPT_TRIES, _INTERRUPT_PAUSE_S = 5, 0.02
_RUN_S = 2.0  # what a turn is taken to last before the first one has ended


@dataclass
class _Run:
    """A run from its request to its result: waiting, then ``current`` (has the lock), then ``executing``."""

    id: str
    current: bool = False
    executing: bool = False
    cancelled: bool = False


class Conversation:
    """A conversation that this process serves. At most one run at a time; files may be put meanwhile."""

    def __init__(
        self,
        workspace: Workspace,
        limits: LimitsConfig,
        admission: Admission,
        owners: Owners,
        idle_ttl_s: float,
        check_disk: Callable[[int], None] = lambda size: None,
        assignments: Assignments | None = None,
        *,
        known: bool,
    ) -> None:
        self.workspace = workspace
        self._assignments = assignments or Assignments()
        self._check_disk = check_disk  # whether a run may store so many bytes
        self.lock = Turns()
        self.mirror: Mirror | None = None
        self.last_used = self.asked_for = time.monotonic()
        self.closing = self.has_network = False
        self._runs: dict[str, _Run] = {}
        self._limits, self._idle_ttl_s = limits, idle_ttl_s
        self._admission, self._owners = admission, owners
        self.configuring = asyncio.Lock()
        self._turn_s = Pace(_RUN_S)
        self._asked_at = 0.0  # when the request that has the turn came, and whether it had to wait for it
        self._waited = False
        self.settings = ConversationSettings()
        self.effective = self.settings.effective(limits, idle_ttl_s)
        self.started_with: SandboxLimits | None = None
        self._variables = Variables("restored" if known else None)

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
        """Whether something holds the conversation now, or waits for it."""
        return self.lock.locked()

    @property
    def evictable(self) -> bool:
        """Whether it has a sandbox that nobody uses or waits for."""
        return self.mirror is not None and not self.lock.locked() and not self.closing

    @property
    def memorable(self) -> bool:
        """Whether the next run is to be told something that only this process knows."""
        return self._variables.memorable

    def apply(self, settings: ConversationSettings) -> None:
        """Let settings hold: for files at once, for the sandbox with the next one."""
        self.settings = settings
        self.effective = settings.effective(self._limits, self._idle_ttl_s)
        box = self.effective.sandbox
        self.workspace.limit(box.workspace_bytes, box.workspace_files)

    @asynccontextmanager
    async def held(self, asked_at: float | None = None) -> AsyncIterator[None]:
        """The conversation's turn, waited for a bounded time. Raises Busy, QueueFull, Stopping, NotFound.

        ``asked_at`` (monotonic): when the request came, if not now.
        """
        self._check_open()
        asked_at = time.monotonic() if asked_at is None else asked_at
        waited = not self.lock.try_acquire()
        if waited:
            with self._admission.place(self.key[0], self.lock.waiting, self._turn_s.mean_s):
                await self._wait_for_turn()
        try:
            self._check_open()
            self._asked_at, self._waited = asked_at, waited
            began = time.monotonic()
            yield
            self._turn_s.note(began)
        finally:
            self.last_used = time.monotonic()
            self.lock.release()
            if not self.lock.locked():
                self._admission.kick()

    def _check_open(self) -> None:
        self._admission.check_open()
        if self.closing or self.workspace.purged:
            raise self._deleted()

    @staticmethod
    def _deleted() -> NotFound:
        return NotFound("the conversation was deleted meanwhile; send the request again to make a new one")

    async def _wait_for_turn(self) -> None:
        behind = self.lock.waiting + 1
        try:
            async with asyncio.timeout(self._limits.queue.timeout_s):
                await self.lock.acquire()
        except TimeoutError:
            raise Busy(
                "the conversation is still running something else; wait, interrupt it, or send this later",
                retry_after_ms=retry_ms(behind * self._turn_s.mean_s),
            ) from None

    def refuse_waiting(self, error: Callable[[], FolioboxError]) -> None:
        """Send away every request that has not begun: those that wait for the turn, or for a sandbox."""
        self.lock.refuse(error)
        self._admission.refuse(self, error())

    # -- sandbox ---------------------------------------------------------------------------------------------

    async def live(self, network: Network = None) -> Mirror:
        """The sandbox with all files in place; a new one when there is none with such a ``network`` (None: as the
        setting says). Call with the lock held.

        Raises what ``Admission.acquire`` does, OwnedElsewhere, QuotaExceeded when the files do not fit, SandboxLost.
        """
        try:
            await self._owners.acquire(self.workspace)
        except OwnedElsewhere:
            await self.drop("sandbox_lost")  # ours is not up to date any more
            raise
        wanted = self.settings.wants(network, self.has_network if self.alive else None)
        if self.alive and self.has_network != wanted:
            await self.drop("network_changed")
            await self._owners.acquire(self.workspace)
        try:
            return await self._filled(wanted)
        finally:
            if self.mirror is None:
                await self._owners.release(self.workspace)

    async def _filled(self, network: bool) -> Mirror:
        for attempt in (1, 2):
            if self.mirror is None or not self.mirror.client.alive:
                await self.drop("sandbox_lost" if self.mirror is not None else None)
                await self._owners.acquire(self.workspace)  # the drop has given it up
                self.mirror = Mirror(self.workspace, await self._acquire(network), self._check_disk)
                if self.mirror.client.adoptable:
                    await self._note_assignment(self.mirror.client)
            try:
                await self.mirror.push()
                return self.mirror
            except QuotaExceeded:
                await self.drop("sandbox_lost")  # some of the files are in it, and nobody knows which
                raise
            except (SandboxLost, ProtocolError):
                await self.drop("sandbox_lost")
                if attempt == 2:
                    raise
        raise AssertionError("unreachable")

    async def _acquire(self, network: bool) -> SandboxClient:
        wanted = self.effective.sandbox
        own = None if wanted == self._limits.sandbox else wanted
        deadline = self._asked_at + self._limits.queue.timeout_s
        client = await self._admission.acquire(
            self, deadline, since=self._asked_at, own=own, entitled=self._waited, network=network
        )
        self.started_with, self.has_network = wanted, network
        return client

    async def _note_assignment(self, client: SandboxClient) -> None:
        assert self.started_with is not None
        await self._assignments.note(client.sandbox_id, self.workspace, self.started_with, network=self.has_network)

    def mark(self, run: RunMark | None = None) -> Json | None:
        """What the sandbox is to remember for the next start of the service; None where it does not live so long."""
        mirror = self.mirror
        if mirror is None or not mirror.client.adoptable:
            return None
        seq = max(0, mirror.draft_seq)
        return Mark(mirror.version, seq, self._variables.there, self._variables.reason, run).json()

    async def take_over(
        self, client: SandboxClient, started_with: SandboxLimits, mark: Mark | None, *, network: bool = False
    ) -> Mirror:
        """Have a sandbox that an earlier start of the service gave to this conversation.

        ``mark`` says what is in it; None: nobody knows. Raises OwnedElsewhere, NotFound for a state that never was.
        """
        mirror = Mirror(self.workspace, client, self._check_disk)
        if mark is None or mark.version < 0:
            mirror.forget()
        else:
            await mirror.take_over(mark.version, mark.draft_seq)
        await self._owners.acquire(self.workspace)
        self.mirror, self.started_with, self.has_network = mirror, started_with, network
        self.last_used = time.monotonic()
        if mark is not None:
            self._variables.there, self._variables.reason = mark.variables, mark.reason
        self._admission.adopt(self)
        return mirror

    async def leave(self) -> None:
        """Let go of the sandbox for the next start of the service; end it where it cannot wait for that."""
        mirror = self.mirror
        if mirror is None or not mirror.client.adoptable or self.busy:
            await self.drop(None)
            return
        try:
            await mirror.client.detach()
        except (SandboxLost, ProtocolError):
            await self.drop(None)
            return
        self.mirror = None
        self._admission.release(self)
        await self._owners.release(self.workspace)

    async def drop(self, reason: str | None) -> None:
        """End the sandbox; files stay in the store. ``reason`` is told with the next run."""
        mirror, self.mirror = self.mirror, None
        self._variables.forget(reason)
        if mirror is not None:
            try:
                await mirror.client.destroy()
            finally:
                self._admission.release(self)
            if mirror.client.adoptable:
                await self._assignments.forget(mirror.client.sandbox_id)
            await self._owners.release(self.workspace)

    async def evict(self, reason: str = "evicted") -> None:
        """End the sandbox if nobody uses it or waits for it."""
        if self.evictable and self.lock.try_acquire():
            try:
                await self.drop(reason)
            finally:
                self.lock.release()

    async def reset(self) -> None:
        """A new interpreter, same files. Call with the lock held."""
        if self.mirror is not None:
            try:
                await self.mirror.client.reset()
            except (SandboxLost, ProtocolError):
                await self.drop("reset")
        self._variables.forget("reset")
        if self.mirror is not None and self.mirror.client.adoptable:
            self.mirror.client.mark(self.mark())

    async def interrupt(self, execution_id: str | None) -> bool:
        """Stop the run going on (or the one named, also while it waits); False when there is none. Needs no lock."""
        run = self._current() if execution_id is None else self._runs.get(execution_id)
        if run is None:
            return False
        run.cancelled = True
        if run.current and not run.executing:
            self._admission.refuse(self, Withdrawn())
        mirror = self.mirror
        if run.executing and mirror is not None:
            try:
                return await self._interrupt(run, mirror)
            except (SandboxLost, ProtocolError):
                await mirror.client.destroy()  # it does not even answer: the run ends as crashed
        return True

    async def _interrupt(self, run: _Run, mirror: Mirror) -> bool:
        """Interrupt in the sandbox, or the storing of what the run changed.

        A run that was just sent may not have arrived in the sandbox yet.
        """
        for _ in range(_INTERRUPT_TRIES):
            if mirror.stop_storing() or await mirror.client.interrupt(run.id):
                return True
            if run.id not in self._runs:
                break
            await asyncio.sleep(_INTERRUPT_PAUSE_S)
        return False

    def _current(self) -> _Run | None:
        """The run that has the sandbox or waits for it; runs behind it in the queue are not meant."""
        return next((run for run in self._runs.values() if run.current), None)

    async def stop(self) -> None:
        """Send away what waits and interrupt what runs."""
        self.refuse_waiting(self._deleted)
        await self.interrupt_all()

    async def kill(self) -> None:
        """End the sandbox under a run that does not end; the run then ends as crashed, with what it has shown."""
        if self._runs and self.mirror is not None:
            self.mirror.stop_storing()
            await self.mirror.client.destroy()

    async def interrupt_all(self) -> None:
        """Interrupt what runs and what waits."""
        for run in list(self._runs.values()):
            await self.interrupt(run.id)

    # -- runs ------------------------------------------------------------------------------------------------

    async def run(self, running: Running, request: RunRequest, asked_at: float | None = None) -> RunResult:
        """Run a cell and store what it made. Only an impossible request or a broken service raises."""
        run = self._runs[running.execution_id] = _Run(running.execution_id)
        try:
            async with self.held(asked_at):
                run.current = True
                mirror = None if run.cancelled else await self._live_unless_withdrawn(request.network)
                if mirror is None or run.cancelled:
                    return await stop_before_it_begins(self.workspace, running)
                run.executing = True
                request = replace(request, timeout_ms=min(request.timeout_ms, self.effective.timeout_ms))
                return await Execution(self, mirror, running, request).go()
        finally:
            del self._runs[running.execution_id]

    async def resume(self, running: Running, found: FoundRun) -> RunResult:
        """See a run to its end that an earlier start of the service began in the sandbox that is here."""
        self._runs[running.execution_id] = _Run(running.execution_id, current=True, executing=True)
        try:
            async with self.held():
                assert self.mirror is not None
                timeout_ms = min(found.mark.timeout_ms, self.effective.timeout_ms)
                request = replace(found.mark.request, timeout_ms=timeout_ms)
                return await ResumedExecution(self, self.mirror, running, request, found).go()
        finally:
            del self._runs[running.execution_id]

    async def _live_unless_withdrawn(self, network: Network) -> Mirror | None:
        with contextlib.suppress(Withdrawn):
            return await self.live(network)
        return None

    def base_url(self, execution_id: str) -> str:
        """Where what a run showed can be fetched from."""
        return f"/v1/conversations/{self.workspace.id}/executions/{execution_id}"

    def interpreter_state(
        self, request: RunRequest, end: RunEnd | None, started: str
    ) -> tuple[InterpreterState, str | None]:
        """Whether the conversation's variables are still there after a run, and if not, why."""
        return self._variables.after(request, end, started)

    def run_limits(self, request: RunRequest) -> RunLimits:
        """What a run may give back: what it asks for, at most what its conversation and the deployment allow."""
        return request.limits.within(replace(self._limits.run, output_bytes=self.effective.output_bytes))


def new_execution_id() -> str:
    """128 random bits in hex."""
    return secrets.token_hex(16)
