"""Files and folders as a power cut sees them: what is there now, and what would still be there. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


class File:
    """Bytes now, and the bytes of the last fsync that has ended."""

    def __init__(self, content: bytes = b"") -> None:
        self._data = bytearray(content)
        self._frozen: bytes | None = content
        self.durable = content
        self.version = self.durable_version = 0

    @property
    def now(self) -> bytes:
        """What a reader sees."""
        if self._frozen is None:
            self._frozen = bytes(self._data)
        return self._frozen

    @property
    def dirty(self) -> bool:
        """Whether a power cut would take bytes away."""
        return self.version != self.durable_version

    def write(self, data: bytes, offset: int | None) -> None:
        """Bytes at an offset; None appends."""
        place = len(self._data) if offset is None else offset
        self._data.extend(bytes(max(0, place - len(self._data))))
        self._data[place : place + len(data)] = data
        self._changed()

    def truncate(self, size: int) -> None:
        """Cut, or fill up with zeros."""
        if size != len(self._data):
            self._data[size:] = bytes(max(0, size - len(self._data)))
            self._changed()

    def _changed(self) -> None:
        self._frozen = None
        self.version += 1

    def synced(self) -> Callable[[], None]:
        """What an fsync that begins now makes durable when it ends."""
        data, version = self.now, self.version

        def end() -> None:
            if version >= self.durable_version:
                self.durable, self.durable_version = data, version

        return end


class Folder:
    """Names now, and the names of the last fsync that has ended."""

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self._syncs = self._ended = 0

    def synced(self) -> Callable[[], None]:
        """What an fsync that begins now makes durable when it ends."""
        self._syncs += 1
        entries, number = dict(self.entries), self._syncs

        def end() -> None:
            if number >= self._ended:
                self.durable, self._ended = entries, number

        return end


Node = File | Folder


@dataclass(frozen=True)
class Image:
    """A folder's content at one moment: paths below it; None for a folder."""

    content: dict[str, bytes | None] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Folder, *, names: bool, data: bool) -> Image:
        """After a power cut. ``names`` and ``data``: whether what was not synced survives all the same."""
        found: dict[str, bytes | None] = {}
        for path, node in walk(root, names):
            found[path] = None if isinstance(node, Folder) else node.now if data else node.durable
        return cls(found)


def walk(folder: Folder, names: bool, prefix: str = "") -> Iterator[tuple[str, Node]]:
    """All that lies below a folder, by its names now or by those that are durable."""
    for name, node in (folder.entries if names else folder.durable).items():
        yield prefix + name, node
        if isinstance(node, Folder):
            yield from walk(node, names, f"{prefix}{name}/")


def pending(folder: Folder, prefix: str = "") -> Iterator[tuple[str, str]]:
    """What a power cut would take away: (what, path)."""
    for name, node in folder.entries.items():
        path = prefix + name
        if folder.durable.get(name) is not node:
            yield "a name that is not durable", path
        if isinstance(node, Folder):
            yield from pending(node, path + "/")
        elif node.dirty:
            yield "bytes that are not durable", path
    for name in folder.durable.keys() - folder.entries.keys():
        yield "a removal that is not durable", prefix + name
