"""The files of a workspace as they are now: a mutable tree that knows its folders and its size. Pure.

Trees and pictures of them share what they hold until one of them changes: a copy costs nothing, the first change
after it about 20 ns a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import merge
from types import MappingProxyType

from runner.model import FileEntry
from runner.workspace.drafts import DraftEntry
from runner.workspace.manifest import Delta, Manifest, difference
from runner.workspace.names import Names, ordered
from runner.workspace.paths import name_bytes, parents


class Tree:
    """Files, links and empty folders. ``edits`` grows with every real change."""

    def __init__(self, files: Mapping[str, FileEntry], links: Mapping[str, str], folders: Iterable[str]) -> None:
        self._files = dict(files)
        self._links = dict(links)
        self._folders = set(folders)
        self._names = Names(self._files)
        self._link_names = Names(self._links)
        self._folder_names = Names(self._folders)
        self._size = sum(entry.size for entry in self._files.values())
        self._names_size = sum(map(name_bytes, self._files)) + sum(map(name_bytes, self._folders))
        self._names_size += sum(_link_bytes(path, target) for path, target in self._links.items())
        self._own = True  # nobody else holds any of these
        self._base: Mapping[str, FileEntry] | None = None
        self._touched: set[str] = set()  # where files differ from ``_base``
        self._files_shown: Mapping[str, FileEntry] | None = None
        self._links_shown: Mapping[str, str] | None = None
        self._folders_shown: frozenset[str] | None = None
        self.edits = 0

    @classmethod
    def of(cls, manifest: Manifest) -> Tree:
        """The tree of a version."""
        tree = cls(manifest.files, manifest.links, manifest.folders)
        tree._base = manifest.files
        return tree

    def copy(self) -> Tree:
        """An independent tree."""
        self._own = False
        twin = Tree.__new__(Tree)
        twin.__dict__.update(self.__dict__)
        twin.edits = 0
        return twin

    def rebase(self) -> None:
        """From now on, ``delta`` is quick against the files as they are now."""
        self._base = self.files
        self._touched = set()

    def delta(self, old: Mapping[str, FileEntry]) -> Delta:
        """What leads from ``old`` to the files here; only what was touched is looked at where that is known."""
        return difference(old, self._files, sorted(self._touched) if old is self._base else None)

    @property
    def files(self) -> Mapping[str, FileEntry]:
        """Path to entry: a picture that later changes leave alone."""
        if self._files_shown is None:
            self._own = False
            self._files_shown = MappingProxyType(self._files)
        return self._files_shown

    @property
    def links(self) -> Mapping[str, str]:
        """Path to target: a picture as well."""
        if self._links_shown is None:
            self._own = False
            self._links_shown = MappingProxyType(self._links)
        return self._links_shown

    @property
    def folders(self) -> frozenset[str]:
        """The empty folders."""
        if self._folders_shown is None:
            self._folders_shown = frozenset(self._folders)
        return self._folders_shown

    def listed(self, prefix: str, after: str | None) -> Iterator[str]:
        """Files and links whose paths begin with ``prefix`` and come behind ``after``, in order. For a copy."""
        return merge(self._names.after(prefix, after), self._link_names.after(prefix, after))

    @property
    def size_bytes(self) -> int:
        """Sum of the sizes of all files."""
        return self._size

    @property
    def names_bytes(self) -> int:
        """Sum of the bytes of all paths, and of the targets of links."""
        return self._names_size

    @property
    def entry_count(self) -> int:
        """Files, links and empty folders."""
        return len(self._files) + len(self._links) + len(self._folders)

    def get(self, path: str) -> FileEntry | None:
        """The file of that path."""
        return self._files.get(path)

    def link(self, path: str) -> str | None:
        """The target of the link of that path."""
        return self._links.get(path)

    def is_link(self, path: str) -> bool:
        """Whether a symbolic link lies at the path."""
        return path in self._links

    def is_folder(self, path: str) -> bool:
        """Whether anything lies below the path, or it is an empty folder."""
        return path in self._folders or self.holds_below(path) or self._folder_names.any_below(path)

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
        return self._names.any_below(path) or self._link_names.any_below(path)

    def count_below(self, path: str) -> int:
        """How many files, links and empty folders lie below the path."""
        return sum(names.count_below(path) for names in (self._names, self._link_names, self._folder_names))

    def below(self, path: str) -> tuple[list[FileEntry], list[tuple[str, str]], list[str]]:
        """The files, links and empty folders below a folder, each in the order of paths."""
        return (
            [self._files[name] for name in self._names.below(path)],
            [(name, self._links[name]) for name in self._link_names.below(path)],
            self._folder_names.below(path),
        )

    def put(self, entry: FileEntry) -> None:
        """Add or replace a file; links and empty folders in its way give way."""
        path = entry.path
        old = self._files.get(path)
        if old == entry:
            return
        self._change()
        self._clear_way(path)
        self._files[path] = entry
        self._touched.add(path)
        self._size += entry.size - (old.size if old else 0)
        if old is None:
            self._names.add(path)
            self._names_size += name_bytes(path)

    def put_link(self, path: str, target: str) -> None:
        """Add or replace a link; other links and empty folders give way, and where a file is it is left out."""
        if path in self._files or self._names.any_below(path) or any(parent in self._files for parent in parents(path)):
            return
        if self._links.get(path) == target:
            return
        self._change()
        self._clear_way(path)
        self._links[path] = target
        self._link_names.add(path)
        self._names_size += _link_bytes(path, target)

    def put_folder(self, path: str) -> None:
        """Add an empty folder; where it contradicts something it is left out."""
        if not self.is_folder(path) and self._may_be_empty_folder(path):
            self._change()
            for parent in parents(path):
                self._drop_folder(parent)
            self._folders.add(path)
            self._folder_names.add(path)
            self._names_size += name_bytes(path)

    def remove(self, path: str) -> None:
        """Take away a file, a link, or an empty folder."""
        old = self._files.get(path)
        if old is not None:
            self._change()
            del self._files[path]
            self._touched.add(path)
            self._size -= old.size
            self._names.remove(path)
            self._names_size -= name_bytes(path)
        elif path in self._links or path in self._folders:
            self._change()
            self._drop_link(path)
            self._drop_folder(path)

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
            for path in ordered(links):  # a parent sorts before what lies below it
                blocked = any(parent in self._files or parent in kept for parent in parents(path))
                if path not in self._files and not blocked and not self._names.any_below(path):
                    kept[path] = links[path]
            if kept != self._links:
                self._change()
                self._names_size += sum(_link_bytes(*link) for link in kept.items())
                self._names_size -= sum(_link_bytes(*link) for link in self._links.items())
                self._links = kept
                self._link_names = Names(kept)
        if links is None and folders is None:
            return  # whatever was put has had its way cleared
        wanted = self._folders if folders is None else set(folders)
        empty = {path for path in wanted if self._may_be_empty_folder(path)}
        empty -= {parent for path in empty for parent in parents(path)}
        if empty != self._folders:
            self._change()
            self._names_size += sum(map(name_bytes, empty)) - sum(map(name_bytes, self._folders))
            self._folders = empty
            self._folder_names = Names(empty)

    def _may_be_empty_folder(self, path: str) -> bool:
        taken = path in self._files or path in self._links or self.holds_below(path)
        return not taken and self.blocking_parent(path) is None

    def _clear_way(self, path: str) -> None:
        """Remove links and empty folders at, above and below a place that a file or a link takes."""
        for place in (*parents(path), path) if self._links or self._folders else ():
            self._drop_link(place)
            self._drop_folder(place)
        for link in self._link_names.below(path):
            self._drop_link(link)
        for folder in self._folder_names.below(path):
            self._drop_folder(folder)

    def _drop_link(self, path: str) -> None:
        if path in self._links:
            self._names_size -= _link_bytes(path, self._links.pop(path))
            self._link_names.remove(path)

    def _drop_folder(self, path: str) -> None:
        if path in self._folders:
            self._folders.discard(path)
            self._folder_names.remove(path)
            self._names_size -= name_bytes(path)

    def _change(self) -> None:
        """Before every change: what others hold is left to them."""
        if not self._own:
            self._files, self._links, self._folders = self._files.copy(), self._links.copy(), self._folders.copy()
            self._names, self._link_names = self._names.copy(), self._link_names.copy()
            self._folder_names = self._folder_names.copy()
            self._touched = self._touched.copy()
            self._own = True
        self._files_shown = self._links_shown = self._folders_shown = None
        self.edits += 1


def _link_bytes(path: str, target: str) -> int:
    return name_bytes(path) + name_bytes(target)
