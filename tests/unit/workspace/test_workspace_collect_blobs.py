"""Blobs: what is named stays, whoever names it, and whenever in the middle of a collection that happens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from runner.errors import NotFound, UnknownBlob
from runner.workspace import keys
from runner.workspace.history import Workspace
from runner.workspace.reuse import WINDOW
from tests.unit.workspace.workspace_collect_lab import (
    DAY,
    HOUR,
    AgedStore,
    Stopped,
    aged_lab,
    check_readable,
    collect,
    erase,
    fill,
    write,
)
from tests.unit.workspace.workspace_lab import RUN, Lab, change, fake_entry, put, run, sha

CONTENT = b"the same bytes"


def held(store: AgedStore, blob: str) -> bool:
    return keys.blob("t", blob) in store.objects_now


def test_a_blob_that_only_a_delta_in_the_middle_names_is_kept_as_long_as_its_version() -> None:
    async def scenario() -> None:
        at, store = aged_lab(keep_versions=3)
        space = await at.space()
        await fill(space, 40)
        blob = await write(space, "short-lived", CONTENT)
        await erase(space, "short-lived")
        await fill(space, 63)
        store.now += 31 * DAY
        await collect(at, store)
        assert held(store, blob)
        assert "short-lived" in (await space.manifest(41)).files
        await fill(space, 70)
        store.now += 31 * DAY
        await collect(at, store)
        assert not held(store, blob)
        await check_readable(at)

    run(scenario())


@pytest.mark.parametrize(("age", "gone"), [(23 * HOUR, False), (24 * HOUR + 1, True), (-HOUR, False)])
def test_a_blob_that_nothing_names_goes_after_a_day(age: float, gone: bool) -> None:
    async def scenario() -> None:
        at, store = aged_lab()
        space = await at.space()
        blob = (await space.adopt_contents([CONTENT]))[0][2]
        store.now += age
        report = await collect(at, store)
        assert held(store, blob) is not gone
        assert report.bytes_freed == (len(CONTENT) if gone else 0)

    run(scenario())


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_a_clock_that_jumps_by_an_hour_takes_no_blob_of_a_commit_going_on(jump: float) -> None:
    async def scenario() -> None:
        at, store = aged_lab()
        space = await at.space()
        digest, size, blob = (await space.adopt_contents([CONTENT]))[0]
        store.now += jump
        await collect(at, store)
        await space.commit(
            [change(fake_entry("f", CONTENT, blob=blob, sha256=digest, size=size))], synced_seq=0, cause=RUN
        )
        await check_readable(at)

    run(scenario())


async def race(at: Lab, store: AgedStore, step: int, act: Callable[[], Awaitable[None]]) -> bool:
    """Collect, with ``act`` done before one of its steps; whether there was such a step."""
    count = 0

    async def at_step() -> None:
        nonlocal count
        count += 1
        if count == step:
            await act()

    store.at_step = at_step
    await collect(at, store)
    store.at_step = None
    return count >= step


async def old_content(at: Lab, store: AgedStore, since: int, versions: int) -> Workspace:
    """A conversation whose newest version is ``versions``, and in which ``CONTENT`` was last in version ``since``."""
    space = await at.space()
    await fill(space, since - 1)
    await write(space, "same", CONTENT)
    await erase(space, "same")
    await fill(space, versions)
    store.now += 31 * DAY
    return space


async def put_at_every_step(keep: int) -> int:
    """Put known content at every step of a collection; how many of these collections took it away."""
    lost = 0
    base_at, base = aged_lab(keep_versions=keep)
    await old_content(base_at, base, since=32, versions=32 + WINDOW - 1)
    for step in range(1, 1000):
        at, store = aged_lab(base.copy(), keep_versions=keep)
        space = await at.again()
        # The index of a writer that has lived since then, and not been loaded from the newest chain only.
        space._state.blobs.retire((await space.manifest(32)).files["same"], 32)

        async def act(space: Workspace = space) -> None:
            await put(space, "again", CONTENT)

        if not await race(at, store, step, act):
            assert step > 10
            return lost
        for _ in range(2):
            store.now += 2 * DAY
            await collect(at, store)
        try:
            await check_readable(at)
        except AssertionError:
            lost += 1
    raise AssertionError("no end")


def test_content_that_is_put_again_at_any_step_of_a_collection_is_kept() -> None:
    assert run(put_at_every_step(keep=100)) == 0


def test_the_race_is_a_real_one() -> None:
    """The control: with fewer versions kept than the index looks back on, the same writer loses its bytes."""
    assert run(put_at_every_step(keep=3)) > 0


def test_a_conversation_that_is_forked_at_any_step_keeps_what_its_source_loses() -> None:
    async def scenario() -> None:
        base_at, base = aged_lab(keep_versions=3)
        await old_content(base_at, base, since=20, versions=40)
        for step in range(1, 1000):
            at, store = aged_lab(base.copy(), keep_versions=3)
            source = await at.again()

            async def act(at: Lab = at, source: Workspace = source) -> None:
                try:
                    await at.spaces.fork(source, 20, "fork")
                except NotFound:
                    return
                await at.spaces.purge("t", "a")

            if not await race(at, store, step, act):
                assert step > 10
                return
            for _ in range(3):
                store.now += 2 * DAY
                await collect(at, store)
            await check_readable(at)
        raise AssertionError("no end")

    run(scenario())


def test_content_named_by_its_hash_at_any_step_is_there_or_unknown() -> None:
    async def scenario() -> None:
        base_at, base = aged_lab(keep_versions=3)
        await old_content(base_at, base, since=20, versions=40)
        outcomes = set()
        for step in range(1, 1000):
            at, store = aged_lab(base.copy(), keep_versions=3)
            space = await at.again()

            async def act(space: Workspace = space) -> None:
                try:
                    await space.put_known("again", sha(CONTENT))
                    outcomes.add("known")
                except UnknownBlob:
                    outcomes.add("unknown")

            if not await race(at, store, step, act):
                assert outcomes == {"known", "unknown"}
                return
            store.now += 2 * DAY
            await collect(at, store)
            await check_readable(at)
        raise AssertionError("no end")

    run(scenario())


def test_a_collection_that_is_killed_at_any_removal_is_finished_by_the_next() -> None:
    async def scenario() -> None:
        base_at, base = aged_lab(keep_versions=3)
        space = await base_at.space("a")
        for number in range(3):
            await put(space, f"up{number}", b"%d" % number)
        await space.commit([], synced_seq=space.draft_seq, cause=RUN, links={"l": "up0"})
        await space.begin_execution("x", {})
        await space.end_execution("x", {"blobs": [(await space.adopt_contents([b"output"]))[0][2]]})
        await space.claim("key", {"execution_id": "x"})
        await fill(space, 70)
        await erase(space, "f0")
        purged = await base_at.space("p")
        await put(purged, "up", b"of the purged one")
        await base_at.spaces.purge("t", "p")
        await base_at.spaces.create("t", "p")
        base.now += 31 * DAY

        at, store = aged_lab(base.copy(), keep_versions=3)
        await collect(at, store)
        wanted = set(store.objects_now)
        removals = len(base.objects_now) - len(wanted)
        assert removals > 100
        for left in range(removals):
            at, store = aged_lab(base.copy(), keep_versions=3)
            store.removals_left = left
            with pytest.raises(Stopped):
                await collect(at, store)
            store.removals_left = None
            kept = await check_readable(at)
            assert kept["a"] == list(range(kept["a"][0], 72)) and kept["a"][0] <= 64
            found = await (await at.again()).read_execution("x")
            assert found is None or found.end is not None
            await collect(at, store)
            assert set(store.objects_now) == wanted

    run(scenario())
