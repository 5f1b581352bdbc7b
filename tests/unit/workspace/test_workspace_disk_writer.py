"""The thread that makes small objects: together, each with an outcome of its own, durable in the right order."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from runner.errors import StoreFailed, StoreFull
from runner.workspace import disk_writer
from runner.workspace.base import KeyExists
from runner.workspace.disk import Disk
from runner.workspace.disk_writer import Writer


@pytest.fixture(params=[True, False], ids=["nameless", "named"])
def writer(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Writer]:
    """A writer on an empty disk, on file systems of either kind."""
    disk = Disk(str(tmp_path))
    os.mkdir(disk.objects)
    os.mkdir(disk.staging)
    with ThreadPoolExecutor(1) as pool:
        yield Writer(disk, pool, lambda: request.param)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The order of syncs and links, files as ``file`` and folders by their last name."""
    seen: list[str] = []
    sync, link = os.fsync, os.link

    def fsync(fd: int) -> None:
        where = os.readlink(f"/proc/self/fd/{fd}")
        seen.append(f"sync {os.path.basename(where)}" if os.path.isdir(where) else "sync file")
        sync(fd)

    def linked(source: str, target: str, **options: Any) -> None:
        seen.append("link")
        link(source, target, **options)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", linked)
    return seen


def content(writer: Writer, key: str) -> bytes:
    """What lies under a key."""
    return Path(writer.disk.path(key)).read_bytes()


def fail_once(patch: pytest.MonkeyPatch, target: Any, step: str, nth: int, number: int) -> None:
    """Let the ``nth`` call of a step fail with an error number, and no other."""
    real: Callable[..., Any] = getattr(target, step)
    calls = itertools.count(1)

    def failing(*arguments: Any, **options: Any) -> Any:
        if next(calls) == nth:
            raise OSError(number, os.strerror(number))
        return real(*arguments, **options)

    patch.setattr(target, step, failing)


async def outcomes(*work: Any) -> list[BaseException | None]:
    """What each raised."""
    found = await asyncio.gather(*work, return_exceptions=True)
    return [one if isinstance(one, BaseException) else None for one in found]


async def test_bytes_are_synced_before_their_name_and_the_name_before_the_answer(
    writer: Writer, calls: list[str]
) -> None:
    await writer.create(("t/a/1", b"one"))
    assert content(writer, "t/a/1") == b"one"
    assert calls == ["sync file", "sync objects", "sync t", "link", "sync a"]
    assert os.listdir(writer.disk.staging) == []


async def test_what_waits_is_made_together(writer: Writer, calls: list[str]) -> None:
    await writer.create(("t/a/0", b""))
    calls.clear()
    held = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold() -> None:
        asyncio.run_coroutine_threadsafe(held.wait(), loop).result(10)

    writer.pool.submit(hold)
    waiting = [asyncio.create_task(writer.create((f"t/a/{n}", b"%d" % n))) for n in range(1, 6)]
    await asyncio.sleep(0)
    held.set()
    await asyncio.gather(*waiting)
    assert calls == ["sync file"] * 5 + ["link"] * 5 + ["sync a"]
    assert [content(writer, f"t/a/{n}") for n in range(1, 6)] == [b"%d" % n for n in range(1, 6)]


async def test_objects_in_order_get_their_names_one_after_the_other(writer: Writer, calls: list[str]) -> None:
    await writer.create(("t/a/0", b""), ("t/v/0", b""))
    calls.clear()
    await writer.create(("t/a/1", b"1"), ("t/a/2", b"2"), ("t/v/1", b"3"))
    assert calls == ["sync file"] * 3 + ["link", "sync a", "link", "sync a", "link", "sync v"]
    assert [content(writer, key) for key in ("t/a/1", "t/a/2", "t/v/1")] == [b"1", b"2", b"3"]


async def test_only_the_last_in_order_must_be_new(writer: Writer) -> None:
    await writer.create(("t/a/1", b"1"))
    await writer.create(("t/a/1", b"again"), ("t/v/1", b"one"))
    assert (content(writer, "t/a/1"), content(writer, "t/v/1")) == (b"1", b"one")
    (error,) = await outcomes(writer.create(("t/a/2", b"2"), ("t/v/1", b"two")))
    assert isinstance(error, KeyExists)
    assert (content(writer, "t/a/2"), content(writer, "t/v/1")) == (b"2", b"one")


@pytest.mark.parametrize(("step", "nth", "there"), [("fsync", 2, 0), ("link", 1, 0), ("link", 2, 1)])
async def test_nothing_has_a_name_before_what_comes_before_it(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, step: str, nth: int, there: int
) -> None:
    await writer.create(("t/a/0", b""), ("t/v/0", b""))
    fail_once(monkeypatch, os, step, nth, errno.EIO)
    found = await outcomes(writer.create(("t/a/1", b"1"), ("t/v/1", b"2")))
    assert [type(one) for one in found] == [StoreFailed]
    assert [Path(writer.disk.path(key)).exists() for key in ("t/a/1", "t/v/1")] == [bool(there), False]


async def test_each_has_an_outcome_of_its_own(writer: Writer) -> None:
    await writer.create(("t/a/taken", b"first"))
    found = await outcomes(
        writer.create(("t/a/1", b"1")), writer.create(("t/a/taken", b"second")), writer.create(("../x", b"")),
        writer.create(("t/b/2", b"2")), writer.create(("t/b/2", b"3")),
    )  # fmt: skip
    assert [type(one) for one in found] == [type(None), KeyExists, StoreFailed, type(None), KeyExists]
    assert (content(writer, "t/a/taken"), content(writer, "t/b/2")) == (b"first", b"2")
    assert os.listdir(writer.disk.staging) == []


@pytest.mark.parametrize("step", ["write_all", "fsync", "link"])
async def test_a_step_that_fails_costs_its_own_object_only(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    await writer.create(("t/a/0", b""))
    target: Any = disk_writer if step == "write_all" else os
    fail_once(monkeypatch, target, step, 1, errno.ENOSPC)
    found = await outcomes(*(writer.create((f"t/a/{n}", b"%d" % n)) for n in range(1, 4)))
    assert [type(one) for one in found].count(StoreFull) == 1
    for number, one in enumerate(found, 1):
        assert Path(writer.disk.path(f"t/a/{number}")).exists() is (one is None)
    monkeypatch.undo()
    assert os.listdir(writer.disk.staging) == []
    await writer.create(("t/a/9", b"9"))


async def test_names_that_cannot_be_made_durable_are_not_told(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    await writer.create(("t/a/0", b""))

    def broken(folder: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(disk_writer, "sync_folder", broken)
    (error,) = await outcomes(writer.create(("t/a/1", b"1")))
    assert type(error) is StoreFailed


async def test_a_caller_who_leaves_stops_nothing(writer: Writer) -> None:
    task = asyncio.create_task(writer.create(("t/a/1", b"1")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await writer.create(("t/a/2", b"2"))
    assert content(writer, "t/a/1") == b"1"


async def test_a_folder_that_was_removed_is_made_again(writer: Writer) -> None:
    await writer.create(("t/a/1", b"1"))
    os.unlink(writer.disk.path("t/a/1"))
    os.rmdir(writer.disk.path("t/a"))
    await writer.create(("t/a/1", b"again"))
    assert content(writer, "t/a/1") == b"again"


async def test_what_follows_is_made_last_and_costs_the_others_nothing(writer: Writer, calls: list[str]) -> None:
    await writer.create(("t/v/0", b""), then=("t/x/0", b""))
    calls.clear()
    assert await writer.create(("t/v/1", b"1"), then=("t/x/1", b"2"))
    assert calls == ["sync file"] * 2 + ["link", "sync v", "link", "sync x"]
    assert not await writer.create(("t/v/2", b"1"), then=("t/x/1", b"again"))
    assert (content(writer, "t/v/2"), content(writer, "t/x/1")) == (b"1", b"2")
    (error,) = await outcomes(writer.create(("t/v/1", b"new"), then=("t/x/3", b"3")))
    assert isinstance(error, KeyExists)
    assert not Path(writer.disk.path("t/x/3")).exists()


@pytest.mark.parametrize(("step", "nth"), [("fsync", 2), ("link", 2), ("fsync", 4)])
async def test_what_follows_and_fails_is_only_not_made(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, step: str, nth: int
) -> None:
    await writer.create(("t/v/0", b""), then=("t/x/0", b""))
    fail_once(monkeypatch, os, step, nth, errno.EIO)
    assert not await writer.create(("t/v/1", b"1"), then=("t/x/1", b"2"))
    assert content(writer, "t/v/1") == b"1"
    assert os.listdir(writer.disk.staging) == []
