"""Stores that hang, break off or lie: bounded waits, our own words, nothing half done."""

from __future__ import annotations

import time

import pytest

from runner.errors import StorageFailed
from runner.objects.block import StorageBlock
from runner.objects.service import ObjectStorage
from tests.integration.objects.conftest import Making
from tests.support.objects.misbehaving import Listener, dies, half, hangs, listener


def block_of(server: Listener) -> StorageBlock:
    """A block of that server."""
    return StorageBlock.parse(
        {"provider": "s3", "s3_bucket": "bucket", "s3_endpoint": server.url, "s3_access_key": "A", "s3_secret_key": "S"}
    )


def hasty(making: Making, server: Listener, **settings: str) -> ObjectStorage:
    """One that does not wait for long."""
    times = {"SANDBOX_S3_READ_TIMEOUT_S": "0.4", "SANDBOX_S3_CONNECT_TIMEOUT_S": "0.4", **settings}
    return making(SANDBOX_STORAGE_HOSTS=server.host, **times)


async def test_a_store_that_hangs_is_given_up_in_time(making: Making) -> None:
    """After the set time, and after as many attempts as are set."""
    async with listener(hangs) as server:
        begun = time.monotonic()
        with pytest.raises(StorageFailed, match=r"^storage put failed: the store did not answer in time$"):
            await hasty(making, server).put(block_of(server), "x", b"1", None, None)
        with pytest.raises(StorageFailed, match=r"^storage gc failed: the store did not answer in time$"):
            await hasty(making, server).gc(block_of(server), 5)
        assert time.monotonic() - begun < 15
        assert server.connections == 2
        with pytest.raises(StorageFailed):
            await hasty(making, server, SANDBOX_S3_MAX_ATTEMPTS="2").find_archive(block_of(server), "x")
        assert server.connections == 4


async def test_an_upload_that_breaks_off_is_an_error(making: Making) -> None:
    """In the midst of 8 MiB."""
    async with listener(dies) as server:
        with pytest.raises(StorageFailed, match=r"^storage put failed: the connection to the store broke off$"):
            await hasty(making, server).put(block_of(server), "x", bytes(8 << 20), None, None)
        assert server.connections >= 1


async def test_an_archive_that_breaks_off_is_an_error_and_never_shorter(making: Making) -> None:
    """A4: half of what was announced is no archive."""
    async with listener(half) as server:
        storage = hasty(making, server)
        with pytest.raises(StorageFailed, match=r"^archive read failed: "):
            async with storage.open_archive(block_of(server), "x") as archive:
                assert archive is not None and archive.size == 2000
                async for _ in archive.chunks:
                    pass


async def test_an_archive_that_takes_too_long_is_given_up(making: Making) -> None:
    """As a whole, whatever a single answer may take."""
    async with listener(hangs) as server:
        storage = making(SANDBOX_STORAGE_HOSTS=server.host, SANDBOX_ARCHIVE_TIMEOUT_S="0.4")
        begun = time.monotonic()
        with pytest.raises(StorageFailed, match=r"^archive read failed: it took too long$"):
            async with storage.open_archive(block_of(server), "x"):
                pass
        assert time.monotonic() - begun < 10


async def test_nobody_there(making: Making) -> None:
    """A port that nothing listens on."""
    async with listener() as server:
        gone = server
    with pytest.raises(StorageFailed, match=r"^storage put failed: the store cannot be reached$"):
        await hasty(making, gone).put(block_of(gone), "x", b"1", None, None)
