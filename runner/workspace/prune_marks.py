"""Which blobs the objects of a conversation name: all of its versions, draft entries and execution records.

A version that is kept may hold as a delta what a later one drops; every kept object counts by itself, so that
follows. Names are found by their form and not by the place in a document, so that no way of naming a blob that
is added later can be forgotten here. What cannot be read is ``StoreFailed``: then nothing may be removed.
"""

from __future__ import annotations

import asyncio
import re
import time
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from runner.errors import StoreFailed
from runner.workspace import keys
from runner.workspace.base import ObjectInfo, Store
from runner.workspace.encoding import damaged, unpacked
from runner.workspace.prune import HOUR_S, pages, subfolders

_BLOB = re.compile(rb"[0-9a-f]{64}-[0-9a-f]{8}")
_NAME_BYTES: Final = 73
_WINDOW: Final = 64 << 10  # between two looks the thread lets others go on
_READ_FILES: Final = 64
_READ_BYTES: Final = 2 << 20
_CLOCK_MARGIN_S: Final = 2 * HOUR_S


@dataclass(slots=True)
class Seen:
    """Up to where the conversations of a tenant were read: ``home`` to the last keys of versions and drafts."""

    began: float
    homes: dict[str, tuple[str, str]] = field(default_factory=dict)


async def mark(
    store: Store,
    tenant: str,
    now: float,
    names: set[bytes],
    seen: Seen | None = None,
    rest: Callable[[], Awaitable[None]] | None = None,
) -> Seen:
    """Put into ``names`` the blobs that a tenant's objects name, or what is new since ``seen``.

    ``rest`` is called between conversations. Memory: about 150 bytes a name, so 150 MB for a million. Raises
    ``StoreFailed``.
    """
    here = Seen(now)
    async for identifier in subfolders(store, keys.conversations(tenant)):
        if rest is not None:
            await rest()
        folder = keys.incarnations(tenant, identifier)
        async for name in subfolders(store, folder):
            if keys.is_incarnation(name):
                home = folder + name + "/"
                here.homes[home] = await _mark_home(store, home, names, seen)
    return here


async def _mark_home(store: Store, home: str, names: set[bytes], seen: Seen | None) -> tuple[str, str]:
    after = seen.homes.get(home) if seen else None
    last_version, last_draft = after or ("", "")
    async for page in pages(store, keys.versions(home), last_version):
        await _mark_objects(store, page, names, must_exist=True)
        last_version = page[-1].key
    async for page in pages(store, keys.drafts(home), last_draft):
        await _mark_objects(store, page, names)
        last_draft = page[-1].key
    async for page in pages(store, keys.executions(home)):
        if seen and after:  # their keys have no order
            page = [info for info in page if info.modified > seen.began - _CLOCK_MARGIN_S]
        await _mark_objects(store, page, names)
    return last_version, last_draft


async def _mark_objects(
    store: Store, infos: Sequence[ObjectInfo], names: set[bytes], *, must_exist: bool = False
) -> None:
    at = 0
    while at < len(infos):
        wanted: list[str] = []
        size = 0
        while at < len(infos) and len(wanted) < _READ_FILES and size < _READ_BYTES:
            wanted.append(infos[at].key)
            size += infos[at].size
            at += 1
        found = await store.read_many(wanted)
        for key, data in zip(wanted, found, strict=True):
            if data is None and must_exist:
                raise StoreFailed("A version went away while it was read.", cause=key, key=key)
        await asyncio.to_thread(_find, wanted, found, names)


def _find(wanted: Sequence[str], found: Sequence[bytes | None], names: set[bytes]) -> None:
    for key, data in zip(wanted, found, strict=True):
        if data is None:
            continue
        try:
            plain = unpacked(data)
        except (ValueError, zlib.error) as error:
            raise damaged(key, repr(error)) from error
        for start in range(0, len(plain), _WINDOW):
            names.update(_BLOB.findall(plain, start, start + _WINDOW + _NAME_BYTES - 1))
            time.sleep(0)
