"""Settings of the unisolated backend; they follow from those of bubblewrap, whose place it takes."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from runner.backends.egress import Egress
from runner.model import SandboxLimits

NO_EGRESS = "SANDBOX_EGRESS_NETWORK is set, but without isolation code has the host's network and no other"


@dataclass(frozen=True, slots=True)
class UnisolatedConfig:
    """``rootfs`` as for bubblewrap; ``state`` holds a record for each live sandbox, ``folders`` its files.

    Where the sandbox's uid cannot get at ``folders``, its files lie in the host's temporary folder.
    """

    rootfs: Path
    state: Path
    proot: str | None
    launcher: str = sys.executable
    python: str = "/opt/venv/bin/python"
    agent_python: str = "/usr/bin/python3"
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    network: Egress = field(default_factory=Egress)

    @classmethod
    def beside(
        cls, rootfs: Path, state: Path, limits: SandboxLimits | None = None, *, egress: bool = False
    ) -> UnisolatedConfig:
        """With the program ``proot`` of this host, and records in a folder of their own."""
        network = Egress(False, NO_EGRESS) if egress else Egress()
        own = state.with_name("run-unisolated")
        return cls(rootfs, own, shutil.which("proot"), limits=limits or SandboxLimits(), network=network)

    @property
    def folders(self) -> Path:
        """Beside the records, which only the runner may read."""
        return self.state.with_name(f"{self.state.name}-files")

    @property
    def privileged(self) -> bool:
        """Whether the runner may give up its uid for each sandbox."""
        return os.geteuid() == 0
