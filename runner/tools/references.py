"""Finds the file that a model means: a path, or any of the spellings that results and gateways use. Pure."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Final

from runner.errors import InvalidPath
from runner.model import FileEntry
from runner.workspace import paths

_PREFIXES: Final = ("attachment:", "document:", "att:", "doc:", "file:")
_SHOWN: Final = ("outputs/", "downloads/", "uploads/")
_SLUG: Final = re.compile(r"[^a-z0-9]+")
_MANY: Final = 500  # files, from which on an index is made beside the event loop


class Index:
    """The files of one moment by all that they may be called."""

    def __init__(self, files: Mapping[str, FileEntry]) -> None:
        self._files = files
        self._named: dict[str, FileEntry] = {}
        self._titled: dict[str, FileEntry | None] = {}
        for entry in files.values():
            name = entry.path.rpartition("/")[2]
            known = self._named.get(name)
            if known is None or (known.modified_ns, known.path) < (entry.modified_ns, entry.path):
                self._named[name] = entry
            title = slug(_stem(name))
            self._titled[title] = None if title in self._titled else entry
        self._titled.pop("", None)

    def find(self, reference: str) -> FileEntry | None:
        """The file, or None. A bare name means the newest file of that name; a title must be that of one file only.

        What begins as a prefix of a gateway does is first taken as it stands: files may be called so.
        """
        wanted = reference.strip()
        bare = next((wanted[len(p) :].lstrip() for p in _PREFIXES if wanted.lower().startswith(p)), None)
        if bare is None:
            return self._found(wanted)
        return self._files.get(wanted) or self._named.get(wanted) or self._found(bare)

    def _found(self, wanted: str) -> FileEntry | None:
        try:
            path = paths.normalise(wanted)
        except InvalidPath:
            return None
        if path in self._files:
            return self._files[path]
        name = path.rpartition("/")[2]
        if path.count("/") <= 1 and name in self._named:  # a bare name, or <turn>/<file>
            return self._named[name]
        return self._titled.get(slug(_stem(name))) if "/" not in path else None


async def index(files: Mapping[str, FileEntry]) -> Index:
    """Made once for all references of a call; ``files`` must be a picture that does not change."""
    return await asyncio.to_thread(Index, files) if len(files) > _MANY else Index(files)


def attachments(files: Mapping[str, FileEntry]) -> list[FileEntry]:
    """What a conversation shows as its files, newest first: uploads, downloads and outputs."""
    shown = [entry for entry in files.values() if entry.path.startswith(_SHOWN)]
    return sorted(shown, key=lambda entry: (-entry.modified_ns, entry.path))


def slug(title: str) -> str:
    """A title in lower case with ``-`` between words."""
    return _SLUG.sub("-", title.lower()).strip("-")[:48]


def _stem(path: str) -> str:
    name = path.rpartition("/")[2]
    return name.rpartition(".")[0] if "." in name.lstrip(".") else name
