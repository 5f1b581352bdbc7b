"""The tools that this deployment can serve: decided once, when the service starts, and then the same for its life."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from runner.errors import ToolUnavailable, UnknownTool
from runner.tools.attachments import ListAttachments, ZipAttachments
from runner.tools.base import Absence, Deployment, Tool
from runner.tools.fetch import FetchFile, FetchImage
from runner.tools.gate import Gate
from runner.tools.planned import PLANNED
from runner.tools.python_execute import PythonExecute
from runner.tools.read_output import ReadSandboxOutput
from runner.tools.run_in_sandbox import RunInSandbox

TOOLS: Final[tuple[Tool, ...]] = (
    PythonExecute(),
    RunInSandbox(),
    ReadSandboxOutput(),
    FetchImage(),
    FetchFile(),
    ListAttachments(),
    ZipAttachments(),
)
_PREAMBLE: Final = """\
## Available tools
To call a tool, write EXACTLY this and then STOP:

<tool_call>{"name": "<tool>", "arguments": <args>}</tool_call>

- Stop after `</tool_call>`: write nothing more, and never make up a result.
- A `<tool_result>` block follows in the next message; go on from there.
- Do not repeat a call with the same arguments. Answer as soon as what you know is enough.
- If no tool is needed, just answer.

Tools:
"""


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool as it is offered."""

    name: str
    description: str
    schema: dict[str, Any]
    stateless: bool


class Catalogue:
    """What is offered, what is not, and why."""

    def __init__(self, deployment: Deployment, tools: Sequence[Tool] = TOOLS) -> None:
        self.deployment = deployment
        self.gate = Gate()
        absent = {tool.name: tool.absent(deployment) for tool in tools}
        self._aliases = {alias: tool.name for tool in tools for alias in tool.aliases}
        self._tools = {tool.name: tool for tool in tools if absent[tool.name] is None}
        self.absent: dict[str, Absence] = {name: why for name, why in absent.items() if why is not None} | PLANNED
        self.offers = tuple(
            Offer(tool.name, tool.description(deployment), tool.schema(deployment), tool.stateless)
            for tool in self._tools.values()
        )

    @property
    def names(self) -> list[str]:
        """Names of the tools that are offered."""
        return list(self._tools)

    def find(self, name: str) -> Tool:
        """A tool that is offered. Raises ToolUnavailable and UnknownTool, which say what to change."""
        name = self._aliases.get(name, name)
        if name in self._tools:
            return self._tools[name]
        known = ", ".join(self._tools)
        if (why := self.absent.get(name)) is not None:
            change = f"set {why.setting}" if why.setting else "use another"
            fields = {"setting": why.setting} if why.setting else {}
            raise ToolUnavailable(f"{name}: {why.reason}; {change}. Offered are {known}", known=self.names, **fields)
        raise UnknownTool(f"there is no tool {name[:80]!a}; there are {known}", known=self.names)

    def listed(self, form: str, *, stateless: bool = False, unavailable: bool = False) -> dict[str, Any]:
        """The catalogue in the shape of ``native``, ``openai``, ``anthropic`` or ``mcp``."""
        offers = [offer for offer in self.offers if offer.stateless or not stateless]
        body: dict[str, Any] = {"tools": [_FORMS[form](offer) for offer in offers]}
        if unavailable:
            body["unavailable"] = [
                {"name": name, "reason": why.reason, "setting": why.setting or None}
                for name, why in self.absent.items()
            ]
        return body

    def prompt(self, *, stateless: bool = False) -> str:
        """The catalogue as text, for models that are told of tools in their system prompt."""
        parts = [_PREAMBLE]
        for offer in self.offers:
            if offer.stateless or not stateless:
                schema = json.dumps(offer.schema, ensure_ascii=False, separators=(",", ":"))
                parts.append(f"### {offer.name}\n{offer.description}\nInput schema: {schema}\n")
        return "\n".join(parts)


def _native(offer: Offer) -> dict[str, Any]:
    return {
        "name": offer.name,
        "description": offer.description,
        "input_schema": offer.schema,
        "stateless": offer.stateless,
    }


def _openai(offer: Offer) -> dict[str, Any]:
    function = {"name": offer.name, "description": offer.description, "parameters": offer.schema}
    return {"type": "function", "function": function}


def _anthropic(offer: Offer) -> dict[str, Any]:
    return {"name": offer.name, "description": offer.description, "input_schema": offer.schema}


def _mcp(offer: Offer) -> dict[str, Any]:
    return {"name": offer.name, "description": offer.description, "inputSchema": offer.schema}


_FORMS: Final = {"native": _native, "openai": _openai, "anthropic": _anthropic, "mcp": _mcp}
