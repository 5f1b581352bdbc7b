"""What keeps an upload or a deletion from being done: preconditions, names in the way, quota. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from runner.errors import Conflict, NotFound, PreconditionFailed, QuotaExceeded
from runner.model import FileEntry
from runner.workspace.config import WORKSPACE_FILES, WORKSPACE_SIZE, WorkspaceConfig
from runner.workspace.paths import name_bytes, shown
from runner.workspace.tree import Tree

MAX_NAMES_BYTES: Final = 16 << 20
"""Paths and targets of links of a workspace together: they are held in memory and written with every version."""


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
    names = tree.names_bytes + (name_bytes(path) if added else 0)
    check_quota(tree, tree.size_bytes - old_size + size, tree.entry_count + added, quota, names)


def check_place(tree: Tree, path: str, if_absent: bool, if_match: str | None) -> None:
    """Whether a file or a link may lie at ``path``."""
    if if_absent and (tree.get(path) is not None or tree.is_link(path)):
        raise PreconditionFailed(
            f"{shown(path)} is already there. To replace it, leave out If-None-Match; in a move, "
            'send "overwrite": true.'
        )
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
                f"{shown(path)} is a folder with files in it; delete it with all below by ?recursive=true, "
                "or those one by one."
            )


def check_quota(now: Tree, size: int, entries: int, quota: Quota, names: int = 0) -> None:
    """Whether a workspace may grow to this. One above limits that were lowered may still shrink.

    ``names``: bytes of all paths and targets of links, where these have changed.
    """
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
    check_names(now, names)


def check_names(now: Tree, names: int) -> None:
    """Whether paths and targets of links may grow to so many bytes."""
    if names > MAX_NAMES_BYTES and names > now.names_bytes:
        raise QuotaExceeded(
            f"The paths and link targets of the workspace would take {names} bytes; the limit is {MAX_NAMES_BYTES}. "
            "Use shorter names and targets, or fewer of them.",
            limit=MAX_NAMES_BYTES,
            used=now.names_bytes,
        )


def check_coming(
    now: Tree, had: Mapping[str, FileEntry], coming: Iterable[tuple[str, int | None]], shape: int, quota: Quota
) -> int:
    """Whether a workspace has room for what a run says that it changed; gives the bytes that are to be stored.

    ``coming`` are sizes by path, None for a deleted file; ``had`` the files that the run was given; ``shape`` how many
    links and empty folders there are after it, as far as is known. Each name counts, and each time that it is told.
    Where somebody else has changed the same file since, the least is counted that it can come to: the commit looks
    again.
    """
    size, files, stored = now.size_bytes, len(now.files), 0
    done: set[str] = set()
    for path, new in coming:
        old = None if path in done else now.get(path)
        done.add(path)
        ours = old is not None and old == had.get(path)
        stored += new or 0
        if new is None:
            size -= old.size if old is not None and ours else 0
            files -= ours
        elif old is not None and (ours or old.size == new):
            size += new - old.size
        else:
            size += new
            files += 1
    check_quota(now, size, files + shape, quota)
    return stored


def check_match(tree: Tree, path: str, if_match: str | None) -> None:
    """Whether the file at ``path`` has a content that the caller knows: ``*`` for any, or hashes with commas."""
    if if_match is None:
        return
    old = tree.get(path)
    if old is None:
        raise PreconditionFailed(f"There is no file {shown(path)} to match.")
    if if_match != "*" and old.sha256 not in if_match.split(","):
        raise PreconditionFailed(
            f"{shown(path)} has changed meanwhile; get it again and repeat with its present ETag.",
            sha256=old.sha256,
        )
