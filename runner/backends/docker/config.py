"""Settings of the Docker backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from runner import __version__, environment
from runner.backends.egress import EgressConfig
from runner.model import SandboxLimits

DAEMON_VARIABLES: Final = ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")
# A restart of the runner takes seconds; what nobody has come back to by then is to free its memory.
ORPHAN_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class DockerConfig:
    """``data`` holds the id of this deployment; ``daemon`` are the variables that the docker package reads.

    ``limits`` are those that a probe tries, ``timeout_s`` bounds one call of the daemon.
    """

    data: Path
    image: str = f"foliobox-sandbox:{__version__}"
    runtime: str = "auto"
    timeout_s: float = 30.0
    daemon: Mapping[str, str] = field(default_factory=dict)
    python: str = "/opt/venv/bin/python"
    agent_python: str = "/usr/bin/python3"
    orphan_s: float = ORPHAN_S
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    egress: EgressConfig = field(default_factory=EgressConfig)

    @classmethod
    def from_env(cls, env: environment.Env) -> DockerConfig:
        """``SANDBOX_IMAGE``, ``SANDBOX_RUNTIME``, ``SANDBOX_DOCKER_TIMEOUT`` and what names the daemon."""
        call_s = environment.number(env, "SANDBOX_DOCKER_CALL_TIMEOUT_S", 30.0, minimum=1.0, maximum=600.0)
        return cls(
            data=environment.data_folder(env),
            image=environment.text(env, "SANDBOX_IMAGE", f"foliobox-sandbox:{__version__}"),
            runtime=environment.text(env, "SANDBOX_RUNTIME", "auto"),
            timeout_s=environment.number(env, "SANDBOX_DOCKER_TIMEOUT", call_s, minimum=1.0, maximum=600.0),
            egress=EgressConfig.from_env(env),
            daemon={name: env[name] for name in DAEMON_VARIABLES if env.get(name, "").strip()},
        )
