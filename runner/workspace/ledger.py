"""Reading and appending the versions and draft entries of one incarnation in a store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from runner.errors import NotFound, StoreFailed
from runner.workspace import keys
from runner.workspace.aside import aside
from runner.workspace.base import KeyExists, Store
from runner.workspace.codec import (
    Encoded,
    decode_info,
    decode_manifest,
    encode_manifest,
    whole_at,
)
from runner.workspace.drafts import DraftEntry, decode_draft, encode_draft
from runner.workspace.encoding import decode_record
from runner.workspace.manifest import Delta, Manifest, VersionInfo

_PAGE: Final = 1000
_FILE_BYTES: Final = 8  # of a stored object, for a file that it names, at the least
_MANIFESTS_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Moved:
    """Whether there is a newer version, a newer draft entry, and who has taken the sandbox since."""

    version: bool
    draft: bool
    owner: str | None


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

    async def moved(self, version: int, seq: int, fence: int | None = None) -> Moved:
        """What came after these numbers. All is asked at once: the fence costs a commit no further trip."""
        after = [keys.version(self.home, version + 1), keys.draft(self.home, seq + 1)]
        folder = keys.owners(self.home)
        if fence is not None:
            after += [keys.numbered(folder, fence), keys.numbered(folder, fence + 1)]
        found = await self._store.read_many(after)
        owner = None
        if fence is not None and found[3] is not None:
            owner = str(decode_record(found[3], after[3]).get("runner"))
        elif fence is not None and found[2] is None:
            owner = "unknown"  # superseded so often that the record was removed
        return Moved(found[0] is not None, found[1] is not None, owner)

    async def chain(self, version: int, newest: int | None = None) -> list[tuple[str, Encoded]]:
        """The stored manifests that lead to a version, from the whole one on.

        ``newest`` (default: this one) tells damage from age: its own chain is never removed in parts.
        """
        wanted = [keys.version(self.home, n) for n in range(whole_at(version), version + 1)]
        found = await self._store.read_many(wanted)
        removed = False
        if None in found and newest is not None and whole_at(version) < whole_at(newest):
            removed = not await self._store.exists(wanted[0])  # looked at again: it may have gone after it was read
        if found[-1] is None or removed:
            raise NotFound(f"There is no version {version}; list the versions to see which are kept.")
        return await aside(_size(found), self._decode_chain, wanted, found)

    @staticmethod
    def _decode_chain(wanted: list[str], found: list[bytes | None]) -> list[tuple[str, Encoded]]:
        chain = []
        for key, data in zip(wanted, found, strict=True):
            if data is None:
                raise lost(key)
            chain.append((key, decode_manifest(data, key)))
        return chain

    async def infos(self, newest: int, limit: int) -> list[VersionInfo]:
        """Heads of the versions from ``newest`` downwards, as far as they are kept."""
        infos: list[VersionInfo] = []
        end = max(newest - limit, -1)
        for start in range(newest, end, -_MANIFESTS_AT_ONCE):
            wanted = [keys.version(self.home, n) for n in range(start, max(start - _MANIFESTS_AT_ONCE, end), -1)]
            found = await self._store.read_many(wanted)
            infos += await aside(_size(found), _decode_infos, wanted, found)
            if None in found:
                break
        if infos and not await self._store.exists(keys.version(self.home, whole := whole_at(infos[-1].version))):
            infos = [info for info in infos if whole_at(info.version) != whole]  # a removal was cut off here
        return infos

    async def stored(self, newest: int) -> AsyncIterator[list[tuple[str, bytes]]]:
        """All kept manifests as they are stored, from ``newest`` downwards, some at a time."""
        while newest >= 0:
            wanted = [keys.version(self.home, n) for n in range(newest, max(newest - _MANIFESTS_AT_ONCE, -1), -1)]
            found = await self._store.read_many(wanted)
            yield [(key, data) for key, data in zip(wanted, found, strict=True) if data is not None]
            if found[-1] is None:
                return
            newest -= _MANIFESTS_AT_ONCE

    async def drafts_after(self, seq: int) -> list[DraftEntry]:
        """Draft entries above ``seq``, all of them and in order."""
        entries: list[DraftEntry] = []
        after = keys.draft(self.home, seq)
        while True:
            page = await self._store.keys(keys.drafts(self.home), after, _PAGE)
            if page:
                found = await self._store.read_many(page)
                entries += await aside(_size(found), self._decode_drafts, page, found)
                after = page[-1]
            if len(page) < _PAGE:
                break
        for expected, entry in enumerate(entries, seq + 1):
            if entry.seq != expected:
                raise lost(keys.draft(self.home, expected))
        return entries

    @staticmethod
    def _decode_drafts(page: list[str], found: list[bytes | None]) -> list[DraftEntry]:
        entries = []
        for key, data in zip(page, found, strict=True):
            if data is None:
                raise lost(key)
            entries.append(decode_draft(data, key))
        return entries

    async def append_draft(self, entry: DraftEntry) -> None:
        """Durable when it returns; ``KeyExists`` when another writer took the number."""
        data = await aside(entry.size, encode_draft, entry)
        await self._store.create(keys.draft(self.home, entry.seq), data)

    async def append_version(
        self,
        manifest: Manifest,
        before: Manifest | None,
        delta: Delta,
        first: Sequence[tuple[str, bytes]] = (),
        then: tuple[str, bytes] | None = None,
    ) -> bool:
        """Durable when it returns; ``KeyExists`` when another writer took the number.

        ``first`` is stored before it and ``then`` after it; True when that was, and was new.
        """
        whole = before is None or manifest.version == whole_at(manifest.version)
        size = len(manifest.files) if whole else len(delta.put) + len(delta.removed)
        size += len(manifest.links) + len(manifest.folders)
        data = await aside(size, encode_manifest, manifest, before, delta)
        return await self._store.create_in_order([*first, (keys.version(self.home, manifest.version), data)], then)

    async def bury(self) -> None:
        """Write the tombstone, durably. May be called again."""
        with suppress(KeyExists):
            await self._store.create(keys.tombstone(self.home), b'{"format":1}')

    async def purged(self) -> bool:
        """Whether the incarnation has a tombstone."""
        return await self._store.exists(keys.tombstone(self.home))


def _decode_infos(wanted: list[str], found: list[bytes | None]) -> list[VersionInfo]:
    """Heads of manifests up to the first that is not there."""
    there = takewhile(lambda pair: pair[1] is not None, zip(wanted, found, strict=True))
    return [decode_info(data, key) for key, data in there if data is not None]


def _size(found: list[bytes | None]) -> int:
    """About how many files stored objects name."""
    return sum(len(data) for data in found if data is not None) // _FILE_BYTES


def lost(key: str) -> StoreFailed:
    """The error for an object that must be there and is not."""
    return StoreFailed(
        f"The store has lost {key.partition('/c/')[2]}; restore it from a backup.",
        cause=f"missing: {key}",
        key=key,
    )
