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
        """End every sandbox; all files are in the store already."""
        if self._reaper is not None:
            self._reaper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reaper
        await self._pool.close()
        await asyncio.gather(*(c.drop(None) for c in self._conversations.values()), return_exceptions=True)

    @property
    def live(self) -> int:
        """Sandboxes in use by conversations."""
        return sum(conversation.mirror is not None for conversation in self._conversations.values())

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
        known = self._conversations.get((tenant, check_conversation_id(identifier)))
        if known is not None:
            return known
        workspace = await self._workspaces.find(tenant, identifier)
        if workspace is None:
            raise NotFound(f"there is no conversation {identifier!r}: create it with PUT, or check the id")
        return self._remember(workspace, known=True)

    async def ensure(self, tenant: str, identifier: str) -> tuple[Conversation, bool]:
        """A conversation, made when there is none; the second value says whether it was."""
        known = self._conversations.get((tenant, check_conversation_id(identifier)))
        if known is not None:
            return known, False
        workspace, created = await self._workspaces.create(tenant, identifier)
        return self._remember(workspace, known=not created), created

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
        await conversation.interrupt(None)
        async with conversation.held():
            await conversation.drop(None)
            await self._workspaces.purge(tenant, identifier)
            self._conversations.pop((tenant, identifier), None)

    async def labels(self, tenant: str, identifier: str) -> dict[str, str]:
        """A conversation's labels."""
        record = await self._workspaces.read_record(tenant, "conversation", identifier)
        return dict(record.get("labels", {})) if record else {}

    async def set_labels(self, tenant: str, identifier: str, labels: Mapping[str, str]) -> None:
        """Replace a conversation's labels."""
        if dict(labels) != await self.labels(tenant, identifier):
            await self._workspaces.put_record(tenant, "conversation", identifier, {"labels": dict(labels)})

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
        if record is None or record.get("conversation") != identifier:
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
            if not self._pool.ready:
                while not self._may_grow():
                    if not await self._evict():
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
            deadline = time.monotonic() - self._config.idle_ttl_s
            for conversation in list(self._conversations.values()):
                idle = conversation.mirror is not None and conversation.last_used < deadline
                if idle and not conversation.busy:
                    async with conversation.held():
                        await conversation.drop("idle")
            self._pool.wake()
