"""Damage in one conversation is an error of that one: all others, and the listing, go on."""

from __future__ import annotations

import pytest

from runner.errors import Conflict, StoreFailed
from runner.workspace import keys
from runner.workspace.workspaces import Workspaces
from tests.unit.workspace.workspace_lab import Lab, contents, cut, memory_lab, put, run
from tests.unit.workspace.workspace_memory import MemoryStore

HOME = keys.incarnation("t", "bad", "000001")
DAMAGED = {
    "newest version": keys.version(HOME, 2),
    "older version": keys.version(HOME, 1),
    "first version": keys.version(HOME, 0),
    "draft": keys.draft(HOME, 1),
}
GARBAGE = [b"", b"{", b"{}", b"[]", b"\x78\x01garbage", b"\0" * 1000, b'{"format":3,"seq":1}']


async def three() -> tuple[Lab, MemoryStore]:
    at, store = memory_lab()
    for name in ("a", "bad", "c"):
        space = await at.space(name)
        for number in range(2):
            await cut(space, "f", b"%d" % number)
        await put(space, "g", name.encode())
        await space.set_settings({"labels": {"name": name}})
        await space.begin_execution("x", {})
    return Lab(store, at.config, Workspaces(store, at.config)), store


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("what", DAMAGED)
def test_damage_of_one(what: str, garbage: bytes) -> None:
    async def scenario() -> None:
        at, store = await three()
        sound = store.objects_now[DAMAGED[what]]
        store.objects_now[DAMAGED[what]] = garbage
        assert await at.spaces.list("t") == ["a", "bad", "c"]
        for look in (at.spaces.find, at.spaces.create):
            with pytest.raises(StoreFailed) as caught:
                await look("t", "bad")
            assert caught.value.fields["key"] == DAMAGED[what]
            assert "bad/000001/" in caught.value.detail
        source = await at.space("a")
        with pytest.raises(Conflict):  # it is there: nothing may take its place
            await at.spaces.fork(source, None, "bad")
        for name in ("a", "c"):
            space = await at.space(name)
            assert await contents(space) == {"f": b"1", "g": name.encode()}
            await cut(space, "h", b"")
        store.objects_now[DAMAGED[what]] = sound
        assert await contents(await at.space("bad")) == {"f": b"1", "g": b"bad"}

    run(scenario())


def test_damage_beside_the_files_leaves_the_files() -> None:
    async def scenario() -> None:
        at, store = await three()
        store.objects_now[keys.numbered(keys.settings(HOME), 1)] = b"{"
        store.objects_now[keys.execution_begin(HOME, "x")] = b"{"
        bad = await at.space("bad")
        with pytest.raises(StoreFailed):
            await bad.settings()
        with pytest.raises(StoreFailed):
            await bad.read_execution("x")
        assert await contents(bad) == {"f": b"1", "g": b"bad"}
        await bad.set_settings({"labels": {}})  # which mends it
        assert await (await at.again("bad")).settings() == {"labels": {}}

    run(scenario())


def test_damage_that_others_left_while_it_is_in_memory() -> None:
    async def scenario() -> None:
        at, store = await three()
        bad = await at.space("bad")
        store.objects_now[keys.draft(HOME, 2)] = b"garbage"
        for attempt in (put(bad, "h", b""), cut(bad, "h", b""), bad.refresh()):
            with pytest.raises(StoreFailed):
                await attempt
        assert await contents(bad) == {"f": b"1", "g": b"bad"}
        del store.objects_now[keys.draft(HOME, 2)]
        await put(bad, "h", b"")
        assert (await at.again("bad")).files == bad.files

    run(scenario())


def test_one_that_is_damaged_can_be_purged() -> None:
    async def scenario() -> None:
        at, store = await three()
        store.objects_now[DAMAGED["newest version"]] = b"garbage"
        assert await at.spaces.purge("t", "bad") is True
        assert await at.spaces.list("t") == ["a", "c"]
        assert (await at.space("bad")).incarnation == "000002"

    run(scenario())
