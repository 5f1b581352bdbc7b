"""All conversations of this process: finding them, giving them sandboxes, reaping idle ones."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from runner.backends.base import Backend, BackendReport
from runner.conversations import configure, listing
from runner.conversations.admission import Admission
from runner.conversations.adoption import Adoption
from runner.conversations.assignments import Assignments
from runner.conversations.checks import check_network, check_request
from runner.conversations.config import ConversationsConfig
from runner.conversations.conversation import Conversation, new_execution_id
from runner.conversations.output import StoredBlob
from runner.conversations.pool import COME_AGAIN_MS, Pool
from runner.conversations.reaper import Reaper
from runner.conversations.records import Claim, claimed
from runner.conversations.residents import Residents
from runner.conversations.runs import Running, Runs, not_there
from runner.conversations.settings import ConversationSettings
from runner.conversations.takeover import NOT_LISTED, Takeover
from runner.errors import BackendUnavailable, Busy, NotFound, StoreFailed
from runner.limits.config import LimitsConfig
from runner.limits.pressure import Pressure
from runner.model import RunRequest
from runner.telemetry.logs import logger
from runner.workspace.aside import aside
from runner.workspace.base import ByteStream, Staging
from runner.workspace.history import Workspace
from runner.workspace.owners import Owners
from runner.workspace.paths import check_conversation_id
from runner.workspace.workspaces import Workspaces

_OBEY_S, _KILL_S = 8.0, 4.0  # how long interrupted runs have to end, and killed ones to be told of
_PURGE_S = 60.0
_SMALL_COMMIT = 16 << 20  # bytes; sixteen runs at once may use up the reserve of 256 MiB
log = logger("conversations")


class ConversationService:
    """What every surface calls. ``tenant_limit``: how many sandboxes a tenant may have, None for no limit."""

    def __init__(
        self,
        backend: Backend,
        report: BackendReport,
        workspaces: Workspaces,
        owners: Owners,
        config: ConversationsConfig,
        limits: LimitsConfig,
        pressure: Pressure | None = None,
        tenant_limit: Callable[[str], int | None] = lambda tenant: None,
        assignments: Assignments | None = None,
    ) -> None:
        self.report, self.limits = report, limits
        self._config, self._pressure = config, pressure
        self._workspaces, self._owners = workspaces, owners
        self._pool = Pool(
            backend, limits.sandbox, config.spares, config.ready_timeout_s, lambda: self.admission.may_grow()
        )
        self.admission = Admission(self._pool, config.max_live, limits.queue, pressure, tenant_limit)
        self._pool.changed = self.admission.kick
        self._residents = Residents()
        self._assignments = assignments or Assignments()
        self._reaper = Reaper(self._residents, self.admission.kick)
        self.runs = Runs()
        adoption = Adoption(backend, self._assignments, self.find, self.runs, self.admission, owners)
        self._takeover = Takeover(backend, self._assignments, owners, adoption)
        self._draining: asyncio.Task[None] | None = None
        self._purges: dict[Conversation, asyncio.Task[None]] = {}

    # -- life of the service -----------------------------------------------------------------------------------

    async def start(self) -> bool:
        """Take over the sandboxes of an earlier start, remove what else it left, keep spares and reap idle ones.

        What ``renew`` gives.
        """
        done = await self.renew(self.report)
        self._reaper.start()
        return done

    async def renew(self, report: BackendReport) -> bool:
        """Go by what the backend can do now: its engine came up after the service, stopped, or came back.

        Before anything is started what an earlier start left is taken over or removed. False where that could not be
        done yet: nothing is started until this was called again.
        """
        done = not report.available or await self._takeover.attempt()
        self.report = report if done else replace(report, available=False, detail=NOT_LISTED)
        if self.report.available:
            self._pool.use(f"{report.name} {report.runtime} {report.image}")
            self._pool.start()
        else:
            self._pool.hold(self.report.detail)
            self.admission.refuse_all(self._unavailable)
        return done

    def _unavailable(self) -> BackendUnavailable:
        return BackendUnavailable(self.report.detail or "no backend is available", retry_after_ms=COME_AGAIN_MS)

    async def drain(self, grace_s: float | None = None) -> None:
        """Take no new work: what waits is sent away with Stopping, what runs may finish for ``grace_s`` (default:
        the setting) and is then interrupted. Returns when every run has its result, at most 12 s after that.
        """
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain(grace_s))
        await asyncio.shield(self._draining)

    async def _drain(self, grace_s: float | None) -> None:
        self.admission.stop()
        for conversation in self._residents:
            conversation.lock.refuse(self.admission.stopped)
        going_on = self.runs.active()
        if await self.runs.wait(self._config.stop_grace_s if grace_s is None else grace_s):
            return
        log.info("interrupting runs", going_on=self.runs.active(), of=going_on)
        await asyncio.gather(*(c.interrupt_all() for c in self._residents), return_exceptions=True)
        if not await self.runs.wait(_OBEY_S):
            log.warning("runs did not end in time", going_on=self.runs.active())
            await asyncio.gather(*(c.kill() for c in self._residents), return_exceptions=True)
            await self.runs.wait(_KILL_S)

    @property
    def stopping(self) -> bool:
        """Whether no new work is taken."""
        return self.admission.stopping

    async def close(self) -> None:
        """Interrupt what runs, let it store its files, then end every sandbox, or leave it to the next start."""
        await self.drain(0.0)
        await self._reaper.close()
        await self._pool.close()
        keep = self._config.keep_on_stop
        await asyncio.gather(*(c.leave() if keep else c.drop(None) for c in self._residents), return_exceptions=True)
        await self.admission.settle()

    @property
    def live(self) -> int:
        """Sandboxes in use by conversations."""
        return self.admission.live

    @property
    def spares(self) -> int:
        """Sandboxes that wait to be used."""
        return self._pool.ready

    @property
    def pool_size(self) -> int:
        """How many sandboxes are to wait."""
        return self._config.spares

    @property
    def pool_capped(self) -> bool:
        """Whether that is less than was asked for, because there may not be so many sandboxes."""
        return self._config.spares < self._config.pool_size

    @property
    def pressure(self) -> dict[str, str]:
        """What the host is short of: ``ok``, ``short`` or ``unknown`` for each resource."""
        return self._pressure.state() if self._pressure is not None else {}

    def check_upload(self, size: int | None = None) -> None:
        """Whether the disk can take ``size`` more bytes; call before an upload, and while its bytes come.

        Raises StoreFull while there is still room for the commits of running cells.
        """
        if self._pressure is not None:
            self._pressure.check_disk(size or 0)

    def _check_commit(self, size: int) -> None:
        """Whether a run may store ``size`` bytes: a little always, more only where the reserve is not touched.

        Raises StoreFull.
        """
        if size > _SMALL_COMMIT:
            self.check_upload(size)

    # -- conversations -----------------------------------------------------------------------------------------

    async def find(self, tenant: str, identifier: str) -> Conversation:
        """A conversation that exists. Raises NotFound."""
        known = self._residents.get((tenant, check_conversation_id(identifier)))
        if known is not None:
            return known
        workspace = await self._workspaces.find(tenant, identifier)
        if workspace is None:
            raise NotFound(f"there is no conversation {identifier!r}: create it with PUT, or check the id")
        return await self._remember(workspace, known=True)

    async def ensure(self, tenant: str, identifier: str) -> tuple[Conversation, bool]:
        """A conversation, made when there is none; the second value says whether it was."""
        known = self._residents.get((tenant, check_conversation_id(identifier)))
        if known is not None:
            return known, False
        workspace, created = await self._workspaces.create(tenant, identifier)
        return await self._remember(workspace, known=not created), created

    async def known(self, tenant: str, identifier: str) -> Conversation | None:
        """A conversation, or None."""
        with contextlib.suppress(NotFound):
            return await self.find(tenant, identifier)
        return None

    @property
    def new_max_bytes(self) -> int:
        """Bytes that a new conversation may hold."""
        return self._workspaces.max_bytes

    def stage(self, max_bytes: int) -> Staging:
        """Begin an upload, as a context manager; the conversation need not be there yet."""
        return self._workspaces.stage(max_bytes)

    async def receiving(
        self, tenant: str, identifier: str, sizes: Mapping[str, int], if_match: str | None = None
    ) -> Conversation:
        """The conversation for files that were staged, made when it would take them: what is refused makes none.

        ``sizes`` are by canonical path. Raises what ``Workspace.put`` and ``put_many`` raise.
        """
        await aside(len(sizes), self._workspaces.check_first, sizes, if_match)
        return (await self.ensure(tenant, identifier))[0]

    async def _remember(self, workspace: Workspace, *, known: bool) -> Conversation:
        settings = ConversationSettings.stored(await workspace.settings())
        conversation = Conversation(
            workspace,
            self.limits,
            self.admission,
            self._owners,
            self._config.idle_ttl_s,
            self._check_commit,
            self._assignments,
            known=known,
        )
        conversation.apply(settings)
        return self._residents.add(conversation)

    async def page(
        self, tenant: str, after: str | None, limit: int, labels: Mapping[str, str] | None = None
    ) -> listing.Page:
        """Conversations in order, greater than ``after``, that have all of ``labels``."""
        return await listing.page(self._workspaces, tenant, after, limit, labels)

    async def describe(self, conversation: Conversation) -> listing.Description:
        """A conversation with its settings as they are in effect."""
        return listing.Description.of(conversation)

    async def configure(
        self, conversation: Conversation, changes: Mapping[str, Any], idle_cap_ms: int | None = None
    ) -> listing.Description:
        """Change settings as ``configure.change`` says, and raise what it raises."""
        await configure.change(conversation, changes, self.report, idle_cap_ms)
        return await self.describe(conversation)

    async def fork(self, tenant: str, identifier: str, version: int | None, new: str) -> Conversation:
        """A new conversation with the files of a version (None: as they are now) and the limits of this one.

        Raises NotFound, Conflict when the new id is taken, and QuotaExceeded for files that are beyond the limits.
        """
        source = await self.find(tenant, identifier)
        own = source.settings.own()
        workspace = await self._workspaces.fork(source.workspace, version, new, {"labels": {}, **own} if own else None)
        return await self._remember(workspace, known=True)

    async def purge(self, tenant: str, identifier: str) -> None:
        """Delete a conversation with all its versions; idempotent, and done to its end once it was begun.

        Raises Busy when what runs in it cannot be ended.
        """
        try:
            conversation = await self.find(tenant, identifier)
        except NotFound:
            return
        except StoreFailed:  # one that is damaged has no sandbox, and can still be deleted
            await self._workspaces.purge(tenant, identifier)
            return
        task = self._purges.get(conversation)
        if task is None:
            task = self._purges[conversation] = asyncio.create_task(self._purge(conversation))
            task.add_done_callback(lambda _: self._purges.pop(conversation, None))
        await asyncio.shield(task)

    async def _purge(self, conversation: Conversation) -> None:
        conversation.closing = True
        try:
            await conversation.stop()
            async with asyncio.timeout(_PURGE_S):
                await conversation.lock.acquire()
            try:
                await conversation.drop(None)
                with contextlib.suppress(NotFound):  # another runner was faster
                    await conversation.workspace.purge()
            finally:
                conversation.lock.release()
            self._residents.forget(conversation)
        except TimeoutError:
            raise Busy(
                "what runs in the conversation has not ended yet; send this again", retry_after_ms=5000
            ) from None
        finally:
            conversation.closing = conversation.workspace.purged

    # -- runs --------------------------------------------------------------------------------------------------

    async def begin(
        self,
        tenant: str,
        identifier: str,
        request: RunRequest,
        *,
        key: str | None = None,
        announced: bool = True,
        asked_at: float | None = None,
    ) -> Running:
        """Begin a run in a conversation; it waits for its turn and goes on whether or not somebody waits for it.

        ``announced``: whether the caller may learn its id, or tell it, before its outcome. ``asked_at`` (monotonic):
        when the request came, where it has waited already.

        ``key`` is an Idempotency-Key: the run that was begun under it before is given again, whatever became of
        it. A run that is refused before it begins claims no key. Raises KeyReused.
        """
        asked_at = time.monotonic() if asked_at is None else asked_at
        check_request(request, self.limits)
        if key is None:  # with one, what was begun before is still answered
            self.admission.check_open()
            check_network(self.report, request.network is True)  # what is refused makes no conversation
        claim = None if key is None else Claim.of(key, request)
        conversation, _ = await self.ensure(tenant, identifier)
        if claim is not None:
            earlier = await self._begun_under(conversation.workspace, claim)
            if earlier is not None:
                return earlier
        check_network(self.report, conversation.settings.wants(request.network, None))
        if not self.report.available:
            raise self._unavailable()
        return self.runs.start(
            conversation.workspace,
            new_execution_id(),
            claim,
            lambda running: conversation.run(running, request, asked_at),
            announced=announced,
        )

    async def begun(self, conversation: Conversation, request: RunRequest, key: str) -> Running | None:
        """The run that was begun under an Idempotency-Key, if there is one. Claims nothing. Raises KeyReused."""
        return await self._begun_under(conversation.workspace, Claim.of(key, request))

    async def _begun_under(self, workspace: Workspace, claim: Claim) -> Running | None:
        """The run that came before under this key. Nothing is awaited between the last look and None."""
        known = self.runs.find_claim(workspace, claim)
        if known is None:
            execution_id = await claimed(workspace, claim)
            known = self.runs.find_claim(workspace, claim)
            if known is None and execution_id is not None:
                known = self.runs.find(workspace, execution_id)  # one that an earlier start of the service began
            if known is None and execution_id is not None:
                stored = await self._takeover.outcome(workspace, execution_id)
                return Running.stored(execution_id, stored, replayed=True)
        return known and known.again()

    async def execution(self, tenant: str, identifier: str, execution_id: str) -> Running:
        """A run of a conversation, going on or ended. One that was begun and is gone has ended as lost.

        Raises NotFound, and BackendUnavailable while nobody can say whether it goes on.
        """
        workspace = (await self.find(tenant, identifier)).workspace
        known = self.runs.find(workspace, execution_id)
        if known is None:
            return Running.stored(execution_id, await self._takeover.outcome(workspace, execution_id))
        return known

    async def reset(self, tenant: str, identifier: str) -> None:
        """A new interpreter, same files."""
        conversation = await self.find(tenant, identifier)
        async with conversation.held():
            await conversation.reset()

    async def execution_blob(
        self, tenant: str, identifier: str, execution_id: str, name: str, number: int | None
    ) -> tuple[StoredBlob, ByteStream]:
        """Something a result refers to: ``results`` with a number, or ``stdout``/``stderr``. Raises NotFound."""
        running = await self.execution(tenant, identifier, execution_id)
        blob = running.output(name) if number is None else running.shown(number)
        if blob is None:
            raise NotFound(not_there(running, name, number))
        workspace = (await self.find(tenant, identifier)).workspace
        return blob, await workspace.open_blob(blob.blob, blob.size)
