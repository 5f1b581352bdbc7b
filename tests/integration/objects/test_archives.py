"""Archives: an older one never replaces a newer, a failed write changes nothing, readers wait for writers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from runner.errors import ArchiveSuperseded, StorageFailed, StorageRejected, TooLarge
from runner.objects.block import StorageBlock
from runner.objects.service import ANY, ObjectStorage, Stamp
from tests.integration.objects.conftest import Making
from tests.support.objects.server import BUCKET, S3Server

STEM = "conversation_1"
KEY = f"workspaces/workspaces/{STEM}.tgz"


@dataclass
class Place:
    """A store, and as many runners beside it as a test wants."""

    block: StorageBlock
    env: dict[str, str]
    making: Making

    def runner(self, **settings: str) -> ObjectStorage:
        """Another runner: nothing is shared but the store."""
        return self.making(**{**self.env, **settings})


@pytest.fixture(params=["s3", "s3 without conditions", "local"])
def place(request: pytest.FixtureRequest, s3: S3Server, making: Making, tmp_path: Path) -> Place:
    """Each of the kinds of stores."""
    (tmp_path / "store").mkdir()
    s3.knows_conditions = request.param == "s3"
    env = {
        "SANDBOX_STORAGE_HOSTS": s3.host,
        "SANDBOX_LOCAL_STORAGE_DIR": str(tmp_path / "store"),
        "SANDBOX_S3_MAX_ATTEMPTS": "1",
    }
    raw = {"provider": "local"} if request.param == "local" else s3.block()
    return Place(StorageBlock.parse(raw), env, making)


async def source(*chunks: bytes) -> AsyncIterator[bytes]:
    """An archive's bytes; what is in them does not matter here."""
    for chunk in chunks:
        yield chunk


async def read(storage: ObjectStorage, block: StorageBlock, stem: str = STEM) -> bytes | None:
    """What is there."""
    async with storage.open_archive(block, stem) as archive:
        return None if archive is None else b"".join([chunk async for chunk in archive.chunks])


async def test_an_archive_comes_back_as_it_was(place: Place) -> None:
    """Of several pieces; its stamp is the one that a look gives; removed it is gone, and so is the one before."""
    storage = place.runner()
    assert await read(storage, place.block) is None
    assert await storage.find_archive(place.block, STEM) is None
    first = await storage.save_archive(place.block, STEM, source(b"one", bytes(3 << 20)), None)
    assert await read(place.runner(), place.block) == b"one" + bytes(3 << 20)
    found = await place.runner().find_archive(place.block, STEM)
    assert found is not None and (found.etag, found.size) == (first.etag, first.size)
    assert Stamp.parse(first.json()) == first
    await storage.save_archive(place.block, STEM, source(b"two"), first)
    assert await read(storage, place.block) == b"two"
    await storage.delete_archive(place.block, STEM)
    await storage.delete_archive(place.block, STEM)
    assert await read(storage, place.block) is None


async def test_an_older_one_never_replaces_a_newer(place: Place) -> None:
    """A2, A3: the session that was left behind comes last and is refused; the control overwrites what it is told to."""
    one, two = place.runner(), place.runner()
    first = await one.save_archive(place.block, STEM, source(b"first"), None)
    newer = await two.save_archive(place.block, STEM, source(b"newer"), first)
    with pytest.raises(ArchiveSuperseded):
        await one.save_archive(place.block, STEM, source(b"stale"), first)
    assert await read(one, place.block) == b"newer"
    with pytest.raises(ArchiveSuperseded):
        await one.save_archive(place.block, STEM, source(b"never restored"), None)
    assert await read(one, place.block) == b"newer"
    await two.save_archive(place.block, STEM, source(b"newest"), newer)
    await one.save_archive(place.block, STEM, source(b"stale"), ANY)
    assert await read(two, place.block) == b"stale"


async def test_one_that_is_gone_is_not_replaced(place: Place) -> None:
    """Somebody deleted it: that is newer too."""
    storage = place.runner()
    first = await storage.save_archive(place.block, STEM, source(b"first"), None)
    await storage.delete_archive(place.block, STEM)
    with pytest.raises(ArchiveSuperseded):
        await storage.save_archive(place.block, STEM, source(b"second"), first)


async def test_in_another_place_what_was_saved_last_is_known_again(place: Place, s3: S3Server) -> None:
    """A bucket that was copied elsewhere, with or without what was said of its objects; nothing else is replaced."""
    storage = place.runner()
    first = await storage.save_archive(place.block, STEM, source(b"first"), None)
    moved = replace(place.block, prefix="moved")
    new = await storage.save_archive(moved, STEM, source(b"first", b"+"), first.elsewhere())  # nothing is there yet
    assert await read(storage, moved) == b"first+"
    with pytest.raises(ArchiveSuperseded):
        await storage.save_archive(moved, STEM, source(b"more"), first.elsewhere())
    assert await read(storage, moved) == b"first+"
    assert await storage.save_archive(moved, STEM, source(b"more"), new.elsewhere()) != new
    if place.block.provider == "s3":
        s3.client().put_object(Bucket=BUCKET, Key=f"moved/workspaces/{STEM}.tgz", Body=b"first")
        await storage.save_archive(moved, STEM, source(b"more still"), first.elsewhere())
        assert await read(storage, moved) == b"more still"


async def test_of_many_who_write_at_once_one_wins(place: Place, s3: S3Server) -> None:
    """Eight runners over the same archive: one is taken, and it is the one that is there."""
    if not s3.knows_conditions and place.block.provider == "s3":
        runners = [place.runner()] * 8  # such a store leaves it to one runner: docs/storage.md says so
    else:
        runners = [place.runner() for _ in range(8)]
    first = await runners[0].save_archive(place.block, STEM, source(b"first"), None)
    results = await asyncio.gather(
        *(r.save_archive(place.block, STEM, source(b"of %d" % i), first) for i, r in enumerate(runners)),
        return_exceptions=True,
    )
    won = [i for i, result in enumerate(results) if isinstance(result, Stamp)]
    assert len(won) == 1
    assert all(isinstance(result, (Stamp, ArchiveSuperseded)) for result in results)
    assert await read(runners[0], place.block) == b"of %d" % won[0]


async def test_a_write_that_fails_changes_nothing(place: Place, tmp_path: Path) -> None:
    """A4, A5: too large, broken off at the source, empty, too slow: the error says so and the old one is there."""
    storage = place.runner(SANDBOX_MAX_ARCHIVE_BYTES="1000", SANDBOX_ARCHIVE_TIMEOUT_S="0.5")
    first = await storage.save_archive(place.block, STEM, source(b"first"), None)

    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise StorageFailed("the workspace cannot be read")

    async def slow() -> AsyncIterator[bytes]:
        yield b"half"
        await asyncio.sleep(60)

    with pytest.raises(TooLarge):
        await storage.save_archive(place.block, STEM, source(bytes(1001)), first)
    with pytest.raises(StorageFailed, match=r"^the workspace cannot be read$"):
        await storage.save_archive(place.block, STEM, broken(), first)
    with pytest.raises(StorageFailed, match=r"^archive write failed: it is empty$"):
        await storage.save_archive(place.block, STEM, source(), first)
    with pytest.raises(StorageFailed, match=r"^archive write failed: it took too long$"):
        await storage.save_archive(place.block, STEM, slow(), first)
    assert await read(storage, place.block) == b"first"
    assert list((tmp_path / "spool").iterdir()) == []


async def test_a_larger_one_than_is_taken_is_not_read(place: Place) -> None:
    """Before any of its bytes."""
    await place.runner().save_archive(place.block, STEM, source(bytes(1001)), None)
    with pytest.raises(TooLarge):
        await read(place.runner(SANDBOX_MAX_ARCHIVE_BYTES="1000"), place.block)


async def test_who_reads_waits_for_who_writes(place: Place) -> None:
    """A2: a new session of a key restores after the teardown of the old one has saved, never before."""
    storage, gate = place.runner(), asyncio.Event()
    begun = asyncio.Event()

    async def gated() -> AsyncIterator[bytes]:
        begun.set()
        await gate.wait()
        yield b"saved by the teardown"

    saving = asyncio.create_task(storage.save_archive(place.block, STEM, gated(), None))
    await begun.wait()
    reading = asyncio.create_task(read(storage, place.block))
    other = await read(storage, place.block, "another")
    assert other is None and not reading.done()
    gate.set()
    await saving
    assert await reading == b"saved by the teardown"


async def test_what_is_no_stem_is_said(place: Place) -> None:
    """F55: never silently without persistence."""
    storage = place.runner()
    for stem in ("", "a/b", "..", "a.b", "x" * 129, "é"):
        with pytest.raises(StorageRejected, match=r"^invalid storage key$"):
            await storage.save_archive(place.block, stem, source(b"1"), None)
        with pytest.raises(StorageRejected, match=r"^invalid storage key$"):
            await read(storage, place.block, stem)


async def test_the_one_before_is_kept(s3: S3Server, storage: ObjectStorage) -> None:
    """A11: beside it, under a name that no archive key can have."""
    block = StorageBlock.parse(s3.block())
    first = await storage.save_archive(block, STEM, source(b"first"), None)
    await storage.save_archive(block, STEM, source(b"second"), first)
    previous = KEY.replace(".tgz", ".previous.tgz")
    assert sorted(s3.keys()) == [previous, KEY]
    assert s3.client().get_object(Bucket=BUCKET, Key=previous)["Body"].read() == b"first"


async def test_a_lost_answer_is_no_newer_archive(s3: S3Server, making: Making) -> None:
    """The write arrived and its answer did not: sent again it is found to be there already."""
    storage, block = making(SANDBOX_STORAGE_HOSTS=s3.host), StorageBlock.parse(s3.block())
    s3.loses_answers = 1
    with pytest.raises(StorageFailed, match=r"^archive write failed: the connection to the store broke off$"):
        await storage.save_archive(block, STEM, source(b"first"), None)
    stamp = await storage.save_archive(block, STEM, source(b"first"), None)
    assert await storage.find_archive(block, STEM) == stamp
    s3.loses_answers = 1
    again = making(SANDBOX_STORAGE_HOSTS=s3.host, SANDBOX_S3_MAX_ATTEMPTS="3")
    assert await again.save_archive(block, STEM, source(b"second"), stamp) == await storage.find_archive(block, STEM)
