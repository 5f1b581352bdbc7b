"""Which concrete store serves a configuration. Only the composition root asks."""

from __future__ import annotations

from runner.workspace.base import Store
from runner.workspace.config import WorkspaceConfig
from runner.workspace.local import LocalStore


async def open_store(config: WorkspaceConfig) -> Store:
    """The store of this deployment, started and probed. The caller closes it."""
    store: Store = LocalStore(config.data_dir)
    try:
        await store.start()
        await store.probe()
    except BaseException:
        await store.close()
        raise
    return store
