"""``read_sandbox_output``: looks into the whole output of an earlier run without loading all of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final, Literal

from pydantic import AliasChoices, Field

from runner.errors import InvalidRequest, NotFound, ToolFailed
from runner.model import RunRequest
from runner.tools.base import Arguments, Call, Deployment, Tool, ToolResult

_REFERENCE: Final = re.compile(r"(?:execution:)?([0-9a-f]{32})/(stdout|stderr)(?:\.txt)?")
_GREP_MS: Final = 10_000
_REPLY: Final = "\x1egrep:"
# An expression may take for ever, so it is tried inside the sandbox, where that costs nobody else anything.
_CODE: Final = """
import json, re, sys
lines = sys.stdin.buffer.read().decode("utf-8", "replace").splitlines()
try:
    wanted = re.compile({query!r})
except re.error as error:
    found = dict(error=str(error))
else:
    hits = [number for number, line in enumerate(lines, 1) if wanted.search(line)]
    found = dict(count=len(hits), lines=hits[:{limit}])
print({reply!r} + json.dumps(found))
"""


class ReadArguments(Arguments):
    """Its arguments. Limits are clamped, not refused."""

    id: str = Field(
        validation_alias=AliasChoices("id", "path"),
        description="`full_output_ref` of a result: <execution id>/stdout.txt or …/stderr.txt.",
    )
    action: Literal["grep", "head", "tail", "range"] = "head"
    query: str | None = Field(None, max_length=1000, description="Regular expression; needed for grep.")
    start_line: int | None = Field(None, description="Of range; the first line is 1.")
    end_line: int | None = None
    limit: int = Field(200, description="Lines, 1 to 2000.")
    max_bytes: int = Field(16384, description="Of the answer, 256 to 65536.")


class ReadSandboxOutput(Tool):
    """Head, tail, a range of lines, or those that match."""

    name = "read_sandbox_output"
    arguments = ReadArguments

    def description(self, deployment: Deployment) -> str:
        """For the model."""
        return (
            "Look into long output of an earlier run of this conversation without loading all of it: its first or "
            "last lines, a range of lines, or the lines that match a regular expression. Lines are numbered."
        )

    async def run(self, call: Call, arguments: ReadArguments) -> ToolResult:
        """Read the stream, then choose lines of it."""
        match = _REFERENCE.fullmatch(arguments.id.strip())
        if match is None:
            raise InvalidRequest("id: write the `full_output_ref` of a result, <execution id>/stdout.txt")
        if arguments.action == "grep" and not arguments.query:
            raise InvalidRequest("query: grep needs a regular expression to look for")
        content = await _stream(call, match[1], match[2])
        lines = content.decode("utf-8", "replace").splitlines()
        limit = min(2000, max(1, arguments.limit))
        numbers: Iterable[int] = _chosen(arguments, len(lines), limit)
        matched: int | None = None
        if arguments.action == "grep":
            numbers, matched = await _grep(call, content, arguments.query or "", limit)
        shown, content_text = _numbered(lines, numbers, min(65536, max(256, arguments.max_bytes)))
        wanted = matched if matched is not None else _wanted(arguments, len(lines))
        return ToolResult({
            "total_lines": len(lines),
            "returned_lines": shown,
            "matched_lines": matched,
            "more_available": shown < wanted,
            "content": content_text,
        })  # fmt: skip


async def _stream(call: Call, execution_id: str, name: str) -> bytes:
    """The whole stream where it is kept, else what the result holds. Raises NotFound."""
    running = await call.service.execution(call.tenant, call.conversation, execution_id)
    result = running.log.ended_with
    if result is None:
        raise NotFound("the run has not ended yet")
    text = result.stdout if name == "stdout" else result.stderr
    if text.full is None or not text.full.kept:
        return text.text.encode("utf-8", "replace")
    _, stream = await call.service.execution_blob(call.tenant, call.conversation, execution_id, name, None)
    try:
        return b"".join([chunk async for chunk in stream])
    finally:
        await stream.aclose()


def _chosen(arguments: ReadArguments, total: int, limit: int) -> Iterable[int]:
    if arguments.action == "tail":
        return range(max(1, total - limit + 1), total + 1)
    start = max(1, arguments.start_line or 1) if arguments.action == "range" else 1
    end = total if arguments.action == "head" or arguments.end_line is None else min(total, arguments.end_line)
    return range(start, min(end, start + limit - 1) + 1)


def _wanted(arguments: ReadArguments, total: int) -> int:
    """Lines that there would be without a limit."""
    if arguments.action != "range":
        return total
    start = max(1, arguments.start_line or 1)
    return max(0, (total if arguments.end_line is None else min(total, arguments.end_line)) - start + 1)


def _numbered(lines: list[str], numbers: Iterable[int], max_bytes: int) -> tuple[int, str]:
    """Lines with their numbers, within ``max_bytes``; a first line that is longer is given all the same."""
    shown: list[str] = []
    size = 0
    for number in numbers:
        line = f"{number}: {lines[number - 1]}"
        size += len(line.encode("utf-8", "replace")) + 1
        if shown and size > max_bytes:
            break
        shown.append(line)
    return len(shown), "\n".join(shown)


async def _grep(call: Call, content: bytes, query: str, limit: int) -> tuple[list[int], int]:
    """Numbers of the first lines that match, and how many match. Raises InvalidRequest for what is no expression."""
    piece = content[: call.service.limits.max_stdin_bytes]
    code = _CODE.format(query=query, limit=limit, reply=_REPLY)
    timeout_ms = call.service.limits.timeout_ms(_GREP_MS)
    result = await call.run(RunRequest(code, timeout_ms=timeout_ms, fresh=True, stdin=piece))
    before, reply, answer = result.stdout.text.rpartition(_REPLY)
    if not reply or before:
        raise ToolFailed("the search did not end in time: write a simpler expression", cause=repr(result.error))
    found = _answer(answer)
    if "error" in found:
        raise InvalidRequest(f"query: this is no regular expression: {str(found['error'])[:200]}")
    numbers = [number for number in found["lines"] if isinstance(number, int) and number >= 1]
    most = content.count(b"\n") + 1
    return [number for number in numbers if number <= most], int(found["count"])


def _answer(text: str) -> dict[str, Any]:
    """What the sandbox said: untrusted, so its shape is checked. Raises ToolFailed."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    usable = isinstance(found, dict) and ("error" in found or isinstance(found.get("lines"), list))
    if not usable or not ("error" in found or isinstance(found.get("count"), int)):
        raise ToolFailed("the search did not end as it should")
    return dict(found)
