"""Settings of the one-shot surface: names, units and defaults of its protocol, each with a name of its own first."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any, Final

from runner import environment
from runner.errors import ConfigurationError

AUTH: Final = "SANDBOX_ONESHOT_AUTH"
BIND: Final = "SANDBOX_ONESHOT_BIND"
TENANT: Final = "oneshot"  # of everybody, where the surface asks for no key
_WITHOUT_EFFECT: Final = (  # of the protocol, for what is done otherwise here
    "SANDBOX_PODMAN",
    "SANDBOX_IMAGE_CHECK_SECS",
    "SANDBOX_WORK_ROOT",
    "SANDBOX_TMP_SIZE",
    "SANDBOX_AGENT_WORK",
    "SANDBOX_ARTIFACTS_INPLACE",
)


@dataclass(frozen=True, slots=True)
class LeasesConfig:
    """Sizes in bytes, durations in seconds. ``limits`` as ``PUT /v1/conversations/{id}`` takes them."""

    open: bool = False
    bind: tuple[str, int] | None = None
    concurrent: int = 6
    queue_s: float = 2.0
    timeout_s: int = 60
    max_timeout_s: int = 300
    output_bytes: int = 131_072
    artifact_bytes: int = 64 << 20
    lease_ttl_s: float = 600.0
    leases: int = 6
    limits: dict[str, Any] | None = None

    @classmethod
    def from_env(cls, env: environment.Env) -> LeasesConfig:
        """``SANDBOX_ONESHOT_<NAME>``, then the bare name of the protocol. Raises ConfigurationError."""
        longest = _whole(env, "SANDBOX_ONESHOT_MAX_TIMEOUT_SECS", "SANDBOX_MAX_TIMEOUT_SECS", 300, least=1)
        usual = _whole(env, "SANDBOX_ONESHOT_TIMEOUT_SECS", "SANDBOX_TIMEOUT_SECS", 60, least=1)
        output = _size(env, "SANDBOX_ONESHOT_MAX_OUTPUT_BYTES", "SANDBOX_MAX_OUTPUT_BYTES", 131_072)
        artifact = _size(env, "SANDBOX_ONESHOT_MAX_ARTIFACT_BYTES", "SANDBOX_MAX_ARTIFACT_BYTES", 64 << 20)
        ttl = _whole(env, "SANDBOX_ONESHOT_LEASE_TTL_SECS", "SANDBOX_LEASE_TTL_SECS", 600, least=1)
        return cls(
            open=environment.choice(env, AUTH, "key", ("key", "none")) == "none",
            bind=_bind(environment.text(env, BIND)),
            concurrent=_whole(env, "SANDBOX_ONESHOT_MAX_CONCURRENT", "SANDBOX_MAX_CONCURRENT", 6, least=1),
            queue_s=environment.number(env, "SANDBOX_ONESHOT_QUEUE_SECS", 2.0, maximum=600.0),
            timeout_s=usual,
            max_timeout_s=longest,
            output_bytes=output,
            artifact_bytes=artifact,
            lease_ttl_s=float(ttl),
            leases=_whole(env, "SANDBOX_ONESHOT_MAX_LEASES", "SANDBOX_MAX_LEASES", 6),
            limits=_limits(env),
        )

    def timeout_ms(self, asked_s: int | None) -> int:
        """The limit of a run: what was asked or the usual one, within 1 s and the longest."""
        return max(1, min(self.timeout_s if asked_s is None else asked_s, self.max_timeout_s)) * 1000

    def open_on(self, loopback: bool) -> bool:
        """Whether the main port serves this surface without a key: not where it has a listener of its own."""
        return self.open and loopback and self.bind is None

    @property
    def bound_to_loopback(self) -> bool:
        """Whether its own listener, if there is one, is reached from this machine only."""
        if self.bind is None or self.bind[0] == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.bind[0]).is_loopback
        except ValueError:
            return False


def _whole(env: environment.Env, own: str, bare: str, default: int, *, least: int = 0) -> int:
    return environment.integer(env, own, environment.integer(env, bare, default, minimum=least), minimum=least)


def _size(env: environment.Env, own: str, bare: str, default: int) -> int:
    return environment.size(env, own, environment.size(env, bare, default))


def _limits(env: environment.Env) -> dict[str, Any] | None:
    """Limits of these sandboxes alone; the bare names are the deployment's."""
    found: dict[str, Any] = {}
    memory = environment.size(env, "SANDBOX_ONESHOT_MEMORY", 0)
    cpus = environment.number(env, "SANDBOX_ONESHOT_CPUS", 0.0)
    pids = environment.integer(env, "SANDBOX_ONESHOT_PIDS_LIMIT", 0)
    room = _size(env, "SANDBOX_ONESHOT_WORK_SIZE", "SANDBOX_WORK_SIZE", 0)
    named = {"memory_bytes": memory, "cpus": cpus, "pids": pids, "workspace_bytes": room}
    found.update((name, value) for name, value in named.items() if value)
    return found or None


def _bind(raw: str) -> tuple[str, int] | None:
    if not raw:
        return None
    host, _, port = raw.rpartition(":")
    if not host or not port.isdigit() or not 0 <= int(port) < 65536:
        raise ConfigurationError(f"{BIND}={raw!r} is not host:port, like 10.88.0.1:9000")
    return host.strip("[]"), int(port)
