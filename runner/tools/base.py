"""What a tool is, and what it is given: the contract that every tool here keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, model_validator

from runner.conversations.result import Artifact, RunResult
from runner.conversations.service import ConversationService
from runner.egress.client import Client
from runner.egress.config import FetchConfig
from runner.model import Outcome, RunRequest
from runner.tools.gate import Gate
from runner.tools.schema import schema_of

MAX_NAME: Final = 64


class Shape(BaseModel):
    """What a call brings. Unknown names are errors; ``either``: two names of one argument, of which one is written."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    either: ClassVar[tuple[str, str] | None] = None

    @model_validator(mode="before")
    @classmethod
    def _one_of_both(cls, given: Any) -> Any:
        if cls.either is None or not isinstance(given, Mapping) or not all(name in given for name in cls.either):
            return given
        name, other = cls.either
        if given[name] != given[other]:
            raise ValueError(f"`{name}` and `{other}` mean the same: write `{name}` alone")
        return {key: value for key, value in given.items() if key != other}


class Arguments(Shape):
    """Arguments of a tool. Numbers and switches that a model wrote as text are read."""


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
    """Whom a tool works for. ``upload_bytes``: the most that one file may have. ``stored``: files that are durable
    already, told also where the rest of the call fails.
    """

    service: ConversationService
    client: Client
    deployment: Deployment
    tenant: str
    conversation: str
    upload_bytes: int
    gate: Gate = field(default_factory=Gate)
    stored: list[Artifact] = field(default_factory=list)

    async def run(self, request: RunRequest) -> RunResult:
        """A run in the conversation, to its end. Raises what refuses it."""
        running = await self.service.begin(self.tenant, self.conversation, request, announced=False)
        return await running.result()

    async def run_own(self, code: str, timeout_ms: int | None = None, stdin: bytes | None = None) -> RunResult:
        """A program of the tool's own, in whichever sandbox the conversation has: it changes nothing about that."""
        timeout_ms = self.service.limits.timeout_ms(timeout_ms)
        return await self.run(RunRequest(code, timeout_ms=timeout_ms, fresh=True, stdin=stdin, network="keep"))

    async def made(self, result: RunResult, path: str) -> Artifact | None:
        """The file that a run was to write; None where it did not. The same bytes as before are no change."""
        found = next((item for item in result.files if item.path == path and item.entry is not None), None)
        if found is not None or result.outcome is not Outcome.OK or result.files_error is not None:
            return found
        entry = (await self.service.find(self.tenant, self.conversation)).workspace.files.get(path)
        return None if entry is None else Artifact(path, "modified", entry)


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
