"""Limits as settings: what a sandbox may use, how long a run may take, how much a call may send or get."""

from __future__ import annotations

from dataclasses import dataclass

from runner import environment
from runner.errors import ConfigurationError, InvalidRequest
from runner.model import SandboxLimits

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """Sizes in bytes, durations in milliseconds or seconds as named."""

    sandbox: SandboxLimits
    default_timeout_ms: int = 120_000
    timeout_cap_ms: int = 600_000
    max_code_bytes: int = 1 << 20
    max_output_bytes: int = 64 << 10
    max_stdin_bytes: int = 16 << 20
    queue_timeout_s: float = 150.0

    @classmethod
    def from_env(cls, env: environment.Env) -> LimitsConfig:
        """``SANDBOX_MEMORY``, ``_CPUS``, ``_PIDS_LIMIT``, ``_NOFILE_ULIMIT``, ``_WORKSPACE_SIZE``, ``_TMPFS_SIZE``,
        ``_DEFAULT_EXEC_TIMEOUT_MS``, ``_EXEC_TIMEOUT_CAP_MS``, ``_MAX_CODE_BYTES``,
        ``_MAX_OUTPUT_BYTES`` (a stream, in a result), ``_QUEUE_TIMEOUT_SECONDS``.
        """
        return cls(
            sandbox=_sandbox(env),
            default_timeout_ms=environment.integer(env, "SANDBOX_DEFAULT_EXEC_TIMEOUT_MS", 120_000, minimum=1),
            timeout_cap_ms=environment.integer(env, "SANDBOX_EXEC_TIMEOUT_CAP_MS", 600_000, minimum=1),
            max_code_bytes=environment.size(env, "SANDBOX_MAX_CODE_BYTES", 1 << 20),
            max_output_bytes=environment.size(env, "SANDBOX_MAX_OUTPUT_BYTES", 64 << 10),
            queue_timeout_s=environment.number(env, "SANDBOX_QUEUE_TIMEOUT_SECONDS", 150.0),
        )

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
    soft_nofile = {"SANDBOX_NOFILE_ULIMIT": env.get("SANDBOX_NOFILE_ULIMIT", "").split(":")[0]}
    limits = SandboxLimits(
        memory_bytes=memory,
        cpus=environment.number(env, "SANDBOX_CPUS", default.cpus, minimum=0.05),
        pids=environment.integer(env, "SANDBOX_PIDS_LIMIT", default.pids, minimum=16),
        nofile=environment.integer(soft_nofile, "SANDBOX_NOFILE_ULIMIT", default.nofile, minimum=64),
        workspace_bytes=environment.size(env, "SANDBOX_WORKSPACE_SIZE", default.workspace_bytes),
        tmp_bytes=environment.size(env, "SANDBOX_TMPFS_SIZE", default.tmp_bytes),
    )  # fmt: skip
    if limits.memory_bytes < _GIB // 4:
        raise ConfigurationError("SANDBOX_MEMORY is below 256m, which the interpreter alone needs; raise it")
    caps = limits.workspace_bytes + limits.tmp_bytes + limits.home_bytes + limits.shm_bytes
    if caps > limits.memory_bytes // 2:
        raise ConfigurationError(
            f"the in-memory folders of a sandbox may grow to {caps >> 20} MiB, more than half of "
            f"SANDBOX_MEMORY ({limits.memory_bytes >> 20} MiB): lower SANDBOX_WORKSPACE_SIZE or "
            "SANDBOX_TMPFS_SIZE, or raise SANDBOX_MEMORY"
        )
    return limits
