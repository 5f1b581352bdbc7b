"""Whether the limits of a deployment fit this host: what cannot work, and what is only likely to be a mistake."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runner.errors import ConfigurationError
from runner.limits.config import FREE_MEMORY, FREE_PIDS, LimitsConfig
from runner.limits.pressure import AT_REST_BYTES, AT_REST_PIDS

NOFILE: Final = "SANDBOX_NOFILE_ULIMIT"
PIDS: Final = "SANDBOX_PIDS_LIMIT"
_SYSCTL: Final = Path("/proc/sys")
_CAP_SYS_RESOURCE: Final = 24


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a host has in all: bytes and processes; and how many open files and processes this process may give to
    a sandbox. None: not known, or without a limit.
    """

    memory_bytes: int | None
    pids: int | None
    nofile: int | None
    nproc: int | None = None

    @classmethod
    def read(cls) -> Capacity:
        """Of this host and this process."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard == resource.RLIM_INFINITY or _may_raise():
            return cls(memory, _number("kernel/pid_max"), _number("fs/nr_open"))
        own = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        return cls(memory, _number("kernel/pid_max"), hard, None if own == resource.RLIM_INFINITY else own)


def check(limits: LimitsConfig, host: Capacity) -> None:
    """Refuse limits with which no sandbox could be started here. Raises ConfigurationError."""
    if host.nofile is not None and limits.sandbox.nofile > host.nofile:
        raise ConfigurationError(
            f"{NOFILE}={limits.sandbox.nofile} is more than a process may have here ({host.nofile}): lower it, or "
            "raise the limit (ulimit -Hn, LimitNOFILE of systemd)",
            setting=NOFILE,
        )
    if host.nproc is not None and limits.sandbox.pids > host.nproc:
        raise ConfigurationError(
            f"{PIDS}={limits.sandbox.pids} is more than a user may have here ({host.nproc}): lower it, or raise the "
            "limit (ulimit -Hu, LimitNPROC of systemd)",
            setting=PIDS,
        )


def too_little(limits: LimitsConfig, host: Capacity) -> list[str]:
    """Why this host can never leave free what a new sandbox must leave; empty when it can."""
    found = []
    if host.memory_bytes is not None and limits.floors.memory_bytes + AT_REST_BYTES > host.memory_bytes:
        found.append(
            f"{FREE_MEMORY}={limits.floors.memory_bytes} can never be left: this host has {host.memory_bytes} bytes"
        )
    if host.pids is not None and limits.floors.pids + AT_REST_PIDS > host.pids:
        found.append(f"{FREE_PIDS}={limits.floors.pids} can never be left: this host has {host.pids} processes")
    return [f"{text}; lower it, or no sandbox is started" for text in found]


def doubtful(limits: LimitsConfig, host: Capacity) -> list[str]:
    """What works and is likely to be a mistake."""
    if host.memory_bytes is not None and limits.sandbox.memory_bytes > host.memory_bytes:
        given, there = limits.sandbox.memory_bytes, host.memory_bytes
        return [f"SANDBOX_MEMORY={given} is more than the host has ({there} bytes): one sandbox can use it all up"]
    return []


def _number(name: str) -> int | None:
    try:
        return int((_SYSCTL / name).read_text())
    except (OSError, ValueError):
        return None


def _may_raise() -> bool:
    """Whether this process may give others more than its own hard limit."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return False
    powers = next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)
    return bool(powers >> _CAP_SYS_RESOURCE & 1)
