"""Versions of a workspace: cut from what a run changed or by a restore, listed, compared and read again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from runner.errors import Conflict, NotFound
from runner.model import FileChange, FileEntry
from runner.workspace.base import KeyExists
from runner.workspace.codec import replay
from runner.workspace.core import Core
from runner.workspace.drafts import DraftEntry
from runner.workspace.guards import check_quota
from runner.workspace.manifest import Cause, Delta, Manifest, VersionInfo, difference, now
from runner.workspace.merge import apply_run
from runner.workspace.runs import Run
from runner.workspace.tree import Tree

COMMIT_RETRIES: Final = 3


@dataclass(frozen=True, slots=True)
class CommitResult:
    """``version`` and ``manifest`` are the newest, cut now or before. ``renamed``: the run's path to ours."""

    version: int
    manifest: Manifest
    renamed: Mapping[str, str]


class Versions(Core):
    """The append-only line of versions."""

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
        ``OwnedElsewhere`` when another runner has taken the sandbox since ``Owners`` gave it to this one,
        ``ProtocolError`` for changes that no honest agent reports.
        """
        run = Run.checked(changes, synced_seq, cause, links, folders, base_version)
        if run.is_nothing_on(self._state.tree):
            return CommitResult(self.version, self.head, {})
        return await self.alone(lambda: self._commit(run))

    async def _commit(self, run: Run) -> CommitResult:
        seen = await self._seen(run)
        await self._catch_up(self.fence)
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
            if await self._cut(target, fold, newer, run.cause, fence=self.fence):
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
        return await self.alone(lambda: self._restore(wanted, why))

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
        self,
        target: Tree,
        fold: int,
        newer: Sequence[DraftEntry],
        cause: Cause,
        *,
        check: bool = True,
        fence: int | None = None,
    ) -> bool:
        """Write ``target`` as the next version; False, and caught up, when another writer took its number."""
        current = target
        if newer:
            current = target.copy()
            current.apply(newer)
        if check:
            check_quota(self._state.tree, current.size_bytes, current.entry_count, self._quota)
        before = self.head
        delta = difference(before.files, target.files)
        manifest = _manifest(before, target, delta, fold, cause)
        try:
            await self._ledger.append_version(manifest, before, delta)
        except KeyExists:
            await self._catch_up(fence)
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
        chain = await self._ledger.chain(version, self.version)
        return await asyncio.to_thread(replay, chain)

    async def changes(self, version: int) -> list[FileChange]:
        """What a version changed against the one before, in the order of paths; the first against nothing.

        Raises ``NotFound`` when it, or the one before, is not kept.
        """
        after = await self.manifest(version)
        try:
            before = (await self.manifest(version - 1)).files if version else {}
        except NotFound:
            raise NotFound(f"What version {version} changed is not known: the one before it is not kept.") from None
        delta = difference(before, after.files)
        found = [FileChange(path, "deleted", None) for path in delta.removed]
        found += [FileChange(one.path, "modified" if one.path in before else "created", one) for one in delta.put]
        return sorted(found, key=lambda change: change.path)

    async def picture(self, version: int | None) -> Tree:
        """The files of a version, or with None the current ones, draft included. Raises ``NotFound``."""
        return self._state.tree.copy() if version is None else Tree.of(await self.manifest(version))


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
