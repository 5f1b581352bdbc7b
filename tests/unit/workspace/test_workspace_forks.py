"""A new conversation from a version of another: whole, independent, and never out of one that is being deleted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from runner.errors import Conflict, InvalidRequest, NotFound, QuotaExceeded, StoreFailed
from runner.workspace import keys
from runner.workspace.manifest import Cause
from runner.workspace.workspaces import Workspaces
from tests.unit.workspace.workspace_lab import RUN, contents, cut, lab, memory_lab, put, run


def test_forks_of_a_version_and_of_now(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            await cut(space, "a", b"1")
            await space.commit([], synced_seq=0, cause=RUN, links={"l": "a"}, folders={"e"})
            await cut(space, "a", b"2")
            await put(space, "draft", b"3")
            blobs = at.blobs()
            old, new = await at.spaces.fork(space, 2, "old"), await at.spaces.fork(space, None, "new")
            assert at.blobs() == blobs
            assert await contents(old) == {"a": b"1"}
            assert dict(old.links) == dict(new.links) == {"l": "a"}
            assert set(old.folders) == set(new.folders) == {"e"}
            assert await contents(new) == {"a": b"2", "draft": b"3"}
            assert old.head.cause == Cause("fork", version=2, source="a")
            assert new.head.cause == Cause("fork", version=3, source="a")
            assert (new.version, new.head.base, new.draft_seq, new.size_bytes) == (0, None, 0, 2)
            await cut(new, "a", b"4")
            await old.delete("a")
            assert (await contents(space))["a"] == b"2"
            assert await at.spaces.find("t", "new") is new
        async with lab(tmp_path) as at:
            assert await at.spaces.list("t") == ["a", "new", "old"]
            assert await contents(await at.space("new")) == {"a": b"4", "draft": b"3"}
            assert await contents(await at.space("old")) == {}
            assert (await (await at.space("new")).restore(0)).version == 2
            assert await contents(await at.space("new")) == {"a": b"2", "draft": b"3"}

    run(scenario())


def test_an_id_in_use_and_one_that_was_purged() -> None:
    async def scenario() -> None:
        at, _ = memory_lab()
        space = await at.space()
        await put(space, "a", b"1")
        other = await at.space("b")
        await put(other, "theirs", b"2")
        for used in ("a", "b"):
            with pytest.raises(Conflict):
                await at.spaces.fork(space, None, used)
        assert await contents(other) == {"theirs": b"2"}
        await at.spaces.purge("t", "b")
        fork = await at.spaces.fork(space, None, "b")
        assert (fork.incarnation, await contents(fork)) == ("000002", {"a": b"1"})
        with pytest.raises(NotFound):
            await other.refresh()
        for bad in ("", "../x", "x" * 129):
            with pytest.raises(InvalidRequest):
                await at.spaces.fork(space, None, bad)
        for version in (1, -1):
            with pytest.raises(NotFound):
                await at.spaces.fork(space, version, "c")
        assert await at.spaces.list("t") == ["a", "b"]

    run(scenario())


def test_an_id_in_use_whose_first_versions_are_no_longer_kept() -> None:
    async def scenario() -> None:
        at, store = memory_lab()
        source, other = await at.space(), await at.space("b")
        for number in range(33):
            await cut(other, "a", b"%d" % number)
        for number in range(32):
            del store.objects_now[keys.version(other.home, number)]
        with pytest.raises(Conflict):
            await at.spaces.fork(source, None, "b")
        assert keys.version(other.home, 0) not in store.objects_now
        assert await contents(await at.again("b")) == {"a": b"32"}

    run(scenario())


def test_of_many_forks_to_one_id_one_is_made() -> None:
    async def scenario() -> None:
        at, _ = memory_lab()
        space = await at.space()
        await put(space, "a", b"1")
        many = [Workspaces(at.store, at.config) for _ in range(5)]
        said = await asyncio.gather(
            *(one.fork(space, None, "f") for one in many[:3]),
            *(one.create("t", "f") for one in many[3:]),
            return_exceptions=True,
        )
        forks = [one for one in said[:3] if not isinstance(one, BaseException)]
        created = [one for one in said[3:] if isinstance(one, tuple) and one[1]]
        assert len(forks) + len(created) == 1
        assert all(isinstance(one, Conflict) for one in said[:3] if isinstance(one, BaseException))

    run(scenario())


@pytest.mark.parametrize("turns", range(12))
def test_a_source_that_is_deleted_meanwhile(turns: int) -> None:
    """By this process or another, at any moment: the fork has the files, or it is an error and does not exist."""

    async def scenario() -> None:
        for by_another in (False, True):
            at, _ = memory_lab()
            space = await at.space()
            await cut(space, "a", b"1")
            await put(space, "b", b"2")
            spaces = Workspaces(at.store, at.config) if by_another else at.spaces
            task = asyncio.create_task(at.spaces.fork(space, None, "f"))
            for _ in range(turns):
                await asyncio.sleep(0)
            await spaces.purge("t", "a")
            try:
                fork = await task
            except NotFound:
                assert await at.spaces.find("t", "f") is None
                assert await Workspaces(at.store, at.config).find("t", "f") is None
                assert await at.spaces.list("t") == []
            else:
                assert await contents(fork) == {"a": b"1", "b": b"2"}
            with pytest.raises(NotFound):
                await at.spaces.fork(space, None, "g")
            assert "g" not in await at.spaces.list("t")

    run(scenario())


def test_both_ends_of_that_race_are_met() -> None:
    """The test before proves nothing unless both outcomes happen."""

    async def scenario() -> None:
        at, store = memory_lab()
        space = await at.space()
        await put(space, "a", b"1")
        other = Workspaces(at.store, at.config)
        found = await other.find("t", "a")
        assert found is not None

        def purged_just_before(key: str) -> None:
            if "/c/f/" in key and key.endswith("v/000000000000.json"):
                store.objects_now[keys.tombstone(space.home)] = b""

        store.before = purged_just_before
        with pytest.raises(NotFound):
            await at.spaces.fork(space, None, "f")
        assert await at.spaces.list("t") == []

    run(scenario())


def test_a_store_that_fails_makes_no_fork() -> None:
    async def scenario() -> None:
        at, store = memory_lab()
        space = await at.space()
        await put(space, "a", b"1")

        def full(key: str) -> None:
            raise StoreFailed("full")

        store.before = full
        with pytest.raises(StoreFailed):
            await at.spaces.fork(space, None, "f")
        store.before = lambda key: None
        assert await at.spaces.find("t", "f") is None
        await at.spaces.fork(space, None, "f")

    run(scenario())


def test_a_fork_and_its_settings_appear_together() -> None:
    """Cut off before the version, nothing is there; and what is made under the id next has no settings of it."""

    async def scenario() -> None:
        at, store = memory_lab()
        space = await at.space()
        await put(space, "a", b"1")
        wanted = {"labels": {}, "limits": {"pids": 5}}

        def cut_off(key: str) -> None:
            if key.endswith("v/000000000000.json"):
                raise StoreFailed("cut off")

        for again in ("create", "fork", "fork-with-others"):
            store.before = cut_off
            with pytest.raises(StoreFailed):
                await at.spaces.fork(space, None, again, wanted)
            store.before = lambda key: None
            spaces = Workspaces(at.store, at.config)
            assert await spaces.find("t", again) is None
            assert again not in await spaces.list("t")
            others = {"limits": {"pids": 6}} if again == "fork-with-others" else {}
            if again == "create":
                made, created = await spaces.create("t", again)
                assert created
            else:
                made = await spaces.fork(space, None, again, others)
            assert await made.settings() == await (await at.again(again)).settings() == others
        made = await at.spaces.fork(space, None, "whole", wanted)
        assert await (await at.again("whole")).settings() == await made.settings() == wanted

    run(scenario())


def test_a_fork_that_comes_too_late_leaves_no_settings() -> None:
    async def scenario() -> None:
        at, store = memory_lab()
        space, key = await at.space(), keys.version(keys.incarnation("t", "f", "000001"), 0)

        def faster(written: str) -> None:
            if written == key:
                store.objects_now[key] = store.objects_now[keys.version(space.home, 0)]

        store.before = faster
        with pytest.raises(Conflict):
            await at.spaces.fork(space, None, "f", {"limits": {"pids": 5}})
        assert await (await at.again("f")).settings() == {}

    run(scenario())


def test_files_beyond_the_limits_of_the_source() -> None:
    async def scenario() -> None:
        at, store = memory_lab()
        space = await at.space()
        await cut(space, "a", b"x" * 100)
        await space.delete("a")
        space.limit(99)
        with pytest.raises(QuotaExceeded, match=r"100 bytes; the limit is 99 \(limits.workspace_bytes"):
            await at.spaces.fork(space, 1, "f")
        assert not [key for key in store.objects_now if "/c/f/" in key]
        with pytest.raises(QuotaExceeded, match=r"100 bytes; the limit is 99"):
            await space.restore(1)
        assert (space.version, await contents(space)) == (1, {})
        space.limit(100)
        assert (await space.restore(1)).version == 2
        space.limit(50)
        await cut(space, "a", b"x" * 80)
        assert (await space.restore(3)).version == 3  # as it is
        with pytest.raises(QuotaExceeded):
            await space.restore(2)

    run(scenario())
