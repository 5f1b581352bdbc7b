"""Questions to an engine through Docker's command line, as an operator asks them."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

DEADLINE_S = 120


class DockerFailed(Exception):
    """A command of Docker's failed; the text is what it said."""


def docker(*arguments: str, address: str = "", deadline_s: float = DEADLINE_S) -> str:
    """What a command printed. Raises DockerFailed. ``address`` is the engine's; else the environment names it."""
    environment = {**os.environ, **({"DOCKER_HOST": address} if address else {})}
    done = subprocess.run(
        ["docker", *arguments], check=False, capture_output=True, text=True, timeout=deadline_s, env=environment
    )
    if done.returncode != 0:
        raise DockerFailed(f"docker {' '.join(arguments)}: {done.stderr.strip()[-500:]}")
    return done.stdout.strip()


def lines(*arguments: str, address: str = "") -> list[str]:
    """The lines that a command printed."""
    return docker(*arguments, address=address).splitlines()


def inspect(name: str, kind: str = "container") -> dict[str, Any]:
    """All that an engine knows of one thing."""
    found: list[dict[str, Any]] = json.loads(docker("inspect", "--type", kind, name))
    return found[0]


def runtimes(address: str = "") -> set[str]:
    """Names of the runtimes that are registered."""
    return set(json.loads(docker("info", "--format", "{{json .Runtimes}}", address=address)))
