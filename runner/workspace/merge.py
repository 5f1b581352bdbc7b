"""What a run changed, laid path by path on a workspace that may have moved on meanwhile. Pure.

A path that both the run and somebody else changed keeps the other's content, and the run's file becomes
``name (run n).ext``. So does a file of the run that has no place: its folder has become a file, or its name a
folder. Nothing is lost and nothing is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from runner.model import FileChange, FileEntry
from runner.workspace.drafts import DraftEntry
from runner.workspace.names import ordered
from runner.workspace.paths import MAX_PATH_BYTES, MAX_SEGMENT_BYTES, parents
from runner.workspace.tree import Tree


def apply_run(
    target: Tree,
    changes: Sequence[FileChange],
    *,
    newer: Sequence[DraftEntry],
    foreign: Collection[str],
    links: Mapping[str, str] | None,
    folders: Iterable[str] | None,
    run: int,
) -> dict[str, str]:
    """Change ``target`` (the base with the draft that the run has seen) and return what was renamed.

    ``newer`` are draft entries that the run had not seen: they stay on top of the result. ``foreign`` are
    paths of the changes that another version has changed since. ``run`` is the number in a new name.
    """
    latest = _latest(newer)
    above = Tree({}, {}, ())
    above.apply(newer)
    for change in changes:
        if change.entry is None and change.path not in foreign:
            target.remove(change.path)
    if links is not None:
        for path in [path for path in target.links if path not in links]:
            target.remove(path)
    renamed: dict[str, str] = {}
    written = {change.path: change.entry for change in changes if change.entry}
    for path in ordered(written):
        entry = written[path]
        clash = path in latest or path in foreign
        if clash:
            clash = not _same(entry, latest[path] if path in latest else target.get(path))
        if clash or _obstacle(path, target, above) is not None:
            renamed[path] = _free_name(path, target, above, run)
            entry = replace(entry, path=renamed[path])
        target.put(entry)
    target.set_shape(links, folders)
    return renamed


def _same(mine: FileEntry, theirs: FileEntry | None) -> bool:
    return theirs is not None and mine.sha256 == theirs.sha256


def _latest(newer: Sequence[DraftEntry]) -> dict[str, FileEntry | None]:
    """Every path that these draft entries touch, and the file that they leave there."""
    found: dict[str, FileEntry | None] = {}
    for draft in newer:
        found |= draft.changes
        found |= {path: None for path, _ in draft.links} | dict.fromkeys(draft.folders)
    return found


def _obstacle(path: str, target: Tree, above: Tree) -> str | None:
    """What keeps a file from lying at ``path``: a file above it, or the path itself, being a folder.

    Links of ``target`` are no obstacle: the run has said which are there now. Those of ``above`` came later.
    """
    for parent in parents(path):
        if target.get(parent) is not None:
            return parent
    blocking = above.blocking_parent(path)
    if blocking is not None:
        return blocking
    return path if target.holds_below(path) or above.holds_below(path) else None


def _free_name(path: str, target: Tree, above: Tree, run: int) -> str:
    """A path near ``path`` where nothing lies and nothing stands in the way."""
    blocked = _obstacle(path, target, above) or path
    rest = path[len(blocked) :]
    attempt = 1
    while True:
        label = f" (run {run})" if attempt == 1 else f" (run {run}, {attempt})"
        candidate = _labelled(blocked, label, len(rest.encode())) + rest
        taken = any(tree.get(candidate) is not None or tree.is_link(candidate) for tree in (target, above))
        if not taken and _obstacle(candidate, target, above) is None:
            return candidate
        attempt += 1


def _labelled(path: str, label: str, rest_bytes: int) -> str:
    """``a/name.ext`` with the label before the extension, the name cut where it would be too long."""
    folder, slash, name = path.rpartition("/")
    stem, dot, extension = name.rpartition(".")
    if not stem:
        stem, dot, extension = name, "", ""
    tail = label + dot + extension
    room = min(MAX_SEGMENT_BYTES, MAX_PATH_BYTES - rest_bytes - len((folder + slash).encode()))
    if room <= len(tail.encode()):
        stem, tail = name, label
    keep = max(room - len(tail.encode()), 0)
    short = stem.encode()[:keep].decode("utf-8", "ignore")
    return folder + slash + short + tail
