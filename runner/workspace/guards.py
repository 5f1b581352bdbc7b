"""What keeps an upload or a deletion from being done: preconditions, names in the way, quota. Pure."""

from __future__ import annotations

from runner.errors import Conflict, NotFound, PreconditionFailed, QuotaExceeded
from runner.workspace.config import WORKSPACE_FILES, WORKSPACE_SIZE, WorkspaceConfig
from runner.workspace.paths import shown
from runner.workspace.tree import Tree


def check_put(tree: Tree, path: str, size: int, config: WorkspaceConfig, if_absent: bool, if_match: str | None) -> None:
    """Whether a file of ``size`` bytes may be put at ``path`` now."""
    old = tree.get(path)
    if if_absent and (old is not None or tree.is_link(path)):
        raise PreconditionFailed(f"{shown(path)} is already there; leave out If-None-Match to replace it.")
    _check_match(tree, path, if_match)
    parent = tree.blocking_parent(path)
    if parent is not None:
        raise Conflict(
            f"{shown(parent)} is a file, so nothing can lie below it; delete it first or choose another path."
        )
    if tree.holds_below(path):
        raise Conflict(f"{shown(path)} is a folder with files in it; choose another name.")
    old_size = 0 if old is None else old.size
    added = 1 if old is None and not tree.is_link(path) else 0
    check_quota(tree, tree.size_bytes - old_size + size, tree.entry_count + added, config)


def check_delete(tree: Tree, path: str, if_match: str | None) -> None:
    """Whether there is something at ``path`` to delete."""
    _check_match(tree, path, if_match)
    if tree.get(path) is None and not tree.is_link(path):
        if tree.holds_below(path):
            raise Conflict(f"{shown(path)} is a folder with files in it; delete those one by one.")
        if not tree.is_folder(path):
            raise NotFound(f"There is no file {shown(path)} in this conversation.")


def check_quota(now: Tree, size: int, entries: int, config: WorkspaceConfig) -> None:
    """Whether a workspace may grow to this. One above limits that were lowered may still shrink."""
    if size > config.workspace_bytes and size > now.size_bytes:
        raise QuotaExceeded(
            f"The workspace would hold {size} bytes; the limit is {config.workspace_bytes} "
            f"({WORKSPACE_SIZE}). Delete files that are no longer needed.",
            limit=config.workspace_bytes,
            used=now.size_bytes,
        )
    if entries > config.max_files and entries > now.entry_count:
        raise QuotaExceeded(
            f"The workspace would hold {entries} files; the limit is {config.max_files} "
            f"({WORKSPACE_FILES}). Delete files that are no longer needed.",
            limit=config.max_files,
            used=now.entry_count,
        )


def _check_match(tree: Tree, path: str, if_match: str | None) -> None:
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
