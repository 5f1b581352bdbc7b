"""Limits as settings: what a sandbox may use, how long a run may take, how much a call may send or get, how many
may wait, and what must stay free on the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from runner import environment
from runner.agent.protocol import MAX_ENTRIES
from runner.errors import ConfigurationError, InvalidRequest
from runner.model import RunLimits, SandboxLimits

MAX_QUEUE: Final = "SANDBOX_MAX_QUEUE"
MAX_QUEUE_PER_CONVERSATION: Final = "SANDBOX_MAX_QUEUE_PER_CONVERSATION"
QUEUE_TIMEOUT: Final = "SANDBOX_QUEUE_TIMEOUT_SECONDS"
FREE_MEMORY: Final = "SANDBOX_MIN_FREE_MEMORY"
FREE_DISK: Final = "SANDBOX_MIN_FREE_DISK"
FREE_PIDS: Final = "SANDBOX_MIN_FREE_PIDS"
MIN_MEMORY_BYTES: Final = 256 << 20  # below it the libraries of the template alone would be too much
MIN_CPUS: Final = 0.05
MAX_CPUS: Final = 1024  # beyond some hundred thousand no kernel takes the quota
MIN_PIDS: Final = 16
MAX_PIDS: Final = 1 << 22  # no kernel has more, and none takes a higher limit
MAX_TIMEOUT_MS: Final = 2_000_000_000  # 23 days: what a wait of the kernel, in milliseconds, can hold
MIN_OUTPUT_BYTES: Final = 1024
MAX_OUTPUT_BYTES: Final = 64 << 20  # results are held in memory and stored whole
_TIMEOUT: Final = {"minimum": 1, "maximum": MAX_TIMEOUT_MS}
_OUTPUT: Final = {"minimum": MIN_OUTPUT_BYTES, "maximum": MAX_OUTPUT_BYTES}
_MAX_WAITING: Final = 100_000


@dataclass(frozen=True, slots=True)
class Floors:
    """What must stay free on the host beside what a new sandbox takes; bytes, and a count."""

    memory_bytes: int = 512 << 20
    disk_bytes: int = 256 << 20
    pids: int = 1024


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How many requests may wait, in all and for one conversation, and for how long."""

    total: int = 256
    per_conversation: int = 16
    timeout_s: float = 150.0


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """Sizes in bytes, durations in milliseconds or seconds as named."""

    sandbox: SandboxLimits
    default_timeout_ms: int = 120_000
    timeout_cap_ms: int = 600_000
    max_code_bytes: int = 1 << 20
    max_output_bytes: int = 64 << 10
    max_stdin_bytes: int = 16 << 20
    max_env_bytes: int = 64 << 10
    max_artifacts: int = 20_000
    max_artifact_bytes: int = 512 << 20
    queue: QueueLimits = QueueLimits()
    floors: Floors = Floors()

    @classmethod
    def from_env(cls, env: environment.Env) -> LimitsConfig:
        """``SANDBOX_MEMORY``, ``_CPUS``, ``_PIDS_LIMIT``, ``_NOFILE_ULIMIT``, ``_WORKSPACE_SIZE``, ``_TMPFS_SIZE``,
        ``_DEFAULT_EXEC_TIMEOUT_MS``, ``_EXEC_TIMEOUT_CAP_MS``, ``_MAX_CODE_BYTES``,
        ``_MAX_OUTPUT_BYTES`` (a stream, in a result), ``_MAX_STDIN_BYTES``, ``_MAX_ENV_BYTES``, ``_MAX_ARTIFACTS``,
        ``_MAX_ARTIFACT_BYTES``, ``_MAX_QUEUE``, ``_MAX_QUEUE_PER_CONVERSATION``, ``_QUEUE_TIMEOUT_SECONDS``,
        ``_MIN_FREE_MEMORY``, ``_MIN_FREE_DISK``, ``_MIN_FREE_PIDS``.
        """
        sandbox = _sandbox(env)
        return cls(
            sandbox=sandbox,
            default_timeout_ms=environment.integer(env, "SANDBOX_DEFAULT_EXEC_TIMEOUT_MS", 120_000, **_TIMEOUT),
            timeout_cap_ms=environment.integer(env, "SANDBOX_EXEC_TIMEOUT_CAP_MS", 600_000, **_TIMEOUT),
            max_code_bytes=environment.size(env, "SANDBOX_MAX_CODE_BYTES", 1 << 20),
            max_output_bytes=environment.size(env, "SANDBOX_MAX_OUTPUT_BYTES", 64 << 10, **_OUTPUT),
            max_stdin_bytes=environment.size(env, "SANDBOX_MAX_STDIN_BYTES", 16 << 20),
            max_env_bytes=environment.size(env, "SANDBOX_MAX_ENV_BYTES", 64 << 10),
            max_artifacts=environment.integer(env, "SANDBOX_MAX_ARTIFACTS", 20_000, minimum=1),
            max_artifact_bytes=environment.size(env, "SANDBOX_MAX_ARTIFACT_BYTES", sandbox.workspace_bytes),
            queue=QueueLimits(
                environment.integer(env, "SANDBOX_MAX_QUEUE", 256, maximum=_MAX_WAITING),
                environment.integer(env, "SANDBOX_MAX_QUEUE_PER_CONVERSATION", 16, maximum=_MAX_WAITING),
                environment.number(env, "SANDBOX_QUEUE_TIMEOUT_SECONDS", 150.0),
            ),
            floors=Floors(
                environment.size(env, "SANDBOX_MIN_FREE_MEMORY", 512 << 20),
                environment.size(env, "SANDBOX_MIN_FREE_DISK", 256 << 20),
                environment.integer(env, "SANDBOX_MIN_FREE_PIDS", 1024, maximum=MAX_PIDS),
            ),
        )

    @property
    def run(self) -> RunLimits:
        """What one run may give back."""
        return RunLimits(self.max_output_bytes, self.max_artifacts, self.max_artifact_bytes)

    def timeout_ms(self, asked: int | None) -> int:
        """The limit of a run: what was asked, at most the ceiling. Raises InvalidRequest below 1 ms."""
        if asked is None:
            return min(self.default_timeout_ms, self.timeout_cap_ms)
        if asked < 1:
            raise InvalidRequest("timeout_ms must be at least 1")
        return min(asked, self.timeout_cap_ms)


def _sandbox(env: environment.Env) -> SandboxLimits:
    default = SandboxLimits()
    memory = environment.size(env, "SANDBOX_MEMORY", default.memory_bytes)
    workspace = environment.size(env, "SANDBOX_WORKSPACE_TMPFS_SIZE", default.workspace_bytes)  # its other name
    soft_nofile = {"SANDBOX_NOFILE_ULIMIT": env.get("SANDBOX_NOFILE_ULIMIT", "").split(":")[0]}
    limits = SandboxLimits(
        memory_bytes=memory,
        cpus=environment.number(env, "SANDBOX_CPUS", default.cpus, minimum=MIN_CPUS, maximum=MAX_CPUS),
        pids=environment.integer(env, "SANDBOX_PIDS_LIMIT", default.pids, minimum=MIN_PIDS, maximum=MAX_PIDS),
        nofile=environment.integer(soft_nofile, "SANDBOX_NOFILE_ULIMIT", default.nofile, minimum=64),
        workspace_bytes=environment.size(env, "SANDBOX_WORKSPACE_SIZE", workspace),
        workspace_files=environment.integer(env, "SANDBOX_WORKSPACE_FILES", default.workspace_files, minimum=1),
        tmp_bytes=environment.size(env, "SANDBOX_TMPFS_SIZE", default.tmp_bytes),
    )  # fmt: skip
    if limits.workspace_files > MAX_ENTRIES:
        raise ConfigurationError(
            f"SANDBOX_WORKSPACE_FILES is above {MAX_ENTRIES}, which is the most there can be: lower it"
        )
    if limits.memory_bytes < MIN_MEMORY_BYTES:
        raise ConfigurationError("SANDBOX_MEMORY is below 256m, which the interpreter alone needs; raise it")
    caps = limits.workspace_bytes + limits.tmp_bytes + limits.home_bytes + limits.shm_bytes
    if caps > limits.memory_bytes // 2:
        raise ConfigurationError(
            f"the in-memory folders of a sandbox may grow to {caps >> 20} MiB, more than half of "
            f"SANDBOX_MEMORY ({limits.memory_bytes >> 20} MiB): lower SANDBOX_WORKSPACE_SIZE or "
            "SANDBOX_TMPFS_SIZE, or raise SANDBOX_MEMORY"
        )
    if caps + limits.rounding_bytes > limits.memory_bytes * 3 // 4:
        raise ConfigurationError(
            f"{limits.workspace_files} files of a page each may take {limits.rounding_bytes >> 20} MiB beside the "
            "bytes of a workspace, which leaves the interpreter less than a quarter of SANDBOX_MEMORY: lower "
            "SANDBOX_WORKSPACE_FILES, or raise SANDBOX_MEMORY"
        )
    return limits
