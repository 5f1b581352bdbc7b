"""Backends for the contract suite: made for a folder of the test's, and what each leaves on the host."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path

from runner.backends.base import Backend
from runner.backends.bubblewrap.backend import BubblewrapBackend
from runner.backends.bubblewrap.config import BubblewrapConfig
from runner.backends.docker import labels
from runner.backends.docker.backend import DockerBackend
from runner.backends.docker.config import DockerConfig
from runner.backends.unisolated.backend import UnisolatedBackend
from runner.backends.unisolated.config import UnisolatedConfig
from runner.backends.unisolated.folders import PREFIX
from runner.model import SandboxLimits, SandboxSpec
from tests.support.columns import COLUMNS, offered
from tests.support.engines import docker

UNISOLATED = "unisolated"
NAMES = [*(column.name for column in offered(os.environ)), UNISOLATED]
READY_S = 60.0


def spec() -> SandboxSpec:
    """What to start, with an id that tells it from all else on this host."""
    return SandboxSpec("contract-" + secrets.token_hex(4), SandboxLimits())


def missing(name: str) -> str:
    """Why a column cannot run here; empty when it can be tried."""
    if name in COLUMNS and COLUMNS[name].needs_engine and not os.environ.get("DOCKER_HOST"):
        return "no engine is named by DOCKER_HOST; .venv/bin/python -m tests.support.engines COMMAND brings one"
    return ""


def make(name: str, state: Path) -> Backend:
    """The backend of a column with its records below ``state``; each call stands for another start of the runner."""
    if name in COLUMNS and COLUMNS[name].needs_engine:
        return DockerBackend(
            DockerConfig.from_env({**os.environ, **COLUMNS[name].settings(), "SANDBOX_DATA_DIR": str(state)})
        )
    config = BubblewrapConfig.from_env(os.environ)
    if name == UNISOLATED:
        return UnisolatedBackend(UnisolatedConfig.beside(config.rootfs, state))
    return BubblewrapBackend(BubblewrapConfig(config.rootfs, state, config.bwrap))


def left(name: str, state: Path) -> list[str]:
    """Records, folders, groups, containers and volumes of sandboxes of this suite that are still there."""
    found = [str(path) for folder in state.parent.glob(f"{state.name}*") for path in folder.glob("*.json")]
    found += [str(path) for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}contract-*")]
    found += [str(path) for path in Path("/sys/fs/cgroup").glob("*/foliobox-contract-*")]
    if name in COLUMNS and COLUMNS[name].needs_engine:
        mine = f"label={labels.DEPLOYMENT}={labels.deployment_id(state)}"
        for kind in (["ps", "--all"], ["volume", "ls"], ["network", "ls"]):
            found += docker.lines(*kind, "--quiet", "--filter", mine)
    return found
