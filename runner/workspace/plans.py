"""What one request of a client changes, worked out on the current files: becomes one draft entry. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from runner.errors import Conflict, InvalidRequest, NotFound, PreconditionFailed
from runner.model import FileEntry
from runner.workspace.drafts import Change, DraftEntry
from runner.workspace.guards import (
    Quota,
    check_delete,
    check_match,
    check_names,
    check_parents,
    check_place,
    check_put,
    check_quota,
)
from runner.workspace.paths import name_bytes, normalise, shown
from runner.workspace.tree import Tree


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes that happen together; see ``DraftEntry``."""

    changes: tuple[Change, ...]
    links: tuple[tuple[str, str], ...] = ()
    folders: tuple[str, ...] = ()

    def entry(self, seq: int) -> DraftEntry:
        """The draft entry of that number."""
        return DraftEntry(seq, self.changes, self.links, self.folders)

    @property
    def files(self) -> list[FileEntry]:
        """The files that it sets down."""
        return [entry for _, entry in self.changes if entry is not None]


def plan_put(tree: Tree, entry: FileEntry, quota: Quota, if_absent: bool, if_match: str | None) -> Plan:
    """One file. Raises ``PreconditionFailed``, ``Conflict``, ``QuotaExceeded``."""
    check_put(tree, entry.path, entry.size, quota, if_absent, if_match)
    return Plan(((entry.path, entry),))


def plan_puts(tree: Tree, entries: Sequence[FileEntry], quota: Quota) -> Plan:
    """Many files; the quota counts what is there in the end. Raises ``Conflict``, ``QuotaExceeded``."""
    trial = tree.copy()
    for entry in entries:
        check_place(trial, entry.path, False, None)
        trial.put(entry)
    check_quota(tree, trial.size_bytes, trial.entry_count, quota, trial.names_bytes)
    return Plan(tuple((entry.path, entry) for entry in entries))


def unique_paths(paths: Sequence[str]) -> list[str]:
    """Canonical paths of one request. Raises ``InvalidPath``, ``InvalidRequest`` for one that comes twice."""
    found: dict[str, None] = {}
    for path in map(normalise, paths):
        if path in found:
            raise InvalidRequest(f"{shown(path)} comes twice in this request; send each path once.")
        found[path] = None
    return list(found)


def plan_delete(tree: Tree, path: str, if_match: str | None, recursive: bool) -> Plan:
    """A file, a link, an empty folder, or with ``recursive`` a folder with all below it.

    Raises ``NotFound``, ``PreconditionFailed``, ``Conflict``.
    """
    check_delete(tree, path, if_match, recursive)
    if tree.get(path) is not None or tree.is_link(path) or tree.is_empty_folder(path):
        return Plan(((path, None),))
    files, links, folders = tree.below(path)
    names = [*(entry.path for entry in files), *(name for name, _ in links), *folders]
    return Plan(tuple((name, None) for name in names))


def plan_move(tree: Tree, source: str, target: str, if_absent: bool, if_match: str | None) -> Plan:
    """A file, a link or a folder with all below it to another path.

    ``if_match`` is the content of the file moved. A folder goes only where nothing is, or an empty folder.
    Raises ``NotFound``, ``Conflict``, ``PreconditionFailed``, ``InvalidPath`` for names that grow too long,
    ``QuotaExceeded`` when all of them together do.
    """
    check_match(tree, source, if_match)
    if source == target or target.startswith(source + "/"):
        raise Conflict(f"{shown(source)} cannot be moved into itself; choose another target.")
    file, link = tree.get(source), tree.link(source)
    if file is not None or link is not None:
        check_place(tree, target, if_absent, None)
        check_names(tree, tree.names_bytes + name_bytes(target) - name_bytes(source))
        if file is not None:
            return Plan(((source, None), (target, replace(file, path=target))))
        return Plan(((source, None), *([(target, None)] if tree.get(target) else [])), ((target, link or ""),))
    if not tree.is_folder(source):
        raise NotFound(f"There is no file or folder {shown(source)} in this conversation.")
    return _move_folder(tree, source, target)


def _move_folder(tree: Tree, source: str, target: str) -> Plan:
    if tree.get(target) is not None or tree.is_link(target):
        raise PreconditionFailed(f"{shown(target)} is a file; a folder cannot take its place.")
    if tree.is_folder(target) and not tree.is_empty_folder(target):
        raise Conflict(f"{shown(target)} is a folder with files in it; choose another target.")
    check_parents(tree, target)
    files, links, folders = tree.below(source)
    if tree.is_empty_folder(source):
        folders = [source]
    longer = name_bytes(target) - name_bytes(source)
    check_names(tree, tree.names_bytes + longer * (len(files) + len(links) + len(folders)))
    gone: list[Change] = [(name, None) for name in (*_names(files, links), *folders)]

    def moved(name: str) -> str:
        return normalise(target + name[len(source) :])

    put: list[Change] = [(moved(entry.path), replace(entry, path=moved(entry.path))) for entry in files]
    return Plan(
        (*gone, *put),
        tuple((moved(name), to) for name, to in links),
        tuple(map(moved, folders)),
    )


def _names(files: Sequence[FileEntry], links: Sequence[tuple[str, str]]) -> list[str]:
    return [*(entry.path for entry in files), *(name for name, _ in links)]
