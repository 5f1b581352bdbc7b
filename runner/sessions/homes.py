"""Which session ids there are and what each conversation of theirs remembers, durably: a restart forgets nothing.

Two kinds of records of a tenant: ``session/<id>`` says once and for all to which conversation an id belongs;
``session-home/<conversation>`` is the newest state of one: its open ids, where its archive is, and which it has seen.
No credential is ever written.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from runner.conversations.turns import Turns
from runner.errors import Busy, CallerError, NotFound
from runner.objects.block import StorageBlock
from runner.objects.place import place_of
from runner.objects.service import Stamp
from runner.sessions.refusals import busy
from runner.workspace.workspaces import Workspaces

GONE: Final = "session not found or not running"
_SESSION, _HOME = "session", "session-home"
_ID: Final = re.compile(r"[0-9a-f]{32}")
_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_MAX_OPEN: Final = 64  # ids of one conversation; who makes more has lost the first ones
_KEPT: Final = 20_000
_LOOKED_AT: Final = 64


@dataclass(eq=False)
class Home:
    """What the sessions of one conversation share. ``block`` has its credentials only while this process knows them."""

    tenant: str
    conversation: str
    stem: str
    incarnation: str | None = None
    open: list[str] = field(default_factory=list)
    block: StorageBlock | None = None
    stamp: Stamp | None = None
    restoring: bool = False  # its archive is being put into it, all of it or nothing
    saved: tuple[int, int] | None = None  # version and draft entry that the archive holds
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    turns: Turns = field(default_factory=Turns)
    last_used: float = field(default_factory=time.monotonic)
    refused: bool = False  # somebody was told that it is busy with the run that goes on

    def use(self, block: StorageBlock) -> None:
        """Archive there from now on. Of another place only the content that it may have is known."""
        if self.block is not None and place_of(block) != place_of(self.block):
            self.saved, self.stamp = None, self.stamp and self.stamp.elsewhere()
        self.block = block

    def forget(self) -> None:
        """Be as one that was never used: its conversation is gone."""
        self.incarnation = self.block = self.stamp = self.saved = None
        self.open, self.restoring = [], False

    def busy(self, ahead: int) -> Busy:
        """What one is told who has waited for the turn in vain."""
        self.refused = True
        return busy(ahead)

    def json(self) -> dict[str, Any]:
        """For the store."""
        return {
            "incarnation": self.incarnation,
            "stem": self.stem,
            "open": self.open,
            "storage": None if self.block is None else self.block.public(),
            "restoring": self.restoring,
            "stamp": None if self.stamp is None else self.stamp.json(),
            "saved": None if self.saved is None else list(self.saved),
        }

    def restore(self, stored: dict[str, Any]) -> None:
        """Be as the store says."""
        self.incarnation, self.stem = stored.get("incarnation"), stored.get("stem", self.stem)
        self.open = [sid for sid in stored.get("open", ()) if isinstance(sid, str)]
        self.restoring = stored.get("restoring") is True
        storage, stamp, saved = stored.get("storage"), stored.get("stamp"), stored.get("saved")
        self.block = None if storage is None else StorageBlock.parse(storage, self.tenant)
        self.stamp = None if stamp is None else Stamp.parse(stamp)
        self.saved = None if saved is None else (int(saved[0]), int(saved[1]))


class Homes:
    """All of them; those used lately are in memory."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._records = workspaces
        self._homes: OrderedDict[tuple[str, str], Home] = OrderedDict()
        self._ids: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._loading: dict[tuple[str, str], asyncio.Lock] = {}

    def __iter__(self) -> Iterator[Home]:
        return iter(list(self._homes.values()))

    async def of_conversation(self, tenant: str, conversation: str, stem: str) -> Home:
        """The home of a conversation, an empty one where there was none."""
        key = (tenant, conversation)
        known = self._homes.get(key)
        if known is not None:
            self._homes.move_to_end(key)
            return known
        async with self._loading.setdefault(key, asyncio.Lock()):
            known = self._homes.get(key)
            if known is None:
                known = Home(tenant, conversation, stem)
                stored = await self._records.read_record(tenant, _HOME, conversation)
                if stored is not None:
                    known.restore(stored)
                self._homes[key] = known
                self._shrink()
        self._loading.pop(key, None)
        return known

    async def find(self, tenant: str, session: str) -> Home:
        """Where an id that is open belongs. Raises NotFound, and CallerError for what is no id."""
        check_id(session)
        conversation = self._ids.get((tenant, session))
        if conversation is None:
            stored = await self._records.read_record(tenant, _SESSION, session)
            if stored is None:
                raise NotFound(GONE)
            conversation = str(stored["conversation"])
            self._know(tenant, session, conversation)
        home = await self.of_conversation(tenant, conversation, conversation)
        if session not in home.open:
            raise NotFound(GONE)
        return home

    async def add(self, home: Home, session: str) -> None:
        """Open an id for a conversation, durably. Call with ``home.changing`` held."""
        await self._records.put_record(home.tenant, _SESSION, session, {"conversation": home.conversation})
        ids = [*home.open, session]
        home.open = ids[-_MAX_OPEN:]
        await self.note(home)
        self._know(home.tenant, session, home.conversation)
        await self._forget(home.tenant, ids[:-_MAX_OPEN])

    async def close(self, home: Home, session: str) -> None:
        """Close an id, durably; with the last one go the credentials. Call with ``home.changing`` held."""
        home.open = [other for other in home.open if other != session]
        if not home.open and home.block is not None:
            home.block = home.block.without_credentials()
        await self.note(home)
        await self._forget(home.tenant, [session])

    async def forget_ids(self, home: Home) -> None:
        """Nothing is left of the ids of a conversation that is another one now. Call with ``home.changing`` held."""
        closed, home.open = home.open, []
        await self._forget(home.tenant, closed)

    async def remove(self, home: Home) -> None:
        """Nothing is left of a home whose conversation is gone, nor of its ids. Call with ``home.changing`` held."""
        closed = home.open
        home.forget()  # and not dropped from memory: others may wait for its lock
        await self._forget(home.tenant, closed)
        await self._records.remove_record(home.tenant, _HOME, home.conversation)

    async def recorded(self, tenant: str, conversation: str) -> bool:
        """Whether a conversation has, or had, sessions."""
        known = self._homes.get((tenant, conversation))
        if known is not None and known.incarnation is not None:
            return True
        return await self._records.read_record(tenant, _HOME, conversation) is not None

    async def _forget(self, tenant: str, ids: Sequence[str]) -> None:
        """Nothing is left of ids that are closed."""
        for session in ids:
            self._ids.pop((tenant, session), None)
            await self._records.remove_record(tenant, _SESSION, session)

    async def note(self, home: Home) -> None:
        """Make the state of a home durable."""
        await self._records.replace_record(home.tenant, _HOME, home.conversation, home.json())

    async def in_use(self, tenant: str, stem: str) -> bool:
        """Whether an archive is that of a conversation with an open session, also one of an earlier start."""
        conversation = conversation_of(stem)
        known = self._homes.get((tenant, conversation))
        if known is not None:
            return bool(known.open)
        stored = await self._records.read_record(tenant, _HOME, conversation)
        return stored is not None and bool(stored.get("open"))

    def _know(self, tenant: str, session: str, conversation: str) -> None:
        self._ids[tenant, session] = conversation
        while len(self._ids) > _KEPT:
            self._ids.popitem(last=False)

    def _shrink(self) -> None:
        """Forget what was not used for long and nobody waits in; the store has it. Credentials of open sessions, which
        the store has not, are kept for as many again.
        """
        beyond = len(self._homes) - _KEPT
        if beyond <= 0:
            return
        for key in list(islice(self._homes, min(beyond + _LOOKED_AT, len(self._homes) // 2))):  # none that is just made
            home = self._homes[key]
            needed = home.open and home.block is not None and home.block != home.block.without_credentials()
            if home.changing.locked() or home.turns.locked() or (needed and beyond < _KEPT):
                continue
            del self._homes[key]
            beyond -= 1
            if not beyond:
                return


def new_id() -> str:
    """A session id: 32 hexadecimal digits."""
    return uuid.uuid4().hex


def check_id(session: str) -> None:
    """Raises CallerError with the protocol's text."""
    if not _ID.fullmatch(session):
        raise CallerError("invalid session_id")


def usable_key(archive_key: str | None) -> str | None:
    """The key of an archive, or None for one that the protocol drops."""
    return archive_key if archive_key is not None and _KEY.fullmatch(archive_key) else None


def conversation_of(archive_key: str) -> str:
    """The conversation of an archive key: the same id where it can be one. No key has a dot, so that no two meet."""
    if archive_key[0].isalnum():
        return archive_key
    return f"k.{hashlib.sha256(archive_key.encode()).hexdigest()}"
