"""All conversations of a store: finding, creating, listing and purging them, and their records."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from weakref import WeakValueDictionary

from runner.errors import Conflict, NotFound, StoreFailed
from runner.model import FileEntry
from runner.workspace import keys
from runner.workspace.aside import aside
from runner.workspace.base import KeyExists, Staging, Store
from runner.workspace.config import WorkspaceConfig
from runner.workspace.encoding import Json
from runner.workspace.guards import Quota
from runner.workspace.history import Workspace
from runner.workspace.ledger import Ledger
from runner.workspace.manifest import Cause, Counts, Delta, Manifest, VersionInfo, now
from runner.workspace.paths import check_conversation_id, check_record_name, check_tenant, shown
from runner.workspace.plans import plan_put, plan_puts
from runner.workspace.reuse import BlobIndex
from runner.workspace.series import Series
from runner.workspace.state import State
from runner.workspace.tree import Tree

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
            begun = name is not None and not purged
            made = await self._make(tenant, identifier, _next(name, purged), _first_version(), begun=begun)
            if made is not None:
                return made, True
        raise Conflict("The conversation is being deleted and created again by others; send it again.")

    def stage(self, max_bytes: int) -> Staging:
        """Begin an upload to a conversation that there may not be yet, as a context manager."""
        return self._store.stage(max_bytes)

    @property
    def max_bytes(self) -> int:
        """Bytes that a new conversation may hold."""
        return self._config.workspace_bytes

    def check_first(self, sizes: Mapping[str, int], if_match: str | None = None) -> None:
        """Whether a new conversation could take files of these sizes, so that none is made for what is refused.

        Raises what ``Workspace.put`` and ``put_many`` raise.
        """
        quota, tree = Quota.of(self._config), Tree.of(_first_version())
        entries = [FileEntry(path, size, "", "") for path, size in sizes.items()]
        for entry in entries if if_match is not None else ():
            plan_put(tree, entry, quota, False, if_match)
        plan_puts(tree, entries, quota)

    async def fork(
        self, source: Workspace, version: int | None, identifier: str, settings: Mapping[str, Any] | None = None
    ) -> Workspace:
        """A new conversation of the same tenant whose version 0 has the files of ``version`` of ``source``.

        None takes the current files, draft included. Its blobs are shared. ``settings`` are there as soon as it
        is. Raises ``NotFound`` for a version that is not kept and for a source that was deleted meanwhile,
        ``Conflict`` when the id is in use, ``QuotaExceeded`` for files that are more than ``source`` may hold.
        """
        check_conversation_id(identifier)
        return await source.alone(lambda: self._fork(source, version, identifier, settings))

    async def _fork(
        self, source: Workspace, version: int | None, identifier: str, settings: Mapping[str, Any] | None
    ) -> Workspace:
        tree = await source.picture(version)
        source.check_room(tree)
        cause = Cause("fork", version=source.version if version is None else version, source=source.id)
        for _ in range(_RETRIES):
            name, purged = await self._incarnation(source.tenant, identifier)
            if name is not None and not purged and await self._lives(source.tenant, identifier):
                break
            first, begun = _first_version(tree, cause), name is not None and not purged
            made = await self._make(source.tenant, identifier, _next(name, purged), first, settings, begun)
            if made is not None:
                if await source.is_purged():  # its blobs may be collected: nothing may build on them
                    await made.purge()
                    raise NotFound("The conversation was deleted while it was being forked.")
                return made
        raise Conflict(f"There is a conversation {shown(identifier)} already; choose another id for the fork.")

    async def _make(
        self,
        tenant: str,
        identifier: str,
        number: int,
        first: Manifest,
        settings: Mapping[str, Any] | None = None,
        begun: bool = False,
    ) -> Workspace | None:
        """Write version 0 of an incarnation, durably; None when another was faster: find what it made.

        Settings are written before it: what has no version is not there yet, so that both appear together.
        ``begun``: somebody made the incarnation and was cut off; the settings that may be left do not count.
        """
        ledger = Ledger(self._store, keys.incarnation(tenant, identifier, keys.incarnation_name(number)))
        series = Series(self._store, keys.settings(ledger.home))
        written = []
        if settings or (begun and await series.numbers()):
            written = [await series.add(settings or {})]
        try:
            await ledger.append_version(first, None, Delta((), (), Counts()))
        except KeyExists:
            await series.forget(written)
            return None
        state = await aside(first.size, State, first, (), BlobIndex())
        return self._keep(Workspace(self._store, self._config, tenant, identifier, ledger, state))

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

    async def settings_of(self, tenant: str, identifier: str) -> Json:
        """A conversation's settings without loading its files; empty when it has none, or is not there."""
        known = self._in_memory(tenant, identifier)
        if known is not None:
            return await known.settings()
        name, purged = await self._incarnation(tenant, identifier)
        if name is None or purged:
            return {}
        home = keys.incarnation(tenant, identifier, name)
        return (await Series(self._store, keys.settings(home)).newest())[1] or {}

    async def purge(self, tenant: str, identifier: str) -> bool:
        """Delete a conversation with all its versions; False when there is none.

        A tombstone is durable when this returns; its blobs are left for the garbage collection. One that is
        damaged is deleted too.
        """
        try:
            found = await self.find(tenant, identifier)
        except StoreFailed:  # damaged
            return await self._purge_unread(tenant, identifier)
        if found is None:
            return False
        await found.purge()
        if self._known.get((tenant, identifier)) is found:
            del self._known[(tenant, identifier)]
        return True

    async def _purge_unread(self, tenant: str, identifier: str) -> bool:
        name, purged = await self._incarnation(tenant, identifier)
        if name is None or purged:
            return False
        await Ledger(self._store, keys.incarnation(tenant, identifier, name)).bury()
        known = self._in_memory(tenant, identifier)
        if known is not None and known.incarnation == name:  # the failure was a passing one
            await known.purge()
        return True

    async def put_record(self, tenant: str, kind: str, identifier: str, payload: Mapping[str, Any]) -> int:
        """Append a state to a record outside conversations, durably; returns its number, from 1."""
        return await self._record(tenant, kind, identifier).add(payload)

    async def append_record(
        self, tenant: str, kind: str, identifier: str, number: int, payload: Mapping[str, Any]
    ) -> bool:
        """Compare and set: make ``payload`` state ``number``; False when somebody else made that one."""
        return await self._record(tenant, kind, identifier).append(number, payload)

    async def read_record(self, tenant: str, kind: str, identifier: str) -> Json | None:
        """The newest state of a record, or None."""
        return (await self._record(tenant, kind, identifier).newest())[1]

    async def replace_record(self, tenant: str, kind: str, identifier: str, payload: Mapping[str, Any]) -> None:
        """Append a state to a record, and remove those before it but the last one."""
        series = self._record(tenant, kind, identifier)
        await series.add(payload)
        await series.forget((await series.numbers())[:-2])

    async def records(self, tenant: str, kind: str) -> Sequence[str]:
        """Ids of all records of a kind."""
        folder = keys.records_of(check_tenant(tenant), check_record_name(kind))
        found = [*(await self._store.names(folder, limit=1000))]
        while page := await self._store.names(folder, found[-1] if found else "", 1000):
            found += page
        return found

    async def remove_record(self, tenant: str, kind: str, identifier: str) -> None:
        """Forget a record, with all its states."""
        series = self._record(tenant, kind, identifier)
        await series.forget(await series.numbers())
        with suppress(StoreFailed):  # an empty folder stays until the next time
            await self._store.tidy(series.folder)

    def _record(self, tenant: str, kind: str, identifier: str) -> Series:
        folder = keys.records(check_tenant(tenant), check_record_name(kind), check_record_name(identifier))
        return Series(self._store, folder)

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


def _next(newest: str | None, purged: bool) -> int:
    """The incarnation that a creator makes; one that was begun and has no version yet is finished."""
    return 1 if newest is None else int(newest) + (1 if purged else 0)


def _first_version(tree: Tree | None = None, cause: Cause | None = None) -> Manifest:
    tree = tree or Tree({}, {}, ())
    files = tree.files
    info = VersionInfo(
        version=0,
        base=None,
        created_at=now(),
        cause=cause or Cause("create"),
        draft=0,
        file_count=len(files),
        size_bytes=tree.size_bytes,
        changes=Counts(created=len(files)),
    )
    return Manifest(info, files, tree.links, tree.folders)
