"""``run_in_sandbox``: a program of its own over the conversation's files, in Python or bash."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field, field_validator

from runner.conversations.output import StreamText
from runner.conversations.result import RunResult
from runner.errors import InvalidRequest
from runner.model import Outcome, RunRequest
from runner.tools import staging
from runner.tools.base import Arguments, Call, Deployment, Tool, ToolResult

_PREVIEW: Final = 4096  # characters of a stream that was too long


class ProgramArguments(Arguments):
    """Its arguments."""

    language: Literal["python", "bash"]
    code: str = Field(description="The program.")
    files: list[staging.TextFile] = Field(default_factory=list, max_length=64, description="Text to put beside it.")
    attachments: list[staging.Reference] = Field(
        default_factory=list, max_length=64, description="Files of the conversation to put beside it."
    )
    documents: list[staging.Document] = Field(
        default_factory=list, max_length=64, description="Canvas documents to put beside it."
    )
    fresh: bool = Field(False, description="Forget what python_execute has in its variables.")
    network: bool | None = Field(
        None,
        description="Whether the program reaches the hosts that the operator allows. A change costs variables.",
    )

    @field_validator("code")
    @classmethod
    def _not_blank(cls, code: str) -> str:
        if not code.strip():
            raise ValueError("must not be blank")
        return code


class RunInSandbox(Tool):
    """Each call is a new program; files stay."""

    name = "run_in_sandbox"
    arguments = ProgramArguments
    stateless = True

    def description(self, deployment: Deployment) -> str:
        """For the model; whether there is a network is part of it."""
        network = (
            "There is no network at all."
            if deployment.egress is False
            else "`network` says whether the hosts that the operator allows are reached; left out, as the conversation "
            "is set. To change it is to get a new sandbox: files stay, but variables of python_execute, installed "
            "packages and whatever still runs are lost (`interpreter_reason` network_changed)."
        )
        return (
            "Run a Python or bash program over the conversation's files. It starts in /workspace (also /work), where "
            "uploads/, downloads/ and outputs/ lie; write what the user is to get to outputs/. Files stay between "
            f"calls, variables do not. {network} A program that fails is a result with its exit code, not an error "
            "of this tool. Long output comes back as a preview and a reference for read_sandbox_output."
        )

    def schema(self, deployment: Deployment) -> dict[str, Any]:
        """Without ``network`` where it is proven that there is none."""
        found = super().schema(deployment)
        if deployment.egress is False:
            found["properties"].pop("network")
        return found

    async def run(self, call: Call, arguments: ProgramArguments) -> ToolResult:
        """Stage what is named, run the program, tell what it left."""
        if arguments.network and call.deployment.egress is False:
            raise InvalidRequest(f"network: there is none here: {call.deployment.egress_detail or 'leave it out'}")
        staged = await staging.stage(call, arguments.attachments, arguments.documents, arguments.files)
        if arguments.fresh and (known := await call.service.known(call.tenant, call.conversation)) is not None:
            async with known.held():
                await known.reset()
        result = await call.run(
            RunRequest(
                arguments.code,
                language=arguments.language,
                timeout_ms=call.service.limits.timeout_ms(None),
                script=arguments.language == "python",
                network=arguments.network,
            )
        )
        return ToolResult({**told(result), **staged.told()}, [*staged.files, *result.files])


def told(result: RunResult) -> dict[str, Any]:
    """A run in the words of this tool."""
    body: dict[str, Any] = {
        "execution_id": result.execution_id,
        "outcome": result.outcome.value,
        "exit_code": result.exit_code,
        "timed_out": result.outcome is Outcome.TIMEOUT,
        "output_truncated": result.stdout.truncated or result.stderr.truncated,
        "duration_ms": result.duration_ms,
        "stdout": _stream(result.stdout, result.execution_id, "stdout"),
        "stderr": _stream(result.stderr, result.execution_id, "stderr"),
        "version": result.version,
        "interpreter": result.interpreter.value,
        "interpreter_reason": result.interpreter_reason,
    }
    if result.error is not None:
        body["error"] = result.error
    made = [item for item in result.files if item.change != "deleted" and item.entry is not None]
    body["artifacts"] = [
        {"name": item.path.rpartition("/")[2], "id": item.path, "size": item.entry.size, "mime": item.media_type}
        for item in made
        if item.entry is not None
    ]
    if result.files_error is not None:
        body["files_error"] = result.files_error
    return body


def _stream(text: StreamText, execution_id: str, name: str) -> str | dict[str, Any]:
    """All of it, or a preview and how to read the rest."""
    if not text.truncated:
        return text.text
    body: dict[str, Any] = {"preview": text.cut(_PREVIEW).text, "truncated": True, "total_bytes": text.total}
    if text.full is not None:
        body["full_output_ref"] = f"{execution_id}/{name}.txt"
        body["note"] = "read more of it with read_sandbox_output and this reference as `id`"
    return body
