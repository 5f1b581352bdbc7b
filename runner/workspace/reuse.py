"""Which blobs a conversation may name again instead of storing the same bytes twice. Pure.

Only blobs that the newest version, the current files, or one of the last 64 versions name: those are surely
live (100 or more versions are kept), and nobody learns by a hash what another conversation holds. Forgetting
too much costs disk space; remembering too much would name a blob that garbage collection may take.
"""

from __future__ import annotations

from typing import Final

from runner.model import FileEntry

WINDOW: Final = 64
_NOW: Final = 1 << 62


class BlobIndex:
    """SHA-256 to blob, with the last version that is known to name it and the size in bytes."""

    def __init__(self) -> None:
        self._blobs: dict[str, tuple[str, int, int]] = {}

    def keep(self, entry: FileEntry) -> None:
        """The newest version or the current files name this entry."""
        self._blobs[entry.sha256] = (entry.blob, _NOW, entry.size)

    def retire(self, entry: FileEntry, version: int) -> None:
        """``version`` was the last to name this entry at its path."""
        known = self._blobs.get(entry.sha256)
        if known is None or known[0] == entry.blob:
            self._blobs[entry.sha256] = (entry.blob, version, entry.size)

    def forget(self, entry: FileEntry) -> None:
        """A draft entry that was superseded before any version named it."""
        known = self._blobs.get(entry.sha256)
        if known is not None and known[0] == entry.blob:
            self._blobs.pop(entry.sha256, None)

    def find(self, sha256: str, head: int) -> tuple[str, int] | None:
        """A blob with this content that may be named again, and its size, when ``head`` is the newest version."""
        found = self._blobs.get(sha256)
        if found is None:
            return None
        blob, version, size = found
        if version <= head - WINDOW:
            self._blobs.pop(sha256, None)  # unless a thread that takes in a version was faster
            return None
        return blob, size
