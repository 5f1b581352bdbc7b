"""Sees the network for egress being attached: its facts from the daemon, and a container that looks at what it has."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping
from typing import Any, Final

from runner.backends.docker.args import Engine
from runner.backends.docker.config import DockerConfig
from runner.backends.docker.door import ContainerGone, Door, explained
from runner.backends.docker.removal import Removal
from runner.backends.docker.starting import Starter
from runner.backends.egress import NETWORK, PATIENCE_S, PROXY, Egress
from runner.errors import FolioboxError

_LIMIT_S: Final = 30.0
_PING_S: Final = 5.0
_WHOLE_EVERY: Final = 4  # looks: a proxy that is no container may end without the daemon's knowing

# What the container runs: which interfaces it has, and whether the proxy takes a connection from there.
SCRIPT: Final = """
import json, socket, sys, time
host, port = sys.argv[1], int(sys.argv[2])
with open("/proc/net/dev") as file:
    names = [line.split(":")[0].strip() for line in file if ":" in line]
why = ""
end = time.monotonic() + float(sys.argv[3])
while host:
    try:
        socket.create_connection((host, port), 3).close()
        why = ""
        break
    except OSError as error:
        why = error.strerror or str(error)
    if time.monotonic() > end:
        break
    time.sleep(0.25)
print(json.dumps({"interfaces": [name for name in names if name != "lo"], "proxy": why}), flush=True)
sys.stdin.read()
"""


class Attachment:
    """Whether sandboxes of one daemon can have the network that the settings name."""

    def __init__(self, config: DockerConfig, door: Door, starter: Starter, removal: Removal) -> None:
        self._config, self._door = config, door
        self._starter, self._removal = starter, removal
        self._there: Mapping[str, Any] | None = None  # the daemon's facts when it was last seen to work
        self._since = 0

    async def again(self, engine: Engine | None, known: Egress) -> Egress:
        """What ``look`` would say. While it is on and the daemon says that it is the same network, of the same kind and
        with nobody gone from it, a container is needed every few times only. Raises nothing.
        """
        found = await self.network()
        if isinstance(found, Egress):
            return found
        self._since += 1
        if known.on and self._since < _WHOLE_EVERY and self._there is not None and _goes_on(self._there, found):
            return known
        return await self.look(engine, patience_s=0.0)

    async def look(self, engine: Engine | None, patience_s: float = PATIENCE_S) -> Egress:
        """A whole look, with a container. Raises nothing."""
        wanted = self._config.egress
        self._there, self._since = None, 0
        if engine is None or not wanted.wanted:
            return wanted.unproven
        found = await self.network()
        if isinstance(found, Egress):
            return found
        try:
            seen = await self._seen(engine, patience_s)
        except (OSError, ValueError, TimeoutError, FolioboxError) as error:
            why = explained(error) if isinstance(error, FolioboxError) else repr(error)
            return Egress(False, f"no sandbox could be attached to the network {wanted.network}: {why}"[:600])
        if not seen.get("interfaces"):
            return Egress(False, f"a sandbox in the network {wanted.network} has no interface")
        if seen.get("proxy"):
            why = f"the proxy {wanted.proxy} of {PROXY} does not answer from the network {wanted.network}"
            return Egress(False, f"{why}: {seen['proxy']}"[:600], _is_open(found))
        self._there = found
        return Egress(True, _told(wanted.network, wanted.proxy, found), _is_open(found))

    async def network(self) -> Mapping[str, Any] | Egress:
        """The daemon's facts of it, or what follows from there being none. Raises nothing."""
        name = self._config.egress.network
        try:
            found: Mapping[str, Any] = await self._door.call("inspect_network", name, limit_s=_PING_S)
        except ContainerGone:  # what the daemon does not have, of whatever kind
            return Egress(False, f"{NETWORK}={name}: the Docker daemon has no network of that name")
        except FolioboxError as error:
            return Egress(None, f"not known yet: {explained(error)}")
        return found

    async def _seen(self, engine: Engine, patience_s: float) -> Mapping[str, Any]:
        wanted = self._config.egress
        host, port = wanted.address if wanted.proxy else ("", 0)
        command = [self._config.agent_python, "-I", "-S", "-c", SCRIPT, host, str(port), f"{patience_s:g}"]
        started = await self._starter.start(
            engine, f"probe-{secrets.token_hex(6)}", self._config.limits, command, network=True
        )
        try:
            async with asyncio.timeout(_LIMIT_S):
                found: Mapping[str, Any] = json.loads(await started.attached.reader.readline())
                return found
        finally:
            started.attached.close()
            await self._removal.remove(started.container)


def _goes_on(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether nobody has left a network (the proxy may be one of them), and it is what it was."""
    same = all(before.get(name) == now.get(name) for name in ("Id", "Internal"))
    return same and set(before.get("Containers") or ()) <= set(now.get("Containers") or ())


def _is_open(found: Mapping[str, Any]) -> bool:
    return found.get("Internal") is not True


def _told(network: str, proxy: str, found: Mapping[str, Any]) -> str:
    if _is_open(found):
        return (
            f"WARNING: the network {network} is not internal: sandboxes in it go past the proxy, to wherever this "
            "host can; make it with `docker network create --internal`"
        )
    if not proxy:
        return f"sandboxes with network are attached to {network}; {PROXY} is not set, so that they know of no proxy"
    return f"sandboxes with network are attached to {network}, where {proxy} is the way out"
