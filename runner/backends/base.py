"""The contract every backend implements: start a sandbox, give its byte stream, measure it, end it.

A backend starts the agent (see ``runner/agent``) with ``agent_command`` as the sandbox's main process and
hands out that process's stdio. Everything else — cells, files, interrupts — goes over the stream, so that a
backend has nothing to do with Python, IPython or workspaces.
"""

from __future__ import annotations

import asyncio
import json
import os
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from runner.agent import loader
from runner.backends.egress import Egress
from runner.model import SandboxLimits, SandboxSpec, SandboxUsage

Isolation = Literal["separate-kernel", "shared-kernel", "none", "unknown"]
WORKSPACE = "/workspace"
SANDBOX_UID = 10001
HOSTNAME = "sandbox"


@dataclass(frozen=True, slots=True)
class Wall:
    """One protection of a backend on this host: whether it stands, and what to change if not."""

    name: str
    stands: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class BackendReport:
    """What a start found out, by trying. ``runtime`` and the version of ``engine`` where there are such things."""

    name: str
    available: bool
    isolation: Isolation = "unknown"
    image: str = ""
    image_ready: bool = False
    detail: str = ""
    walls: tuple[Wall, ...] = field(default=())
    runtime: str = ""
    engine: str = ""
    network: Egress = field(default_factory=Egress)

    @property
    def egress(self) -> bool | None:
        """Whether sandboxes with network can be had; None while nobody knows."""
        return None if self.network.on and not self.available else self.network.on

    @property
    def egress_detail(self) -> str:
        """Why."""
        return self.network.detail if self.available or not self.network.on else "not known: no sandbox can be started"

    @property
    def loopback_only(self) -> bool:
        """Whether a missing wall confines the service to this machine and to one tenant."""
        return any(not wall.stands for wall in self.walls)


Permission = Callable[[BackendReport], BackendReport]
"""What this deployment makes of a report: as it is, or not available where it may not be used."""


def as_it_is(report: BackendReport) -> BackendReport:
    """Every report may be used, as at a start, which is refused as a whole where it may not."""
    return report


class Sandbox(Protocol):
    """A running sandbox. Its streams carry frames of ``runner.agent.protocol`` after the bundle was written."""

    @property
    def sandbox_id(self) -> str:
        """The id given in the specification."""
        ...

    @property
    def reader(self) -> StreamReader:
        """What the agent says."""
        ...

    @property
    def writer(self) -> StreamWriter:
        """What the agent hears."""
        ...

    @property
    def orphan_s(self) -> float | None:
        """After how long without a word from its host the agent ends; None where it ends with its host."""
        ...

    async def usage(self) -> SandboxUsage:
        """Counters read from outside, after its end too where the host still knows them; never raises."""
        ...

    async def reset_peak(self) -> None:
        """Make the next ``usage`` report the peak since now, where the host can."""
        ...

    async def detach(self) -> None:
        """Let go of the streams and leave the sandbox running for the next start of this deployment; never raises.

        Where sandboxes die with their runner it ends.
        """
        ...

    async def destroy(self) -> None:
        """End every process of the sandbox and remove what it left on the host; idempotent, never raises."""
        ...


class Backend(Protocol):
    """A way to start sandboxes on this host."""

    @property
    def name(self) -> str:
        """As in ``SANDBOX_BACKEND``."""
        ...

    async def probe(self, allowed: Permission = as_it_is) -> BackendReport:
        """Try everything a start needs, and say what stands: what ``allowed`` makes of it. Raises nothing.

        Until that is known, ``create`` goes by what was allowed before; what is not allowed is never used.
        """
        ...

    async def trouble(self) -> str:
        """What is known to keep sandboxes from being started since the last probe; empty when nothing is.

        Cheap, and raises nothing.
        """
        ...

    async def renewed(self, allowed: Permission = as_it_is) -> BackendReport | None:
        """What new sandboxes are made of from now on, where that has been tried and is another than was last reported.

        Cheap while nothing is new, and raises nothing. What is not allowed changes nothing.
        """
        ...

    async def create(self, spec: SandboxSpec) -> Sandbox:
        """Start a sandbox. Raises BackendUnavailable; leaves nothing behind when it does."""
        ...

    async def survivors(self) -> list[str]:
        """Ids of sandboxes of this deployment that run on from an earlier start and can be attached to.

        Empty where sandboxes die with their runner. Raises BackendUnavailable when nobody can say.
        """
        ...

    async def attach(self, sandbox_id: str) -> Sandbox:
        """The byte stream of a survivor again. Raises BackendUnavailable, SandboxLost when it is gone."""
        ...

    async def sweep(self) -> int:
        """End what dead runners of this deployment left, but what was attached to; gives how many sandboxes."""
        ...


async def hand_over(writer: StreamWriter, data: bytes, limit_s: float) -> None:
    """Write to an agent and see it taken. Raises OSError when it ends first or takes too long."""
    writer.transport.set_write_buffer_limits(0)
    writer.write(data)
    try:
        await asyncio.wait_for(writer.drain(), limit_s)
    except TimeoutError:
        raise OSError(f"the agent did not start within {limit_s:.0f} s") from None


def image_name(rootfs: Path) -> str:
    """Name and content hash of a built root file system."""
    try:
        record = json.loads((rootfs / "etc/foliobox/image.json").read_text())
        return f"{record['name']}:{record['hash']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "unknown"


def agent_command(python: str, config: dict[str, object]) -> list[str]:
    """The main process of a sandbox: isolated from site packages and from its environment."""
    return [python, "-I", "-S", "-c", loader.LOADER, "foliobox_agent.server", json.dumps(config)]


def agent_environment(limits: SandboxLimits, root: str = WORKSPACE, home: str = "/home/sandbox") -> dict[str, str]:
    """The whole environment of a sandbox. Thread counts follow the CPU limit, as far as there are cores."""
    threads = str(max(1, min(round(limits.cpus), len(os.sched_getaffinity(0)))))
    pools = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
    return {
        "PATH": "/opt/venv/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": home,
        "USER": "sandbox",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "TMPDIR": "/tmp",
        "TERM": "dumb",
        "MPLBACKEND": "Agg",
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
        "IPYTHONDIR": f"{home}/.ipython",
        "FOLIOBOX_WORKSPACE": root,
        **dict.fromkeys(pools, threads),
    }
