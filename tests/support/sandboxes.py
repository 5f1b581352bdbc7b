"""Sandboxes of a service as its host sees them, on every column: where they are, and ending them from outside."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from runner.backends.docker import labels
from runner.cli.local_service import LocalService
from tests.support.columns import BUBBLEWRAP, CHOSEN, COLUMNS
from tests.support.engines import docker
from tests.support.engines.processes import parents


def on_engine() -> bool:
    """Whether the column of this test process is one of Docker's."""
    return COLUMNS[os.environ.get(CHOSEN, BUBBLEWRAP.name)].needs_engine


def mine(runner: LocalService) -> str:
    """A filter for what an engine keeps of one deployment."""
    return f"label={labels.DEPLOYMENT}={labels.deployment_id(runner.data)}"


def containers(runner: LocalService) -> list[str]:
    """Ids of a service's containers, ended ones too."""
    return docker.lines("ps", "--all", "--quiet", "--no-trunc", "--filter", mine(runner))


def ended(runner: LocalService) -> list[str]:
    """Containers of a service that have ended and are still there: they are to be removed with their sandbox."""
    states = [option for state in ("exited", "dead", "removing") for option in ("--filter", f"status={state}")]
    return docker.lines("ps", "--all", "--format", "{{.Names}}", "--filter", mine(runner), *states)


def discard(runner: LocalService) -> None:
    """Remove what a service that has ended left for its next start: there will be none."""
    if on_engine() and (left := containers(runner)):
        docker.docker("rm", "--force", "--volumes", *left)


def kill_all(runner: LocalService) -> None:
    """SIGKILL for every sandbox of a service, its spares too."""
    if on_engine():
        for container in containers(runner):
            docker.docker("kill", container)
    else:
        for child in Path(f"/proc/{runner.pid}/task/{runner.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)


def processes(runner: LocalService) -> list[int]:
    """Host pids of everything in the sandboxes of a service, as far as the host sees it."""
    if not on_engine():
        return descendants(runner.pid)
    first = [int(docker.inspect(container)["State"]["Pid"]) for container in containers(runner)]
    return sorted({each for pid in first if pid for each in (pid, *descendants(pid))})


def descendants(pid: int) -> list[int]:
    """Living processes below one, in the order of their numbers."""
    tree = parents()
    found = {pid}
    while more := {child for child, parent in tree.items() if parent in found} - found:
        found |= more
    return sorted(found - {pid})
