"""One conversation's workspace: its current files, its draft and its versions, over a store.

Everything that changes it is durable before it returns and is serialised by a lock of the object. A caller
who is cancelled meanwhile tears nothing apart: what was begun is finished, and memory and store agree.
Writers in other processes are met by create-if-absent: the loser reads what won and tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

from runner.errors import Conflict, NotFound, RangeNotSatisfiable
from runner.model import FileChange, FileEntry
from runner.workspace import keys
from runner.workspace.base import ByteStream, Digest, KeyExists, Staging, Store
from runner.workspace.codec import DraftEntry, replay
from runner.workspace.config import WorkspaceConfig
from runner.workspace.guards import check_delete, check_put, check_quota
from runner.workspace.ledger import Ledger
from runner.workspace.manifest import Cause, Delta, Manifest, VersionInfo, difference, now
from runner.workspace.merge import apply_run
from runner.workspace.paths import normalise
from runner.workspace.runs import MODE_BITS, Run
from runner.workspace.state import State
from runner.workspace.tree import Tree

T = TypeVar("T")

COMMIT_RETRIES: Final = 3
DRAFT_RETRIES: Final = 64


@dataclass(frozen=True, slots=True)
class CommitResult:
    """``version`` and ``manifest`` are the newest, cut now or before. ``renamed``: the run's path to ours."""

    version: int
    manifest: Manifest
    renamed: Mapping[str, str]


class Workspace:
    """A conversation's files. Made by ``Workspaces``; keep one object per conversation in a process."""

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
        self.incarnation = ledger.home.rstrip("/").rpartition("/")[2]
        self._store = store
        self._config = config
        self._ledger = ledger
        self._state = state
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[Any] | None = None
        self._purged = False

    @classmethod
    async def load(
        cls, store: Store, config: WorkspaceConfig, tenant: str, identifier: str, incarnation: str
    ) -> Self | None:
        """What the store holds of an incarnation; None when it has no version yet."""
        ledger = Ledger(store, keys.incarnation(tenant, identifier, incarnation))
        newest = await ledger.newest()
        if newest is None:
            return None
        chain = await ledger.chain(newest)
        drafts = await ledger.drafts_after(chain[-1][1].info.draft)
        return cls(store, config, tenant, identifier, ledger, State.build(chain, drafts))

    @property
    def version(self) -> int:
        """Number of the newest version; 0 is the empty one that creating made."""
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
        """Symbolic links, path to target."""
        return dict(self._state.tree.links)

    @property
    def folders(self) -> frozenset[str]:
        """Empty folders."""
        return self._state.tree.folders

    @property
    def size_bytes(self) -> int:
        """Sum of the sizes of the current files."""
        return self._state.tree.size_bytes

    @property
    def purged(self) -> bool:
        """Whether it was deleted: every further change is ``NotFound``."""
        return self._purged

    def stage(self, max_bytes: int | None = None) -> Staging:
        """Begin an upload of at most ``max_bytes`` (default: the upload limit), as a context manager."""
        return self._store.stage(self._config.max_upload_bytes if max_bytes is None else max_bytes)

    async def put(
        self,
        path: str,
        staging: Staging,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        mode: int = 0o644,
        modified_ns: int | None = None,
    ) -> FileEntry:
        """Store what was staged under ``path``. When it returns, blob and draft entry are durable.

        ``if_match`` is a SHA-256, or ``*`` for any. Raises ``InvalidPath``, ``PreconditionFailed``,
        ``Conflict``, ``QuotaExceeded``, ``StoreFailed``; the staging is then aborted by its context manager.
        """
        path = normalise(path)
        digest = await staging.finish()
        self._check_alive()
        check_put(self._state.tree, path, digest.size, self._config, if_absent, if_match)
        blob = await self._keep(staging, digest)
        modified = time.time_ns() if modified_ns is None else modified_ns
        entry = FileEntry(path, digest.size, digest.sha256, blob, mode & MODE_BITS, modified)

        def check() -> None:
            check_put(self._state.tree, path, digest.size, self._config, if_absent, if_match)

        await self._exclusive(lambda: self._append_draft(path, entry, check))
        return entry

    async def delete(self, path: str, if_match: str | None = None) -> None:
        """Delete a file, a link or an empty folder.

        Raises ``InvalidPath``, ``NotFound``, ``PreconditionFailed``, ``Conflict``.
        """
        path = normalise(path)
        await self._exclusive(
            lambda: self._append_draft(path, None, lambda: check_delete(self._state.tree, path, if_match))
        )

    async def _append_draft(self, path: str, entry: FileEntry | None, check: Callable[[], None]) -> None:
        for _ in range(DRAFT_RETRIES):
            check()
            draft = DraftEntry(self._state.seq + 1, path, entry)
            try:
                await self._ledger.append_draft(draft)
            except KeyExists:
                await self._catch_up()
                continue
            self._state.add_draft(draft)
            return
        raise Conflict("Others keep writing to this conversation; send it again.")

    async def adopt_blob(self, staging: Staging, recent: Mapping[str, str] | None = None) -> tuple[str, int, str]:
        """Keep bytes out of a sandbox, durably: (sha256, size, blob). A commit must name them in a day.

        ``recent`` are blobs by hash that the same commit will name: equal files of one run share an object.
        """
        digest = await staging.finish()
        if recent and digest.sha256 in recent:
            await staging.abort()
            return digest.sha256, digest.size, recent[digest.sha256]
        return digest.sha256, digest.size, await self._keep(staging, digest)

    async def _keep(self, staging: Staging, digest: Digest) -> str:
        known = self._state.blobs.find(digest.sha256, self.version)
        if known is not None:
            await staging.abort()
            return known
        blob = keys.new_blob(digest.sha256)
        with contextlib.suppress(KeyExists):  # the name says the hash: what is there has the same bytes
            await staging.commit(keys.blob(self.tenant, blob))
        return blob

    async def commit(
        self,
        changes: Sequence[FileChange],
        *,
        synced_seq: int,
        cause: Cause,
        links: Mapping[str, str] | None = None,
        folders: Iterable[str] | None = None,
        base_version: int | None = None,
    ) -> CommitResult:
        """Cut a version from what a run changed; without a change, none is cut.

        The run's sandbox had the files of ``base_version`` (default: the newest now) with draft entries up to
        ``synced_seq``. ``links`` and ``folders`` are all that the sandbox has now, None for unchanged. See
        ``merge`` for clashes. Raises ``Conflict`` when others won four times, ``QuotaExceeded``,
        ``ProtocolError`` for changes that no honest agent reports.
        """
        run = Run.checked(changes, synced_seq, cause, links, folders, base_version)
        if run.is_nothing_on(self._state.tree):
            return CommitResult(self.version, self.head, {})
        return await self._exclusive(lambda: self._commit(run))

    async def _commit(self, run: Run) -> CommitResult:
        seen = await self._seen(run)
        await self._catch_up()
        for _ in range(1 + COMMIT_RETRIES):
            state = self._state
            fold = max(state.head.draft, min(run.synced_seq, state.seq))
            newer = state.newer(fold)
            target = state.folded(fold)
            foreign = {path for path, entry in seen.items() if entry != target.get(path)}
            before = target.edits
            renamed = apply_run(
                target,
                run.changes,
                newer=newer,
                foreign=foreign,
                links=run.links,
                folders=run.folders,
                run=state.head.version + 1,
            )
            if target.edits == before:
                return CommitResult(self.version, self.head, renamed)
            if await self._cut(target, fold, newer, run.cause):
                return CommitResult(self.version, self.head, renamed)
        raise Conflict("Another runner keeps changing this conversation; its files were kept, this run's were not.")

    async def _seen(self, run: Run) -> dict[str, FileEntry | None]:
        """What the run's sandbox had at the paths that the run changed."""
        if run.base_version is None or run.base_version == self.version:
            tree = self._state.tree if run.synced_seq >= self.draft_seq else self._state.folded(run.synced_seq)
        else:
            base = await self.manifest(run.base_version)
            tree = Tree.of(base)
            drafts = await self._ledger.drafts_after(base.draft)
            tree.apply(draft for draft in drafts if draft.seq <= run.synced_seq)
        return {change.path: tree.get(change.path) for change in run.changes}

    async def restore(self, version: int, cause: Cause | None = None) -> CommitResult:
        """Cut a version whose files are those of ``version``; none when they already are. ``NotFound``."""
        wanted = await self.manifest(version)
        why = cause or Cause("restore", version=version)
        return await self._exclusive(lambda: self._restore(wanted, why))

    async def _restore(self, wanted: Manifest, cause: Cause) -> CommitResult:
        await self._catch_up()
        for _ in range(1 + COMMIT_RETRIES):
            tree = self._state.tree
            if tree.files == wanted.files and tree.links == wanted.links and tree.folders == wanted.folders:
                return CommitResult(self.version, self.head, {})
            if await self._cut(Tree.of(wanted), self._state.seq, [], cause, check=False):
                return CommitResult(self.version, self.head, {})
        raise Conflict("Another runner keeps changing this conversation; send it again.")

    async def _cut(
        self, target: Tree, fold: int, newer: Sequence[DraftEntry], cause: Cause, check: bool = True
    ) -> bool:
        """Write ``target`` as the next version; False, and caught up, when another writer took its number."""
        current = target
        if newer:
            current = target.copy()
            current.apply(newer)
        if check:
            check_quota(self._state.tree, current.size_bytes, current.entry_count, self._config)
        before = self.head
        delta = difference(before.files, target.files)
        manifest = _manifest(before, target, delta, fold, cause)
        try:
            await self._ledger.append_version(manifest, before, delta)
        except KeyExists:
            await self._catch_up()
            return False
        self._state.advance(manifest, delta, current)
        return True

    async def versions(self, after: int | None = None, limit: int = 100) -> list[VersionInfo]:
        """Versions, newest first, below the number ``after``."""
        newest = self.version if after is None else min(after - 1, self.version)
        return await self._ledger.infos(newest, limit)

    async def manifest(self, version: int) -> Manifest:
        """Any version that is kept. Raises ``NotFound``."""
        if version == self.version:
            return self.head
        if not 0 <= version < self.version:
            raise NotFound(f"There is no version {version}; the newest is {self.version}.")
        chain = await self._ledger.chain(version)
        return await asyncio.to_thread(replay, chain)

    async def open(self, entry: FileEntry, start: int = 0, end: int | None = None) -> ByteStream:
        """Bytes ``start`` to ``end`` (exclusive, None for all) of a file; a missing blob is found at once.

        Raises ``RangeNotSatisfiable``, ``StoreFailed``.
        """
        stop = entry.size if end is None else min(end, entry.size)
        if not 0 <= start <= stop or (start == entry.size and start > 0):
            raise RangeNotSatisfiable(f"The file has {entry.size} bytes; ask for a range within them.", size=entry.size)
        return await self._store.open(keys.blob(self.tenant, entry.blob), start, stop)

    async def open_blob(self, blob: str, size: int) -> ByteStream:
        """Bytes that ``adopt_blob`` kept outside the workspace. Raises ``StoreFailed``."""
        return await self._store.open(keys.blob(self.tenant, blob), 0, size)

    @property
    def max_bytes(self) -> int:
        """The most bytes all files together may have."""
        return self._config.workspace_bytes

    async def refresh(self) -> None:
        """Take in what other writers have stored. ``NotFound`` when one has purged the conversation."""
        if await self._ledger.purged():
            self._purged = True
        await self._exclusive(self._catch_up)

    async def purge(self) -> None:
        """Write the tombstone. Every later change of this object is ``NotFound``."""
        await self._exclusive(self._purge)

    async def _purge(self) -> None:
        with suppress(KeyExists):
            await self._store.create(keys.tombstone(self._ledger.home), b'{"format":1}')
        self._purged = True

    async def _catch_up(self) -> None:
        new_version, new_draft = await self._ledger.moved(self.version, self.draft_seq)
        if new_version:
            newest = await self._ledger.newest(self.version + 1)
            assert newest is not None
            chain = await self._ledger.chain(newest)
            drafts = await self._ledger.drafts_after(chain[-1][1].info.draft)
            self._state = State.build(chain, drafts)
        elif new_draft:
            for draft in await self._ledger.drafts_after(self.draft_seq):
                self._state.add_draft(draft)

    async def _exclusive(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
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

    def _check_alive(self) -> None:
        if self._purged:
            raise NotFound("The conversation was deleted.")


def _manifest(before: Manifest, tree: Tree, delta: Delta, fold: int, cause: Cause) -> Manifest:
    files = tree.files
    info = VersionInfo(
        version=before.version + 1,
        base=before.version,
        created_at=now(),
        cause=cause,
        draft=fold,
        file_count=len(files),
        size_bytes=tree.size_bytes,
        changes=delta.counts,
    )
    return Manifest(info, files, dict(tree.links), tree.folders)
