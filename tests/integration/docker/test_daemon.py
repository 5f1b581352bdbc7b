"""The daemon is gone, hangs, and comes back: a typed error soon, never a half session, and nothing left for good."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from runner.backends.docker.backend import DockerBackend
from runner.errors import BackendUnavailable, SandboxLost
from runner.interpreter.client import SandboxClient
from tests.integration.docker.conftest import READY_S, Lab
from tests.integration.docker.relay import Relay, relay
from tests.unit.agent.lab import run

TIMEOUT_S = 2.0
# The docker package leaves a socket that could not be connected to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"),
]


class Place(NamedTuple):
    """A backend whose daemon can be lost."""

    lab: Lab
    relay: Relay
    backend: DockerBackend


@pytest.fixture
async def place(lab: Lab, tmp_path: Path) -> AsyncIterator[Place]:
    async with relay(tmp_path, os.environ["DOCKER_HOST"]) as between:
        backend = lab.another_start(daemon={"DOCKER_HOST": between.address}, timeout_s=10.0)
        assert (await backend.probe()).available
        backend._door._timeout_s = TIMEOUT_S
        yield Place(lab, between, backend)
        gc.collect()  # what the package left is told of now, where it is expected, and not in another test


async def holds(condition: Callable[[], object], limit_s: float = 20.0) -> None:
    """Until something holds, with a deadline."""
    async with asyncio.timeout(limit_s):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.05)


async def test_a_daemon_that_is_gone_is_a_typed_error_at_once(place: Place) -> None:
    await place.relay.lose()
    began = time.monotonic()
    with pytest.raises(BackendUnavailable) as caught:
        await place.backend.create(place.lab.spec())
    assert caught.value.fields["retry_after_ms"]
    report = await place.backend.probe()
    assert not report.available
    assert "daemon" in report.detail
    assert await place.backend.trouble()
    with pytest.raises(BackendUnavailable):  # nobody knows: none must be taken for dead
        await place.backend.survivors()
    assert await place.backend.sweep() == 0
    assert time.monotonic() - began < 10
    await place.relay.find()
    assert await place.backend.trouble() == ""
    assert (await place.backend.probe()).available
    sandbox = await place.backend.create(place.lab.spec())
    await sandbox.destroy()


async def test_a_daemon_that_hangs_in_a_start_leaves_nothing_for_good(place: Place) -> None:
    place.relay.hold()
    began = time.monotonic()
    with pytest.raises(BackendUnavailable):
        await place.backend.create(place.lab.spec())
    assert time.monotonic() - began < 6 * TIMEOUT_S
    await holds(place.lab.containers)  # the daemon heard of it, and nobody heard of that
    place.relay.let_go()
    sandbox = await place.backend.create(place.lab.spec())
    await sandbox.destroy()
    await holds(lambda: place.lab.containers() == [])
    assert place.backend._removal.pending == 0


async def test_a_stream_that_is_cut_is_a_lost_sandbox(place: Place) -> None:
    client = SandboxClient(await place.backend.create(place.lab.spec()))
    await client.attach(READY_S)
    await client.wait_ready(READY_S)
    running = asyncio.create_task(run(client, "r1", "import time; time.sleep(60)"))
    await client.ping()
    await place.relay.lose()
    with pytest.raises(SandboxLost):
        await running
    async with asyncio.timeout(20):
        await client.usage()
        await client.destroy()
    assert place.backend._removal.pending == 1
    await place.relay.find()
    sandbox = await place.backend.create(place.lab.spec())
    await sandbox.destroy()
    await holds(lambda: place.lab.containers() == [])


async def test_what_was_cut_off_goes_on_for_the_next_start(place: Place) -> None:
    client = SandboxClient(await place.backend.create(place.lab.spec()))
    await client.attach(READY_S)
    await client.wait_ready(READY_S)
    assert (await run(client, "r1", "kept = 41"))[0] == ""
    await client.stream.close()
    await place.relay.lose()  # as when the runner is killed
    later = place.lab.another_start()
    await later.probe()
    assert await later.survivors() == [client.sandbox_id]
    again = SandboxClient(await later.attach(client.sandbox_id))
    try:
        await again.attach(READY_S, padding=True)
        assert (await run(again, "r2", "print(kept + 1)"))[0] == "42\n"
        assert await later.survivors() == []
        usage = await again.usage()
        assert usage.memory_bytes is None or usage.memory_bytes > 1 << 20
    finally:
        await again.destroy()
        await client.sandbox.detach()
