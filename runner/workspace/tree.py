"""The files of a workspace as they are now: a mutable tree that knows its folders and its size. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from runner.model import FileEntry
from runner.workspace.codec import DraftEntry
from runner.workspace.manifest import Manifest
from runner.workspace.paths import parents


class Tree:
    """Files, links and empty folders. ``edits`` grows with every real change."""

    def __init__(self, files: Mapping[str, FileEntry], links: Mapping[str, str], folders: Iterable[str]) -> None:
        self._files = dict(files)
        self._links = dict(links)
        self._folders = set(folders)
        self._size = sum(entry.size for entry in self._files.values())
        self._below: dict[str, int] | None = None
        self._shared: Mapping[str, FileEntry] | None = None
        self.edits = 0

    @classmethod
    def of(cls, manifest: Manifest) -> Tree:
        """The tree of a version."""
        return cls(manifest.files, manifest.links, manifest.folders)

    def copy(self) -> Tree:
        """An independent tree; the entries are shared."""
        twin = Tree.__new__(Tree)
        twin._files = self._files.copy()
        twin._links = self._links.copy()
        twin._folders = self._folders.copy()
        twin._size = self._size
        twin._below = None if self._below is None else self._below.copy()
        twin._shared = None
        twin.edits = 0
        return twin

    @property
    def files(self) -> Mapping[str, FileEntry]:
        """Path to entry: a picture that later changes leave alone."""
        if self._shared is None:
            self._shared = MappingProxyType(self._files.copy())
        return self._shared

    @property
    def links(self) -> Mapping[str, str]:
        """Path to target; a live view."""
        return MappingProxyType(self._links)

    @property
    def folders(self) -> frozenset[str]:
        """The empty folders."""
        return frozenset(self._folders)

    @property
    def size_bytes(self) -> int:
        """Sum of the sizes of all files."""
        return self._size

    @property
    def entry_count(self) -> int:
        """Files, links and empty folders."""
        return len(self._files) + len(self._links) + len(self._folders)

    def get(self, path: str) -> FileEntry | None:
        """The file of that path."""
        return self._files.get(path)

    def is_link(self, path: str) -> bool:
        """Whether a symbolic link lies at the path."""
        return path in self._links

    def is_folder(self, path: str) -> bool:
        """Whether files or links lie below the path, or it is an empty folder."""
        return path in self._folders or path in self._index()

    def blocking_parent(self, path: str) -> str | None:
        """The first folder of ``path`` that is in truth a file or a link."""
        for parent in parents(path):
            if parent in self._files or parent in self._links:
                return parent
        return None

    def holds_below(self, path: str) -> bool:
        """Whether files or links lie below the path."""
        return path in self._index()

    def put(self, entry: FileEntry) -> None:
        """Add or replace a file; a link or an empty folder in its way gives way."""
        path = entry.path
        old = self._files.get(path)
        if old == entry:
            return
        for place in (*parents(path), path):
            self._drop_link(place)
            self._folders.discard(place)
        self._files[path] = entry
        self._size += entry.size - (old.size if old else 0)
        if old is None:
            self._count(path, 1)
        self._changed()

    def remove(self, path: str) -> None:
        """Take away a file, a link, or an empty folder."""
        old = self._files.pop(path, None)
        if old is not None:
            self._size -= old.size
            self._count(path, -1)
            self._changed()
        elif self._drop_link(path):
            self._changed()
        elif path in self._folders:
            self._folders.discard(path)
            self._changed()

    def apply(self, entries: Iterable[DraftEntry]) -> None:
        """Lay draft entries on top."""
        for draft in entries:
            if draft.entry is None:
                self.remove(draft.path)
            else:
                self.put(draft.entry)

    def set_shape(self, links: Mapping[str, str] | None, folders: Iterable[str] | None) -> None:
        """Replace all links, or all empty folders; None keeps them. What contradicts a file is left out."""
        if links is not None:
            kept: dict[str, str] = {}
            for path in sorted(links):  # a parent sorts before what lies below it
                blocked = any(parent in self._files or parent in kept for parent in parents(path))
                if path not in self._files and not blocked and not self._file_below(path):
                    kept[path] = links[path]
            if kept != self._links:
                self._links = kept
                self._below = None
                self._changed()
        wanted = self._folders if folders is None else set(folders)
        empty = {path for path in wanted if self._may_be_empty_folder(path)}
        empty -= {parent for path in empty for parent in parents(path)}
        if empty != self._folders:
            self._folders = empty
            self._changed()

    def _may_be_empty_folder(self, path: str) -> bool:
        taken = path in self._files or path in self._links or path in self._index()
        return not taken and self.blocking_parent(path) is None

    def _file_below(self, path: str) -> bool:
        start = path + "/"
        return self.holds_below(path) and any(name.startswith(start) for name in self._files)

    def _drop_link(self, path: str) -> bool:
        if self._links.pop(path, None) is None:
            return False
        self._count(path, -1)
        return True

    def _index(self) -> dict[str, int]:
        """Folder to the number of files and links below it, made when it is first asked for."""
        if self._below is None:
            self._below = {}
            for path in self._files:
                self._count(path, 1)
            for path in self._links:
                self._count(path, 1)
        return self._below

    def _count(self, path: str, step: int) -> None:
        if self._below is None:
            return
        for parent in parents(path):
            total = self._below.get(parent, 0) + step
            if total:
                self._below[parent] = total
            else:
                del self._below[parent]

    def _changed(self) -> None:
        self._shared = None
        self.edits += 1
