"""A service with egress on the column of this test process: the settings that lead its sandboxes to a world's squid."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.support import sandboxes
from tests.support.egress.engine_network import engine_network
from tests.support.egress.world import World
from tests.support.runner import Runner, running


@contextlib.contextmanager
def granted(world: World) -> Iterator[dict[str, str]]:
    """The two settings. On an engine the proxy is put into a network of it."""
    if not sandboxes.on_engine():
        yield {"SANDBOX_EGRESS_NETWORK": "granted", "SANDBOX_EGRESS_PROXY": world.proxy}
        return
    with engine_network(world.inner) as network:
        proxy = f"http://{network.address}:3128"
        yield {"SANDBOX_EGRESS_NETWORK": network.name, "SANDBOX_EGRESS_PROXY": proxy}


@contextlib.contextmanager
def serving(data: Path, world: World, **env: str) -> Iterator[Runner]:
    """A service that grants egress, for the length of a block."""
    with granted(world) as settings, running(data, **{"SANDBOX_POOL_SIZE": "0", **settings, **env}) as service:
        yield service
