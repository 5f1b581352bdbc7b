"""What a version is: an immutable picture of a workspace, with why it was made. Pure data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from runner.model import FileEntry

CauseKind = Literal["create", "run", "restore", "fork", "edits"]
CAUSES: tuple[CauseKind, ...] = ("create", "run", "restore", "fork", "edits")


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a version was cut. ``version`` and ``source`` say what a restore or a fork started from. ``edits``: files
    were put, moved and deleted by so many calls that they would not wait for the next run.
    """

    kind: CauseKind
    execution_id: str | None = None
    version: int | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """Files that a version created, modified and deleted, against the version before it."""

    created: int = 0
    modified: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """The head of a manifest: everything but the files themselves.

    ``base`` is the version this one was made from, None for the first. ``draft`` is the last draft entry
    folded into it. ``created_at`` is RFC 3339 in UTC.
    """

    version: int
    base: int | None
    created_at: str
    cause: Cause
    draft: int
    file_count: int
    size_bytes: int
    changes: Counts


@dataclass(frozen=True, slots=True)
class Manifest:
    """A version. ``folders`` are the empty ones; the others follow from the files."""

    info: VersionInfo
    files: Mapping[str, FileEntry]
    links: Mapping[str, str]
    folders: frozenset[str]

    @property
    def size(self) -> int:
        """How many things it names."""
        return len(self.files) + len(self.links) + len(self.folders)

    @property
    def version(self) -> int:
        """Number of the version, from 0."""
        return self.info.version

    @property
    def base(self) -> int | None:
        """Version this one was made from."""
        return self.info.base

    @property
    def created_at(self) -> str:
        """RFC 3339, UTC."""
        return self.info.created_at

    @property
    def cause(self) -> Cause:
        """Why it was cut."""
        return self.info.cause

    @property
    def draft(self) -> int:
        """Last draft entry folded into it; later ones lie on top."""
        return self.info.draft


@dataclass(frozen=True, slots=True)
class Delta:
    """What turns one set of files into another."""

    put: tuple[FileEntry, ...]
    removed: tuple[str, ...]
    counts: Counts


def difference(old: Mapping[str, FileEntry], new: Mapping[str, FileEntry], among: Iterable[str] | None = None) -> Delta:
    """The delta from ``old`` to ``new``; they differ nowhere but ``among`` these paths, where they are given."""
    put = []
    removed = []
    created = 0
    for path in new if among is None else among:
        before, entry = old.get(path), new.get(path)
        if before is entry:
            continue
        if entry is None:
            removed.append(path)
            continue
        if before is None:
            created += 1
        elif before == entry:
            continue
        put.append(entry)
    if among is None:
        removed = [path for path in old if path not in new]
    return Delta(tuple(put), tuple(removed), Counts(created, len(put) - created, len(removed)))


def now() -> str:
    """This moment, RFC 3339 with milliseconds, UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
