"""The frozen nouns that cross layers: limits, specifications, runs, files, outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

PAGE_BYTES = 4096
Language = Literal["python", "bash"]
ChangeKind = Literal["created", "modified", "deleted"]
Network = bool | Literal["keep"] | None  # what a run asks of its sandbox; see RunRequest


class Outcome(StrEnum):
    """How a run ended: a fact decided from what was observed, never an HTTP error."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    OOM = "oom"
    CRASHED = "crashed"
    LOST = "lost"


class InterpreterState(StrEnum):
    """Whether variables are still there: ``new`` was started for this run, ``lost`` died in it."""

    NEW = "new"
    KEPT = "kept"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What one sandbox may use. Sizes in bytes; ``cpus`` in cores."""

    memory_bytes: int = 2 << 30
    cpus: float = 1.0
    pids: int = 256
    nofile: int = 1024
    workspace_bytes: int = 512 << 20
    workspace_files: int = 20_000
    tmp_bytes: int = 256 << 20
    home_bytes: int = 64 << 20
    shm_bytes: int = 64 << 20

    @property
    def rounding_bytes(self) -> int:
        """What files that end within a page take beyond their size, in the folder that holds them in memory; and
        room for the one that is being replaced.
        """
        return self.workspace_files * PAGE_BYTES + (1 << 20)


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What a backend is asked to start."""

    sandbox_id: str
    limits: SandboxLimits
    network: bool = False  # whether it reaches the proxy of this deployment; never more than that


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What one run may give back; None where the next wider limits decide.

    ``output_bytes`` of each stream are shown in the result; a run may store at most ``artifacts`` new and
    changed files, each of at most ``artifact_bytes``.
    """

    output_bytes: int | None = None
    artifacts: int | None = None
    artifact_bytes: int | None = None
    unbounded: bool = False  # files are bounded by the workspace alone: a surface has caps for its answers

    def within(self, wider: RunLimits) -> RunLimits:
        """These limits, none of them above ``wider``."""
        if self.unbounded:
            return RunLimits(_lower(self.output_bytes, wider.output_bytes))
        return RunLimits(
            _lower(self.output_bytes, wider.output_bytes),
            _lower(self.artifacts, wider.artifacts),
            _lower(self.artifact_bytes, wider.artifact_bytes),
        )


def _lower(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One run in a conversation. ``timeout_ms`` counts from the first byte executed.

    ``network``: whether its sandbox has egress; None where the conversation's setting decides. A sandbox of the other
    kind is replaced by a new one with the same files. ``keep``, for runs of the service itself: whichever sandbox
    is alive, else one without. ``script``: Python code is a script of its own process, as
    ``python3 FILE`` would run it, beside the kept interpreter; its process alone says how it ended. ``detached``: what
    it leaves running goes on when it ends by itself, for as long as its sandbox lives. ``bare``: the folders that every
    workspace has are not there unless there is something in them. ``inputs``: SHA-256 of
    what was put into the conversation for this run, empty where nothing was; another one is another request.
    """

    code: str
    language: Language = "python"
    timeout_ms: int = 120_000
    fresh: bool = False
    stdin: bytes | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    limits: RunLimits = RunLimits()
    network: Network = None
    script: bool = False
    detached: bool = False
    bare: bool = False
    inputs: str = ""

    def __post_init__(self) -> None:
        if self.script:
            object.__setattr__(self, "fresh", True)

    @property
    def ends_as(self) -> Language:
        """How its end is judged: a script ends as a shell does, by the status of its process."""
        return "bash" if self.script else self.language


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A regular file of a workspace as the store knows it.

    ``path`` is relative to the workspace, with ``/`` between segments. ``blob`` is the store key below the
    tenant's blob folder (``<sha256>-<8 hex>``). ``modified_ns`` is what the file shows in the sandbox.
    """

    path: str
    size: int
    sha256: str
    blob: str
    mode: int = 0o644
    modified_ns: int = 0


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that a run created, modified or deleted. ``entry`` is None for a deletion."""

    path: str
    change: ChangeKind
    entry: FileEntry | None


@dataclass(frozen=True, slots=True)
class SandboxUsage:
    """Counters read outside the sandbox; None where this host cannot know."""

    memory_bytes: int | None = None
    peak_memory_bytes: int | None = None
    oom_kills: int | None = None
