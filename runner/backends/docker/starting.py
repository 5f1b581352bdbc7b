"""Brings one container up with its stdio attached: create, attach, start, and nothing left when one of them fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runner.backends.base import agent_environment
from runner.backends.docker import args, labels
from runner.backends.docker.args import Engine, Identity
from runner.backends.docker.attach import Attached, attach
from runner.backends.docker.config import DockerConfig
from runner.backends.docker.door import Door, ImageMissing, NameTaken
from runner.backends.docker.profile import profile
from runner.backends.docker.removal import Removal
from runner.backends.egress import added_environment
from runner.errors import BackendUnavailable
from runner.model import SandboxLimits


@dataclass(frozen=True, slots=True)
class Started:
    """A running container; ``warnings`` are what the daemon said it could not do."""

    container: str
    attached: Attached
    warnings: tuple[str, ...] = ()


class Starter:
    """Starts containers of one deployment and boot."""

    def __init__(self, config: DockerConfig, door: Door, removal: Removal, boot: str) -> None:
        self._config, self._door, self._removal = config, door, removal
        self._boot = boot

    async def start(
        self, engine: Engine, sandbox_id: str, limits: SandboxLimits, command: Sequence[str], *, network: bool = False
    ) -> Started:
        """Three calls of the daemon. Raises BackendUnavailable and leaves nothing."""
        egress = self._config.egress if network else None
        if network and not self._config.egress.wanted:
            raise BackendUnavailable("no sandbox has network here: SANDBOX_EGRESS_NETWORK is not set")
        try:
            deployment, filter_ = labels.deployment_id(self._config.data), profile()
        except (OSError, ValueError) as error:
            raise BackendUnavailable("a sandbox could not be prepared; see the log", cause=repr(error)) from error
        identity = Identity(deployment, self._boot, sandbox_id, self._config.orphan_s, egress)
        told = agent_environment(limits)
        if egress is not None:
            told = added_environment(egress.proxy, told)
        body = args.container(engine, identity, limits, command, told, filter_)
        made = await self._create(body, sandbox_id, identity.labels(engine))
        container, attached = str(made["Id"]), None
        try:
            attached = await attach(self._config.daemon, container, self._config.timeout_s)
            await self._door.call("start", container)
        except BaseException:
            if attached is not None:
                attached.close()
            await self._removal.remove(container)
            raise
        self._removal.try_again()
        return Started(container, attached, tuple(made.get("Warnings") or ()))

    async def _create(self, body: args.Json, sandbox_id: str, told: dict[str, str]) -> dict[str, Any]:
        name = labels.container_name(sandbox_id)
        try:
            made: dict[str, Any] = await self._door.call("create_container_from_config", body, name)
        except (NameTaken, ImageMissing):
            raise
        except BaseException as error:
            # The daemon may have made it without telling us, or may yet; whatever else has that name is left alone.
            ours = {key: told[key] for key in (labels.BOOT, labels.SANDBOX)}
            answered = getattr(error.__cause__, "response", None) is not None  # as requests has it
            await self._removal.remove_named(name, ours, late=not answered)
            raise
        return made
