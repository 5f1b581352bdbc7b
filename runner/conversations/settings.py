"""What a conversation has of its own: labels, idle time, and limits below those of the deployment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from runner.agent.protocol import Json
from runner.errors import InvalidRequest
from runner.limits.config import MIN_CPUS, MIN_MEMORY_BYTES, MIN_PIDS, LimitsConfig
from runner.model import PAGE_BYTES, Network, SandboxLimits

MIN_WORKSPACE_BYTES: Final = 1 << 20
MIN_OUTPUT_BYTES: Final = 1 << 10
MIN_IDLE_TTL_MS: Final = 1000
MINIMUMS: Final[Mapping[str, float]] = {
    "memory_bytes": MIN_MEMORY_BYTES,
    "cpus": MIN_CPUS,
    "pids": MIN_PIDS,
    "workspace_bytes": MIN_WORKSPACE_BYTES,
    "timeout_ms": 1,
    "output_bytes": MIN_OUTPUT_BYTES,
}


@dataclass(frozen=True, slots=True)
class OwnLimits:
    """As stored: what was asked for; None where the deployment decides. ``timeout_ms`` is a run's ceiling."""

    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int | None = None
    workspace_bytes: int | None = None
    timeout_ms: int | None = None
    output_bytes: int | None = None

    @classmethod
    def asked(cls, given: Mapping[str, Any]) -> OwnLimits:
        """From a body. Raises InvalidRequest for what is unknown, no number, or too low to work."""
        unknown = sorted(given.keys() - MINIMUMS.keys())
        if unknown:
            raise InvalidRequest(f"limits: {unknown[0]} is not one of {', '.join(MINIMUMS)}", allowed=list(MINIMUMS))
        for name, value in given.items():
            kinds = (int, float) if name == "cpus" else (int,)
            if value is not None and (isinstance(value, bool) or not isinstance(value, kinds)):
                raise InvalidRequest(f"limits: {name} must be a {'number' if name == 'cpus' else 'whole number'}")
            if value is not None and not value >= MINIMUMS[name]:
                why = ", which an interpreter needs to start" if name in ("memory_bytes", "cpus", "pids") else ""
                raise InvalidRequest(f"limits: {name} must be at least {MINIMUMS[name]}{why}", minimum=MINIMUMS[name])
        return cls(**given)

    @classmethod
    def stored(cls, given: object) -> OwnLimits:
        """From the store; what another release wrote and this one does not know is left out."""
        names = {item.name for item in fields(cls)}
        return cls(**{k: v for k, v in given.items() if k in names}) if isinstance(given, dict) else cls()

    def json(self) -> Json:
        """Only what was asked for."""
        return {item.name: value for item in fields(self) if (value := getattr(self, item.name)) is not None}


@dataclass(frozen=True, slots=True)
class Effective:
    """What holds for a conversation: its own limits where they are lower, else the deployment's."""

    sandbox: SandboxLimits
    timeout_ms: int
    output_bytes: int
    idle_ttl_ms: int

    def json(self) -> Json:
        """The six limits under their names in the API."""
        box = self.sandbox
        return {
            "memory_bytes": box.memory_bytes,
            "cpus": box.cpus,
            "pids": box.pids,
            "workspace_bytes": box.workspace_bytes,
            "timeout_ms": self.timeout_ms,
            "output_bytes": self.output_bytes,
        }


@dataclass(frozen=True, slots=True)
class ConversationSettings:
    """The stored settings of one conversation."""

    labels: Mapping[str, str] = field(default_factory=dict)
    idle_ttl_ms: int | None = None
    limits: OwnLimits = OwnLimits()
    network: bool = False
    idle_cap_ms: int | None = None  # what a surface lets the idle time rise to, above the deployment's

    @classmethod
    def stored(cls, payload: Mapping[str, Any]) -> ConversationSettings:
        """From the store."""
        return cls(
            dict(payload.get("labels") or {}),
            payload.get("idle_ttl_ms"),
            OwnLimits.stored(payload.get("limits")),
            payload.get("network") is True,
            payload.get("idle_cap_ms"),
        )

    def changed(self, given: Mapping[str, Any]) -> ConversationSettings:
        """With the fields that are given replaced as a whole; None puts the deployment's value back.

        Raises InvalidRequest.
        """
        new = self
        if "labels" in given:
            new = replace(new, labels=dict(given["labels"] or {}))
        if "idle_ttl_ms" in given:
            ttl = given["idle_ttl_ms"]
            if ttl is not None and ttl < MIN_IDLE_TTL_MS:
                raise InvalidRequest(f"idle_ttl_ms must be at least {MIN_IDLE_TTL_MS}")
            new = replace(new, idle_ttl_ms=ttl)
        if "limits" in given:
            new = replace(new, limits=OwnLimits.asked(given["limits"] or {}))
        if "network" in given:
            new = replace(new, network=bool(given["network"]))
        return new

    def wants(self, network: Network, has: bool | None) -> bool:
        """Whether the sandbox of a run that asks so is one with network. ``has``: the live one; None: there is none."""
        if network == "keep":
            return bool(has)
        return self.network if network is None else network

    def own(self) -> Json:
        """What a fork takes over: limits and network, not labels; empty when there are none."""
        return {name: value for name, value in self.json().items() if name != "labels" and value}

    def json(self) -> Json:
        """For the store."""
        found: Json = {"labels": dict(self.labels), "limits": self.limits.json()}
        if self.network:
            found["network"] = True
        if self.idle_cap_ms is not None:
            found["idle_cap_ms"] = self.idle_cap_ms
        return found if self.idle_ttl_ms is None else {**found, "idle_ttl_ms": self.idle_ttl_ms}

    def effective(self, config: LimitsConfig, idle_ttl_s: float) -> Effective:
        """What holds with this deployment, which may have been given other limits since."""
        own = self.limits
        idle = round(idle_ttl_s * 1000)
        return Effective(
            sandbox_limits(own, config.sandbox),
            min(own.timeout_ms or config.timeout_cap_ms, config.timeout_cap_ms),
            min(own.output_bytes or config.max_output_bytes, config.max_output_bytes),
            min(self.idle_ttl_ms or idle, max(idle, self.idle_cap_ms or 0)),
        )


def sandbox_limits(own: OwnLimits, wider: SandboxLimits) -> SandboxLimits:
    """A sandbox's limits. With less memory its folders in memory shrink too: together they may take at most half
    of it, and three quarters with each file rounded up to a page.
    """
    memory = min(own.memory_bytes or wider.memory_bytes, wider.memory_bytes)
    box = replace(
        wider,
        memory_bytes=memory,
        cpus=min(own.cpus or wider.cpus, wider.cpus),
        pids=min(own.pids or wider.pids, wider.pids),
        workspace_bytes=min(own.workspace_bytes or wider.workspace_bytes, wider.workspace_bytes),
    )
    if memory == wider.memory_bytes:
        return box
    box = replace(
        box,
        tmp_bytes=min(wider.tmp_bytes, memory // 8),
        home_bytes=min(wider.home_bytes, memory // 32),
        shm_bytes=min(wider.shm_bytes, memory // 32),
        workspace_files=min(wider.workspace_files, (memory // 4 - (1 << 20)) // PAGE_BYTES),
    )
    room = memory // 2 - box.tmp_bytes - box.home_bytes - box.shm_bytes
    return replace(box, workspace_bytes=min(box.workspace_bytes, room))
