"""Which of the files that a run made an answer carries, and what is said of the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from runner.conversations.result import Artifact
from runner.model import FileEntry
from runner.sessions.config import ArtifactCaps
from runner.sessions.paths import followed

OUTPUTS: Final = "outputs"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that the answer does not carry; it can be fetched by its path."""

    entry: FileEntry
    reason: str


@dataclass(frozen=True, slots=True)
class Collected:
    """Files in the order of their paths, and those beyond the caps."""

    taken: Sequence[Artifact]
    skipped: Sequence[Skipped]


def collect(files: Iterable[Artifact], links: Mapping[str, str], caps: ArtifactCaps) -> Collected:
    """New and changed files of ``outputs``, as far as the caps allow. Where ``outputs`` has become a link, those of
    the folder that it leads to.
    """
    folder = followed(OUTPUTS, links)
    prefix = None if folder is None else f"{folder}/" if folder else ""
    taken: list[Artifact] = []
    skipped: list[Skipped] = []
    room = caps.total_bytes
    for item in sorted(files, key=lambda one: one.path):
        entry = item.entry
        if entry is None or prefix is None or not item.path.startswith(prefix):
            continue
        reason = _beyond(entry.size, len(taken), room, caps)
        if reason is not None:
            skipped.append(Skipped(entry, reason))
            continue
        room -= entry.size
        taken.append(item)
    return Collected(taken, skipped)


def _beyond(size: int, taken: int, room: int, caps: ArtifactCaps) -> str | None:
    if size > caps.file_bytes:
        return "file_bytes"
    if taken >= caps.files:
        return "files"
    return "total_bytes" if size > room else None


def told(skipped: Sequence[Skipped], caps: ArtifactCaps) -> str:
    """The line about them for the end of ``stderr``; empty where there are none."""
    if not skipped:
        return ""
    return (
        f"skipped {len(skipped)} output file(s) because artifact limits are {caps.file_bytes} bytes a file, "
        f"{caps.files} files and {caps.total_bytes} bytes in all; they stay in the workspace: "
        + ", ".join(ascii(one.entry.path)[1:-1][:120] for one in skipped[:5])
    )
