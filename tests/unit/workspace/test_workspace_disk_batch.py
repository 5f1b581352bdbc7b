"""Batches: bytes before names, names before the answer, in both ways; and nobody waits for another's batch."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.errors import StoreFailed, StoreFull
from runner.workspace import disk, disk_batch
from runner.workspace.base import CHUNK_BYTES, Staging
from runner.workspace.disk import Disk
from runner.workspace.disk_batch import FEW, Batches, Content
from runner.workspace.local import BATCH_FILES, LARGE_THREADS
from tests.unit.workspace.test_workspace_durability import Tracer
from tests.unit.workspace.workspace_lab import lab, put, run

ITEMS: list[tuple[str, Content]] = [(f"t/{number % 2}/{number}", b"%d" % number) for number in range(2 * FEW)]


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder whose file system has files without a name, whatever the one of other temporary files has."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def made(folder: Path, whole: bool) -> tuple[Disk, Batches]:
    where = Disk(str(folder))
    for name in (where.objects, where.staging):
        os.mkdir(name)
    batches = Batches(where)
    batches._whole = whole
    return where, batches


class SyncTracer(Tracer):
    """Notes ``syncfs`` as well, and lets it fail."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.fails = fails

    def link(self, source: str, target: str, **how: Any) -> None:
        os.link(source, target, **how)
        self.calls.append(("link", target))

    def syncfs(self, fd: int) -> bool:
        self.calls.append(("syncfs", ""))
        return not self.fails and disk_batch._libc.syncfs(fd) == 0

    def places(self, kind: str) -> list[int]:
        return [at for at, call in enumerate(self.calls) if call[0] == kind]


def traced(monkeypatch: pytest.MonkeyPatch, fails: bool = False) -> SyncTracer:
    tracer = SyncTracer(fails)
    monkeypatch.setattr(disk, "os", tracer)
    monkeypatch.setattr(disk_batch, "os", tracer)
    monkeypatch.setattr(disk_batch, "_syncfs", tracer.syncfs)
    return tracer


def test_two_syncs_of_the_file_system_make_a_batch_durable(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where, batches = made(memory, whole=True)
    tracer = traced(monkeypatch)
    batches.create(ITEMS)
    first, second = tracer.places("syncfs")
    links = tracer.places("link")
    assert len(links) == len(ITEMS) == len(tracer.places("write"))
    assert max(tracer.places("write")) < first < min(links) <= max(links) < second == len(tracer.calls) - 1
    assert [where.read(key) for key, _ in ITEMS] == [content for _, content in ITEMS]
    assert os.listdir(where.staging) == []


@pytest.mark.parametrize("whole", [False, True])
def test_without_a_sync_of_the_file_system_each_file_is_synced(
    memory: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    where, batches = made(memory, whole)
    tracer = traced(monkeypatch, fails=True)
    batches.create(ITEMS)
    links = tracer.places("link")
    before = [
        at for at in tracer.places("fsync") if at < min(links) and not tracer.calls[at][1].startswith(where.objects)
    ]
    after = {tracer.calls[at][1] for at in tracer.places("fsync") if at > max(links)}
    assert len(before) == len(ITEMS)
    assert after == {f"{where.objects}/t/0", f"{where.objects}/t/1"}
    assert [where.read(key) for key, _ in ITEMS] == [content for _, content in ITEMS]
    assert os.listdir(where.staging) == []


@pytest.mark.parametrize("whole", [False, True])
def test_what_is_there_stays_and_written_files_are_taken(memory: Path, whole: bool) -> None:
    where, batches = made(memory, whole)
    batches.create([("t/0/0", b"earlier")])
    staged = Path(where.staging) / "1-0123456789abcdef.part"
    staged.write_bytes(b"large")
    batches.create([*ITEMS, ("t/large", str(staged))])
    assert where.read("t/0/0") == b"earlier"
    assert where.read("t/large") == b"large"
    assert where.read("t/1/1") == b"1"
    assert os.listdir(where.staging) == []


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("call", ["open", "write", "fsync", "link", "mkdir"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_batch_that_fails_leaves_no_staging_and_no_half_object(
    memory: Path, monkeypatch: pytest.MonkeyPatch, whole: bool, call: str, number: int
) -> None:
    where, batches = made(memory, whole)
    staged = Path(where.staging) / "1-0123456789abcdef.part"
    staged.write_bytes(b"large")
    left = 3
    broken = SimpleNamespace(**{name: getattr(os, name) for name in dir(os)})

    def fail(*args: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or call == "mkdir":
            raise OSError(number, os.strerror(number))
        return getattr(os, call)(*args, **named)

    setattr(broken, call, fail)
    open_before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(disk, "os", broken)
        patch.setattr(disk_batch, "os", broken)
        patch.setattr(disk_batch, "_syncfs", lambda _: False)
        with pytest.raises(StoreFailed) as caught:
            batches.create([*ITEMS, ("t/large", str(staged))])
    assert isinstance(caught.value, StoreFull) is (number == errno.ENOSPC)
    assert os.listdir(where.staging) == []
    assert len(os.listdir("/proc/self/fd")) == open_before
    for key, content in ITEMS:
        assert not where.exists(key) or where.read(key) == content


def test_a_kernel_that_writes_little_at_a_time(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where, batches = made(memory, whole=True)
    slow = SimpleNamespace(**{name: getattr(os, name) for name in dir(os)})
    slow.write = lambda fd, data: os.write(fd, data[:1])
    monkeypatch.setattr(disk, "os", slow)
    batches.create([(f"t/{number}", b"several bytes") for number in range(FEW)])
    assert where.read("t/3") == b"several bytes"


def test_removals_are_done_in_order_and_durable(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where, batches = made(memory, whole=True)
    batches.create(ITEMS)
    tracer = traced(monkeypatch)
    where.delete_many([key for key, _ in ITEMS] + ["t/missing/x"])
    assert [path for kind, path in tracer.calls if kind == "unlink"] == [f"{where.objects}/{key}" for key, _ in ITEMS]
    assert tracer.calls[-2:] == [
        ("fsync", f"{where.objects}/t/0"),
        ("fsync", f"{where.objects}/t/1"),
    ]


def test_many_stagings_are_committed_together(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            stagings: list[tuple[str, Staging]] = []
            for number in range(2 * BATCH_FILES + 3):
                staging = at.store.stage(1 << 20)
                await staging.write(b"%d" % number * (CHUNK_BYTES if number == 7 else 1))
                if number % 50 == 1:
                    await staging.park()
                stagings.append((f"t/{number}", staging))
            await at.store.commit_many(stagings)
            for number in range(2 * BATCH_FILES + 3):
                data = b"%d" % number * (CHUNK_BYTES if number == 7 else 1)
                assert b"".join([chunk async for chunk in await at.store.open(f"t/{number}")]) == data
            assert at.staged() == []
            with pytest.raises(StoreFailed):
                await stagings[0][1].commit("t/again")

    run(scenario())


def test_small_files_do_not_wait_for_batches_nor_for_large_ones(tmp_path: Path) -> None:
    """All threads of batches, large files and removal are held: everything small goes on."""

    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            store: Any = at.store
            gate = threading.Event()
            held = [store._batch.submit(gate.wait, 20), store._removal.submit(gate.wait, 20)]
            held += [store._large.submit(gate.wait, 20) for _ in range(LARGE_THREADS)]
            behind = asyncio.create_task(store.create_many([(f"t/{number}", b"") for number in range(FEW)]))
            try:
                entry = await put(space, "small", b"small")
                stream = await space.open(entry)
                await stream.aclose()
                assert await at.store.names("t/t/c/") == ["a"]
                assert not behind.done()
            finally:
                gate.set()
            await behind
            await asyncio.gather(*map(asyncio.wrap_future, held))

    run(scenario())


def test_a_batch_whose_caller_goes_leaves_nothing_staged(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            store: Any = at.store
            gate = threading.Event()
            held = store._batch.submit(gate.wait, 20)
            staging = store.stage(1 << 20)
            await staging.write(bytes(CHUNK_BYTES))
            await staging.finish()
            task = asyncio.create_task(store.commit_many([("t/x", staging)]))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            gate.set()
            await asyncio.wrap_future(held)
        assert os.listdir(tmp_path / "store" / "staging") == []

    run(scenario())
