"""Settings of the sessions surface: names and defaults of its protocol, each with a name of its own beside it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from runner import environment
from runner.errors import ConfigurationError

RESET_ANSWER: Final = "SANDBOX_SESSIONS_RESET_ANSWER"
INTERPRETER: Final = "SANDBOX_SESSIONS_INTERPRETER"
ON_DISCONNECT: Final = "SANDBOX_SESSIONS_ON_DISCONNECT"
_OWN: Final = "_SESSIONS_"
_COUNT: Final = re.compile(r"-?[0-9]{1,9}")


IGNORED: Final = {
    "SANDBOX_PULL_ON_START": "whether the image is there is looked at in any case",
    "SANDBOX_READ_ONLY_ROOTFS": "the root of a sandbox is always read-only",
    "SANDBOX_DISK_SIZE": "files of a sandbox lie in memory, below SANDBOX_WORKSPACE_SIZE and SANDBOX_TMPFS_SIZE",
    "SANDBOX_MAX_COLLECT_SECONDS": "files are in the store before a run has its result",
    "SANDBOX_COLLECT_FILE_TIMEOUT_S": "files are in the store before a run has its result",
    "SANDBOX_SECCOMP_PROFILE": "sandboxes have the profile of this release",
}
"""Settings of the protocol's present runner that mean nothing here, and why."""


@dataclass(frozen=True, slots=True)
class ArtifactCaps:
    """What an answer carries of the files that a run made; sizes in bytes."""

    file_bytes: int = 20 << 20
    files: int = 20
    total_bytes: int = 50 << 20


@dataclass(frozen=True, slots=True)
class SessionsConfig:
    """Sizes in bytes, durations as named. ``execs`` and ``creates``: how many at once, 0 for no limit."""

    reset_gone_answer: bool = True
    fresh: bool = False
    interrupt_on_disconnect: bool = True
    idle_ttl_s: float = 1800.0
    idle_cap_s: int = 86_400
    sweep_s: float = 300.0
    execs: int = 4
    creates: int = 2
    queue_s: float = 150.0
    timeout_ms: int = 120_000
    timeout_cap_ms: int = 600_000
    output_bytes: int = 32_768
    code_bytes: int = 1 << 20
    upload_bytes: int = 40 << 20
    archive_s: float = 120.0
    caps: ArtifactCaps = ArtifactCaps()
    ignored: tuple[str, ...] = ()

    @classmethod
    def from_env(cls, env: environment.Env) -> SessionsConfig:
        """Each of the protocol's names, by ``SANDBOX_SESSIONS_<NAME>`` first. Raises ConfigurationError."""
        s = _Reader(env)
        return cls(
            reset_gone_answer=environment.choice(env, RESET_ANSWER, "later", ("later", "base")) == "later",
            fresh=environment.choice(env, INTERPRETER, "keep", ("keep", "fresh")) == "fresh",
            interrupt_on_disconnect=environment.choice(env, ON_DISCONNECT, "interrupt", ("interrupt", "keep"))
            == "interrupt",
            idle_ttl_s=s.seconds("SANDBOX_SESSIONS_IDLE_TTL_SECONDS", 1800.0),
            idle_cap_s=s.whole("SANDBOX_IDLE_TTL_CAP_SECONDS", 86_400),
            sweep_s=s.seconds("SANDBOX_IDLE_REAPER_SWEEP_INTERVAL", 300.0),
            execs=s.count("SANDBOX_MAX_CONCURRENT_EXECS", 4),
            creates=s.count("SANDBOX_MAX_CONCURRENT_CREATES", 2),
            queue_s=s.seconds("SANDBOX_SESSIONS_QUEUE_TIMEOUT_SECONDS", 150.0),
            timeout_ms=s.whole("SANDBOX_SESSIONS_DEFAULT_EXEC_TIMEOUT_MS", 120_000),
            timeout_cap_ms=s.whole("SANDBOX_SESSIONS_EXEC_TIMEOUT_CAP_MS", 600_000),
            output_bytes=s.size("SANDBOX_SESSIONS_MAX_OUTPUT_BYTES", 32_768),
            code_bytes=s.size("SANDBOX_SESSIONS_MAX_CODE_BYTES", 1 << 20),
            upload_bytes=s.size("SANDBOX_SESSIONS_MAX_UPLOAD_BYTES", 40 << 20),
            archive_s=s.seconds("SANDBOX_ARCHIVE_TIMEOUT_S", 120.0),
            caps=ArtifactCaps(
                s.size("SANDBOX_SESSIONS_MAX_ARTIFACT_BYTES", 20 << 20),
                s.whole("SANDBOX_MAX_FILES_PER_EXEC", 20, minimum=0),
                s.size("SANDBOX_MAX_TOTAL_ARTIFACT_BYTES", 50 << 20),
            ),
            ignored=tuple(name for name in IGNORED if environment.text(env, name)),
        )

    def advice(self) -> list[str]:
        """What is set and has no effect."""
        return [f"{name} is set and has no effect: {IGNORED[name]}" for name in self.ignored]


class _Reader:
    """Reads a setting under its own name, or under the bare one that the protocol gives it."""

    def __init__(self, env: environment.Env) -> None:
        self._env = env

    def _read(self, name: str, read: Callable[[str], float]) -> float:
        if environment.text(self._env, name):
            return read(name)
        return read(name.replace(_OWN, "_", 1))

    def whole(self, name: str, default: int, *, minimum: int = 1) -> int:
        """A whole number."""
        return int(self._read(name, lambda n: environment.integer(self._env, n, default, minimum=minimum)))

    def seconds(self, name: str, default: float) -> float:
        """Seconds, fractions too."""
        return self._read(name, lambda n: environment.number(self._env, n, default, minimum=0.0))

    def size(self, name: str, default: int) -> int:
        """Bytes."""
        return int(self._read(name, lambda n: environment.size(self._env, n, default)))

    def count(self, name: str, default: int) -> int:
        """How many at once; 0 and less: without limit."""
        raw = environment.text(self._env, name)
        if raw and not _COUNT.fullmatch(raw):
            raise ConfigurationError(
                f"{name}={raw!r} cannot be used; write a whole number, 0 for no limit.", setting=name
            )
        return max(0, int(raw)) if raw else default
