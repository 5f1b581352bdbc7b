"""What a collection removes of conversations, and leaves: versions, drafts, records, executions, purged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from runner.errors import ConfigurationError, NotFound
from runner.workspace import keys
from runner.workspace.collect import Collector
from runner.workspace.config import WorkspaceConfig
from runner.workspace.prune import CollectReport
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
from tests.unit.workspace.workspace_lab import RUN, Lab, lab, put, run


def below(store: AgedStore, folder: str) -> list[int]:
    return [n for key in sorted(store.objects_now) if key.startswith(folder) and (n := keys.number_of(key)) is not None]


def test_the_newest_versions_are_kept_with_the_chain_they_need() -> None:
    async def scenario() -> None:
        at, store = aged_lab(keep_versions=10)
        space = await at.space()
        await fill(space, 79)
        store.now += 31 * DAY
        report = await collect(at, store)
        assert report.versions == 64
        assert (await check_readable(at))["a"] == list(range(64, 80))
        with pytest.raises(NotFound):
            await (await at.again()).manifest(63)
        await fill(space, 81)
        assert (await at.again()).version == 81
        assert (await collect(at, store)).versions == 0

    run(scenario())


def test_young_versions_are_kept_however_many() -> None:
    async def scenario() -> None:
        at, store = aged_lab(keep_versions=3)
        space = await at.space()
        await fill(space, 49)
        store.now += 30 * DAY
        await fill(space, 99)
        assert (await collect(at, store)).versions == 0
        store.now += HOUR
        assert (await collect(at, store)).versions == 32
        assert (await check_readable(at))["a"] == list(range(32, 100))

    run(scenario())


@pytest.mark.parametrize("jump", [-HOUR, -40 * DAY])
def test_an_object_of_the_future_is_young(jump: float) -> None:
    async def scenario() -> None:
        at, store = aged_lab(keep_versions=3)
        space = await at.space()
        await fill(space, 70)
        await erase(space, "f0")
        store.now += jump
        report = await collect(at, store)
        assert (report.versions, report.blobs, report.drafts) == (0, 0, 0)

    run(scenario())


def test_drafts_that_no_kept_version_needs_go_a_day_later() -> None:
    async def scenario() -> None:
        at, store = aged_lab(keep_versions=3)
        space = await at.space()
        for number in range(5):
            await put(space, f"up{number}", b"%d" % number)
        await space.commit([], synced_seq=space.draft_seq, cause=RUN, links={"l": "up0"})
        await fill(space, 70)
        await put(space, "late", b"late")
        folder = keys.drafts(space.home)
        assert (await collect(at, store)).drafts == 0
        store.now += 31 * DAY
        assert (await collect(at, store)).drafts == 5
        assert below(store, folder) == [6]
        await check_readable(at)
        await put(space, "later", b"later")
        assert {"late", "later", "up0"} <= set((await at.again()).files)

    run(scenario())


def test_superseded_settings_go_and_the_newest_stays() -> None:
    async def scenario() -> None:
        at, store = aged_lab()
        space = await at.space()
        for number in range(4):
            await store.create(keys.numbered(keys.settings(space.home), number + 1), b'{"labels":{"n":"%d"}}' % number)
        store.now += 23 * HOUR
        assert (await collect(at, store)).records == 0
        store.now += 2 * HOUR
        assert (await collect(at, store)).records == 3
        assert (await (await at.again()).settings())["labels"] == {"n": "3"}

    run(scenario())


def test_executions_and_claims_go_a_week_after_their_end() -> None:
    async def scenario() -> None:
        at, store = aged_lab()
        space = await at.space()
        output = (await space.adopt_contents([b"full output"]))[0][2]
        await space.claim("old", {"execution_id": "old"})
        for name in ("old", "long", "lost"):
            await space.begin_execution(name, {"code": name})
        await space.end_execution("old", {"outcome": "ok", "blobs": [output]})
        store.now += 6 * DAY
        assert (await collect(at, store)).blobs == 0
        await space.end_execution("long", {"outcome": "ok"})
        await space.claim("new", {"execution_id": "long"})
        store.now += 1.1 * DAY
        report = await collect(at, store)
        assert (report.executions, report.claims, report.blobs) == (2, 1, 1)
        assert await space.read_execution("old") is None
        assert await space.read_execution("lost") is None
        kept = await space.read_execution("long")
        assert kept is not None and kept.end is not None
        assert await space.read_claim("new") is not None
        assert await space.read_claim("old") is None
        assert at_blob(store, output) == []

    run(scenario())


def test_claims_of_one_key_go_together_and_the_first_goes_last() -> None:
    """Without the first the key would be free, while a later one still says which run it stands for."""

    async def scenario() -> None:
        at, store = aged_lab()
        space = await at.space()
        await space.claim("key", {"execution_id": "1"})
        store.now += 5 * DAY
        assert await space.claim("key", {"execution_id": "2"}, 2) is None
        assert await space.claim("key", {"execution_id": "3"}, 2) == {"execution_id": "2"}
        store.now += 5 * DAY
        assert (await collect(at, store)).claims == 0
        first, second = keys.claim(space.home, "key"), keys.claim(space.home, "key", 2)
        assert keys.claimed(first) == keys.claimed(second)
        assert second < first
        store.now += 5 * DAY
        assert (await collect(at, store)).claims == 2
        assert await space.read_claim("key") is await space.read_claim("key", 2) is None

    run(scenario())


def at_blob(store: AgedStore, name: str) -> list[str]:
    return [key for key in store.objects_now if key.endswith(name)]


def test_a_purged_conversation_goes_after_an_hour_and_its_tombstone_stays() -> None:
    async def scenario() -> None:
        at, store = aged_lab()
        space = await at.space()
        await put(space, "up", b"up")
        await write(space, "f", b"f")
        store.now += 2 * DAY
        await at.spaces.purge("t", "a")
        before = set(store.objects_now)
        await collect(at, store)
        assert set(store.objects_now) == before
        store.now += 2 * HOUR
        report = await collect(at, store)
        assert (report.purged, report.blobs) == (1, 2)
        assert set(store.objects_now) == {keys.tombstone(space.home)}
        assert await at.spaces.find("t", "a") is None
        assert (await collect(at, store)).purged == 0

        fresh, created = await at.spaces.create("t", "a")
        assert created and fresh.incarnation > space.incarnation
        await collect(at, store)
        assert keys.tombstone(space.home) not in store.objects_now
        assert (await at.again()).incarnation == fresh.incarnation

    run(scenario())


def test_a_purge_leaves_no_empty_folders_on_a_disk(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            await put(space, "up", b"up")
            await at.spaces.purge("t", "a")
            late = Collector(at.store, at.config, clock=lambda: time.time() + 2 * DAY, commit_s=0)
            assert (await late.run_once()).purged == 1
            home = at.files / space.home
            assert [path.name for path in home.iterdir()] == ["purged.json"]
            await at.spaces.create("t", "a")
            await late.run_once()
            assert [path.name for path in home.parent.iterdir()] == ["000002"]
            assert at.blobs() == []

    run(scenario())


def test_no_lock_of_a_conversation_is_taken() -> None:
    async def scenario() -> None:
        at, store = aged_lab(keep_versions=3)
        space = await at.space()
        await fill(space, 70)
        store.now += 31 * DAY
        async with space._lock:
            assert (await collect(at, store)).versions == 64

    run(scenario())


def test_a_damaged_conversation_is_left_and_so_are_the_blobs_of_its_tenant() -> None:
    async def scenario() -> None:
        at, store = aged_lab(keep_versions=3)
        space = await at.space()
        await fill(space, 70)
        other = await at.space("b", "other")
        await other.adopt_contents([b"nobody names this"])
        store.objects_now[keys.version(space.home, 66)] = b"damaged"
        store.now += 31 * DAY
        blobs = [key for key in store.objects_now if key.startswith(keys.blobs("t"))]
        report = await collect(at, store)
        assert report.failed == 1
        assert report.blobs == 1
        assert [key for key in store.objects_now if key.startswith(keys.blobs("t"))] == blobs

    run(scenario())


def test_it_runs_at_intervals_goes_on_after_a_failure_and_stops_at_once() -> None:
    async def scenario() -> None:
        at, store = aged_lab(collect_interval_s=3600)
        slept: list[float] = []
        tried = 0
        third = asyncio.Event()

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        class Failing(Collector):
            async def run_once(self) -> CollectReport:
                nonlocal tried
                tried += 1
                if tried < 3:
                    raise OSError("a disk that is gone")
                third.set()
                await asyncio.Event().wait()
                raise AssertionError

        failing = Failing(store, at.config, sleep=sleep)
        failing.start()
        failing.start()
        await asyncio.wait_for(third.wait(), 10)
        await failing.close()
        await failing.close()
        assert (tried, slept) == (3, [300, 3600, 3600])
        never = Collector(store, WorkspaceConfig(Path("/nowhere"), collect_interval_s=0))
        never.start()
        assert never._task is None

    run(scenario())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SANDBOX_KEEP_VERSIONS", "99"),
        ("SANDBOX_KEEP_DAYS", "0"),
        ("SANDBOX_KEEP_EXECUTIONS_DAYS", "0"),
        ("SANDBOX_COLLECT_INTERVAL_SECONDS", "-1"),
    ],
)
def test_settings_below_what_is_safe_are_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        WorkspaceConfig.from_env({name: value})


def test_more_versions_are_kept_than_blobs_are_remembered_for() -> None:
    assert WorkspaceConfig.from_env({}).keep_versions >= WINDOW + 32


def test_a_version_that_is_read_while_it_is_removed_is_there_or_not_found() -> None:
    """Whatever part of its chain has gone, also when that began while the chain was being read."""

    async def scenario() -> None:
        for left in range(34):
            at, store = aged_lab(keep_versions=3)
            space = await at.space()
            await fill(space, 70)
            store.now += 31 * DAY
            store.removals_left = left
            read_many = store.read_many
            began = False

            async def collect_meanwhile(
                wanted: Sequence[str],
                at: Lab = at,
                store: AgedStore = store,
                read_many: Callable[[Sequence[str]], Awaitable[list[bytes | None]]] = read_many,
            ) -> list[bytes | None]:
                nonlocal began
                if began or keys.version("", 0).rpartition("/")[2] not in wanted[0]:
                    return await read_many(wanted)
                began = True
                head = await read_many(wanted[:1])
                with pytest.raises(Stopped):
                    await collect(at, store)
                return head + await read_many(wanted[1:])

            store.read_many = collect_meanwhile  # type: ignore[assignment, method-assign]
            with suppress(NotFound):
                assert (await space.manifest(20)).version == 20
            assert began

    run(scenario())
