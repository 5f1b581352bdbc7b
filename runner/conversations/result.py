"""What a run gives back, and the events on the way; surfaces translate these."""

from __future__ import annotations

import mimetypes
from dataclasses import dataclass, field

from runner.agent.protocol import Json
from runner.conversations.output import StreamText
from runner.model import ChangeKind, FileEntry, InterpreterState, Outcome

_TYPES = {
    ".md": "text/markdown",
    ".typ": "text/x-typst",
    ".parquet": "application/vnd.apache.parquet",
    ".webp": "image/webp",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that a run created, modified or deleted."""

    path: str
    change: ChangeKind
    entry: FileEntry | None
    renamed_from: str | None = None

    @property
    def media_type(self) -> str:
        """By the name's ending."""
        return media_type(self.path)

    @property
    def kind(self) -> str:
        """``deliverable`` for what lies in ``outputs``, else ``working``."""
        return "deliverable" if self.path.startswith("outputs/") else "working"


@dataclass(frozen=True, slots=True)
class RunResult:
    """Everything a caller learns about a run."""

    execution_id: str
    outcome: Outcome
    exit_code: int | None
    signal: int | None
    duration_ms: int
    peak_memory_bytes: int | None
    stdout: StreamText
    stderr: StreamText
    results: list[Json]
    error: Json | None
    interpreter: InterpreterState
    interpreter_reason: str | None
    version: int
    files: list[Artifact] = field(default_factory=list)
    files_error: Json | None = None
    skipped: list[Json] = field(default_factory=list)
    results_dropped: int = 0


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event for a listener: ``started``, ``stdout``, ``stderr``, ``display``, ``file``, ``error``, ``done``."""

    seq: int
    kind: str
    data: Json
    artifact: Artifact | None = None
    result: RunResult | None = None


def media_type(path: str) -> str:
    """Media type of a file by its name; ``application/octet-stream`` when unknown."""
    name = path.rpartition("/")[2].lower()
    ending = "." + name.rpartition(".")[2]
    return _TYPES.get(ending) or mimetypes.guess_type(name)[0] or "application/octet-stream"
