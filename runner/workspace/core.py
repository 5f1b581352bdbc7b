"""What every part of a workspace shares: state in memory, ledger in the store, and the lock that keeps them one.

Everything that changes them is durable before it returns and is serialised by a lock of the object. A caller
who is cancelled meanwhile tears nothing apart: what was begun is finished, and memory and store agree. Work on
many files is done ``aside``, on what nobody else changes, and put in place in one step.
Writers in other processes are met by create-if-absent: the loser reads what won and tries again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from runner.errors import Conflict, NotFound, OwnedElsewhere
from runner.model import FileEntry
from runner.workspace.aside import FEW, aside
from runner.workspace.base import KeyExists, Store
from runner.workspace.codec import Encoded
from runner.workspace.config import WorkspaceConfig
from runner.workspace.drafts import DraftEntry
from runner.workspace.guards import Quota, check_coming, check_quota
from runner.workspace.ledger import Ledger
from runner.workspace.manifest import Manifest
from runner.workspace.plans import Plan
from runner.workspace.state import State
from runner.workspace.tree import Tree

T = TypeVar("T")

DRAFT_RETRIES: Final = 64


class Core:
    """State, ledger and lock of one incarnation of a conversation."""

    def __init__(
        self,
        store: Store,
        config: WorkspaceConfig,
        tenant: str,
        identifier: str,
        ledger: Ledger,
        state: State,
    ) -> None:
        self.tenant = tenant
        self.id = identifier
        self.home = ledger.home
        self.incarnation = ledger.home.rstrip("/").rpartition("/")[2]
        # Set by ``Owners``: a commit is refused once another owns the sandbox; nobody else can write to this store.
        self.fence: int | None = None
        self.exclusive = False
        self._store = store
        self._config = config
        self._quota = Quota.of(config)
        self._ledger = ledger
        self._state = state
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[Any] | None = None
        self._purged = False

    @property
    def version(self) -> int:
        """Number of the newest version; 0 is the one that creating made."""
        return self._state.head.version

    @property
    def head(self) -> Manifest:
        """The newest version."""
        return self._state.head

    @property
    def draft_seq(self) -> int:
        """The newest draft entry. A run whose sandbox has the current files has seen this one."""
        return self._state.seq

    @property
    def files(self) -> Mapping[str, FileEntry]:
        """The current files, draft included. A picture: later changes do not show in it."""
        return self._state.tree.files

    @property
    def links(self) -> Mapping[str, str]:
        """Symbolic links, path to target: a picture as well."""
        return self._state.tree.links

    @property
    def folders(self) -> frozenset[str]:
        """Empty folders."""
        return self._state.tree.folders

    @property
    def size_bytes(self) -> int:
        """Sum of the sizes of the current files."""
        return self._state.tree.size_bytes

    @property
    def max_bytes(self) -> int:
        """The most bytes all files together may have."""
        return self._quota.max_bytes

    def limit(self, max_bytes: int | None, max_files: int | None = None) -> None:
        """Lower what this conversation may hold; None, or more than that: as the deployment says."""
        self._quota = Quota.of(self._config, max_bytes, max_files)

    def check_room(self, tree: Tree) -> None:
        """Whether a new conversation with these limits could hold files. Raises ``QuotaExceeded``."""
        check_quota(Tree({}, {}, ()), tree.size_bytes, tree.entry_count, self._quota)

    def check_coming(self, had: Mapping[str, FileEntry], coming: Iterable[tuple[str, int | None]], shape: int) -> int:
        """Whether there is room for what a run says that it changed; see ``guards``. Raises ``QuotaExceeded``."""
        return check_coming(self._state.tree, had, coming, shape, self._quota)

    @property
    def purged(self) -> bool:
        """Whether it was deleted: every further change is ``NotFound``."""
        return self._purged

    async def is_purged(self) -> bool:
        """Whether it was deleted, here or by another process: asks the store."""
        self._purged = self._purged or await self._ledger.purged()
        return self._purged

    async def refresh(self) -> None:
        """Take in what other writers have stored. ``NotFound`` when one has purged the conversation."""
        await self.is_purged()
        await self.alone(self._catch_up)

    async def purge(self) -> None:
        """Write the tombstone. Every later change of this object is ``NotFound``."""
        await self.alone(self._purge)

    async def _purge(self) -> None:
        await self._ledger.bury()
        self._purged = True

    async def alone(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a change alone and to its end, even when the caller is cancelled while it runs."""
        await self._lock.acquire()
        if self._purged:
            self._lock.release()
            self._check_alive()
        task = asyncio.get_running_loop().create_task(work())
        self._task = task
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._task = None
        self._lock.release()
        if not task.cancelled():
            task.exception()  # marks it as seen where the caller has gone

    async def _append(self, plan: Callable[[Tree], Plan], size: Callable[[Tree], int] = lambda _: 1) -> None:
        """Write what ``plan`` makes of the current files as one draft entry; planned anew when overtaken.

        ``size`` is about the number of files that it will be about.
        """

        async def work() -> None:
            for _ in range(DRAFT_RETRIES):
                state = self._state
                planned = await aside(size(state.tree), plan, state.tree)
                draft = planned.entry(state.seq + 1)
                try:
                    await self._ledger.append_draft(draft)
                except KeyExists:
                    await self._catch_up()
                    continue
                await self._take_in([draft])
                await self._draft_grew(draft)
                return
            raise Conflict("Others keep writing to this conversation; send it again.")

        await self.alone(work)

    async def _draft_grew(self, newest: DraftEntry) -> None:
        """What is to be done about a draft that has become long; see ``commits``."""

    async def _take_in(self, drafts: Sequence[DraftEntry]) -> None:
        """Lay draft entries that are stored on top."""
        size = sum(draft.size for draft in drafts)
        if size <= FEW:
            for draft in drafts:
                self._state.add_draft(draft)
        else:
            self._state = await aside(size, self._state.with_drafts, drafts)

    async def _catch_up(self, fence: int | None = None) -> None:
        """Read what is new. Raises ``OwnedElsewhere`` when somebody has taken the sandbox since ``fence``."""
        moved = await self._ledger.moved(self.version, self.draft_seq, fence)
        if moved.owner is not None:
            raise OwnedElsewhere(
                "Another runner has taken over this conversation's sandbox; what this run changed was not stored.",
                runner=moved.owner,
            )
        if moved.version:
            newest = await self._ledger.newest(self.version + 1)
            assert newest is not None
            chain = await self._ledger.chain(newest)
            drafts = await self._ledger.drafts_after(chain[-1][1].info.draft)
            self._state = await built(chain, drafts)
        elif moved.draft:
            await self._take_in(await self._ledger.drafts_after(self.draft_seq))

    def _check_alive(self) -> None:
        if self._purged:
            raise NotFound("The conversation was deleted.")


async def built(chain: Sequence[tuple[str, Encoded]], drafts: Sequence[DraftEntry]) -> State:
    """The state that stored objects make."""
    size = sum(step.size for _, step in chain) + sum(draft.size for draft in drafts)
    return await aside(size, State.build, chain, drafts)
