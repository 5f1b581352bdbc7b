"""One conversation's workspace: its current files, its draft and its versions, over a store.

``core`` has what all parts share and the rules of who may change what when; ``uploads``, ``commits``,
``opening``, ``executions`` and ``chosen`` are the parts.
"""

from __future__ import annotations

from typing import Self

from runner.workspace import keys
from runner.workspace.base import Store
from runner.workspace.chosen import Settings
from runner.workspace.commits import COMMIT_RETRIES, CommitResult, Versions
from runner.workspace.config import WorkspaceConfig
from runner.workspace.core import built
from runner.workspace.executions import ExecutionRecord, Executions
from runner.workspace.ledger import Ledger, lost
from runner.workspace.opening import Opening
from runner.workspace.uploads import Uploads

__all__ = ["COMMIT_RETRIES", "CommitResult", "ExecutionRecord", "Workspace"]


class Workspace(Uploads, Versions, Opening, Executions, Settings):
    """A conversation's files. Made by ``Workspaces``; keep one object per conversation in a process."""

    @classmethod
    async def load(
        cls, store: Store, config: WorkspaceConfig, tenant: str, identifier: str, incarnation: str
    ) -> Self | None:
        """What the store holds of an incarnation; None when it has no version yet. ``StoreFailed`` for damage."""
        ledger = Ledger(store, keys.incarnation(tenant, identifier, incarnation))
        newest = await ledger.newest()
        if newest is None:
            written = await store.keys(ledger.home)
            if all(key.startswith(keys.settings(ledger.home)) for key in written):
                return None  # nothing was ever written, or only folders or settings before a crash
            newest = await ledger.newest()  # another runner may have made it just now
            if newest is None:
                raise lost(keys.version(ledger.home, 0))
        chain = await ledger.chain(newest)
        drafts = await ledger.drafts_after(chain[-1][1].info.draft)
        return cls(store, config, tenant, identifier, ledger, await built(chain, drafts))
