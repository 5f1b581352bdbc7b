"""Bodies of ``/v1``: what callers send and what they get. Sizes in bytes, durations in milliseconds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

Label = Annotated[str, StringConstraints(max_length=256)]
LabelName = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._/-]+$")]


class Strict(BaseModel):
    """Unknown fields are errors, so that a typing error is not silently ignored."""

    model_config = ConfigDict(extra="forbid")


class ConversationIn(Strict):
    """Body of ``PUT /v1/conversations/{id}``; may be left out."""

    labels: dict[LabelName, Label] = Field(default_factory=dict, max_length=32)


class ConversationOut(BaseModel):
    """A conversation."""

    id: str
    labels: dict[str, str]
    version: int
    files: int
    size_bytes: int
    live: bool


class ConversationList(BaseModel):
    """A page of conversations; ``next`` goes into ``after`` of the following call."""

    conversations: list[str]
    next: str | None


class ExecuteIn(Strict):
    """Body of ``POST …/execute``."""

    code: str = Field(examples=["print(1 + 1)"])
    language: Literal["python", "bash"] = "python"
    timeout_ms: int | None = Field(None, ge=1, description="Clamped to the deployment's ceiling.")
    fresh: bool = Field(False, description="Run beside the kept interpreter, in a new one.")
    stdin: str | None = Field(None, description="Given to the cell as standard input; without it, input is closed.")
    env: dict[str, str] = Field(default_factory=dict, max_length=256)
    network: Literal[False] = Field(False, description="This deployment's sandboxes have no network.")

    @model_validator(mode="after")
    def _encodable(self) -> ExecuteIn:
        for name, text in (("code", self.code), ("stdin", self.stdin or ""), *self.env.items()):
            try:
                (name + text).encode()
            except UnicodeEncodeError:
                raise ValueError(f"{ascii(name)[1:-1]} contains lone surrogates, which no encoding can carry") from None
        return self


class InterruptIn(Strict):
    """Body of ``POST …/interrupt``; may be left out."""

    execution_id: str | None = Field(None, description="Only this run; without it, whichever is going on.")


class InterruptOut(BaseModel):
    """Whether there was a run to interrupt."""

    interrupted: bool


class ErrorOut(BaseModel):
    """An exception of the user's code."""

    name: str
    message: str
    traceback: str
    line: int | None


class FileOut(BaseModel):
    """A file of a workspace; the ``ETag`` of its download is its SHA-256."""

    path: str
    size: int
    sha256: str
    media_type: str
    modified_at: str


class ArtifactOut(BaseModel):
    """A file that a run created, modified or deleted."""

    path: str
    change: Literal["created", "modified", "deleted"]
    size: int | None = None
    sha256: str | None = None
    media_type: str | None = None
    kind: str | None = None
    renamed_from: str | None = None


class RunOut(BaseModel):
    """Result of a run. A failing cell is a result, never an HTTP error."""

    execution_id: str
    outcome: Literal["ok", "error", "timeout", "interrupted", "oom", "crashed", "lost"]
    exit_code: int | None
    signal: int | None
    duration_ms: int
    peak_memory_bytes: int | None
    stdout: str
    stderr: str
    stdout_truncated: bool
    stderr_truncated: bool
    stdout_bytes: int
    stderr_bytes: int
    results: list[dict[str, Any]]
    results_dropped: int
    error: ErrorOut | None
    interpreter: Literal["new", "kept", "lost"]
    interpreter_reason: str | None
    version: int
    files: list[ArtifactOut]
    files_error: dict[str, str] | None = Field(
        None, description="Why nothing of what the run changed was stored: code and detail."
    )
    skipped: list[dict[str, Any]]


class FileList(BaseModel):
    """A page of files, in the order of their paths; ``next`` goes into ``after`` of the following call."""

    files: list[FileOut]
    next: str | None
    version: int
