"""A network of a real daemon for sandboxes: seen to be attached, told of where it leads too far, given up by a restart.

What is let through is the proxy's to say and is tried in ``tests/hostile/test_egress.py``.
"""

from __future__ import annotations

import gc
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from runner.backends.docker.backend import DockerBackend
from runner.backends.docker.config import DockerConfig
from runner.backends.egress import EgressConfig
from runner.interpreter.client import Event, SandboxClient
from runner.model import RunRequest, SandboxSpec
from tests.integration.docker.conftest import READY_S, Lab
from tests.support.egress import needs
from tests.support.egress.engine_network import EngineNetwork, engine_network
from tests.support.egress.world import World, world
from tests.support.engines import docker

LOOK = """
import json, os, socket
def connects(host, port):
    try:
        socket.create_connection((host, port), 2).close()
    except OSError:
        return False
    return True
print(json.dumps({
    "interfaces": sorted(line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line),
    "proxy": os.environ.get("HTTPS_PROXY"), "connects": [connects(*one) for one in TARGETS],
}))
"""


@pytest.fixture(scope="module")
def outside() -> Iterator[World]:
    if not os.environ.get("DOCKER_HOST"):
        pytest.skip("a Docker daemon that DOCKER_HOST names; .venv/bin/python -m tests.support.engines brings one")
    needs.ensure()
    with world() as made:
        yield made


@pytest.fixture
def network(outside: World) -> Iterator[EngineNetwork]:
    outside.forget()
    with engine_network(outside.inner) as made:
        yield made


_made: list[DockerBackend] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Connections of further starts to the daemon are not left to the collector of garbage."""
    yield
    for backend in _made:
        if backend._door._client is not None:
            backend._door._client.close()
    _made.clear()


def granted(lab: Lab, network: str, proxy: str) -> DockerBackend:
    return start(replace(lab.config, egress=EgressConfig(network, proxy)))


def start(config: DockerConfig) -> DockerBackend:
    """Another start of the service on the same data."""
    _made.append(DockerBackend(config))
    return _made[-1]


async def seen(backend: DockerBackend, targets: list[tuple[str, int]], *, wanted: bool) -> dict[str, Any]:
    """What a sandbox shows of its network."""
    spec = SandboxSpec("lab-" + secrets.token_hex(6), backend._config.limits, wanted)
    client = SandboxClient(await backend.create(spec))
    try:
        await client.attach(READY_S)
        await client.wait_ready(READY_S)
        text = ""
        async for item in client.run(secrets.token_hex(16), RunRequest(LOOK.replace("TARGETS", repr(targets)))):
            text += item.body["text"] if isinstance(item, Event) and item.kind == "stdout" else ""
        found: dict[str, Any] = json.loads(text)
        return found
    finally:
        await client.destroy()


async def test_a_sandbox_with_network_is_attached_and_others_are_not(
    lab: Lab, network: EngineNetwork, outside: World
) -> None:
    proxy = f"http://{network.address}:3128"
    backend = granted(lab, network.name, proxy)
    report = await backend.probe()
    assert (report.egress, report.network.open) == (True, False), report.egress_detail
    targets = [(network.address, 3128), (network.gateway, 22), (outside.net + ".1", 22), ("93.184.216.34", 80)]
    with_network = await seen(backend, targets, wanted=True)
    assert with_network == {"interfaces": ["eth0", "lo"], "proxy": proxy, "connects": [True, False, False, False]}
    without = await seen(backend, targets, wanted=False)
    assert without == {"interfaces": ["lo"], "proxy": None, "connects": [False] * 4}
    assert outside.hits() == []


async def test_control_a_network_that_holds_more_than_the_proxy_leads_there(lab: Lab, outside: World) -> None:
    outside.forget()
    with engine_network(outside.outer) as too_much:
        backend = granted(lab, too_much.name, "")
        report = await backend.probe()
        assert report.egress is True
        assert "know of no proxy" in report.egress_detail
        assert (await seen(backend, [(too_much.address, 22)], wanted=True))["connects"] == [True]
    assert outside.hits(kind="tcp", port=22)


async def test_a_network_that_is_not_internal_is_told_of_loudly(lab: Lab, outside: World) -> None:
    with engine_network(outside.inner, internal=False) as wide:
        report = await granted(lab, wide.name, f"http://{wide.address}:3128").probe()
        assert (report.egress, report.network.open) == (True, True)
        assert report.egress_detail.startswith("WARNING: the network")


async def test_what_cannot_be_attached_is_refuted_and_comes_back(
    lab: Lab, network: EngineNetwork, outside: World
) -> None:
    report = await granted(lab, "no-such-network", "").probe()
    assert (report.available, report.egress) == (True, False)
    assert "has no network of that name" in report.egress_detail
    backend = granted(lab, network.name, f"http://{network.address}:3128")
    try:
        outside.stop_proxy()
        report = await backend.probe()
        assert (report.available, report.egress) == (True, False)
        assert "does not answer" in report.egress_detail
    finally:
        outside.start_proxy()
    again = await backend.renewed()
    assert again is not None
    assert again.egress is True
    assert await backend.renewed() is None


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # the SDK leaves those it could not connect
async def test_a_daemon_that_is_gone_proves_nothing(lab: Lab) -> None:
    nobody = {"DOCKER_HOST": f"unix://{lab.data}/no.sock"}
    backend = start(replace(lab.config, daemon=nobody, egress=EgressConfig("some", "")))
    report = await backend.probe()
    assert (report.available, report.egress) == (False, None)
    gc.collect()


async def test_a_sandbox_with_network_goes_on_under_the_same_settings_only(lab: Lab, network: EngineNetwork) -> None:
    proxy = f"http://{network.address}:3128"
    first = granted(lab, network.name, proxy)
    await first.probe()
    sandboxes = [
        await first.create(SandboxSpec("lab-" + secrets.token_hex(6), lab.config.limits, wanted))
        for wanted in (True, False)
    ]
    for sandbox in sandboxes:
        await sandbox.detach()
    with_network, without = (sandbox.sandbox_id for sandbox in sandboxes)
    for later, expected in (
        (granted(lab, network.name, proxy), {with_network, without}),
        (granted(lab, network.name, "http://other:3128"), {without}),
        (start(lab.config), {without}),
    ):
        await later.probe()
        assert set(await later.survivors()) == expected
    assert await later.sweep() == 2
    assert docker.lines("ps", "--quiet", "--filter", f"network={network.name}") == []
