"""Finds the file that a model means: a path, or any of the spellings that results and gateways use. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from runner.errors import InvalidPath
from runner.model import FileEntry
from runner.workspace import paths

_PREFIXES: Final = ("attachment:", "document:", "att:", "doc:", "file:")
_SHOWN: Final = ("outputs/", "downloads/", "uploads/")
_SLUG: Final = re.compile(r"[^a-z0-9]+")


def resolve(files: Mapping[str, FileEntry], reference: str) -> FileEntry | None:
    """The file, or None. A bare name means the newest file of that name; a title must be that of one file only."""
    wanted = reference.strip()
    for prefix in _PREFIXES:
        if wanted.lower().startswith(prefix):
            wanted = wanted[len(prefix) :].lstrip()
            break
    try:
        path = paths.normalise(wanted)
    except InvalidPath:
        return None
    if path in files:
        return files[path]
    name = path.rpartition("/")[2]
    named = [entry for entry in files.values() if entry.path.rpartition("/")[2] == name]
    if named and path.count("/") <= 1:  # a bare name, or <turn>/<file>
        return max(named, key=lambda entry: (entry.modified_ns, entry.path))
    titled = [entry for entry in files.values() if slug(_stem(entry.path)) == slug(_stem(name)) != ""]
    return titled[0] if len(titled) == 1 and "/" not in path else None


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
