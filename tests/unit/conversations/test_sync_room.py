"""What a run says that it changed is weighed before a byte of it is fetched, and the fetching can be ended."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from runner.conversations import sync
from runner.conversations.sync import Mirror, Unstored
from runner.errors import FolioboxError, ProtocolError, QuotaExceeded, StoreFull, TooLarge
from runner.interpreter.client import Outgoing, SandboxClient
from tests.unit.conversations.test_sync_batches import FakeClient, changed, ended
from tests.unit.workspace.workspace_lab import contents, lab, memory_lab, put

QUOTA = 1000


class Client(FakeClient):
    """A sandbox that can also be filled, and whose files may never come."""

    def __init__(self, files: dict[str, bytes], *, stuck: bool = False) -> None:
        super().__init__(files)
        self.stuck, self.asked, self.removed = stuck, asyncio.Event(), list[str]()

    async def fetch(self, path: str, limit: int) -> AsyncIterator[bytes]:
        async for chunk in super().fetch(path, limit):
            yield chunk
            if self.stuck:
                self.asked.set()
                await asyncio.Event().wait()

    async def put(self, files: list[Outgoing], *_: object) -> None:
        self.files |= {file.entry.path: file.content or b"" for file in files}

    async def remove(self, paths: list[str]) -> None:
        self.removed += paths

    @property
    def fetched(self) -> list[str]:
        return self.single + [path for batch in self.batches for path in batch]


async def test_files_that_are_too_much_together_are_refused_before_one_is_fetched() -> None:
    at, store = memory_lab(workspace_bytes=QUOTA)
    space, client = await at.space(), Client({f"link{n}": bytes(300) for n in range(12)})
    mirror = Mirror(space, cast(SandboxClient, client))
    await mirror.push()
    with pytest.raises(QuotaExceeded) as early:  # as hard links of one file do: each name counts
        await mirror.pull(ended([changed(path, content) for path, content in client.files.items()]), "x1")
    assert client.fetched == []
    assert [key for key in store.objects_now if "/b/" in key] == []
    assert "would hold 3600 bytes; the limit is 1000 (SANDBOX_WORKSPACE_SIZE)" in early.value.detail
    with pytest.raises(TooLarge):
        await mirror.pull(ended([changed("huge", bytes(QUOTA + 1))]), "x1")
    with pytest.raises(QuotaExceeded):  # one path that is told of again and again
        await mirror.pull(ended([changed("same", bytes(300))] * 4), "x1")
    assert client.fetched == []


async def test_too_many_files_are_refused_before_one_is_fetched() -> None:
    at, _ = memory_lab(max_files=5)
    space, client = await at.space(), Client({f"{n}": b"" for n in range(6)})
    mirror = Mirror(space, cast(SandboxClient, client))
    await mirror.push()
    with pytest.raises(QuotaExceeded, match="would hold 6 files; the limit is 5"):
        await mirror.pull(ended([changed(path, b"") for path in client.files]), "x1")
    assert client.fetched == []


async def test_what_is_replaced_or_deleted_makes_room() -> None:
    at, _ = memory_lab(workspace_bytes=QUOTA, max_files=2)
    space, client = await at.space(), Client({})
    await put(space, "old", bytes(600))
    await put(space, "big", bytes(400))
    mirror = Mirror(space, cast(SandboxClient, client))
    await mirror.push()
    client.files = {"big": b"n" * 400, "new": b"n" * 600}
    told = [changed("big", client.files["big"], "modified"), changed("new", client.files["new"])]
    await mirror.pull(ended([*told, changed("old", b"", "deleted")]), "x1")
    assert await contents(space) == client.files


async def test_the_disk_is_asked_for_all_bytes_before_one_is_fetched() -> None:
    asked: list[int] = []

    def full(size: int) -> None:
        asked.append(size)
        raise StoreFull("The disk is full.")

    at, _ = memory_lab()
    client = Client({f"{n}": bytes(100) for n in range(5)})
    mirror = Mirror(await at.space(), cast(SandboxClient, client), full)
    with pytest.raises(StoreFull):
        await mirror.pull(ended([changed(path, content) for path, content in client.files.items()]), "x1")
    assert (asked, client.fetched) == ([500], [])


async def test_what_is_refused_early_is_what_a_commit_would_refuse() -> None:
    chance = random.Random(7)
    refused = stored = 0
    for _ in range(300):
        at, _ = memory_lab(workspace_bytes=QUOTA, max_files=4)
        space, client = await at.space(), Client({})
        for path in chance.sample("abcd", chance.randint(0, 3)):
            await put(space, path, chance.randbytes(chance.randint(0, 300)))
        mirror = Mirror(space, cast(SandboxClient, client))
        await mirror.push()
        told = []
        for path in chance.sample("abcdef", chance.randint(1, 4)):
            if path in client.files and chance.random() < 0.3:
                del client.files[path]
                told.append(changed(path, b"", "deleted"))
            else:
                client.files[path] = chance.randbytes(chance.randint(0, 500))
                told.append(changed(path, client.files[path]))
        fits = sum(map(len, client.files.values())) <= QUOTA and len(client.files) <= 4
        try:
            await mirror.pull(ended(told), "x1")
        except QuotaExceeded:
            refused += 1
            assert client.fetched == []
            assert not fits
        else:
            stored += 1
            assert fits
            assert await contents(space) == client.files
    assert min(refused, stored) > 30


async def test_storing_that_takes_too_long_is_ended_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "_STORING_S", 0.05)
    async with asyncio.timeout(20), lab(tmp_path) as at:
        space, client = await at.space(), Client({"f": bytes(1 << 20), "g": b"1"}, stuck=True)
        mirror = Mirror(space, cast(SandboxClient, client))
        await mirror.push()
        end = ended([changed(path, content) for path, content in client.files.items()])
        with pytest.raises(Unstored) as late:
            await mirror.pull(end, "x1")
        assert late.value.code == "timeout"
        assert (at.staged(), at.blobs(), space.version) == ([], [], 0)
        mirror.reject(end)
        await mirror.push()
        assert sorted(client.removed) == ["f", "g"]


async def test_storing_can_be_broken_off(tmp_path: Path) -> None:
    async with asyncio.timeout(20), lab(tmp_path) as at:
        space, client = await at.space(), Client({"f": bytes(1 << 20)}, stuck=True)
        mirror = Mirror(space, cast(SandboxClient, client))
        await mirror.push()
        assert not mirror.stop_storing()
        pulling = asyncio.create_task(mirror.pull(ended([changed("f", client.files["f"])]), "x1"))
        await client.asked.wait()
        assert mirror.stop_storing()
        assert mirror.stop_storing()  # it is still being ended
        with pytest.raises(Unstored) as stopped:
            await pulling
        assert stopped.value.code == "interrupted"
        assert not mirror.stop_storing()
        assert (at.staged(), at.blobs(), space.version) == ([], [], 0)
        client.stuck = False
        await mirror.pull(ended([changed("f", client.files["f"])]), "x2")
        assert await contents(space) == client.files


async def test_targets_of_links_that_were_refused_are_not_kept_in_memory() -> None:
    at, _ = memory_lab()
    mirror = Mirror(await at.space(), cast(SandboxClient, Client({})))
    await mirror.push()
    end = ended([])
    object.__setattr__(end, "links", {f"{n:05}": "t" * 4000 for n in range(5000)})
    with pytest.raises(FolioboxError) as refused:
        await mirror.pull(end, "x1")
    assert not isinstance(refused.value, ProtocolError)
    mirror.reject(end)
    assert sum(map(len, mirror._links.values())) == 0
    await mirror.push()
    assert len(cast(Client, mirror.client).removed) == 5000
