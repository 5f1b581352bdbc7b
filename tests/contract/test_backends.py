"""Every backend against one suite: start, talk, measure, let go, come back, end, and leave nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from runner.backends.base import Backend, BackendReport
from runner.errors import BackendUnavailable, SandboxLost
from runner.interpreter.client import SandboxClient
from tests.contract.backends_lab import NAMES, READY_S, left, make, missing, spec
from tests.support import differences
from tests.support.columns import COLUMNS


class Place(NamedTuple):
    """A backend under test, the folder of its records, and what its probe said."""

    name: str
    backend: Backend
    state: Path
    report: BackendReport

    @property
    def outlives(self) -> bool:
        """Whether sandboxes go on when their runner ends (row ``runner-dies`` of the table of differences)."""
        return self.name in differences.DIFFERENCES["runner-dies"].columns

    def another_start(self) -> Backend:
        """The same deployment after a restart of the runner: it knows nothing but what is written down."""
        return make(self.name, self.state)


@pytest.fixture(params=NAMES)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """Each column that this host can run, and nothing of it afterwards."""
    if why := missing(request.param):
        pytest.skip(f"{request.param}: {why}")
    made = make(request.param, tmp_path / "run")
    report = await made.probe()
    if not report.available:
        pytest.skip(f"{request.param}: {report.detail}")
    yield Place(request.param, made, tmp_path / "run", report)
    assert left(request.param, tmp_path / "run") == []


async def test_the_probe_says_what_the_column_promises(place: Place) -> None:
    column = COLUMNS.get(place.name)
    assert place.report.image_ready
    assert place.report.isolation == (column.isolation if column else "none")
    assert place.report.runtime == (column.runtime if column else "")
    assert bool(place.report.engine) == (column is not None and column.needs_engine)


async def test_agent_answers_and_the_end_is_final(place: Place) -> None:
    sandbox = await place.backend.create(spec())
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


async def test_end_is_idempotent_and_may_come_at_once(place: Place) -> None:
    sandbox = await place.backend.create(spec())
    await asyncio.gather(sandbox.destroy(), sandbox.destroy())
    await sandbox.destroy()


async def test_a_start_that_nobody_waits_for_leaves_nothing(place: Place) -> None:
    for pause in (0.0, 0.005, 0.02, 0.2):
        starting = asyncio.create_task(place.backend.create(spec()))
        await asyncio.wait([starting], timeout=pause)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            sandbox = await starting
            await sandbox.destroy()
            raise asyncio.CancelledError


async def test_what_a_dead_runner_left_is_swept(place: Place) -> None:
    """The record of a live sandbox, found by a runner that knows nothing else of it."""
    sandbox = await place.backend.create(spec())
    other = place.another_start()
    assert await other.sweep() == 1
    assert await asyncio.wait_for(sandbox.reader.read(), 10) == b""
    await sandbox.destroy()
    assert await other.sweep() == 0


async def test_a_start_sweeps_nothing_of_its_own(place: Place) -> None:
    """Where sandboxes outlive their runner. Elsewhere everything there is before a start's first one is a leftover."""
    if not place.outlives:
        assert await place.backend.sweep() == 0
        return
    sandbox = await place.backend.create(spec())
    assert await place.backend.sweep() == 0
    client = SandboxClient(sandbox)
    try:
        await client.attach(READY_S)
    finally:
        await client.destroy()


async def test_another_deployment_sees_and_sweeps_nothing(place: Place) -> None:
    sandbox = await place.backend.create(spec())
    stranger = make(place.name, place.state.parent / "elsewhere" / "run")
    await stranger.probe()
    assert await stranger.survivors() == []
    assert await stranger.sweep() == 0
    with pytest.raises((BackendUnavailable, SandboxLost)):
        await stranger.attach(sandbox.sandbox_id)
    client = SandboxClient(sandbox)
    try:
        await client.attach(READY_S)
    finally:
        await client.destroy()


async def test_survivors_are_found_and_talk_again_or_there_are_none(place: Place) -> None:
    """Where sandboxes die with their runner, letting go ends them; elsewhere the next start goes on with them."""
    wanted = spec()
    sandbox = await place.backend.create(wanted)
    client = SandboxClient(sandbox)
    await client.attach(READY_S)
    await client.wait_ready(READY_S)
    await sandbox.detach()
    next_start = place.another_start()
    await next_start.probe()
    if not place.outlives:
        assert sandbox.orphan_s is None
        assert await next_start.survivors() == []
        with pytest.raises(SandboxLost):
            await next_start.attach(wanted.sandbox_id)
        await client.destroy()
        return
    assert sandbox.orphan_s is not None
    assert await next_start.survivors() == [wanted.sandbox_id]
    again = await next_start.attach(wanted.sandbox_id)
    try:
        assert await next_start.sweep() == 0
        talks = SandboxClient(again)
        await talks.attach(READY_S)
        await talks.ping()
    finally:
        await again.destroy()
    assert await next_start.survivors() == []


async def test_there_is_no_survivor_of_an_unknown_name(place: Place) -> None:
    with pytest.raises(SandboxLost):
        await place.backend.attach("contract-nobody")
