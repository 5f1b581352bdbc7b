"""What a container that looked at itself proves: whose kernel it has, and which walls stand."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from runner.backends.base import SANDBOX_UID, Isolation, Wall
from runner.backends.docker.groups import Groups

_CGROUP_FLAGS: Final = ("MemoryLimit", "CpuCfsQuota", "PidsLimit")


@dataclass(frozen=True, slots=True)
class Seen:
    """What a container showed of itself; ``error`` says why it showed nothing."""

    facts: Mapping[str, Any]
    alive: bool = False
    groups: Groups | None = None
    memory_limit: int | None = None
    warnings: tuple[str, ...] = ()
    error: str = ""


def isolation_of(facts: Mapping[str, Any], info: Mapping[str, Any]) -> Isolation:
    """The container's kernel against the daemon's, which may be another machine's than ours."""
    host, guest = str(info.get("KernelVersion") or ""), str(facts.get("kernel") or "")
    if not host or not guest:
        return "unknown"
    return "shared-kernel" if host == guest else "separate-kernel"


def content_of(facts: Mapping[str, Any]) -> str:
    """The hash of what is in the image, as it says itself; empty when it does not."""
    try:
        told = str(json.loads(facts["image"])["hash"])
    except (ValueError, KeyError, TypeError):
        return ""
    return "" if told == "unknown" else told  # what an image is told that is built without it


def walls_of(seen: Seen, info: Mapping[str, Any], isolation: Isolation, memory: int) -> tuple[Wall, ...]:
    """Every wall, and what is wrong with those that do not stand. Raises KeyError, TypeError on what is no answer."""
    facts, apart = seen.facts, isolation == "separate-kernel"
    shared = [name for name, place in facts["namespaces"].items() if place and place == _own_namespace(name)]
    powers = [name for name, value in facts["caps"].items() if int(value, 16)]
    opened, network = facts["opened"], [name for name in facts["network"] if name != "lo"]
    return (
        _wall("namespaces", apart or (facts["first"] and not shared), "shared with the host", shared),
        _seccomp_wall(facts["seccomp"] == 2, apart),
        _wall("no-new-privileges", facts["no_new_privileges"] == 1 and not powers, "capabilities", powers),
        _wall("own-uid", facts["uid"] == [SANDBOX_UID] * 3, "code runs as", facts["uid"]),
        _wall("agent", seen.alive and not opened, "user code gets at", opened or ["its life"]),
        _wall("network", not network, "interfaces", network),
        _limits_wall(seen, info, memory),
    )


def _seccomp_wall(loaded: bool, apart: bool) -> Wall:
    """A kernel of its own answers the calls that a filter would keep from the host's."""
    if apart and not loaded:
        return Wall("seccomp", True, "by the runtime: it answers system calls itself, and no filter is loaded within")
    return _wall("seccomp", loaded, "the daemon did not take the filter")


def _limits_wall(seen: Seen, info: Mapping[str, Any], memory: int) -> Wall:
    """Seen in the container, else on the host, else by the daemon's word."""
    inside = str(seen.facts.get("memory") or "").strip()
    shown = int(inside) if inside.isdigit() else seen.memory_limit
    if shown is not None:
        return _wall("cgroups", shown <= memory, f"memory is limited to {shown} bytes instead of {memory}")
    lacking = [flag for flag in _CGROUP_FLAGS if not info.get(flag)]
    return _wall("cgroups", not lacking and not seen.warnings, "the daemon cannot limit", [*lacking, *seen.warnings])


def _wall(name: str, stands: bool, missing: str, parts: Sequence[object] = ()) -> Wall:
    if stands:
        return Wall(name, True)
    return Wall(name, False, f"{missing}: {', '.join(map(str, parts))}" if parts else missing)


def _own_namespace(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/ns/{name}")
    except OSError:
        return ""
