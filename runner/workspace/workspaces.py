"""All conversations of a store: finding, creating, listing and purging them, and their records."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final
from weakref import WeakValueDictionary

from runner.errors import Conflict
from runner.workspace import keys
from runner.workspace.base import KeyExists, Store
from runner.workspace.codec import decode_record, encode_record
from runner.workspace.config import WorkspaceConfig
from runner.workspace.history import Workspace
from runner.workspace.ledger import Ledger
from runner.workspace.manifest import Cause, Counts, Delta, Manifest, VersionInfo, now
from runner.workspace.paths import check_conversation_id, check_record_name, check_tenant
from runner.workspace.reuse import BlobIndex
from runner.workspace.state import State

_LOOKUPS_AT_ONCE: Final = 16
_RETRIES: Final = 64


class Workspaces:
    """The way in to a store. While somebody holds a ``Workspace``, finding it again gives the same object."""

    def __init__(self, store: Store, config: WorkspaceConfig) -> None:
        self._store = store
        self._config = config
        self._known: WeakValueDictionary[tuple[str, str], Workspace] = WeakValueDictionary()

    async def find(self, tenant: str, identifier: str) -> Workspace | None:
        """The conversation's workspace, or None. A damaged one is ``StoreFailed``, never an empty one."""
        known = self._in_memory(tenant, identifier)
        if known is not None:
            return known
        name, purged = await self._incarnation(tenant, identifier)
        if name is None or purged:
            return None
        return await self._load(tenant, identifier, name)

    async def create(self, tenant: str, identifier: str) -> tuple[Workspace, bool]:
        """The conversation's workspace, made when there is none; the second value says whether it was."""
        for _ in range(_RETRIES):
            known = self._in_memory(tenant, identifier)
            if known is not None:
                return known, False
            name, purged = await self._incarnation(tenant, identifier)
            if name is not None and not purged:
                found = await self._load(tenant, identifier, name)
                if found is not None:
                    return found, False
            number = 1 if name is None else int(name) + (1 if purged else 0)
            ledger = Ledger(self._store, keys.incarnation(tenant, identifier, keys.incarnation_name(number)))
            first = _first_version()
            with suppress(KeyExists):  # another was faster: find what it made
                await ledger.append_version(first, None, Delta((), (), Counts()))
                state = State(first, (), BlobIndex())
                return self._keep(Workspace(self._store, self._config, tenant, identifier, ledger, state)), True
        raise Conflict("The conversation is being deleted and created again by others; send it again.")

    async def list(self, tenant: str, after: str | None = None, limit: int = 100) -> list[str]:
        """Ids of a tenant's conversations, in order, greater than ``after``."""
        folder = keys.conversations(check_tenant(tenant))
        found: list[str] = []
        last = after or ""
        while len(found) < limit:
            page = await self._store.names(folder, last, limit)
            if not page:
                break
            last = page[-1]
            for start in range(0, len(page), _LOOKUPS_AT_ONCE):
                some = page[start : start + _LOOKUPS_AT_ONCE]
                living = await asyncio.gather(*(self._lives(tenant, name) for name in some))
                found += [name for name, lives in zip(some, living, strict=True) if lives]
        return found[:limit]

    async def purge(self, tenant: str, identifier: str) -> bool:
        """Delete a conversation with all its versions; False when there is none.

        A tombstone is durable when this returns; its blobs are left for the garbage collection.
        """
        found = await self.find(tenant, identifier)
        if found is None:
            return False
        await found.purge()
        if self._known.get((tenant, identifier)) is found:
            del self._known[(tenant, identifier)]
        return True

    async def put_record(self, tenant: str, kind: str, identifier: str, payload: Mapping[str, Any]) -> int:
        """Append a state to a record, durably; returns its number, from 1."""
        data = encode_record(payload)
        number = await self._newest_record(tenant, kind, identifier)
        for _ in range(_RETRIES):
            number += 1
            try:
                await self._store.create(keys.record(tenant, kind, identifier, number), data)
            except KeyExists:
                continue
            return number
        raise Conflict("Others keep writing this record; send it again.")

    async def read_record(self, tenant: str, kind: str, identifier: str) -> dict[str, Any] | None:
        """The newest state of a record, or None."""
        number = await self._newest_record(tenant, kind, identifier)
        if not number:
            return None
        key = keys.record(tenant, kind, identifier, number)
        return decode_record(await self._store.read(key), key)

    async def _newest_record(self, tenant: str, kind: str, identifier: str) -> int:
        folder = keys.records(check_tenant(tenant), check_record_name(kind), check_record_name(identifier))
        last = ""
        while True:
            page = await self._store.names(folder, last)
            if not page:
                return (keys.number_of(last) or 0) if last else 0
            last = page[-1]

    async def _lives(self, tenant: str, identifier: str) -> bool:
        name, purged = await self._incarnation(tenant, identifier)
        if name is None or purged:
            return False
        home = keys.incarnation(tenant, identifier, name)
        return bool(await self._store.names(keys.versions(home), limit=1))

    async def _incarnation(self, tenant: str, identifier: str) -> tuple[str | None, bool]:
        """The newest incarnation's name, and whether it was purged."""
        folder = keys.incarnations(tenant, identifier)
        names = [name for name in await self._store.names(folder, limit=1_000_000) if keys.is_incarnation(name)]
        if not names:
            return None, False
        return names[-1], await self._store.exists(keys.tombstone(folder + names[-1] + "/"))

    async def _load(self, tenant: str, identifier: str, incarnation: str) -> Workspace | None:
        loaded = await Workspace.load(self._store, self._config, tenant, identifier, incarnation)
        return None if loaded is None else self._keep(loaded)

    def _in_memory(self, tenant: str, identifier: str) -> Workspace | None:
        known = self._known.get((check_tenant(tenant), check_conversation_id(identifier)))
        return None if known is None or known.purged else known

    def _keep(self, workspace: Workspace) -> Workspace:
        """The workspace under which an incarnation is known from now on: an earlier one, where there is one."""
        key = (workspace.tenant, workspace.id)
        known = self._known.get(key)
        if known is not None and known.incarnation == workspace.incarnation and not known.purged:
            return known
        self._known[key] = workspace
        return workspace


def _first_version() -> Manifest:
    info = VersionInfo(0, None, now(), Cause("create"), draft=0, file_count=0, size_bytes=0, changes=Counts())
    return Manifest(info, {}, {}, frozenset())
