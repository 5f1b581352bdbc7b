"""Bodies of the one-shot surface, as its protocol has them; unknown fields are passed over."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

_Seconds = Annotated[int, Field(ge=0, le=(1 << 64) - 1)]


class InputFile(BaseModel):
    """A file that is put into the work folder before the script starts."""

    model_config = ConfigDict(strict=True)

    name: str = Field(description="Exactly one path component.")
    content_b64: str


class RunRequest(BaseModel):
    """One run."""

    model_config = ConfigDict(strict=True, title="OneShotRunRequest")

    language: Literal["python", "bash"]
    code: str
    files: list[InputFile] = []
    timeout_secs: _Seconds | None = Field(None, description="Lowered to the deployment's maximum; 0 counts as 1.")
    network: bool = Field(False, description="Only when a container is made; a lease keeps what it has.")
    container_id: str | None = Field(None, description="A lease; one that is unknown gives a new container.")
    keep_alive: bool = Field(False, description="Keep the container as a lease after a good run.")


class Artifact(BaseModel):
    """A new or changed file."""

    name: str
    path: str | None = Field(None, description="In the work folder; left out where it is the name.")
    size: int
    mime: str
    content_b64: str


class RunResponse(BaseModel):
    """What became of a run. Fields after ``container_id`` are there only when they say something."""

    exit_code: int
    stdout: str
    stderr: str
    artifacts: list[Artifact]
    duration_ms: int
    timed_out: bool
    output_truncated: bool
    artifacts_truncated: bool
    container_id: str | None
    empty_files: list[str] | None = Field(None, description="New or changed files without a byte; not delivered.")
    skipped_files: list[str] | None = Field(None, description="Files that are too large to be delivered.")
    notes: list[str] | None = None


class RunError(BaseModel):
    """The runner itself could not do it; a script that fails is no error."""

    error: str
