"""Reading and appending the versions and draft entries of one incarnation in a store."""

from __future__ import annotations

import asyncio
from typing import Final

from runner.errors import NotFound, StoreFailed
from runner.workspace import keys
from runner.workspace.base import Store
from runner.workspace.codec import (
    DraftEntry,
    Encoded,
    decode_draft,
    decode_info,
    decode_manifest,
    encode_draft,
    encode_manifest,
    whole_at,
)
from runner.workspace.manifest import Delta, Manifest, VersionInfo

_PAGE: Final = 1000
_ENCODE_IN_THREAD: Final = 500


class Ledger:
    """The append-only objects below ``home``, the folder of an incarnation."""

    def __init__(self, store: Store, home: str) -> None:
        self._store = store
        self.home = home

    async def newest(self, hint: int | None = None) -> int | None:
        """Number of the newest version: probed forward from ``hint``, or listed without one."""
        if hint is not None:
            while await self._store.exists(keys.version(self.home, hint + 1)):
                hint += 1
            return hint
        last = ""
        while True:
            page = await self._store.keys(keys.versions(self.home), last, _PAGE)
            if page:
                last = page[-1]
            if len(page) < _PAGE:
                return keys.number_of(last) if last else None

    async def moved(self, version: int, seq: int) -> tuple[bool, bool]:
        """Whether there is a version, and a draft entry, after these numbers."""
        after = [keys.version(self.home, version + 1), keys.draft(self.home, seq + 1)]
        found = await self._store.read_many(after)
        return found[0] is not None, found[1] is not None

    async def chain(self, version: int) -> list[tuple[str, Encoded]]:
        """The stored manifests that lead to a version, from the whole one on."""
        wanted = [keys.version(self.home, n) for n in range(whole_at(version), version + 1)]
        found = await self._store.read_many(wanted)
        if found[-1] is None:
            raise NotFound(f"There is no version {version}; list the versions to see which are kept.")
        return await asyncio.to_thread(self._decode_chain, wanted, found)

    @staticmethod
    def _decode_chain(wanted: list[str], found: list[bytes | None]) -> list[tuple[str, Encoded]]:
        chain = []
        for key, data in zip(wanted, found, strict=True):
            if data is None:
                raise _lost(key)
            chain.append((key, decode_manifest(data, key)))
        return chain

    async def infos(self, newest: int, limit: int) -> list[VersionInfo]:
        """Heads of the versions from ``newest`` downwards, as far as they are kept."""
        numbers = range(newest, max(newest - limit, -1), -1)
        wanted = [keys.version(self.home, n) for n in numbers]
        infos = []
        for key, data in zip(wanted, await self._store.read_many(wanted), strict=True):
            if data is None:
                break
            infos.append(decode_info(data, key))
        return infos

    async def drafts_after(self, seq: int) -> list[DraftEntry]:
        """Draft entries above ``seq``, all of them and in order."""
        entries: list[DraftEntry] = []
        after = keys.draft(self.home, seq)
        while True:
            page = await self._store.keys(keys.drafts(self.home), after, _PAGE)
            if page:
                found = await self._store.read_many(page)
                entries += await asyncio.to_thread(self._decode_drafts, page, found)
                after = page[-1]
            if len(page) < _PAGE:
                break
        for expected, entry in enumerate(entries, seq + 1):
            if entry.seq != expected:
                raise _lost(keys.draft(self.home, expected))
        return entries

    @staticmethod
    def _decode_drafts(page: list[str], found: list[bytes | None]) -> list[DraftEntry]:
        entries = []
        for key, data in zip(page, found, strict=True):
            if data is None:
                raise _lost(key)
            entries.append(decode_draft(data, key))
        return entries

    async def append_draft(self, entry: DraftEntry) -> None:
        """Durable when it returns; ``KeyExists`` when another writer took the number."""
        await self._store.create(keys.draft(self.home, entry.seq), encode_draft(entry))

    async def append_version(self, manifest: Manifest, before: Manifest | None, delta: Delta) -> None:
        """Durable when it returns; ``KeyExists`` when another writer took the number."""
        if len(manifest.files) > _ENCODE_IN_THREAD:
            data = await asyncio.to_thread(encode_manifest, manifest, before, delta)
        else:
            data = encode_manifest(manifest, before, delta)
        await self._store.create(keys.version(self.home, manifest.version), data)

    async def purged(self) -> bool:
        """Whether the incarnation has a tombstone."""
        return await self._store.exists(keys.tombstone(self.home))


def _lost(key: str) -> StoreFailed:
    return StoreFailed(
        f"The store has lost {key.partition('/c/')[2]}; restore it from a backup.",
        cause=f"missing: {key}",
        key=key,
    )
