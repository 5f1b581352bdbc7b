"""Which conversation each sandbox was given to, noted on this machine, for a start that finds it running.

A sandbox is never asked whose it is. The notes need to outlive a process, not the machine: sandboxes do not either.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from runner.agent import loader
from runner.backends import records
from runner.model import SandboxLimits
from runner.telemetry.logs import logger
from runner.workspace.manifest import now

log = logger("assignments")


class Incarnation(Protocol):
    """What names one incarnation of a conversation."""

    tenant: str
    id: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """``limits`` and ``network`` are what the sandbox was started with, ``agent`` the version of what runs in it."""

    sandbox_id: str
    tenant: str
    conversation: str
    incarnation: str
    limits: SandboxLimits
    agent: str
    created: str
    network: bool = False

    @classmethod
    def read(cls, sandbox_id: str, content: dict[str, Any]) -> Self | None:
        """As noted; None for a note that this release cannot read."""
        try:
            words = [content[name] for name in ("tenant", "conversation", "incarnation", "agent", "created")]
            limits = SandboxLimits(**content["limits"])
        except (KeyError, TypeError):
            return None
        if not all(isinstance(word, str) for word in words):
            return None
        tenant, conversation, incarnation, agent, created = words
        network = content.get("network") is True
        return cls(sandbox_id, tenant, conversation, incarnation, limits, agent, created, network)

    @property
    def current(self) -> bool:
        """Whether the agent in it is the one of this release."""
        return self.agent == loader.version()


class Assignments:
    """Notes below ``folder``, one file a sandbox; without a folder nothing is noted."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    async def note(self, sandbox_id: str, owner: Incarnation, limits: SandboxLimits, *, network: bool = False) -> None:
        """A sandbox was given away. What cannot be noted is only lost for the next start."""
        if self._folder is None:
            return
        content = {
            "tenant": owner.tenant,
            "conversation": owner.id,
            "incarnation": owner.incarnation,
            "limits": asdict(limits),
            "agent": loader.version(),
            "created": now(),
            "network": network,
        }
        try:
            await asyncio.to_thread(records.write, self._folder, sandbox_id, content)
        except OSError as error:
            log.warning("a sandbox could not be noted: a restart will not find it", cause=repr(error))

    async def forget(self, sandbox_id: str) -> None:
        """A sandbox has ended."""
        if self._folder is not None:
            path = self._folder / f"{sandbox_id}.json"
            with contextlib.suppress(OSError):
                await asyncio.to_thread(path.unlink, missing_ok=True)

    async def all(self) -> list[Assignment]:
        """What an earlier start noted, newest first. A note that cannot be read is left out and removed."""
        if self._folder is None:
            return []
        try:
            return await asyncio.to_thread(self._all, self._folder)
        except OSError as error:
            log.warning("the notes of the last start cannot be read", cause=repr(error))
            return []

    @staticmethod
    def _all(folder: Path) -> list[Assignment]:
        found: list[Assignment] = []

        def read(name: str, content: dict[str, Any]) -> bool:
            assignment = Assignment.read(name, content)
            if assignment is not None:
                found.append(assignment)
            return assignment is None

        records.sweep(folder, read)
        return sorted(found, key=lambda one: one.created, reverse=True)
