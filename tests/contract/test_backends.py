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
from runner.backends.bubblewrap.cgroup import Parents
from runner.backends.bubblewrap.config import BubblewrapConfig
from runner.backends.unisolated.backend import UnisolatedBackend, UnisolatedSandbox
from runner.backends.unisolated.config import UnisolatedConfig
from runner.backends.unisolated.folders import PREFIX
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


@pytest.mark.parametrize("swept", [False, True])
async def test_files_of_proot_do_not_stay_in_the_temporary_folder(tmp_path: Path, swept: bool) -> None:
    made = make("unisolated", tmp_path / "run")
    report = await made.probe()
    if not report.available:
        pytest.skip(f"unisolated: {report.detail}")
    sandbox = await made.create(spec())
    assert isinstance(sandbox, UnisolatedSandbox)
    assert sandbox._child is not None
    if swept:
        assert await make("unisolated", tmp_path / "run").sweep() == 1
    await sandbox.destroy()
    assert list(Path("/tmp").glob(f"prooted-{sandbox._child.pid}-*")) == []


async def test_without_groups_a_dead_runners_sandbox_is_swept_by_its_process(tmp_path: Path) -> None:
    first, other = make("bubblewrap", tmp_path / "run"), make("bubblewrap", tmp_path / "run")
    assert isinstance(first, BubblewrapBackend)
    assert isinstance(other, BubblewrapBackend)
    report = await first.probe()
    if not report.available:
        pytest.skip(f"bubblewrap: {report.detail}")
    first._parents = other._parents = Parents({}, None, False)
    sandbox = await first.create(spec())
    assert sandbox._child is not None
    assert await other.sweep() == 1
    assert await asyncio.wait_for(sandbox._child.ended(5), 6)
    assert await asyncio.wait_for(sandbox.reader.read(), 10) == b""
    await sandbox.destroy()
    assert await other.sweep() == 0
