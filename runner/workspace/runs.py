"""What a run asks a workspace to keep, checked: it comes out of a sandbox and is not trusted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from runner.errors import ProtocolError
from runner.model import FileChange
from runner.workspace import keys
from runner.workspace.manifest import Cause
from runner.workspace.paths import check_reported, check_target
from runner.workspace.tree import Tree

MODE_BITS = 0o777


@dataclass(frozen=True, slots=True)
class Run:
    """The changes of a run; ``links`` and ``folders`` are all that are there now, None for unchanged."""

    changes: Sequence[FileChange]
    synced_seq: int
    cause: Cause
    links: Mapping[str, str] | None
    folders: frozenset[str] | None
    base_version: int | None

    @property
    def size(self) -> int:
        """How many things it says something about."""
        return len(self.changes) + len(self.links or ()) + len(self.folders or ())

    @classmethod
    def checked(
        cls,
        changes: Sequence[FileChange],
        synced_seq: int,
        cause: Cause,
        links: Mapping[str, str] | None,
        folders: Iterable[str] | None,
        base_version: int | None,
    ) -> Run:
        """Raises ``ProtocolError`` for names and entries that no honest agent reports."""
        by_path = {change.path: _checked(change) for change in changes}
        return cls(
            list(by_path.values()),
            synced_seq,
            cause,
            None if links is None else {check_reported(path): check_target(to) for path, to in links.items()},
            None if folders is None else frozenset(check_reported(path) for path in folders),
            base_version,
        )

    def is_nothing_on(self, tree: Tree) -> bool:
        """Whether it leaves a tree as it is, which is seen without looking at the files."""
        same_links = self.links is None or self.links == tree.links
        return not self.changes and same_links and (self.folders is None or self.folders == tree.folders)


def _checked(change: FileChange) -> FileChange:
    path = check_reported(change.path)
    entry = change.entry
    if entry is None:
        return change
    fits = entry.path == path and keys.is_blob(entry.blob) and entry.blob.startswith(entry.sha256 + "-")
    if not fits or entry.size < 0:
        raise ProtocolError("The sandbox reported a file that cannot be.", cause=f"entry {entry!r}")
    return replace(change, entry=replace(entry, mode=entry.mode & MODE_BITS)) if entry.mode > MODE_BITS else change
