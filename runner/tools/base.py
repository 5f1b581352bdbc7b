"""What a tool is, and what it is given: the contract that every tool here keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict

from runner.conversations.result import Artifact, RunResult
from runner.conversations.service import ConversationService
from runner.egress.client import Client
from runner.egress.config import FetchConfig
from runner.model import RunRequest
from runner.tools.schema import schema_of

MAX_NAME: Final = 64


class Arguments(BaseModel):
    """Arguments of a tool. Unknown ones are errors; numbers and switches that a model wrote as text are read."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class NoArguments(Arguments):
    """For tools that take none."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a deployment can do, as it was when the service started. ``egress`` is None while nobody knows."""

    egress: bool | None = False
    egress_detail: str = ""
    fetch: FetchConfig = field(default_factory=FetchConfig)


@dataclass(frozen=True, slots=True)
class Absence:
    """Why a tool is not offered, and the setting that would change that (empty: none would)."""

    reason: str
    setting: str


@dataclass(frozen=True, slots=True)
class Call:
    """Whom a tool works for. ``upload_bytes``: the most that one file may have."""

    service: ConversationService
    client: Client
    deployment: Deployment
    tenant: str
    conversation: str
    upload_bytes: int

    async def run(self, request: RunRequest) -> RunResult:
        """A run in the conversation, to its end. Raises what refuses it."""
        running = await self.service.begin(self.tenant, self.conversation, request, announced=False)
        return await running.result()


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gives. ``files`` are those that it made or changed; a ``run`` is told in full."""

    body: Mapping[str, Any] = field(default_factory=dict)
    files: list[Artifact] = field(default_factory=list)
    run: RunResult | None = None


class Tool:
    """One tool. ``stateless``: it needs nothing that a conversation holds. ``aliases`` are other names for calls."""

    name: ClassVar[str]
    arguments: ClassVar[type[Arguments]]
    stateless: ClassVar[bool] = False
    aliases: ClassVar[tuple[str, ...]] = ()

    def description(self, deployment: Deployment) -> str:
        """What a model is told of it."""
        raise NotImplementedError

    def schema(self, deployment: Deployment) -> dict[str, Any]:
        """JSON schema of the arguments, with nothing in it that this deployment would refuse."""
        return schema_of(self.arguments)

    def absent(self, deployment: Deployment) -> Absence | None:
        """Why it cannot be served here; None where it can."""
        return None

    async def run(self, call: Call, arguments: Any) -> ToolResult:
        """Do it; ``arguments`` are an instance of the tool's model. Raises errors of the tree."""
        raise NotImplementedError
