"""Removes containers for good: at once, or as soon as the daemon answers again."""

from __future__ import annotations

import asyncio

from runner.backends.docker.door import ContainerGone, Door, NameTaken
from runner.errors import FolioboxError
from runner.telemetry.logs import logger

log = logger("docker")


class Removal:
    """What could not be removed is kept in mind, and tried again whenever the daemon has just obeyed."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._doomed: dict[str, dict[str, str]] = {}
        self._trying: asyncio.Task[None] | None = None

    @property
    def pending(self) -> int:
        """How many containers are still to be removed."""
        return len(self._doomed)

    async def remove(self, container: str, labels: dict[str, str] | None = None) -> bool:
        """Kill and remove; whether it is gone. Never raises.

        With ``labels``, only a container that has them: one that was named by us may be another's.
        """
        try:
            if labels:
                found = await self._door.call("inspect_container", container)
                container, told = str(found["Id"]), found["Config"]["Labels"] or {}
                if any(told.get(name) != value for name, value in labels.items()):
                    return True
            await self._door.call("remove_container", container, v=True, force=True)
        except (ContainerGone, NameTaken):  # gone, or its removal goes on
            pass
        except FolioboxError as error:
            self._doomed[container] = labels or {}
            log.warning("a container could not be removed yet", container=container[:12], cause=error.cause)
            return False
        self._doomed.pop(container, None)
        return True

    def try_again(self) -> None:
        """The daemon answers: remove in the background what it did not remove before."""
        if self._doomed and (self._trying is None or self._trying.done()):
            self._trying = asyncio.create_task(self._try_all())

    async def _try_all(self) -> None:
        for container, labels in list(self._doomed.items()):
            self._doomed.pop(container, None)
            if not await self.remove(container, labels):
                return
