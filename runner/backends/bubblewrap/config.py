"""Settings of the bubblewrap backend."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from runner import environment
from runner.backends.egress import EgressConfig
from runner.model import SandboxLimits


@dataclass(frozen=True, slots=True)
class BubblewrapConfig:
    """``rootfs`` is the unpacked root file system; ``state`` holds one record for each live sandbox.

    ``limits`` are those that a probe tries.
    """

    rootfs: Path
    state: Path
    bwrap: str | None
    python: str = "/opt/venv/bin/python"
    agent_python: str = "/usr/bin/python3"
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    egress: EgressConfig = field(default_factory=EgressConfig)

    @classmethod
    def from_env(cls, env: environment.Env) -> BubblewrapConfig:
        """``SANDBOX_ROOTFS`` (default: the one that ``make setup`` built last) and ``SANDBOX_BWRAP``."""
        default = environment.cache_folder(env) / "rootfs" / "current"
        rootfs = Path(env.get("SANDBOX_ROOTFS", "").strip() or default)
        return cls(
            rootfs=rootfs,
            state=environment.data_folder(env) / "run",
            bwrap=env.get("SANDBOX_BWRAP", "").strip() or shutil.which("bwrap"),
            egress=EgressConfig.from_env(env),
        )

    @property
    def privileged(self) -> bool:
        """Whether the runner may give each sandbox a host uid of its own."""
        return os.geteuid() == 0
