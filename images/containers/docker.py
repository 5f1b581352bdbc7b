"""The one door to the `docker` command: every call has a deadline, and says what to do when it fails."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

from images.rootfs.progress import StepError

CALL_S = 30.0
NOT_INSTALLED = (
    "docker is not installed: on Debian and Ubuntu `apt-get install docker.io`. The root file system of the"
    " bubblewrap backend needs none: `python3 images/build.py rootfs`."
)
NOT_RUNNING = (
    "No engine answers at {host}: start it (`systemctl start docker`, or `dockerd`), set DOCKER_HOST, or join the"
    " group that may use its socket. It said: {said}"
)


def command() -> str:
    """The program. Raises StepError when there is none."""
    found = shutil.which("docker")
    if found is None:
        raise StepError(NOT_INSTALLED)
    return found


def call(*args: str, deadline: float = CALL_S) -> subprocess.CompletedProcess[str]:
    """Run one command to its end, whatever its exit code. Raises StepError without docker or after the deadline."""
    try:
        return subprocess.run(
            [command(), *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=deadline, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise StepError(f"`docker {' '.join(args[:2])}` did not end within {deadline:.0f} s: is it stuck?") from error


def output(*args: str, deadline: float = CALL_S) -> str:
    """What a command prints. Raises StepError when it fails."""
    done = call(*args, deadline=deadline)
    if done.returncode != 0:
        raise StepError(f"`docker {' '.join(args)}` failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def engine() -> str:
    """The engine's version. Raises StepError when none answers."""
    done = call("version", "--format", "{{.Server.Version}}")
    if done.returncode != 0:
        host = os.environ.get("DOCKER_HOST") or "the default socket"
        raise StepError(NOT_RUNNING.format(host=host, said=done.stderr.strip()))
    return done.stdout.strip()


def image(name: str) -> dict[str, Any] | None:
    """What the engine knows of an image; None when it has none of that name."""
    done = call("image", "inspect", name)
    if done.returncode != 0:
        if "no such image" in done.stderr.lower():
            return None
        raise StepError(f"`docker image inspect {name}` failed: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)[0]
    return found


def labels(found: dict[str, Any]) -> dict[str, str]:
    """The labels of an image as `image` gives it."""
    return dict((found.get("Config") or {}).get("Labels") or {})


def build_network() -> str:
    """The network for the steps of a build: the host's where the engine has no bridge of its own."""
    has_bridge = output("network", "ls", "--quiet", "--filter", "driver=bridge")
    return "default" if has_bridge else "host"
