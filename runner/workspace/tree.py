"""The files of a workspace as they are now: a mutable tree that knows its folders and its size. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from runner.model import FileEntry
from runner.workspace.drafts import DraftEntry
from runner.workspace.manifest import Manifest
from runner.workspace.paths import parents


class Below:
    """Folder to the number of things that lie below it."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._counts: dict[str, int] = {}
        for path in paths:
            self.add(path, 1)

    def __contains__(self, folder: str) -> bool:
        return folder in self._counts

    def add(self, path: str, step: int) -> None:
        """One more, or one fewer, at ``path``."""
        for parent in parents(path):
            total = self._counts.get(parent, 0) + step
            if total:
                self._counts[parent] = total
            else:
                del self._counts[parent]

    def copy(self) -> Below:
        """An independent one."""
        twin = Below(())
        twin._counts = self._counts.copy()
        return twin


class Tree:
    """Files, links and empty folders. ``edits`` grows with every real change."""

    def __init__(self, files: Mapping[str, FileEntry], links: Mapping[str, str], folders: Iterable[str]) -> None:
        self._files = dict(files)
        self._links = dict(links)
        self._folders = set(folders)
        self._size = sum(entry.size for entry in self._files.values())
        self._full: Below | None = None  # below which folders files or links lie; made when first asked for
        self._hollow: Below | None = None  # below which empty folders lie
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
        twin._full = None if self._full is None else self._full.copy()
        twin._hollow = None if self._hollow is None else self._hollow.copy()
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
        """Whether anything lies below the path, or it is an empty folder."""
        return path in self._folders or path in self._filled() or path in self._hollows()

    def is_empty_folder(self, path: str) -> bool:
        """Whether it is a folder with nothing in it."""
        return path in self._folders

    def blocking_parent(self, path: str) -> str | None:
        """The first folder of ``path`` that is in truth a file or a link."""
        for parent in parents(path):
            if parent in self._files or parent in self._links:
                return parent
        return None

    def holds_below(self, path: str) -> bool:
        """Whether files or links lie below the path."""
        return path in self._filled()

    def below(self, path: str) -> tuple[list[FileEntry], list[tuple[str, str]], list[str]]:
        """The files, links and empty folders below a folder, each in the order of paths."""
        start = path + "/"
        return (
            [self._files[name] for name in sorted(self._files) if name.startswith(start)],
            [(name, self._links[name]) for name in sorted(self._links) if name.startswith(start)],
            [name for name in sorted(self._folders) if name.startswith(start)],
        )

    def put(self, entry: FileEntry) -> None:
        """Add or replace a file; links and empty folders in its way give way."""
        path = entry.path
        old = self._files.get(path)
        if old == entry:
            return
        self._clear_way(path)
        self._files[path] = entry
        self._size += entry.size - (old.size if old else 0)
        if old is None:
            self._count(path, 1)
        self._changed()

    def put_link(self, path: str, target: str) -> None:
        """Add or replace a link; other links and empty folders give way, and where a file is it is left out."""
        if path in self._files or self._file_below(path) or any(parent in self._files for parent in parents(path)):
            return
        if self._links.get(path) == target:
            return
        self._clear_way(path)
        self._links[path] = target
        self._count(path, 1)
        self._changed()

    def put_folder(self, path: str) -> None:
        """Add an empty folder; where it contradicts something it is left out."""
        if not self.is_folder(path) and self._may_be_empty_folder(path):
            for parent in parents(path):
                self._drop_folder(parent)
            self._folders.add(path)
            if self._hollow is not None:
                self._hollow.add(path, 1)
            self._changed()

    def remove(self, path: str) -> None:
        """Take away a file, a link, or an empty folder."""
        old = self._files.pop(path, None)
        if old is not None:
            self._size -= old.size
            self._count(path, -1)
            self._changed()
        elif self._drop_link(path) or self._drop_folder(path):
            self._changed()

    def apply(self, entries: Iterable[DraftEntry]) -> None:
        """Lay draft entries on top."""
        for draft in entries:
            for path, entry in draft.changes:
                if entry is None:
                    self.remove(path)
                else:
                    self.put(entry)
            for path, target in draft.links:
                self.put_link(path, target)
            for path in draft.folders:
                self.put_folder(path)

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
                self._full = None
                self._changed()
        wanted = self._folders if folders is None else set(folders)
        empty = {path for path in wanted if self._may_be_empty_folder(path)}
        empty -= {parent for path in empty for parent in parents(path)}
        if empty != self._folders:
            self._folders = empty
            self._hollow = None
            self._changed()

    def _may_be_empty_folder(self, path: str) -> bool:
        taken = path in self._files or path in self._links or path in self._filled()
        return not taken and self.blocking_parent(path) is None

    def _file_below(self, path: str) -> bool:
        start = path + "/"
        return self.holds_below(path) and any(name.startswith(start) for name in self._files)

    def _clear_way(self, path: str) -> None:
        """Remove links and empty folders at, above and below a place that a file or a link takes."""
        for place in (*parents(path), path):
            self._drop_link(place)
            self._drop_folder(place)
        if self._links and path in self._filled():
            for link, _ in self.below(path)[1]:
                self._drop_link(link)
        if self._folders and path in self._hollows():
            for folder in self.below(path)[2]:
                self._drop_folder(folder)

    def _drop_link(self, path: str) -> bool:
        if self._links.pop(path, None) is None:
            return False
        self._count(path, -1)
        return True

    def _drop_folder(self, path: str) -> bool:
        if path not in self._folders:
            return False
        self._folders.discard(path)
        if self._hollow is not None:
            self._hollow.add(path, -1)
        return True

    def _filled(self) -> Below:
        if self._full is None:
            self._full = Below((*self._files, *self._links))
        return self._full

    def _hollows(self) -> Below:
        if self._hollow is None:
            self._hollow = Below(self._folders)
        return self._hollow

    def _count(self, path: str, step: int) -> None:
        if self._full is not None:
            self._full.add(path, step)

    def _changed(self) -> None:
        self._shared = None
        self.edits += 1
