"""``python_execute``: a cell in the conversation's persistent Python."""

from __future__ import annotations

from pydantic import Field

from runner.model import RunRequest
from runner.tools.base import Arguments, Call, Deployment, Tool, ToolResult


class PythonArguments(Arguments):
    """Its arguments."""

    code: str = Field(min_length=1, description="Python source; what the last expression gives is shown.")


class PythonExecute(Tool):
    """Variables and files live on between calls."""

    name = "python_execute"
    arguments = PythonArguments
    stateless = True

    def description(self, deployment: Deployment) -> str:
        """For the model."""
        network = "" if deployment.egress is not False else " There is no network."
        fetched = ", files fetched from the web in /workspace/downloads" if deployment.fetch.enabled else ""
        return (
            "Run Python in this conversation's sandbox: calculations, data, plots, images, spreadsheets, and reading, "
            "editing and making PDF, Word, PowerPoint and Excel files. Variables and files stay between calls and "
            f"turns. Uploaded originals lie unchanged in /workspace/uploads{fetched}. Write what the user is to get "
            "to /workspace/outputs, and name it by its file name, never as a link or path. Standard output, errors, "
            f"the last expression and open figures come back.{network}"
        )

    async def run(self, call: Call, arguments: PythonArguments) -> ToolResult:
        """Run the cell."""
        result = await call.run(RunRequest(arguments.code, timeout_ms=call.service.limits.timeout_ms(None)))
        return ToolResult(files=result.files, run=result)
