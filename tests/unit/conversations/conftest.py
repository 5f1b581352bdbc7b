"""A local store with one conversation in it, and the runner that owns its sandboxes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runner.workspace.base import Store
from runner.workspace.config import WorkspaceConfig
from runner.workspace.history import Workspace
from runner.workspace.owners import Owners
from runner.workspace.registry import open_store
from runner.workspace.workspaces import Workspaces


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """A store of the test's own."""
    opened = await open_store(WorkspaceConfig(tmp_path))
    yield opened
    await opened.close()


@pytest.fixture
async def workspace(store: Store, tmp_path: Path) -> Workspace:
    """A new conversation."""
    return (await Workspaces(store, WorkspaceConfig(tmp_path)).create("default", "c"))[0]


@pytest.fixture
async def owners(store: Store) -> Owners:
    """The only runner of the store."""
    made = Owners(store, "r1")
    await made.start(exclusive=True)
    return made
