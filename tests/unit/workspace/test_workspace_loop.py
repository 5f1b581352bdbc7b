"""A workspace of 20,000 files keeps the loop from nothing else, and is never seen half changed."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from runner.conversations.sync import Mirror
from runner.interpreter.client import ChangedFile, Outgoing, RunEnd, SandboxClient
from runner.model import FileChange, FileEntry
from runner.workspace import aside as lane
from runner.workspace.history import Workspace
from tests.unit.workspace.workspace_lab import RUN, change, fake_entry, memory_lab, put, run

MANY = 20_000
LIMIT_S = 0.02  # of the loop's own CPU time in one step; what other threads and processes take is not counted


@pytest.fixture(autouse=True)
def frozen() -> Iterator[None]:
    """Undoes what ``longest_step`` does."""
    yield
    gc.unfreeze()


@contextmanager
def longest(into: list[float]) -> Iterator[None]:
    """Adds the most CPU seconds that one step of the loop took."""
    found = 0.0
    original = asyncio.Handle._run

    def measured(handle: asyncio.Handle) -> None:
        nonlocal found
        began = time.thread_time()
        original(handle)
        found = max(found, time.thread_time() - began)

    asyncio.Handle._run = measured  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        asyncio.Handle._run = original  # type: ignore[method-assign]
        into.append(found)


async def longest_step(work: Callable[[], Awaitable[object]]) -> float:
    """The work as a task of its own, so that its first step counts too."""

    async def done() -> None:
        await work()

    into: list[float] = []
    # What was there before is not looked at by collections, which may come in any step (the service does the same at
    # its start): how long they take depends on the tests that ran before.
    gc.collect()
    gc.freeze()
    with longest(into):
        await asyncio.create_task(done())
    return into[0]


def entries(count: int, folder: str = "") -> list[FileEntry]:
    return [fake_entry(f"{folder}d{number % 100}/f{number}", b"%d" % number) for number in range(count)]


class NoSandbox:
    """Takes what it is sent, and gives ten bytes for each file."""

    async def remove(self, removed: list[str]) -> None:
        await asyncio.sleep(0)

    async def put(self, files: list[Outgoing], links: dict[str, str], folders: list[str]) -> None:
        await asyncio.sleep(0)

    async def fetch_many(self, files: list[tuple[str, int]]) -> list[bytes]:
        await asyncio.sleep(0)
        return [b"0123456789"] * len(files)


async def steps_of_a_large_workspace() -> dict[str, float]:
    at, _ = memory_lab(max_files=3 * MANY)
    space = await at.space()
    changes = [change(entry, "created") for entry in entries(MANY)]
    found: dict[str, float] = {}

    async def note(name: str, work: Callable[[], Awaitable[object]]) -> None:
        found[name] = await longest_step(work)

    await note("commit of many", lambda: space.commit(changes, synced_seq=0, cause=RUN))
    one = [change(fake_entry("one"), "created")]
    await note("commit of one", lambda: space.commit(one, synced_seq=0, cause=RUN))
    await note("put", lambda: put(space, "uploads/a", b"a"))
    unseen = [change(fake_entry("two"), "created")]
    await note("commit below a draft", lambda: space.commit(unseen, synced_seq=0, cause=RUN))
    await note("restore", lambda: space.restore(0))
    await note("restore of many", lambda: space.restore(1))
    await note("changes", lambda: space.changes(space.version))
    await note("fork", lambda: at.spaces.fork(space, None, "b"))
    await note("fork of a version", lambda: at.spaces.fork(space, 1, "c"))
    await note("load", at.again)
    await note("versions", space.versions)
    await note("move", lambda: space.move("d7", "moved"))
    await note("deletion", lambda: space.delete("moved", recursive=True))
    mirror = Mirror(await at.space("m"), cast(SandboxClient, NoSandbox()))
    mirror.draft_seq = 0
    observed: Any = None
    reported = [ChangedFile(one.path, "created", 10, 0o644, 1) for one in entries(MANY)]
    await note("pull", lambda: mirror.pull(RunEnd(observed, 1, "kept", None, None, 0, {}, reported), "x1"))
    await put(mirror.workspace, "uploads/b", b"b")
    await note("push", mirror.push)
    return found


def test_no_step_of_the_loop_is_long_whatever_is_done_with_many_files() -> None:
    found = run(steps_of_a_large_workspace())
    assert {name: seconds for name, seconds in found.items() if seconds > LIMIT_S} == {}


def test_the_same_without_the_thread_is_seen_to_be_long(monkeypatch: Any) -> None:
    monkeypatch.setattr(lane, "FEW", 10 * MANY)
    found = run(steps_of_a_large_workspace())
    assert {name for name, seconds in found.items() if seconds > LIMIT_S} >= {
        "commit of many",
        "restore of many",
        "load",
    }


async def watch(space: Workspace, allowed: dict[int, set[int]], until: asyncio.Task[Any]) -> int:
    """Looks at a workspace after every step: how often. Each version has one of the allowed numbers of files."""
    looks = 0
    while not until.done():
        assert len(space.files) in allowed[space.version]
        assert sum(entry.size for entry in list(space.files.values())[:3]) <= space.size_bytes
        looks += 1
        await asyncio.sleep(0)
    return looks


def test_many_changes_are_seen_all_at_once_and_one_after_the_other() -> None:
    async def scenario() -> None:
        at, _ = memory_lab()
        space = await at.space()
        changes = [change(entry, "created") for entry in entries(4000, "big/")]
        committing = asyncio.create_task(space.commit(changes, synced_seq=0, cause=RUN))
        assert await watch(space, {0: {0}, 1: {4000}}, committing) > 3
        moving = asyncio.create_task(space.move("big", "other"))
        await asyncio.sleep(0)
        putting = asyncio.create_task(put(space, "big/new", b"x"))
        await watch(space, {1: {4000, 4001}}, putting)
        await moving
        assert set(space.files) == {"big/new"} | {f"other/{entry.path}" for entry in entries(4000)}
        assert (await at.again()).files == space.files

    run(scenario())


def test_a_caller_who_leaves_stops_no_large_change() -> None:
    async def scenario() -> None:
        at, _ = memory_lab()
        space = await at.space()
        await space.commit([change(entry, "created") for entry in entries(2000, "big/")], synced_seq=0, cause=RUN)
        works: list[Callable[[], Awaitable[object]]] = [
            lambda: space.move("big", "moved"),
            lambda: space.restore(0),
            lambda: space.restore(1),
            lambda: space.delete("big", recursive=True),
            lambda: space.commit(
                [change(replace(entry, mode=0o600), "created") for entry in entries(2000)],
                synced_seq=space.draft_seq,
                cause=RUN,
            ),
        ]
        for number, work in enumerate(works):

            async def caller(work: Callable[[], Awaitable[object]] = work) -> None:
                await work()

            task = asyncio.create_task(caller())
            for _ in range(number * 2):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            await put(space, f"after {number}", b"x")  # behind what was begun
            again = await at.again()
            assert (again.files, again.version, again.draft_seq) == (space.files, space.version, space.draft_seq)
            assert again.size_bytes == space.size_bytes

    run(scenario())


def test_an_overtaken_large_change_is_worked_out_anew() -> None:
    async def scenario() -> None:
        at, _ = memory_lab()
        space = await at.space()
        await space.commit([change(entry, "created") for entry in entries(1000, "big/")], synced_seq=0, cause=RUN)
        other = await at.again()
        await put(other, "big/late", b"late")
        await space.move("big", "moved")
        assert "moved/late" in space.files
        made: list[FileChange] = [change(entry, "created") for entry in entries(1000, "run/")]
        await other.commit(made, synced_seq=1, cause=RUN, base_version=1)
        await space.refresh()
        assert len(space.files) == 2001
        assert space.files == other.files == (await at.again()).files

    run(scenario())
