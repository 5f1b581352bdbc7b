"""Bodies of the sessions surface. Unknown fields are passed over, as the protocol does."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Loose(BaseModel):
    """A body of the protocol."""

    model_config = ConfigDict(extra="ignore")


class StorageIn(Loose):
    """Where objects lie, and with which credentials; the latter are never stored."""

    provider: str | None = None
    prefix: str | None = None
    s3_bucket: str | None = None
    s3_region: str | None = None
    s3_endpoint: str | None = None
    s3_access_key: str | None = None
    s3_secret_key: str | None = None
    oss_bucket: str | None = None
    oss_endpoint: str | None = None
    oss_access_key_id: str | None = None
    oss_access_key_secret: str | None = None


class SessionIn(Loose):
    """Body of ``POST /sessions``; may be left out."""

    storage: StorageIn | None = None
    idle_ttl_sec: int | None = Field(None, description="0 and null: the deployment's.")
    archive_key: str | None = Field(None, description="Sessions with one key are one conversation.")


class SessionOut(BaseModel):
    """A session; ``conversation`` is its id under ``/v1``."""

    session_id: str
    conversation: str
    archive_key: str | None
    resumed: bool = Field(description="Whether its conversation was there already.")
    restored_files: int | None = Field(description="From its archive; null where nothing was looked for.")
    warnings: list[str]


class ExecInputIn(Loose):
    """A file below ``uploads`` or ``skills``."""

    path: str
    data_base64: str


class ExecIn(Loose):
    """Body of ``POST /exec``; what follows ``timeout_ms`` is more than the protocol has."""

    session_id: str
    code: str
    timeout_ms: int | None = None
    language: Literal["python", "bash"] = "python"
    fresh: bool | None = Field(None, description="A new interpreter for this call; null: the deployment's way.")
    stdin: str | None = None
    env: dict[str, str] = Field(default_factory=dict)
    inputs: list[ExecInputIn] | None = Field(None, description="All that uploads and skills are to hold for this run.")


class ExecFileOut(BaseModel):
    """A file that a run made or changed below ``outputs``."""

    name: str
    mime_type: str
    data_base64: str
    path: str
    size: int
    sha256: str
    change: Literal["created", "modified"]


class ExecSkippedOut(BaseModel):
    """A file beyond the caps; ``POST /files/get`` has it."""

    path: str
    size: int
    sha256: str
    reason: Literal["file_bytes", "files", "total_bytes"]


class ExecOut(BaseModel):
    """What a run gave."""

    stdout: str
    stderr: str
    exit_code: int
    files: list[ExecFileOut]
    skipped_files: list[ExecSkippedOut]
    outcome: str
    timed_out: bool
    oom: bool
    signal: int | None
    duration_ms: int
    peak_memory_bytes: int | None
    interpreter: str
    interpreter_reason: str | None
    execution_id: str
    version: int
    results: list[Any]
    error: dict[str, Any] | None
    stdout_truncated: bool
    stderr_truncated: bool


class SessionFileIn(Loose):
    """Body of ``POST /files``."""

    session_id: str
    path: str
    data_base64: str


class SessionFileOut(BaseModel):
    """What was stored, and under which path after links were followed."""

    ok: Literal[True]
    path: str
    size: int
    sha256: str


class SessionFileGetIn(Loose):
    """Body of ``POST /files/get``."""

    session_id: str
    path: str


class SessionFileGetOut(BaseModel):
    """A file."""

    data_base64: str


class SessionFileListIn(Loose):
    """Body of ``POST /files/list``; with ``after`` or ``limit`` it goes through all files, at any depth."""

    session_id: str
    after: str | None = None
    limit: int | None = Field(None, ge=1, le=10_000)


class SessionListedOut(BaseModel):
    """A file in a list."""

    path: str
    size: int
    sha256: str


class SessionFileListOut(BaseModel):
    """Files in the order of their paths; ``next`` goes into ``after`` of the following call."""

    files: list[SessionListedOut]
    total: int
    next: str | None


class SessionResetIn(Loose):
    """Body of ``POST /files/reset-inputs``."""

    session_id: str


class SessionResetOut(BaseModel):
    """Which answer it is, a setting says."""

    ok: bool
    session_gone: bool | None = None


class SessionDeleteIn(Loose):
    """Body of ``DELETE /sessions/{session_id}``; may be left out."""

    storage: StorageIn | None = None
    discard: bool = False
    archive_key: str | None = None


class SessionDeleteOut(BaseModel):
    """``archived`` is null where no archive was to be made."""

    ok: Literal[True]
    known: bool
    archived: bool | None
    archive_error: str | None


class StoragePutIn(Loose):
    """Body of ``POST /storage/put``."""

    key: str
    data_base64: str
    content_type: str | None = None
    expires_in: int | None = None
    storage: StorageIn


class StoragePutOut(BaseModel):
    """Where an object was put, and a link that anybody can get it with."""

    provider: str
    key: str
    url: str
    expires_in: int


class StorageDeleteIn(Loose):
    """Body of ``POST /storage/delete``."""

    key: str
    storage: StorageIn


class StorageDeleteOut(BaseModel):
    """The whole key."""

    ok: Literal[True]
    key: str


class StorageGcIn(Loose):
    """Body of ``POST /storage/gc``."""

    storage: StorageIn | None = None
    max_age_seconds: int


class StorageGcOut(BaseModel):
    """What was deleted."""

    deleted: int
    scanned: int
    freed_bytes: int
