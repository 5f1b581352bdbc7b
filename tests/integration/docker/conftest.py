"""Containers of a real daemon, on each runtime of the columns that it has; nothing of them afterwards."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from runner.backends.base import BackendReport
from runner.backends.docker import labels
from runner.backends.docker.backend import DockerBackend
from runner.backends.docker.config import DockerConfig
from runner.interpreter.client import SandboxClient
from runner.model import SandboxLimits, SandboxSpec
from tests.support.columns import offered
from tests.support.engines import docker

RUNTIMES = [column.runtime for column in offered(os.environ) if column.needs_engine]
READY_S = 90.0


class Lab:
    """A backend of one runtime with a data folder of its own."""

    def __init__(self, runtime: str, data: Path) -> None:
        self.runtime, self.data = runtime, data
        self.config = DockerConfig.from_env({**os.environ, "SANDBOX_RUNTIME": runtime, "SANDBOX_DATA_DIR": str(data)})
        self.backend = DockerBackend(self.config)
        self.report: BackendReport

    def another_start(self, **changed: object) -> DockerBackend:
        """The same deployment after a restart of the runner."""
        return DockerBackend(replace(self.config, **changed))  # type: ignore[arg-type]

    def spec(self, **limits: int) -> SandboxSpec:
        """What to start; ``limits`` that differ from the defaults."""
        return SandboxSpec("lab-" + secrets.token_hex(6), replace(SandboxLimits(), **limits))

    async def client(self, **limits: int) -> SandboxClient:
        """A sandbox whose interpreter waits for its first cell."""
        client = SandboxClient(await self.backend.create(self.spec(**limits)))
        await client.attach(READY_S)
        await client.wait_ready(READY_S)
        return client

    def containers(self) -> list[str]:
        """Names of this deployment's containers."""
        mine = f"label={labels.DEPLOYMENT}={labels.deployment_id(self.data)}"
        return docker.lines("ps", "--all", "--filter", mine, "--format", "{{.Names}}")


@pytest.fixture(params=RUNTIMES)
async def lab(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Lab]:
    """Ready to start sandboxes; whatever a test leaves is a failure, and is removed."""
    if not os.environ.get("DOCKER_HOST"):
        pytest.skip("a Docker daemon that DOCKER_HOST names; .venv/bin/python -m tests.support.engines brings one")
    made = Lab(request.param, tmp_path / "data")
    made.report = await made.backend.probe()
    assert made.report.available, made.report.detail
    yield made
    left = made.containers()
    if left:
        docker.docker("rm", "--force", *left)
    assert left == []
