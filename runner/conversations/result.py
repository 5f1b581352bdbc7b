"""What a run gives back, and the events on the way; surfaces translate these."""

from __future__ import annotations

import mimetypes
from dataclasses import dataclass, field
from typing import Final

from runner.agent.protocol import Json
from runner.conversations.output import StreamText
from runner.model import ChangeKind, FileEntry, InterpreterState, Outcome

MAX_FILES: Final = 2000  # more would keep everybody waiting while they are written out
_NAME, _MESSAGE, _TRACEBACK = 200, 16 << 10, 64 << 10
_LINES: Final = 1 << 31
_LEFT_OUT: Final = "\n… {count} characters left out …\n"
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
    """Everything a caller learns about a run.

    ``files_error``: nothing of what it changed was stored, and why. ``record_error``: it is not kept, or not
    whole, and why. ``results_dropped`` and ``files_dropped`` count what is not listed. ``rewritten``: files that were
    written again with the content that they had; not kept with the result.
    """

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
    files_dropped: int = 0
    record_error: Json | None = None
    rewritten: list[FileEntry] = field(default_factory=list)


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


def nothing_ran(
    execution_id: str, outcome: Outcome, version: int, interpreter: InterpreterState, reason: str
) -> RunResult:
    """The result of a run of which nothing was executed, or nothing is known."""
    nothing = StreamText("", False, 0, None)
    return RunResult(
        execution_id=execution_id,
        outcome=outcome,
        exit_code=None,
        signal=None,
        duration_ms=0,
        peak_memory_bytes=None,
        stdout=nothing,
        stderr=nothing,
        results=[],
        error=None,
        interpreter=interpreter,
        interpreter_reason=reason,
        version=version,
    )


def bounded_files(files: list[Artifact]) -> tuple[list[Artifact], int]:
    """As many files as a result lists, and the number of those that it does not."""
    return files[:MAX_FILES], max(0, len(files) - MAX_FILES)


def bounded_error(error: Json | None) -> Json | None:
    """An exception as a result tells it: message and traceback of a bounded length, both ends kept."""
    if error is None:
        return None
    line = error.get("line")
    return {
        "name": _short(str(error.get("name", "")), _NAME),
        "message": _short(str(error.get("message", "")), _MESSAGE),
        "traceback": _short(str(error.get("traceback", "")), _TRACEBACK),
        "line": line if isinstance(line, int) and 0 <= line < _LINES else None,
    }


def _short(text: str, limit: int) -> str:
    """At most ``limit`` characters of a text, and a note about the rest."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return text[:half] + _LEFT_OUT.format(count=len(text) - 2 * half) + text[-half:]
