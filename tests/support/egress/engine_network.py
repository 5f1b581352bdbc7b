"""A network of the Docker engine with one of the test's namespaces plugged into it, as a container would be."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.egress.world import ip
from tests.support.engines import docker


@dataclass(frozen=True)
class EngineNetwork:
    """``address`` is the namespace's, ``gateway`` the one that the engine keeps for the host."""

    name: str
    address: str
    gateway: str


@contextlib.contextmanager
def engine_network(space: str = "", *, internal: bool = True, place: int = 200) -> Iterator[EngineNetwork]:
    """Make a network as compose.yaml has it, and put ``space`` into it, if one is named.

    With ``place`` 1 it is where containers of the network send what goes beyond it.
    """
    mark = secrets.token_hex(2)
    net = f"10.{150 + int(mark[:2], 16) % 50}.{int(mark[2:], 16)}"
    name, bridge, device = f"fbx-egress-{mark}", f"fbb{mark}", f"fd{mark}"
    options = {"com.docker.network.bridge.name": bridge, "com.docker.network.bridge.inhibit_ipv4": "true"}
    chosen = [part for key, value in options.items() for part in ("--opt", f"{key}={value}")]
    docker.docker("network", "create", *(["--internal"] if internal else []), "--subnet", f"{net}.0/24", *chosen, name)
    try:
        if space:
            ip("link", "add", device, "type", "veth", "peer", "name", f"engine{mark}", "netns", space)
            ip("link", "set", device, "master", bridge)
            ip("link", "set", device, "up")
            ip("-n", space, "addr", "add", f"{net}.{place}/24", "dev", f"engine{mark}")
            ip("-n", space, "link", "set", f"engine{mark}", "up")
        yield EngineNetwork(name, f"{net}.{place}", f"{net}.1")
    finally:
        subprocess.run(["ip", "link", "del", device], check=False, capture_output=True)
        with contextlib.suppress(docker.DockerFailed):
            docker.docker("network", "rm", name)
