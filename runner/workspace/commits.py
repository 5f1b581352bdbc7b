"""Versions of a workspace: cut from what a run changed or by a restore, listed, compared and read again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from runner.errors import Conflict, NotFound, StoreFailed
from runner.model import FileChange, FileEntry
from runner.telemetry.logs import logger
from runner.workspace import keys
from runner.workspace.aside import FEW, aside
from runner.workspace.base import KeyExists
from runner.workspace.codec import replay
from runner.workspace.core import Core
from runner.workspace.cuts import Cut, cut_draft, cut_files, cut_run, seen_at, seen_by, tree_at
from runner.workspace.drafts import DraftEntry
from runner.workspace.executions import end_of
from runner.workspace.manifest import Cause, Manifest, VersionInfo, difference
from runner.workspace.names import ordered
from runner.workspace.runs import Run
from runner.workspace.tree import Tree

COMMIT_RETRIES: Final = 3
LONG_DRAFT: Final = 1000  # entries, which a load reads one by one
LARGE_DRAFT: Final = 50_000  # changes, which memory holds
_LOOK_EVERY: Final = 16
log = logger("workspace")


@dataclass(frozen=True, slots=True)
class CommitResult:
    """``version`` and ``manifest`` are the newest, cut now or before. ``renamed``: the run's path to ours.

    ``recorded``: the outcome that ``closing`` gave is durable as well.
    """

    version: int
    manifest: Manifest
    renamed: Mapping[str, str]
    recorded: bool = False


# Of the version that a run makes, and what is renamed in it: the run's execution id and its outcome.
Closing = Callable[[int, Mapping[str, str]], tuple[str, Mapping[str, Any]]]


class Versions(Core):
    """The append-only line of versions."""

    async def commit(
        self,
        changes: Sequence[FileChange],
        *,
        synced_seq: int,
        cause: Cause,
        links: Mapping[str, str] | None = None,
        folders: Collection[str] | None = None,
        base_version: int | None = None,
        contents: Mapping[str, bytes] | None = None,
        closing: Closing | None = None,
    ) -> CommitResult:
        """Cut a version from what a run changed; without a change, none is cut.

        The run's sandbox had the files of ``base_version`` (default: the newest now) with draft entries up to
        ``synced_seq``. ``links`` and ``folders`` are all that the sandbox has now, None for unchanged. See
        ``merge`` for clashes. ``contents`` are few and small, by the blobs of changes that are stored with the version
        (see ``name_contents``). ``closing`` gives an outcome to be stored right after the version.
        Raises ``Conflict`` when others won four times, ``QuotaExceeded``,
        ``OwnedElsewhere`` when another runner has taken the sandbox since ``Owners`` gave it to this one,
        ``ProtocolError`` for changes that no honest agent reports.
        """
        shape = len(links or ()) + (0 if folders is None else len(folders))
        run = await aside(len(changes) + shape, Run.checked, changes, synced_seq, cause, links, folders, base_version)
        if run.is_nothing_on(self._state.tree):
            return CommitResult(self.version, self.head, {})
        return await self.alone(lambda: self._commit(run, contents or {}, closing))

    async def _commit(self, run: Run, contents: Mapping[str, bytes], closing: Closing | None) -> CommitResult:
        seen = await self._seen(run)
        if not self.exclusive:
            await self._catch_up(self.fence)
        for _ in range(1 + COMMIT_RETRIES):
            state = self._state
            size = run.size + sum(draft.size for draft in state.unfolded)
            cut, renamed = await aside(size, cut_run, state, run, seen, self._quota)
            if cut is None:
                return CommitResult(self.version, self.head, renamed)
            then = end_of(self.home, *closing(cut.manifest.version, renamed)) if closing is not None else None
            written = await self._write(cut, self.fence, contents, then)
            if written is not None:
                return CommitResult(self.version, self.head, renamed, recorded=written)
            contents = {}  # they were stored before it was found that another writer took the number
        raise Conflict("Another runner keeps changing this conversation; its files were kept, this run's were not.")

    async def _seen(self, run: Run) -> dict[str, FileEntry | None]:
        """What the run's sandbox had at the paths that the run changed."""
        state = self._state
        if run.base_version is None or run.base_version == self.version:
            size = run.size if run.synced_seq >= state.seq else run.size + sum(one.size for one in state.unfolded)
            return await aside(size, lambda: seen_by(run, state.folded(run.synced_seq)))
        base = await self.manifest(run.base_version)
        drafts = await self._ledger.drafts_after(base.draft)
        size = run.size + len(base.files) + sum(draft.size for draft in drafts)
        return await aside(size, seen_at, run, base, drafts)

    async def restore(self, version: int, cause: Cause | None = None) -> CommitResult:
        """Cut a version whose files are those of ``version``; none when they already are.

        Raises ``NotFound``, and ``QuotaExceeded`` for files that are more than fit in, and more than there are now.
        """
        wanted = await self.manifest(version)
        why = cause or Cause("restore", version=version)
        return await self.alone(lambda: self._restore(wanted, why))

    async def _restore(self, wanted: Manifest, cause: Cause) -> CommitResult:
        await self._catch_up()
        for _ in range(1 + COMMIT_RETRIES):
            state = self._state
            cut = await aside(wanted.size + state.tree.entry_count, cut_files, state, wanted, cause, self._quota)
            if cut is None or await self._write(cut) is not None:
                return CommitResult(self.version, self.head, {})
        raise Conflict("Another runner keeps changing this conversation; send it again.")

    async def _draft_grew(self, newest: DraftEntry) -> None:
        """Fold a long draft into a version: it is in memory whole, and nothing else may fold it for long.

        What was asked for is durable already, so that a store which fails now costs nobody anything.
        """
        unfolded = self._state.unfolded
        if len(unfolded) < LONG_DRAFT:
            if newest.size <= FEW and len(unfolded) % _LOOK_EVERY:
                return
            if sum(draft.size for draft in unfolded) < LARGE_DRAFT:
                return
        try:
            await self._write(await aside(LARGE_DRAFT, cut_draft, self._state))
        except StoreFailed as error:
            log.warning("a long draft could not be folded", conversation=self.id, cause=error.cause)

    async def _write(
        self,
        cut: Cut,
        fence: int | None = None,
        contents: Mapping[str, bytes] | None = None,
        then: tuple[str, bytes] | None = None,
    ) -> bool | None:
        """Make a version durable and the newest; None, and caught up, when another writer took its number.

        ``contents`` by blob are made durable first, and ``then`` after it: True when that was.
        """
        state = self._state
        first = [(keys.blob(self.tenant, blob), content) for blob, content in (contents or {}).items()]
        try:
            followed = await self._ledger.append_version(cut.manifest, state.head, cut.delta, first, then)
        except KeyExists:
            await self._catch_up(fence)
            return None
        if cut.size + sum(draft.size for draft in state.unfolded) <= FEW:
            state.advance(cut.manifest, cut.delta, cut.base, cut.tree)
        else:
            self._state = await aside(FEW + 1, state.advanced, cut.manifest, cut.delta, cut.base, cut.tree)
        return followed

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
        return await aside(sum(step.size for _, step in chain), replay, chain)

    async def changes(self, version: int) -> list[FileChange]:
        """What a version changed against the one before, in the order of paths; the first against nothing.

        Raises ``NotFound`` when it, or the one before, is not kept.
        """
        after = await self.manifest(version)
        try:
            before = (await self.manifest(version - 1)).files if version else {}
        except NotFound:
            raise NotFound(f"What version {version} changed is not known: the one before it is not kept.") from None
        return await aside(after.size + len(before), _changes, before, after.files)

    async def picture(self, version: int | None) -> Tree:
        """The files of a version, or with None the current ones, draft included. Raises ``NotFound``."""
        if version is None:
            return self._state.tree.copy()
        manifest = await self.manifest(version)
        return await aside(manifest.size, Tree.of, manifest)

    async def picture_at(self, version: int, draft_seq: int) -> Tree:
        """The files of a version with the draft entries up to ``draft_seq`` on top. Raises ``NotFound``."""
        if version == self.version and draft_seq == self.draft_seq:
            return self._state.tree.copy()
        base = await self.manifest(version)
        drafts = await self._ledger.drafts_after(base.draft)
        if not base.draft <= draft_seq <= self.draft_seq:
            raise NotFound(f"Version {version} never had {draft_seq} draft entries.")
        size = base.size + sum(draft.size for draft in drafts)
        return await aside(size, tree_at, base, drafts, draft_seq)


def _changes(before: Mapping[str, FileEntry], after: Mapping[str, FileEntry]) -> list[FileChange]:
    delta = difference(before, after)
    found = {path: FileChange(path, "deleted", None) for path in delta.removed}
    for entry in delta.put:
        found[entry.path] = FileChange(entry.path, "modified" if entry.path in before else "created", entry)
    return [found[path] for path in ordered(found)]
