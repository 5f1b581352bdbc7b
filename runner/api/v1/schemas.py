"""Bodies of ``/v1``: what callers send and what they get. Sizes in bytes, durations in milliseconds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

Label = Annotated[str, StringConstraints(max_length=256)]
LabelName = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._/-]+$")]


class Strict(BaseModel):
    """Unknown fields are errors, so that a typing error is not silently ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _example(**values: Any) -> ConfigDict:
    """A whole body that can be sent as it stands; the documentation page offers it."""
    return ConfigDict(json_schema_extra={"examples": [values]})


class LimitsIn(Strict):
    """Limits of a conversation. They lower the deployment's; what is higher counts as the deployment's."""

    memory_bytes: int | None = Field(None, ge=1)
    cpus: float | None = Field(None, gt=0)
    pids: int | None = Field(None, ge=1)
    workspace_bytes: int | None = Field(None, ge=1)
    timeout_ms: int | None = Field(None, ge=1)
    output_bytes: int | None = Field(None, ge=1)


class ConversationIn(Strict):
    """Body of ``PUT /v1/conversations/{id}``; may be left out. A field that is left out stays as it is."""

    model_config = _example(labels={"user": "ada"})
    labels: dict[LabelName, Label] = Field(default_factory=dict, max_length=32)
    idle_ttl_ms: int | None = Field(None, ge=1, description="Lower only; null for the deployment's.")
    limits: LimitsIn | None = Field(None, description="Lower only; null for the deployment's.")
    network: bool | None = Field(None, description="Whether sandboxes reach the proxy of this deployment; null: no.")


class LimitsOut(BaseModel):
    """The limits that hold for a conversation."""

    memory_bytes: int
    cpus: float
    pids: int
    workspace_bytes: int
    timeout_ms: int
    output_bytes: int


class ConversationOut(BaseModel):
    """A conversation with the settings that hold for it."""

    id: str
    labels: dict[str, str]
    version: int
    files: int
    size_bytes: int
    live: bool
    idle_ttl_ms: int
    limits: LimitsOut
    limits_apply: Literal["now", "next_sandbox"] = Field(description="Whether the live sandbox has these limits.")
    network: bool


class ConversationItem(BaseModel):
    """A conversation in a list."""

    id: str
    labels: dict[str, str]


class ConversationList(BaseModel):
    """A page of conversations; ``next`` goes into ``after`` of the following call."""

    conversations: list[ConversationItem]
    next: str | None


class RunLimitsIn(Strict):
    """What one run may give back. More than the conversation or the deployment allows becomes what they allow."""

    output_bytes: int | None = Field(default=None, ge=1024, description="Shown of each output stream: head and tail.")
    artifacts: int | None = Field(default=None, ge=0, description="Files that the run may make or change.")
    artifact_bytes: int | None = Field(default=None, ge=0, description="Of one such file.")


class ExecuteIn(Strict):
    """Body of ``POST …/execute``."""

    model_config = _example(code="print(1 + 1)")
    code: str = Field(examples=["print(1 + 1)"])
    language: Literal["python", "bash"] = "python"
    timeout_ms: int | None = Field(None, ge=1, description="Clamped to the deployment's ceiling.")
    fresh: bool = Field(False, description="Run beside the kept interpreter, in a new one.")
    stdin: str | None = Field(None, description="Given to the cell as standard input; without it, input is closed.")
    env: dict[str, str] = Field(default_factory=dict, max_length=256)
    network: bool | None = Field(
        None, description="Whether this run's sandbox reaches the proxy; null: as the conversation's setting says."
    )
    limits: RunLimitsIn = Field(default_factory=RunLimitsIn)

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

    model_config = _example()
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
    type: Literal["file"]
    size: int
    sha256: str
    media_type: str
    modified_at: str


class LinkEntryOut(BaseModel):
    """A symbolic link of a workspace. It is never followed outside a sandbox."""

    path: str
    type: Literal["link"]
    target: str


class FilesOut(BaseModel):
    """Files that were stored or moved, under their paths now."""

    files: list[FileOut]


class MoveIn(Strict):
    """Body of ``POST …/moves``."""

    model_config = _example(**{"from": "outputs/draft.pdf", "to": "outputs/report.pdf"})
    from_: str = Field(alias="from", examples=["outputs/draft.pdf"])
    to: str = Field(examples=["outputs/report.pdf"])
    overwrite: bool = Field(False, description="Replace a file that is there; a folder is never replaced.")


class LinkIn(Strict):
    """Body of ``POST …/links``."""

    model_config = _example(path="outputs/report.pdf")
    path: str = Field(examples=["outputs/report.pdf"])
    expires_in_ms: int = Field(15 * 60_000, ge=1000, le=7 * 24 * 3_600_000)
    disposition: Literal["attachment", "inline"] = "attachment"
    version: int | None = Field(None, ge=0, description="The file as this version has it.")


class LinkOut(BaseModel):
    """A link that asks for no key; ``url`` is below the address of the service."""

    url: str
    expires_at: str
    path: str
    sha256: str


class CauseOut(BaseModel):
    """Why a version was made: by which run, from which ``version``, of which ``conversation`` for a fork."""

    kind: str
    execution_id: str | None = None
    version: int | None = None
    conversation: str | None = None


class CountsOut(BaseModel):
    """How many files a version created, modified and deleted."""

    created: int
    modified: int
    deleted: int


class VersionInfoOut(BaseModel):
    """A version; ``base`` is the one that it was made from."""

    version: int
    base: int | None
    created_at: str
    cause: CauseOut
    changes: CountsOut
    file_count: int
    size_bytes: int


class ChangeOut(BaseModel):
    """A file that a version created, modified or deleted against the version before it."""

    path: str
    change: Literal["created", "modified", "deleted"]
    size: int | None = None
    sha256: str | None = None
    media_type: str | None = None


class VersionOut(VersionInfoOut):
    """A version and a page of what it changed; ``next`` goes into ``after`` of the following call."""

    files: list[ChangeOut]
    next: str | None


class VersionList(BaseModel):
    """A page of versions, newest first; ``next`` goes into ``after`` of the following call."""

    versions: list[VersionInfoOut]
    next: int | None


class RestoreIn(Strict):
    """Body of ``POST …/restore``."""

    model_config = _example(version=0)
    version: int = Field(ge=0)


class ForkIn(Strict):
    """Body of ``POST …/fork``."""

    model_config = _example(id="report-8")
    id: str = Field(description="Of the new conversation.")
    version: int | None = Field(None, ge=0, description="Without it, the files as they are.")


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
    files_dropped: int = Field(0, description="Changed files that are not listed; the version has them.")
    skipped: list[dict[str, Any]]
    record_error: dict[str, str] | None = Field(
        None, description="Why this result is not kept, or not whole: code and detail. The run took place."
    )


class ExecutionOut(BaseModel):
    """A run: ``waiting`` for its turn or a sandbox, ``running``, or ``ended`` with its result."""

    execution_id: str
    status: Literal["waiting", "running", "ended"]
    events: int = Field(description="Number of the newest event.")
    result: RunOut | None


class FileList(BaseModel):
    """A page of files and links, in the order of their paths; ``next`` goes into ``after`` of the following call."""

    files: list[FileOut | LinkEntryOut]
    next: str | None
    version: int
