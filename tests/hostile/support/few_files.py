"""Docker containers in which the agent has user code's limit of open files, for the control of what one uid shares."""

from __future__ import annotations

from runner.backends.docker import args
from runner.backends.docker.args import Engine
from runner.model import SandboxLimits


def install() -> None:
    """Weaken this process."""
    chosen = args._ulimits

    def ulimits(engine: Engine, limits: SandboxLimits) -> list[tuple[str, int]]:
        return [*chosen(engine, limits), ("nofile", limits.nofile)]

    args._ulimits = ulimits
