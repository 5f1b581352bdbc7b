"""What keeps an upload or a deletion from being done: preconditions, names in the way, quota. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from runner.errors import Conflict, NotFound, PreconditionFailed, QuotaExceeded
from runner.workspace.config import WORKSPACE_FILES, WORKSPACE_SIZE, WorkspaceConfig
from runner.workspace.paths import shown
from runner.workspace.tree import Tree


@dataclass(frozen=True, slots=True)
class Quota:
    """What a workspace may hold, and the names under which these limits can be changed."""

    max_bytes: int
    max_files: int
    bytes_named: str = WORKSPACE_SIZE
    files_named: str = WORKSPACE_FILES

    @classmethod
    def of(cls, config: WorkspaceConfig, max_bytes: int | None = None, max_files: int | None = None) -> Quota:
        """The deployment's; the others are the conversation's own, which can only be lower."""
        size, size_named = config.workspace_bytes, WORKSPACE_SIZE
        if max_bytes is not None and max_bytes < size:
            size, size_named = max_bytes, "limits.workspace_bytes of this conversation"
        files, files_named = config.max_files, WORKSPACE_FILES
        if max_files is not None and max_files < files:
            files, files_named = max_files, "this conversation's own, by its limits.memory_bytes"
        return cls(size, files, size_named, files_named)


def check_put(tree: Tree, path: str, size: int, quota: Quota, if_absent: bool, if_match: str | None) -> None:
    """Whether a file of ``size`` bytes may be put at ``path`` now."""
    check_place(tree, path, if_absent, if_match)
    old = tree.get(path)
    old_size = 0 if old is None else old.size
    added = 1 if old is None and not tree.is_link(path) else 0
    check_quota(tree, tree.size_bytes - old_size + size, tree.entry_count + added, quota)


def check_place(tree: Tree, path: str, if_absent: bool, if_match: str | None) -> None:
    """Whether a file or a link may lie at ``path``."""
    if if_absent and (tree.get(path) is not None or tree.is_link(path)):
        raise PreconditionFailed(f"{shown(path)} is already there; leave out If-None-Match to replace it.")
    check_match(tree, path, if_match)
    check_parents(tree, path)
    if tree.holds_below(path):
        raise Conflict(f"{shown(path)} is a folder with files in it; choose another name.")


def check_parents(tree: Tree, path: str) -> None:
    """Whether all that ``path`` calls folders are folders, or nothing yet."""
    parent = tree.blocking_parent(path)
    if parent is not None:
        raise Conflict(
            f"{shown(parent)} is a file, so nothing can lie below it; delete it first or choose another path."
        )


def check_delete(tree: Tree, path: str, if_match: str | None, recursive: bool = False) -> None:
    """Whether there is something at ``path`` to delete."""
    check_match(tree, path, if_match)
    if tree.get(path) is None and not tree.is_link(path) and not tree.is_empty_folder(path):
        if not tree.is_folder(path):
            raise NotFound(f"There is no file {shown(path)} in this conversation.")
        if not recursive:
            raise Conflict(
                f"{shown(path)} is a folder with files in it; delete it with all below, or those one by one."
            )


def check_quota(now: Tree, size: int, entries: int, quota: Quota) -> None:
    """Whether a workspace may grow to this. One above limits that were lowered may still shrink."""
    if size > quota.max_bytes and size > now.size_bytes:
        raise QuotaExceeded(
            f"The workspace would hold {size} bytes; the limit is {quota.max_bytes} "
            f"({quota.bytes_named}). Delete files that are no longer needed.",
            limit=quota.max_bytes,
            used=now.size_bytes,
        )
    if entries > quota.max_files and entries > now.entry_count:
        raise QuotaExceeded(
            f"The workspace would hold {entries} files; the limit is {quota.max_files} "
            f"({quota.files_named}). Delete files that are no longer needed.",
            limit=quota.max_files,
            used=now.entry_count,
        )


def check_match(tree: Tree, path: str, if_match: str | None) -> None:
    """Whether the file at ``path`` has the content that the caller knows."""
    if if_match is None:
        return
    old = tree.get(path)
    if old is None:
        raise PreconditionFailed(f"There is no file {shown(path)} to match.")
    if if_match not in ("*", old.sha256):
        raise PreconditionFailed(
            f"{shown(path)} has changed meanwhile; get it again and repeat with its present ETag.",
            sha256=old.sha256,
        )
