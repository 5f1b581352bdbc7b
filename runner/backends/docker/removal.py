"""Removes containers for good: at once, or as soon as the daemon answers again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from runner.backends.docker.door import ContainerGone, Door, NameTaken
from runner.errors import FolioboxError
from runner.telemetry.logs import logger

_LATE_S: Final = 300.0  # in which a daemon that was too busy to answer does what it was asked, or never
log = logger("docker")


@dataclass(frozen=True, slots=True)
class _Doomed:
    """``labels`` are those that it must have; that it is not there is believed from ``sure_at`` on."""

    labels: Mapping[str, str] = field(default_factory=dict)
    sure_at: float = 0.0


class Removal:
    """What could not be removed is kept in mind, and tried again whenever the daemon has just obeyed."""

    def __init__(self, door: Door, clock: Callable[[], float] = time.monotonic) -> None:
        self._door, self._clock = door, clock
        self._doomed: dict[str, _Doomed] = {}
        self._trying: asyncio.Task[None] | None = None

    @property
    def pending(self) -> int:
        """How many containers are still to be removed."""
        return len(self._doomed)

    async def remove(self, container: str) -> bool:
        """Kill and remove; whether the daemon says that it is gone. Never raises."""
        return await self._obeyed(container, _Doomed())

    async def remove_named(self, name: str, labels: Mapping[str, str], *, late: bool) -> None:
        """The same by a name that may be another's, hence only with these labels. Never raises.

        ``late``: nobody knows how the call ended that was to make it, so it may come only now; it is looked for again
        during some minutes.
        """
        await self._obeyed(name, _Doomed(labels, self._clock() + _LATE_S if late else 0.0))

    def try_again(self) -> None:
        """The daemon answers: remove in the background what it did not remove before."""
        if self._doomed and (self._trying is None or self._trying.done()):
            self._trying = asyncio.create_task(self._try_all())

    async def _try_all(self) -> None:
        for container, doomed in list(self._doomed.items()):
            if not await self._obeyed(container, doomed):
                return

    async def _obeyed(self, container: str, doomed: _Doomed) -> bool:
        """Whether the daemon did it; what is still to be done is kept in mind."""
        self._doomed.pop(container, None)
        try:
            target = await self._made(container, doomed) if doomed.labels else container
            if target:
                await self._door.call("remove_container", target, v=True, force=True)
        except (ContainerGone, NameTaken):  # gone, or its removal goes on
            pass
        except FolioboxError as error:
            self._doomed[container] = doomed
            log.warning("a container could not be removed yet", container=container[:12], cause=error.cause)
            return False
        except BaseException:
            self._doomed[container] = doomed
            raise
        return True

    async def _made(self, name: str, doomed: _Doomed) -> str:
        """The id of what was made with a name and our labels; empty for none. Raises FolioboxError."""
        try:
            found = await self._door.call("inspect_container", name)
        except ContainerGone:
            if self._clock() < doomed.sure_at:
                self._doomed[name] = doomed
            return ""
        told = found["Config"]["Labels"] or {}
        ours = all(told.get(label) == value for label, value in doomed.labels.items())
        return str(found["Id"]) if ours else ""
