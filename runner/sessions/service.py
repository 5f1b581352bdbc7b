"""Sessions: made, found, run in and ended, each in a conversation that outlives them all."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from runner.conversations.conversation import Conversation
from runner.conversations.service import ConversationService
from runner.errors import BackendUnavailable, CapacityReached, NotFound
from runner.objects.block import StorageBlock
from runner.objects.service import ObjectStorage
from runner.sessions.archives import Archives, Restored, Saved
from runner.sessions.config import SessionsConfig
from runner.sessions.files import SessionFiles
from runner.sessions.homes import GONE, Home, Homes, check_id, conversation_of, new_id, usable_key
from runner.sessions.refusals import busy, creates_full
from runner.sessions.runs import SessionRuns, check_there
from runner.sessions.slots import Slots, turn
from runner.telemetry.logs import logger
from runner.workspace.workspaces import Workspaces

_LEAST_SWEEP_S: Final = 0.25
_COME_AGAIN_MS: Final = 5000
log = logger("sessions")


@dataclass(frozen=True, slots=True)
class Created:
    """A session, and what its workspace began with."""

    session: str
    conversation: str
    archive_key: str | None
    found: bool
    restored: Restored
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a session that was deleted; ``known`` is False where there was none."""

    known: bool
    saved: Saved


class SessionService:
    """What the sessions surface calls."""

    def __init__(
        self, conversations: ConversationService, workspaces: Workspaces, objects: ObjectStorage, config: SessionsConfig
    ) -> None:
        self.config, self.objects = config, objects
        self._conversations = conversations
        self._homes = Homes(workspaces)
        self._archives = Archives(objects, conversations, self._homes, config.archive_s)
        self._creates = Slots(config.creates)
        self.files = SessionFiles(conversations, config.upload_bytes)
        self.runs = SessionRuns(conversations, self.files, config)
        self._sweeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to archive what is idle."""
        self._sweeping = asyncio.create_task(self._sweep_forever())

    async def close(self) -> None:
        """Archive no more."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeping

    # -- life of a session -------------------------------------------------------------------------------------

    async def create(
        self, tenant: str, storage: Mapping[str, Any] | None, idle_ttl_s: int | None, archive_key: str | None
    ) -> Created:
        """A new session: of the conversation of its archive key, where that is given, else of a new one.

        Raises QueueFull, CapacityReached, BackendUnavailable, SessionFault.
        """
        deadline = asyncio.get_running_loop().time() + self.config.queue_s
        block = StorageBlock.parse(storage, tenant)
        async with self._creates.taken(deadline, creates_full):
            self._check_can_start()
            session, key = new_id(), usable_key(archive_key)
            conversation = session if key is None else conversation_of(key)
            home = await self._homes.of_conversation(tenant, conversation, key or session)
            async with home.changing:
                made = await self._open(home, session, block if self._archives.effective(block) else None, idle_ttl_s)
        warnings = [*made.warnings]
        if archive_key is not None and key is None:
            warnings.append("archive_key may have 1 to 128 of A-Z a-z 0-9 _ -: this one was not kept")
        return Created(session, conversation, key, made.files is None, made, warnings)

    async def _open(self, home: Home, session: str, block: StorageBlock | None, idle_ttl_s: int | None) -> Restored:
        """Make the id known, with the conversation behind it. ``files`` of the answer is None where that was there."""
        known = await self._conversations.known(home.tenant, home.conversation)
        self._check_room(known)
        restored = Restored()
        if known is None or (home.restoring and not known.workspace.files):
            await self._homes.forget_ids(home)
            home.forget()
            restored = Restored(0) if block is None else await self._archives.restore(home, block)
            known, _ = await self._conversations.ensure(home.tenant, home.conversation)
        home.restoring = False
        if home.incarnation != known.workspace.incarnation:
            await self._homes.forget_ids(home)
            home.incarnation = known.workspace.incarnation
        if block is not None:
            home.use(block)
        await self.runs.take_over(home, known)
        if not home.open:  # else others are at work with the inputs that are there
            await self.files.reset_inputs(known.workspace)
        await self._set_idle_time(known, idle_ttl_s)
        await self._homes.add(home, session)
        _touch(home, known)
        return restored

    async def _set_idle_time(self, conversation: Conversation, idle_ttl_s: int | None) -> None:
        asked = min(max(1, idle_ttl_s), self.config.idle_cap_s) if idle_ttl_s else self.config.idle_ttl_s
        wanted = round(asked * 1000)
        if conversation.effective.idle_ttl_ms != wanted:
            ceiling = max(self.config.idle_cap_s, self.config.idle_ttl_s)
            await self._conversations.configure(
                conversation, {"idle_ttl_ms": max(1000, wanted)}, idle_cap_ms=round(ceiling * 1000)
            )

    def _check_can_start(self) -> None:
        self._conversations.admission.check_open()
        report = self._conversations.report
        if not report.available:
            raise BackendUnavailable(f"sandbox image not available yet: {report.detail or 'no backend'}")

    def _check_room(self, known: Conversation | None) -> None:
        """One that has a sandbox needs no other; and idle ones give way."""
        if (known is None or not known.alive) and self._conversations.admission.exhausted:
            raise CapacityReached("too many active sessions", retry_after_ms=_COME_AGAIN_MS)

    async def find(self, tenant: str, session: str) -> tuple[Home, Conversation]:
        """A session that is open and its conversation, which counts as used now. Raises NotFound, CallerError."""
        home = await self._homes.find(tenant, session)
        try:
            conversation = await self._conversations.find(tenant, home.conversation)
        except NotFound:
            raise NotFound(GONE) from None
        if conversation.workspace.incarnation != home.incarnation:
            raise NotFound(GONE)
        _touch(home, conversation)
        return home, conversation

    async def reset_inputs(self, tenant: str, session: str) -> bool | None:
        """Empty ``uploads`` and ``skills`` while nothing runs. False where the session is gone, None where that is not
        told apart. Raises NotFound then, Busy where its conversation is not free in time.
        """
        told = self.config.reset_gone_answer
        try:
            home, conversation = await self.find(tenant, session)
            deadline = asyncio.get_running_loop().time() + self.config.queue_s
            async with turn(home.turns, deadline, home.busy):
                check_there(conversation)
                await asyncio.shield(self.files.reset_inputs(conversation.workspace))
        except NotFound:
            if not told:
                raise
            return False
        return True if told else None

    async def delete(
        self, tenant: str, session: str, storage: Mapping[str, Any] | None, discard: bool, archive_key: str | None
    ) -> Ended:
        """End a session: its files are archived and kept, or with ``discard`` deleted with all their versions.

        Raises CallerError for what is no id, Busy where its conversation is not free in time.
        """
        check_id(session)
        block = StorageBlock.parse(storage, tenant)
        given = block if self._archives.effective(block) else None
        try:
            home = await self._homes.find(tenant, session)
        except NotFound:
            return await self._discard_unknown(tenant, given, archive_key) if discard else Ended(False, Saved())
        if discard:
            return await self._discard(home, given, archive_key)
        deadline = asyncio.get_running_loop().time() + self.config.queue_s
        async with turn(home.turns, deadline, busy), home.changing:
            return await self._release(home, session, given)

    async def _release(self, home: Home, session: str, given: StorageBlock | None) -> Ended:
        known = await self._conversations.known(home.tenant, home.conversation)
        if given is not None:
            home.use(given)
        saved = Saved() if known is None else await self._archives.save(home, known)
        if known is not None and not set(home.open) - {session}:
            if home.conversation == session and saved.archived is not False:
                # Nobody can name it any more: no archive key leads to it.
                await self._conversations.purge(home.tenant, home.conversation)
                known = None
            else:
                await known.evict("evicted")
        # Last: what is broken off before is begun again.
        await (self._homes.remove(home) if known is None else self._homes.close(home, session))
        return Ended(True, saved)

    async def _discard(self, home: Home, given: StorageBlock | None, archive_key: str | None) -> Ended:
        key = usable_key(archive_key)
        async with home.changing:
            block = given or home.block
            await self._conversations.purge(home.tenant, home.conversation)
            done = await self._archives.discard(home.stem, block)
            await self._homes.remove(home)
        if key is not None and key != home.stem:
            other = await self._discard_unknown(home.tenant, block, key)
            done = done if done.error else other.saved
        return Ended(True, done)

    async def _discard_unknown(self, tenant: str, given: StorageBlock | None, archive_key: str | None) -> Ended:
        """The id is forgotten, its key is not: nothing of it is to be left. A conversation of that name which never
        had a session is none of its.
        """
        key = usable_key(archive_key)
        if key is None:
            return Ended(False, Saved())
        if not await self._homes.recorded(tenant, conversation_of(key)):
            return Ended(False, await self._archives.discard(key, given))
        home = await self._homes.of_conversation(tenant, conversation_of(key), key)
        ended = await self._discard(home, given, key)
        return Ended(False, ended.saved)

    # -- storage and idle ones ---------------------------------------------------------------------------------

    async def sweep_storage(
        self, tenant: str, storage: Mapping[str, Any] | None, max_age_s: int
    ) -> tuple[int, int, int]:
        """Delete old objects: (deleted, scanned, freed bytes). Archives of open sessions stay however old."""
        block = StorageBlock.parse(storage, tenant)
        if not self._archives.effective(block) or max_age_s <= 0:
            return 0, 0, 0
        done = await self.objects.gc(block, max_age_s, partial(self._homes.in_use, tenant))
        return done.deleted, done.scanned, done.freed_bytes

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(max(_LEAST_SWEEP_S, self.config.sweep_s))
            self.objects.forget_idle()
            for home in self._homes:
                try:
                    await self._look_after(home)
                except Exception:  # one that cannot be archived must not keep the others from it
                    log.exception("could not archive", conversation=home.conversation)

    async def _look_after(self, home: Home) -> None:
        """Archive what nobody has used for its idle time and has changed since it was archived; forget ids whose
        conversation was purged by another call than theirs.
        """
        if not home.open or home.turns.locked() or home.changing.locked():
            return
        known = await self._conversations.known(home.tenant, home.conversation)
        if known is None and not home.changing.locked():
            async with home.changing:
                await self._homes.remove(home)
            return
        if (
            known is None
            or home.block is None
            or time.monotonic() - home.last_used <= known.effective.idle_ttl_ms / 1000
        ):
            return
        async with home.changing:
            before = home.saved
            await self._archives.save(home, known)
            if home.saved != before:
                await self._homes.note(home)


def _touch(home: Home, conversation: Conversation) -> None:
    home.last_used = conversation.last_used = time.monotonic()
