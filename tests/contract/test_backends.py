"""Every backend against one suite: start, talk, measure, end, and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runner.backends.base import Backend
from runner.backends.bubblewrap.backend import BubblewrapBackend
from runner.backends.bubblewrap.config import BubblewrapConfig
from runner.backends.unisolated.backend import PREFIX, UnisolatedBackend
from runner.backends.unisolated.config import UnisolatedConfig
from runner.interpreter.client import SandboxClient
from runner.model import SandboxLimits, SandboxSpec

READY_S = 60.0


def spec() -> SandboxSpec:
    return SandboxSpec("contract-" + secrets.token_hex(4), SandboxLimits())


def make(name: str, state: Path) -> Backend:
    """The backend with records in a folder of the test's."""
    config = BubblewrapConfig.from_env(os.environ)
    if name == "bubblewrap":
        return BubblewrapBackend(BubblewrapConfig(config.rootfs, state, config.bwrap))
    return UnisolatedBackend(UnisolatedConfig.beside(config.rootfs, state))


@pytest.fixture(params=["bubblewrap", "unisolated"])
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    """Each backend that this host can run, and nothing of it afterwards."""
    made = make(request.param, tmp_path / "run")
    report = await made.probe()
    if not report.available:
        pytest.skip(f"{request.param}: {report.detail}")
    yield made
    left = [str(path) for folder in tmp_path.glob("run*") for path in folder.iterdir()]
    left += [str(path) for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}contract-*")]
    left += [str(path) for path in Path("/sys/fs/cgroup").glob("*/foliobox-contract-*")]
    assert left == []


async def test_agent_answers_and_the_end_is_final(backend: Backend) -> None:
    sandbox = await backend.create(spec())
    client = SandboxClient(sandbox)
    try:
        await client.attach(READY_S)
        await client.wait_ready(READY_S)
        await client.ping()
        usage = await sandbox.usage()
        assert usage.memory_bytes is None or usage.memory_bytes > 1 << 20
        await sandbox.reset_peak()
    finally:
        await client.destroy()
    assert await sandbox.reader.read() == b""
    await sandbox.destroy()


async def test_end_is_idempotent_and_may_come_at_once(backend: Backend) -> None:
    sandbox = await backend.create(spec())
    await asyncio.gather(sandbox.destroy(), sandbox.destroy())
    await sandbox.destroy()


async def test_a_start_that_nobody_waits_for_leaves_nothing(backend: Backend) -> None:
    for pause in (0.0, 0.005, 0.02):
        starting = asyncio.create_task(backend.create(spec()))
        await asyncio.wait([starting], timeout=pause)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            sandbox = await starting
            await sandbox.destroy()
            raise asyncio.CancelledError


async def test_what_a_dead_runner_left_is_swept(backend: Backend, tmp_path: Path) -> None:
    """The record of a live sandbox, found by a runner that knows nothing else of it."""
    sandbox = await backend.create(spec())
    other = make(backend.name, tmp_path / "run")
    assert await other.sweep() == 1
    assert await asyncio.wait_for(sandbox.reader.read(), 10) == b""
    await sandbox.destroy()
    assert await other.sweep() == 0
