"""The local store: objects created once, streams in and out, one owner."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from runner.errors import ConfigurationError, StoreFailed, TooLarge
from runner.workspace.base import CHUNK_BYTES, ByteStream, KeyExists, KeyMissing
from runner.workspace.local import THREADS, LocalStore
from tests.unit.workspace.workspace_lab import lab, run, sha


async def read_all(stream: ByteStream) -> list[bytes]:
    return [chunk async for chunk in stream]


def test_an_object_is_created_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            await at.store.create("t/a/x", b"one")
            with pytest.raises(KeyExists):
                await at.store.create("t/a/x", b"two")
            assert await at.store.read("t/a/x") == b"one"
            assert await at.store.exists("t/a/x")
            assert not await at.store.exists("t/a/x/y")
            assert await at.store.read_many(["t/a/x", "t/a/y"]) == [b"one", None]
            with pytest.raises(KeyMissing):
                await at.store.read("t/a/y")
            with pytest.raises(KeyMissing):
                await at.store.open("t/a/y")
            await at.store.delete("t/a/x")
            await at.store.delete("t/a/x")
            assert not await at.store.exists("t/a/x")
            assert at.staged() == []

    run(scenario())


def test_files_and_folders_are_private(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path / "data") as at:
            await at.store.create("t/a/x", b"one")
            for path in [tmp_path / "data", *(tmp_path / "data").rglob("*")]:
                expected = 0o700 if path.is_dir() else 0o600
                assert stat.S_IMODE(path.stat().st_mode) == expected, path

    run(scenario())


@pytest.mark.parametrize("key", ["../x", "/x", "t//x", "t/../x", "t/.x", "", "t/x\n", "t/\0"])
def test_impossible_keys_are_refused(tmp_path: Path, key: str) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            with pytest.raises(StoreFailed, match="impossible key"):
                await at.store.create(key, b"")

    run(scenario())


def test_keys_are_listed_in_byte_order_and_paged(tmp_path: Path) -> None:
    names = ["t/a/b-c/1", "t/a/b.c", "t/a/b/1", "t/a/b/2/3", "t/a/b0", "t/a/z"]

    async def scenario() -> None:
        async with lab(tmp_path) as at:
            for key in reversed(names):
                await at.store.create(key, b"")
            await at.store.create("t/ab", b"")
            assert await at.store.keys("t/a/") == sorted(names)
            paged: list[str] = []
            while page := await at.store.keys("t/a/", paged[-1] if paged else "", 2):
                paged += page
            assert paged == sorted(names)
            assert await at.store.keys("t/a/", "t/a/b/1", 1) == ["t/a/b/2/3"]
            assert await at.store.names("t/a/") == ["b", "b-c", "b.c", "b0", "z"]
            assert await at.store.names("t/a/", "b-c", 2) == ["b.c", "b0"]
            assert await at.store.keys("t/none/") == await at.store.names("t/none/") == []

    run(scenario())


@pytest.mark.parametrize("size", [0, 1, 64 << 10, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES * 2 + 5])
def test_staging_hashes_counts_and_commits(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)

    async def scenario() -> None:
        async with lab(tmp_path) as at:
            async with at.store.stage(size) as staging:
                for start in range(0, size, 70_000):
                    await staging.write(data[start : start + 70_000])
                digest = await staging.finish()
                assert (digest.sha256, digest.size) == (sha(data), size)
                assert await staging.commit("t/b") == digest
            chunks = await read_all(await at.store.open("t/b"))
            assert b"".join(chunks) == data
            assert all(0 < len(chunk) <= CHUNK_BYTES for chunk in chunks)
            assert at.staged() == []
            with pytest.raises(StoreFailed):
                await staging.write(b"more")
            with pytest.raises(StoreFailed):
                await staging.commit("t/c")

    run(scenario())


def test_a_staging_that_is_left_uncommitted_leaves_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            with pytest.raises(ZeroDivisionError):
                async with at.store.stage(1 << 30) as staging:
                    await staging.write(bytes(CHUNK_BYTES))
                    assert len(at.staged()) == 1
                    raise ZeroDivisionError
            assert at.staged() == []
            async with at.store.stage(CHUNK_BYTES + 10) as staging:
                await staging.write(bytes(CHUNK_BYTES))
                with pytest.raises(TooLarge) as caught:
                    await staging.write(bytes(11))
                assert caught.value.fields["limit"] == CHUNK_BYTES + 10
                assert at.staged() == []
                with pytest.raises(StoreFailed):
                    await staging.finish()

    run(scenario())


def test_ranges_and_early_close(tmp_path: Path) -> None:
    data = os.urandom(CHUNK_BYTES * 3)

    async def scenario() -> None:
        async with lab(tmp_path) as at:
            await at.store.create("t/b", data)
            for start, end in [
                (0, 1),
                (5, 5),
                (CHUNK_BYTES - 1, CHUNK_BYTES * 2 + 1),
                (len(data), None),
                (7, None),
            ]:
                assert b"".join(await read_all(await at.store.open("t/b", start, end))) == data[start:end]
            before = len(os.listdir("/proc/self/fd"))
            stream = await at.store.open("t/b")
            assert await anext(aiter(stream)) == data[:CHUNK_BYTES]
            await stream.aclose()
            await stream.aclose()
            assert await read_all(stream) == []
            dropped = await at.store.open("t/b")
            del dropped
            for _ in range(100):  # the worker thread lets go of its last result when it gets the next
                await at.store.exists("t/b")
                if len(os.listdir("/proc/self/fd")) == before:
                    break
            assert len(os.listdir("/proc/self/fd")) == before
            with pytest.raises(StoreFailed, match="shorter"):
                await at.store.open("t/b", 0, len(data) + 1)

    run(scenario())


def test_one_runner_per_data_folder(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            (tmp_path / "store" / "staging" / "1-0123456789abcdef.part").write_bytes(b"of the live runner")
            second = LocalStore(tmp_path)
            with pytest.raises(ConfigurationError, match=rf"SANDBOX_DATA_DIR=.*process {os.getpid()}"):
                await second.start()
            await second.close()
            assert len(at.staged()) == 1
        async with lab(tmp_path):
            pass

    run(scenario())


def test_only_our_own_left_overs_are_swept(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path):
            pass
        staging = tmp_path / "store" / "staging"
        (staging / "17-0123456789abcdef.part").write_bytes(b"left by a kill")
        (staging / "notes.txt").write_bytes(b"somebody else's")
        (staging / "18-0123456789abcdef.part").mkdir()
        async with lab(tmp_path) as at:
            assert sorted(at.staged()) == ["18-0123456789abcdef.part", "notes.txt"]

    run(scenario())


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    async def scenario() -> None:
        with pytest.raises(ConfigurationError, match="SANDBOX_DATA_DIR"):
            async with lab(tmp_path / "file"):
                pass

    run(scenario())


def test_a_store_that_overwrites_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def overwrite(source: str, target: str, **options: Any) -> None:
        with suppress(FileNotFoundError):
            os.unlink(target)
        link(source, target, **options)

    monkeypatch.setattr(os, "link", overwrite)

    async def scenario() -> None:
        with pytest.raises(ConfigurationError, match="second create of the same key succeeded"):
            async with lab(tmp_path):
                pass

    run(scenario())


def test_a_folder_removed_behind_our_back_is_made_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            await at.store.create("t/a/b/x", b"")
            await at.store.delete("t/a/b/x")
            (at.files / "t" / "a" / "b").rmdir()
            (at.files / "t" / "a").rmdir()
            await at.store.create("t/a/b/x", b"again")
            assert await at.store.read("t/a/b/x") == b"again"

    run(scenario())


def test_an_upload_that_is_cancelled_before_a_thread_is_free_leaves_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            gate = threading.Event()
            pool = at.store._pool  # type: ignore[attr-defined]
            busy = [pool.submit(gate.wait, 20) for _ in range(THREADS)]

            async def upload(commit: bool) -> None:
                async with at.store.stage(1 << 30) as staging:
                    if commit:
                        await staging.write(b"small")
                        await staging.commit("t/x")
                    await staging.write(bytes(CHUNK_BYTES))

            tasks = [asyncio.create_task(upload(False)), asyncio.create_task(upload(True))]
            await asyncio.sleep(0)
            for _ in range(2):  # the second strikes while the first one tidies up
                for task in tasks:
                    task.cancel()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(result, asyncio.CancelledError) for result in results)
            gate.set()
            await asyncio.gather(*map(asyncio.wrap_future, busy))
        assert os.listdir(tmp_path / "store" / "staging") == []
        assert (tmp_path / "store" / "objects" / "t" / "x").read_bytes() == b"small"

    run(scenario())
