"""All conversations of this process: finding them, giving them sandboxes, reaping idle ones."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import Any

from runner.agent.protocol import Json
from runner.backends.base import Backend, BackendReport
from runner.conversations.config import ConversationsConfig
from runner.conversations.conversation import Conversation, new_execution_id
from runner.conversations.execution import Listener
from runner.conversations.output import StoredBlob
from runner.conversations.pool import Pool
from runner.conversations.result import RunResult
from runner.errors import BackendUnavailable, CapacityReached, InvalidRequest, NotFound
from runner.interpreter.client import SandboxClient
from runner.limits.config import LimitsConfig
from runner.model import RunRequest
from runner.telemetry.logs import logger
from runner.workspace.base import ByteStream
from runner.workspace.history import Workspace
from runner.workspace.paths import check_conversation_id
from runner.workspace.workspaces import Workspaces

_SWEEP_S = 5.0
_MAX_ENV_BYTES = 64 << 10
_STOP_S = 8.0
_FORBIDDEN_ENV = ("LD_", "PYTHON")
log = logger("conversations")


class ConversationService:
    """What every surface calls."""

    def __init__(
        self,
        backend: Backend,
        report: BackendReport,
        workspaces: Workspaces,
        config: ConversationsConfig,
        limits: LimitsConfig,
    ) -> None:
        self.report = report
        self.limits = limits
        self._backend, self._workspaces, self._config = backend, workspaces, config
        self._conversations: dict[tuple[str, str], Conversation] = {}
        self._pool = Pool(backend, limits.sandbox, config.pool_size, config.ready_timeout_s, self._may_grow)
        self._runs: set[asyncio.Task[RunResult]] = set()
        self._reaper: asyncio.Task[None] | None = None
        self._admission = asyncio.Lock()
        self._acquiring = 0

    # -- life of the service -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Remove what a dead runner left, then keep spares and reap idle sandboxes."""
        left = await self._backend.sweep()
        if left:
            log.warning("removed sandboxes of a dead runner", count=left)
        if self.report.available:
            self._pool.start()
        self._reaper = asyncio.create_task(self._reap())

    async def close(self) -> None:
        """Interrupt what runs, let it store its files, then end every sandbox."""
        if self._reaper is not None:
            self._reaper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reaper
        await self._pool.close()
        await asyncio.gather(*(c.close() for c in self._conversations.values()), return_exceptions=True)
        if self._runs:
            await asyncio.wait(self._runs, timeout=_STOP_S)
        await asyncio.gather(*(c.drop(None) for c in self._conversations.values()), return_exceptions=True)

    @property
    def live(self) -> int:
        """Sandboxes in use by conversations."""
        return sum(conversation.alive for conversation in self._conversations.values())

    @property
    def spares(self) -> int:
        """Sandboxes that wait to be used."""
        return self._pool.ready

    @property
    def pool_size(self) -> int:
        """How many sandboxes are to wait."""
        return self._config.pool_size

    # -- conversations -----------------------------------------------------------------------------------------

    async def find(self, tenant: str, identifier: str) -> Conversation:
        """A conversation that exists. Raises NotFound."""
        known = self._known(tenant, identifier)
        if known is not None:
            return known
        workspace = await self._workspaces.find(tenant, identifier)
        if workspace is None:
            raise NotFound(f"there is no conversation {identifier!r}: create it with PUT, or check the id")
        return self._remember(workspace, known=True)

    async def ensure(self, tenant: str, identifier: str) -> tuple[Conversation, bool]:
        """A conversation, made when there is none; the second value says whether it was."""
        known = self._known(tenant, identifier)
        if known is not None:
            return known, False
        workspace, created = await self._workspaces.create(tenant, identifier)
        return self._remember(workspace, known=not created), created

    def _known(self, tenant: str, identifier: str) -> Conversation | None:
        """A conversation that this process has in memory; being asked for counts as use."""
        conversation = self._conversations.get((tenant, check_conversation_id(identifier)))
        if conversation is not None:
            conversation.last_used = time.monotonic()
        return conversation

    def _remember(self, workspace: Workspace, *, known: bool) -> Conversation:
        key = (workspace.tenant, workspace.id)
        conversation = self._conversations.get(key)
        if conversation is None:
            conversation = Conversation(workspace, self._workspaces, self.limits, known=known)
            self._conversations[key] = conversation
        return conversation

    async def page(self, tenant: str, after: str | None, limit: int) -> list[str]:
        """Ids, in order, greater than ``after``."""
        return await self._workspaces.list(tenant, after, limit)

    async def purge(self, tenant: str, identifier: str) -> None:
        """Delete a conversation with all its versions; idempotent. Raises Busy."""
        try:
            conversation = await self.find(tenant, identifier)
        except NotFound:
            return
        await conversation.close()
        async with conversation.lock:
            await conversation.drop(None)
            await self._workspaces.purge(tenant, identifier)
            if self._conversations.get(conversation.key) is conversation:
                del self._conversations[conversation.key]

    async def labels(self, conversation: Conversation) -> dict[str, str]:
        """A conversation's labels."""
        workspace = conversation.workspace
        record = await self._workspaces.read_record(workspace.tenant, "conversation", workspace.id)
        if record is None or record.get("incarnation") != workspace.incarnation:
            return {}
        return dict(record["labels"])

    async def set_labels(self, conversation: Conversation, labels: Mapping[str, str]) -> None:
        """Replace a conversation's labels."""
        if dict(labels) != await self.labels(conversation):
            workspace = conversation.workspace
            payload = {"labels": dict(labels), "incarnation": workspace.incarnation}
            await self._workspaces.put_record(workspace.tenant, "conversation", workspace.id, payload)

    # -- runs --------------------------------------------------------------------------------------------------

    async def run(
        self,
        tenant: str,
        identifier: str,
        request: RunRequest,
        listener: Listener | None = None,
        execution_id: str | None = None,
    ) -> RunResult:
        """Run a cell in a conversation. A caller who goes away does not stop it: its result is stored."""
        self._check(request)
        conversation, _ = await self.ensure(tenant, identifier)
        work = conversation.run(execution_id or new_execution_id(), request, self._acquire, listener)
        task = asyncio.create_task(work)
        self._runs.add(task)
        task.add_done_callback(self._runs.discard)
        return await asyncio.shield(task)

    def _check(self, request: RunRequest) -> None:
        size = len(request.code.encode("utf-8", "surrogatepass"))
        if size > self.limits.max_code_bytes:
            raise InvalidRequest(
                f"code has {size} bytes, the limit is {self.limits.max_code_bytes}: put data into a file instead",
                limit=self.limits.max_code_bytes,
            )
        if "\0" in request.code and request.language == "bash":
            raise InvalidRequest("bash code must not contain NUL characters")
        if request.stdin is not None and len(request.stdin) > self.limits.max_stdin_bytes:
            raise InvalidRequest(
                f"stdin is longer than {self.limits.max_stdin_bytes} bytes: put it into a file instead",
                limit=self.limits.max_stdin_bytes,
            )
        env_size = sum(len(name) + len(value.encode()) for name, value in request.env.items())
        if env_size > _MAX_ENV_BYTES:
            raise InvalidRequest(
                f"env holds {env_size} bytes, the limit is {_MAX_ENV_BYTES}: put data into a file instead"
            )
        for name, value in request.env.items():
            if not name or "=" in name or "\0" in name + value:
                raise InvalidRequest(f"env: {name!r} is not a usable variable name or value")
            if name.upper().startswith(_FORBIDDEN_ENV):
                raise InvalidRequest(f"env: {name} is refused: LD_* and PYTHON* change how programs are loaded")

    async def reset(self, tenant: str, identifier: str) -> None:
        """A new interpreter, same files."""
        conversation = await self.find(tenant, identifier)
        async with conversation.held():
            await conversation.reset()

    async def execution_blob(
        self, tenant: str, identifier: str, execution_id: str, name: str, number: int | None
    ) -> tuple[StoredBlob, ByteStream]:
        """Something a result refers to: ``results`` with a number, or ``stdout``/``stderr``. Raises NotFound."""
        conversation = await self.find(tenant, identifier)
        record = await self._workspaces.read_record(tenant, "execution", execution_id)
        owner = {"conversation": identifier, "incarnation": conversation.workspace.incarnation}
        if record is None or any(record.get(name) != value for name, value in owner.items()):
            raise NotFound("there is no such execution, or nothing of it was kept")
        entry = self._entry(record, name, number)
        if entry is None:
            raise NotFound("this execution has no such result")
        blob = StoredBlob(str(entry[0]), int(entry[1]), str(entry[2]))
        return blob, await conversation.workspace.open_blob(blob.blob, blob.size)

    @staticmethod
    def _entry(record: Json, name: str, number: int | None) -> list[Any] | None:
        entries = record["results"]
        if number is None:
            found: list[Any] | None = record["streams"].get(name)
        else:
            found = entries[number] if 0 <= number < len(entries) else None
        return found

    # -- sandboxes ---------------------------------------------------------------------------------------------

    def _may_grow(self) -> bool:
        return self.live + self._acquiring + self._pool.count < self._config.max_live

    async def _acquire(self) -> SandboxClient:
        """A sandbox for a conversation; at the cap the longest idle one is dropped. Raises CapacityReached."""
        if not self.report.available:
            raise BackendUnavailable(self.report.detail or "no backend is available")
        async with self._admission:
            while not (self._pool.ready or self._may_grow()):
                if self._pool.count:
                    await self._pool.wait_for_spare()
                elif not await self._evict():
                    raise CapacityReached(
                        f"all {self._config.max_live} sandboxes are busy; try again soon, or raise "
                        "SANDBOX_MAX_SESSIONS",
                        limit=self._config.max_live,
                        retry_after_ms=1000,
                    )
            self._acquiring += 1
        try:
            return await self._pool.take()
        finally:
            self._acquiring -= 1

    async def _evict(self) -> bool:
        idle = [c for c in self._conversations.values() if c.mirror is not None and not c.busy]
        if not idle:
            return False
        victim = min(idle, key=lambda conversation: conversation.last_used)
        async with victim.held():
            await victim.drop("evicted")
        log.info("evicted", conversation=victim.workspace.id)
        return True

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(min(_SWEEP_S, self._config.idle_ttl_s / 2))
            for conversation in list(self._conversations.values()):
                try:
                    await self._reap_one(conversation, time.monotonic() - self._config.idle_ttl_s)
                except Exception:  # one that cannot be ended must not keep the others alive
                    log.exception("could not reap", conversation=conversation.workspace.id)
            self._pool.wake()

    async def _reap_one(self, conversation: Conversation, deadline: float) -> None:
        """End a sandbox that is idle or dead, and forget a conversation that has been without one for long."""
        if conversation.busy:
            return
        idle = conversation.last_used < deadline
        if conversation.mirror is None:
            if idle and self._conversations.get(conversation.key) is conversation:
                del self._conversations[conversation.key]
        elif idle or not conversation.alive:
            async with conversation.held():
                await conversation.drop("idle" if idle else "sandbox_lost")
