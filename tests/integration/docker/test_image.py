"""The image is tagged anew while the service runs: what is new is of the new image, and what is in use goes on."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from runner.backends.base import BackendReport
from runner.backends.watch import RENEWAL_EVERY, Watch
from runner.conversations.pool import Pool
from runner.interpreter.client import SandboxClient
from runner.model import SandboxLimits
from tests.integration.docker.conftest import READY_S, Lab
from tests.integration.docker.test_daemon import holds
from tests.support.engines import docker
from tests.unit.agent.lab import run


@pytest.fixture
def images(lab: Lab) -> Iterator[tuple[str, str]]:
    """A name for the image of the lab, and the id of another that has the same in it."""
    name = f"foliobox-test-{secrets.token_hex(6)}:1"
    docker.docker("tag", lab.config.image, name)
    container = docker.docker("create", lab.config.image, "true")
    try:
        other = docker.docker("commit", "--change", f"LABEL dev={name}", container)
    finally:
        docker.docker("rm", container)
    yield name, other
    docker.docker("image", "rm", "--force", other)
    if docker.lines("images", "--quiet", name):
        docker.docker("image", "rm", name)


def image_of(client: SandboxClient) -> str:
    return str(docker.inspect(f"foliobox-{client.sandbox_id}")["Image"])


async def test_a_name_that_moves_is_followed(lab: Lab, images: tuple[str, str]) -> None:
    name, other = images
    backend = lab.another_start(image=name, runtime=lab.runtime)
    report = await backend.probe()
    told: list[BackendReport] = []
    pool = Pool(backend, SandboxLimits(), 1, READY_S, lambda: True)

    async def changed(now: BackendReport) -> bool:
        told.append(now)
        pool.use(now.image)
        return True

    watch = Watch(backend, report, changed)
    pool.use(report.image)
    held = await pool.create()
    try:
        await run(held, "r1", "kept = 41")
        pool.start()
        await holds(lambda: pool.ready, READY_S)
        (spare,) = pool._spares
        old = image_of(spare)
        assert old != other
        docker.docker("tag", other, name)
        for _ in range(RENEWAL_EVERY):
            await watch.look()
        (now,) = told
        assert now.available
        assert now.image == f"{name}@{other.removeprefix('sha256:')[:12]}" != report.image
        assert spare not in pool._spares
        await holds(lambda: pool.ready, READY_S)
        assert [image_of(client) for client in pool._spares] == [other]
        await holds(lambda: f"foliobox-{spare.sandbox_id}" not in lab.containers())
        assert (await run(held, "r2", "print(kept + 1)"))[0] == "42\n"
        assert image_of(held) == old
        docker.docker("tag", other, f"{name}-kept")
        docker.docker("image", "rm", name)
        for _ in range(RENEWAL_EVERY):
            await watch.look()
        assert (told, pool.ready) == ([now], 1)
        made = await pool.create()
        assert image_of(made) == other
        await made.destroy()
    finally:
        await held.destroy()
        await pool.close()


async def test_spares_that_others_end_are_replaced(lab: Lab) -> None:
    """As a daemon that restarts ends them."""
    pool = Pool(lab.backend, SandboxLimits(), 1, READY_S, lambda: True)
    pool.start()
    try:
        await holds(lambda: pool.ready, READY_S)
        (spare,) = pool._spares
        docker.docker("kill", f"foliobox-{spare.sandbox_id}")
        await holds(lambda: spare not in pool._spares)
        await holds(lambda: pool.ready, READY_S)
        await holds(lambda: len(lab.containers()) == 1)
    finally:
        await pool.close()
