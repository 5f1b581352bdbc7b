"""Session ids in a real store: known after a restart, closed for good, and nothing secret beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from runner.errors import CallerError, NotFound
from runner.objects.block import StorageBlock
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
        assert await homes.open_stems("t") == {"chat"}
        with pytest.raises(NotFound):
            await homes.find("other", one)
        await homes.close(home, one)
    async with started(tmp_path) as homes:
        with pytest.raises(NotFound):
            await homes.find("t", one)
        home = await homes.find("t", two)
        await homes.close(home)
        assert await homes.open_stems("t") == set()


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
