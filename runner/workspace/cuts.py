"""A version before it is written: what it holds, and what lies on top of it. Pure, and changes no state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runner.model import FileEntry
from runner.workspace.drafts import DraftEntry
from runner.workspace.guards import Quota, check_quota
from runner.workspace.manifest import Cause, Delta, Manifest, VersionInfo, now
from runner.workspace.merge import apply_run
from runner.workspace.runs import Run
from runner.workspace.state import State
from runner.workspace.tree import Tree


@dataclass(frozen=True, slots=True)
class Cut:
    """``delta`` leads to ``manifest`` from the version before; ``base`` has its files, ``tree`` the draft as well."""

    manifest: Manifest
    delta: Delta
    base: Tree
    tree: Tree

    @property
    def size(self) -> int:
        """How many files it changes."""
        return len(self.delta.put) + len(self.delta.removed)


def seen_by(run: Run, tree: Tree) -> dict[str, FileEntry | None]:
    """What a run's sandbox, which had ``tree``, had at the paths that the run changed."""
    return {change.path: tree.get(change.path) for change in run.changes}


def seen_at(run: Run, base: Manifest, drafts: Sequence[DraftEntry]) -> dict[str, FileEntry | None]:
    """The same where the sandbox had an older version with draft entries on top."""
    return seen_by(run, tree_at(base, drafts, run.synced_seq))


def tree_at(base: Manifest, drafts: Sequence[DraftEntry], seq: int) -> Tree:
    """The files of a version with the draft entries up to ``seq`` on top."""
    tree = Tree.of(base)
    tree.apply(draft for draft in drafts if draft.seq <= seq)
    return tree


def cut_run(
    state: State, run: Run, seen: Mapping[str, FileEntry | None], quota: Quota
) -> tuple[Cut | None, dict[str, str]]:
    """The version that a run makes, None when it changes nothing; and what was renamed. Raises QuotaExceeded."""
    fold = fold_of(state, run)
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
        return None, renamed
    return _cut(state, target, fold, newer, run.cause, quota), renamed


def fold_of(state: State, run: Run) -> int:
    """The last draft entry that the version of a run takes in: the last that it has seen."""
    return max(state.head.draft, min(run.synced_seq, state.seq))


def cut_draft(state: State) -> Cut:
    """The version that takes in the draft."""
    return _cut(state, state.tree.copy(), state.seq, [], Cause("edits"), None)


def cut_files(state: State, wanted: Manifest, cause: Cause, quota: Quota) -> Cut | None:
    """The version that has the files of an older one; None when the current files are these.

    Raises QuotaExceeded.
    """
    tree = state.tree
    if tree.files == wanted.files and tree.links == wanted.links and tree.folders == wanted.folders:
        return None
    return _cut(state, Tree.of(wanted), state.seq, [], cause, quota)


def _cut(state: State, target: Tree, fold: int, newer: Sequence[DraftEntry], cause: Cause, quota: Quota | None) -> Cut:
    before = state.head
    delta = target.delta(before.files)
    target.rebase()
    current = target
    if newer:
        current = target.copy()
        current.apply(newer)
    if quota is not None:
        check_quota(state.tree, current.size_bytes, current.entry_count, quota, current.names_bytes)
    return Cut(_manifest(before, target, delta, fold, cause), delta, target, current)


def _manifest(before: Manifest, tree: Tree, delta: Delta, fold: int, cause: Cause) -> Manifest:
    info = VersionInfo(
        version=before.version + 1,
        base=before.version,
        created_at=now(),
        cause=cause,
        draft=fold,
        file_count=len(tree.files),
        size_bytes=tree.size_bytes,
        changes=delta.counts,
    )
    return Manifest(info, tree.files, tree.links, tree.folders)
