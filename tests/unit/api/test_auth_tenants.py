"""Another tenant's conversation and a missing one cost the same look-ups: time cannot tell them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from runner.workspace.base import Store
from runner.workspace.config import WorkspaceConfig
from runner.workspace.registry import open_store
from runner.workspace.workspaces import Workspaces


class Watched:
    """A store that notes what it is asked for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)

        def call(*arguments: Any, **named: Any) -> Any:
            self.asked.append(f"{name} {arguments} {named}")
            return real(*arguments, **named)

        return call


@pytest.mark.parametrize("known", [True, False], ids=["in memory", "on disk"])
async def test_the_victims_conversation_is_not_even_looked_at(tmp_path: Path, known: bool) -> None:
    config = WorkspaceConfig(data_dir=tmp_path)
    store = await open_store(config)
    try:
        watched = Watched(store)
        spaces = Workspaces(cast(Store, watched), config)
        made, _ = await spaces.create("victim", "conversation-1")
        if not known:
            spaces = Workspaces(cast(Store, watched), config)
        asked = []
        for identifier in ("conversation-1", "conversation-2"):
            watched.asked.clear()
            assert await spaces.find("stranger", identifier) is None
            asked.append([line.replace(identifier, "<id>") for line in watched.asked])
        assert asked[0] == asked[1]
        assert asked[0]
        assert not [line for line in asked[0] if "victim" in line]
        found = await spaces.find("victim", "conversation-1")  # control: it is there for its owner
        assert found is not None and found.id == made.id
        assert (found is made) == known
    finally:
        await store.close()
