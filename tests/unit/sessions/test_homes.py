"""Session ids in a real store: known after a restart, closed for good, and nothing secret beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from runner.errors import CallerError, NotFound
from runner.objects.block import StorageBlock
from runner.objects.service import Stamp
from runner.sessions import homes as module
from runner.sessions.homes import Homes, conversation_of, new_id, usable_key
from runner.workspace.config import WorkspaceConfig
from runner.workspace.registry import open_store
from runner.workspace.workspaces import Workspaces


@asynccontextmanager
async def started(data: Path) -> AsyncIterator[Homes]:
    """All homes, as a start of the service finds them."""
    config = WorkspaceConfig(data)
    store = await open_store(config)
    try:
        yield Homes(Workspaces(store, config))
    finally:
        await store.close()


async def test_a_restart_knows_ids_place_and_what_was_broken_off(tmp_path: Path) -> None:
    one, two = new_id(), new_id()
    async with started(tmp_path) as homes:
        home = await homes.of_conversation("t", "chat", "chat")
        home.block = StorageBlock.parse({"provider": "local", "prefix": "p/"}, "t")
        home.saved, home.incarnation, home.restoring = (3, 4), "000001", True
        await homes.add(home, one)
        await homes.add(home, two)
    async with started(tmp_path) as homes:
        home = await homes.find("t", one)
        assert (home.conversation, home.open, home.saved, home.incarnation) == ("chat", [one, two], (3, 4), "000001")
        assert home.restoring
        assert home.block == StorageBlock.parse({"provider": "local", "prefix": "p/"}, "t")
        assert await homes.find("t", two) is home
        assert await homes.in_use("t", "chat") and not await homes.in_use("t", "other")
        with pytest.raises(NotFound):
            await homes.find("other", one)
        await homes.close(home, one)
    async with started(tmp_path) as homes:
        with pytest.raises(NotFound):
            await homes.find("t", one)
        home = await homes.find("t", two)
        await homes.close(home, two)
        assert not await homes.in_use("t", "chat")


async def test_who_makes_ever_more_ids_loses_the_first(tmp_path: Path) -> None:
    ids = [new_id() for _ in range(66)]
    async with started(tmp_path) as homes:
        home = await homes.of_conversation("t", "chat", "chat")
        for session in ids:
            await homes.add(home, session)
        for session in ids[:2]:
            with pytest.raises(NotFound):
                await homes.find("t", session)
        assert (await homes.find("t", ids[2])).open == ids[2:]


async def test_what_is_no_id_is_refused(tmp_path: Path) -> None:
    async with started(tmp_path) as homes:
        for bad in ("", "a" * 31, "A" * 32, "a" * 32 + "\n", "../" + "a" * 29):
            with pytest.raises(CallerError, match="invalid session_id"):
                await homes.find("t", bad)


def test_keys_and_the_conversations_that_they_name() -> None:
    assert usable_key("A-b_9") == "A-b_9"
    assert [usable_key(bad) for bad in ("", "a.b", "a b", "x" * 129, "ä", None, "a\n")] == [None] * 7
    assert conversation_of("chat-1") == "chat-1"
    assert conversation_of("-x") != conversation_of("_x")
    assert conversation_of("-x").startswith("k.")


def s3(**fields: str) -> StorageBlock:
    """A block with credentials."""
    secret = {"s3_access_key": "a", "s3_secret_key": "secret"}
    return StorageBlock.parse({"provider": "s3", "s3_bucket": "b", **secret, **fields}, "t")


def test_what_was_saved_is_of_its_place() -> None:
    """Another one has no byte of it yet; the same one in other words has all of it."""
    home = module.Home("t", "chat", "chat")
    home.use(s3())
    home.saved, home.stamp = (3, 4), Stamp("etag", "sha", 5)
    home.use(s3(prefix="workspaces/", s3_region="us-east-1", s3_secret_key="new"))
    assert (home.saved, home.stamp) == ((3, 4), Stamp("etag", "sha", 5))
    assert home.block is not None and home.block.s3_secret_key == "new"
    home.use(s3(prefix="elsewhere"))
    assert (home.json()["saved"], home.json()["stamp"]) == (None, Stamp("", "sha", 5).json())
    home.stamp = Stamp("etag", "", 5)
    home.use(s3())
    assert home.json()["stamp"] is None


async def test_nothing_is_left_of_what_is_gone(tmp_path: Path) -> None:
    """Neither records nor empty folders; and the same conversation can begin anew."""

    def left() -> set[str]:
        return {path.name for path in tmp_path.rglob("*") if path.name in {*ids, "chat"}}

    ids = [new_id() for _ in range(3)]
    async with started(tmp_path) as homes:
        for session in ids[:2]:
            await homes.add(await homes.of_conversation("t", "chat", "chat"), session)
        home = await homes.find("t", ids[0])
        assert left() == {*ids[:2], "chat"}  # the control
        await homes.forget_ids(home)
        assert left() == {"chat"} and home.open == []
        await homes.add(home, ids[2])
        home.block, home.incarnation = s3(), "000001"
        assert await homes.recorded("t", "chat")
        await homes.remove(home)
        assert left() == set() and (home.json()["storage"], home.json()["open"]) == (None, [])
        assert not await homes.recorded("t", "chat")
        await homes.add(home, ids[0])
        assert (await homes.find("t", ids[0])).open == [ids[0]]


async def test_credentials_go_with_the_last_session(tmp_path: Path) -> None:
    """Its place is known for as long as the conversation is."""
    one, two = new_id(), new_id()
    async with started(tmp_path) as homes:
        home = await homes.of_conversation("t", "chat", "chat")
        home.use(s3())
        await homes.add(home, one)
        await homes.add(home, two)
        await homes.close(home, one)
        assert home.block == s3()
        await homes.close(home, two)
        assert home.block == s3().without_credentials() != s3()


async def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the store has goes first, whatever storage it names; in the end all of it."""
    monkeypatch.setattr(module, "_KEPT", 10)
    async with started(tmp_path) as homes:
        for number in range(40):
            home = await homes.of_conversation("t", f"chat-{number}", "x")
            home.use(s3() if number < 4 else s3().without_credentials())
            home.open = [new_id()] if number < 4 else []
        assert [home.conversation for home in homes if home.open] == [f"chat-{number}" for number in range(4)]
        assert len(list(homes)) <= 11
        for number in range(40, 80):
            home = await homes.of_conversation("t", f"chat-{number}", "x")
            home.use(s3())
            home.open = [new_id()]
        assert len(list(homes)) <= 20
