"""What the sessions surface calls: puts, deletes, signed addresses, collection by age, and archives."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runner.errors import StorageFailed, StorageRejected
from runner.objects import keys
from runner.objects.archives import ANY, Anything, Archive, Archives, Stamp, stem_keys
from runner.objects.block import DEFAULT_TENANT, LOCAL, OSS, PROVIDERS, S3, StorageBlock
from runner.objects.bucket import Bucket, Fault, Found
from runner.objects.config import ObjectsConfig
from runner.objects.endpoint import NOT_CONFIGURED, endpoint_of
from runner.objects.local import NO_ADDRESSES, LocalBucket
from runner.objects.place import place_of
from runner.objects.relay import Relay, Route
from runner.objects.remote import RemoteBucket
from runner.telemetry.logs import logger

_BUCKETS: Final = 64  # connections are kept for so many places
_BUCKET_S: Final = 900.0  # and, with their credentials, for so long after their last use
_MAX_AGE_S: Final = 10**11
_TYPE: Final = "application/octet-stream"
log = logger("objects")

__all__ = ["ANY", "Archive", "ObjectStorage", "Put", "Stamp", "Swept"]


@dataclass(frozen=True, slots=True)
class Put:
    """An object that was put, and the address that gives it for ``expires_in`` seconds."""

    provider: str
    key: str
    url: str
    expires_in: int


@dataclass(frozen=True, slots=True)
class Swept:
    """What a collection saw and removed."""

    deleted: int = 0
    scanned: int = 0
    freed_bytes: int = 0


async def _nobody(stem: str) -> bool:
    return False


class ObjectStorage:
    """One a process. ``spool_dir`` must be there; archives are packed in it, in files without a name."""

    def __init__(self, config: ObjectsConfig, spool_dir: Path, clock: Callable[[], float] = time.time) -> None:
        self._config, self._clock = config, clock
        self._archives = Archives(spool_dir, config.max_archive_bytes, config.archive_timeout_s)
        self._buckets: OrderedDict[StorageBlock, Bucket] = OrderedDict()
        self._used: dict[StorageBlock, float] = {}
        self._relay = Relay()

    async def close(self) -> None:
        """End what is open to stores. May be called again."""
        self._buckets.clear()
        self._used.clear()
        await self._relay.close()

    # -- the block ---------------------------------------------------------------------------------------------

    def effective(self, block: StorageBlock) -> bool:
        """Whether a block names storage that could be used; whether its host is allowed is another matter."""
        if block.provider == S3:
            keys_there = bool(block.s3_access_key and block.s3_secret_key)
            return bool(block.s3_bucket) and (keys_there or (block.ambient and block.tenant == DEFAULT_TENANT))
        if block.provider == OSS:
            return all((block.oss_bucket, block.oss_endpoint, block.oss_access_key_id, block.oss_access_key_secret))
        return block.provider == LOCAL and self._config.local_dir is not None and self._config.local_dir.is_dir()

    def check(self, block: StorageBlock) -> None:
        """Whether a block can be used. Raises StorageRejected, StorageHostRefused, StorageFailed."""
        self._bucket(block)
        self._prefix(block)

    def _bucket(self, block: StorageBlock) -> Bucket:
        if block.provider and block.provider not in PROVIDERS:
            raise StorageRejected(f"unsupported storage provider: {_shown(block.provider)}")
        if not self.effective(block):
            raise StorageRejected(NOT_CONFIGURED)
        self.forget_idle()
        known = self._buckets.get(block)
        if known is None:
            try:
                known = self._local(block) if block.provider == LOCAL else self._remote(block)
            except Fault as fault:
                raise StorageRejected(NOT_CONFIGURED, cause=fault.code) from None
            self._buckets[block] = known
            if len(self._buckets) > _BUCKETS:
                self._forget_oldest()
        self._buckets.move_to_end(block)
        self._used[block] = self._clock()
        return known

    def forget_idle(self) -> None:
        """Drop what was not used for long, with the credentials in it. Called now and then, and before each use."""
        before = self._clock() - _BUCKET_S
        while self._buckets and self._used[next(iter(self._buckets))] < before:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        block, oldest = self._buckets.popitem(last=False)
        del self._used[block]
        if isinstance(oldest, RemoteBucket):
            oldest.forget()

    def _local(self, block: StorageBlock) -> Bucket:
        assert self._config.local_dir is not None  # an effective block
        return LocalBucket(self._config.local_dir, "" if block.tenant == DEFAULT_TENANT else f"@{block.tenant}/")

    def _remote(self, block: StorageBlock) -> Bucket:
        config, oss = self._config, block.provider == OSS
        given = (
            (block.oss_access_key_id, block.oss_access_key_secret)
            if oss
            else (block.s3_access_key, block.s3_secret_key)
        )
        endpoint = endpoint_of(block, config.hosts)
        route = Route(
            endpoint.asked,
            endpoint.port,
            config.hosts.named(endpoint.host, endpoint.port),
            config.oss_connect_timeout_s if oss else config.connect_timeout_s,
        )
        return RemoteBucket(
            endpoint,
            route,
            self._relay,
            None if block.ambient else given,
            attempts=config.attempts,
            read_timeout_s=config.read_timeout_s,
            conditional=not oss,
        )

    def _prefix(self, block: StorageBlock) -> str:
        prefix = keys.normal_prefix(block.prefix)
        if block.provider == LOCAL and prefix.startswith("@"):  # the folders of other tenants
            raise StorageRejected("invalid storage key")
        return prefix

    # -- objects -----------------------------------------------------------------------------------------------

    async def put(
        self, block: StorageBlock, key: str, data: bytes, content_type: str | None, expires_in: int | None
    ) -> Put:
        """Write an object and sign an address for it. Raises StorageRejected, StorageFailed."""
        bucket = self._bucket(block)
        full = keys.full_key(self._prefix(block), key)
        if block.provider == LOCAL:  # said before it is written: else it would lie there without an address
            raise StorageRejected(NO_ADDRESSES)
        seconds = self._seconds(expires_in)
        try:
            await bucket.put(full, memoryview(data), _content_type(content_type))
            return Put(block.provider, full, await bucket.presign(full, seconds), seconds)
        except Fault as fault:
            raise _failed("storage put", fault) from None

    async def delete(self, block: StorageBlock, key: str) -> str:
        """Remove an object; its whole key. None is no error. Raises StorageRejected, StorageFailed."""
        bucket = self._bucket(block)
        full = keys.full_key(self._prefix(block), key)
        try:
            await bucket.delete(full)
        except Fault as fault:
            raise _failed("storage delete", fault) from None
        return full

    def _seconds(self, expires_in: int | None) -> int:
        wanted = expires_in if expires_in is not None and expires_in > 0 else self._config.default_ttl_s
        return min(wanted, self._config.max_ttl_s)

    async def gc(
        self, block: StorageBlock | None, max_age_seconds: int, keep: Callable[[str], Awaitable[bool]] = _nobody
    ) -> Swept:
        """Remove archives and parsed documents older than that; archives whose stem is kept stay.

        Raises StorageRejected for a host that is not allowed, StorageFailed where nothing can be listed.
        """
        if block is None or max_age_seconds <= 0 or not self.effective(block):
            return Swept()
        bucket, prefix = self._bucket(block), self._prefix(block)
        before = self._clock() - min(max_age_seconds, _MAX_AGE_S)
        deleted = scanned = freed = 0
        try:
            for folder in (keys.ARCHIVES, keys.COLLECTED):
                async for page in bucket.list(f"{prefix}/{folder}/"):
                    for found in page:
                        of_these, stem = keys.collected(prefix, found.key)
                        scanned += of_these
                        if of_these and await self._collect(block, bucket, found, stem, before, keep):
                            deleted, freed = deleted + 1, freed + found.size
        except Fault as fault:
            raise _failed("storage gc", fault) from None
        return Swept(deleted, scanned, freed)

    async def _collect(
        self,
        block: StorageBlock,
        bucket: Bucket,
        found: Found,
        stem: str | None,
        before: float,
        keep: Callable[[str], Awaitable[bool]],
    ) -> bool:
        if not _older(found, before) or (stem is not None and await keep(stem)):
            return False
        try:
            async with self._archives.lock(place_of(block), stem or ""):
                now = await bucket.head(found.key)  # it may have been written again since the listing
                if now is None or not _older(now, before) or (stem is not None and await keep(stem)):
                    return False
                await bucket.delete(found.key)
                return True
        except Fault as fault:
            log.warning("an object was not collected", reason=fault.reason, code=fault.code, tenant=block.tenant)
            return False

    # -- archives ----------------------------------------------------------------------------------------------

    async def find_archive(self, block: StorageBlock, stem: str) -> Stamp | None:
        """Which archive is there. Raises StorageRejected, StorageFailed."""
        bucket = self._bucket(block)
        try:
            found = await bucket.head(keys.archive_key(self._prefix(block), stem))
        except Fault as fault:
            raise _failed("archive read", fault) from None
        return None if found is None else Stamp.of(found)

    @asynccontextmanager
    async def open_archive(self, block: StorageBlock, stem: str) -> AsyncIterator[Archive | None]:
        """The archive, or None. Whoever saves or removes it waits. Raises StorageRejected, StorageFailed, TooLarge."""
        bucket, key = self._bucket(block), keys.archive_key(self._prefix(block), stem)
        async with self._archives.lock(place_of(block), stem), self._archives.open(bucket, key) as archive:
            yield archive

    async def save_archive(
        self, block: StorageBlock, stem: str, source: AsyncIterator[bytes], over: Stamp | Anything | None
    ) -> Stamp:
        """Write an archive in the place of ``over``: the stamp of the one that the workspace was restored from or
        last saved as, None where there was none.

        Raises ArchiveSuperseded, TooLarge, StorageRejected, StorageFailed; then the old one is there unchanged.
        """
        bucket = self._bucket(block)
        key, previous = stem_keys(self._prefix(block), stem)
        async with self._archives.lock(place_of(block), stem):
            return await self._archives.save(bucket, key, previous, source, over)

    async def delete_archive(self, block: StorageBlock, stem: str) -> None:
        """Remove an archive and the one before it; none is no error. Raises StorageRejected, StorageFailed."""
        bucket = self._bucket(block)
        async with self._archives.lock(place_of(block), stem):
            try:
                for key in stem_keys(self._prefix(block), stem):
                    await bucket.delete(key)
            except Fault as fault:
                raise _failed("storage delete", fault) from None


def _older(found: Found, before: float) -> bool:
    return found.modified is not None and found.modified < before


def _failed(what: str, fault: Fault) -> StorageFailed:
    return StorageFailed(f"{what} failed: {fault.reason}", cause=fault.code)


def _content_type(given: str | None) -> str:
    """A type that can stand in a header."""
    text = (given or "").strip()
    return text if text and len(text) <= 255 and text.isascii() and text.isprintable() else _TYPE


def _shown(provider: str) -> str:
    return "".join(char for char in provider[:40] if char.isprintable())
