"""``read_sandbox_output``: looks into the whole output of an earlier run without loading all of it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import AliasChoices, Field

from runner.errors import InvalidRequest, NotFound, ToolFailed
from runner.tools.base import Arguments, Call, Deployment, Tool, ToolResult
from runner.tools.lines import Lines

_REFERENCE: Final = re.compile(r"(?:execution:)?([0-9a-f]{32})/(stdout|stderr)(?:\.txt)?")
_GREP_MS: Final = 10_000
_REPLY: Final = "\x1egrep:"
# An expression may take for ever, so it is tried inside the sandbox, where that costs nobody else anything.
_CODE: Final = """
import json, re, sys
try:
    wanted = re.compile({query!r})
except re.error as error:
    found = dict(error=str(error))
else:
    count, hits, first, given = 0, [], 1, sys.stdin.buffer
    while part := given.read(1 << 20) + given.readline():
        lines = part.decode("utf-8", "replace").removesuffix("\\n").split("\\n")
        if b"\\r" in part:
            lines = [line.removesuffix("\\r") for line in lines]
        match = [number for number, line in enumerate(lines, first) if wanted.search(line)]
        count, first = count + len(match), first + len(lines)
        hits += match[: {limit} - len(hits)]
    found = dict(count=count, lines=hits)
print({reply!r} + json.dumps(found))
"""


class ReadArguments(Arguments):
    """Its arguments. Limits are clamped, not refused."""

    either = ("id", "path")
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
        """Read the stream, then choose lines of it; beside the event loop, as it may be long."""
        match = _REFERENCE.fullmatch(arguments.id.strip())
        if match is None:
            raise InvalidRequest("id: write the `full_output_ref` of a result, <execution id>/stdout.txt")
        if arguments.action != "grep":
            async with call.gate.reading():
                stream = await _stream(call, match[1], match[2])
                return ToolResult(await asyncio.to_thread(_told, stream, arguments))
        if not arguments.query:
            raise InvalidRequest("query: grep needs a regular expression to look for")
        async with call.gate.searching(call.tenant):
            async with call.gate.reading():
                stream = (await _stream(call, match[1], match[2])).first(call.service.limits.max_stdin_bytes)
            found = await _grep(call, stream.content, arguments.query, _limit(arguments))
            return ToolResult(await asyncio.to_thread(_told, stream, arguments, found))


@dataclass(frozen=True, slots=True)
class _Stream:
    """What there is of a stream that had ``total`` bytes; ``whole``: all of it."""

    content: bytes
    total: int
    whole: bool

    def first(self, most: int) -> _Stream:
        """At most so much of it."""
        return self if len(self.content) <= most else _Stream(self.content[:most], self.total, False)


@dataclass(frozen=True, slots=True)
class _Found:
    """Numbers of the first lines that match, and how many match: as the sandbox says."""

    numbers: list[int]
    count: int


async def _stream(call: Call, execution_id: str, name: str) -> _Stream:
    """All that is kept of it, else what the result holds. Raises NotFound."""
    running = await call.service.execution(call.tenant, call.conversation, execution_id)
    result = running.log.ended_with
    if result is None:
        raise NotFound("the run has not ended yet")
    text = result.stdout if name == "stdout" else result.stderr
    if text.full is None or not text.full.kept:
        return _Stream(text.text.encode("utf-8", "replace"), text.total, not text.truncated)
    _, stream = await call.service.execution_blob(call.tenant, call.conversation, execution_id, name, None)
    try:
        content = b"".join([chunk async for chunk in stream])
    finally:
        await stream.aclose()
    return _Stream(content, text.total, len(content) >= text.total)


def _limit(arguments: ReadArguments) -> int:
    return min(2000, max(1, arguments.limit))


def _told(stream: _Stream, arguments: ReadArguments, found: _Found | None = None) -> dict[str, Any]:
    """The lines that were asked for. Where the stream is not whole, that is told in fields and at the text's end."""
    lines, most, note = Lines(stream.content), min(65536, max(256, arguments.max_bytes)), ""
    if not stream.whole:
        note = f"[{len(stream.content)} of {stream.total} bytes of this output are kept and were looked at]"
        most -= len(note) + 1
    numbers = _chosen(arguments, lines.total, _limit(arguments)) if found is None else found.numbers
    shown = lines.shown(numbers, most)
    matched = None if found is None else max(shown.count, min(found.count, lines.total))
    wanted = _wanted(arguments, lines.total) if matched is None else matched
    body: dict[str, Any] = {
        "total_lines": lines.total,
        "returned_lines": shown.count,
        "matched_lines": matched,
        "more_available": shown.cut or shown.count < wanted,
        "truncated": not stream.whole,
        "content": "\n".join(part for part in (shown.text, note) if part),
    }
    return body if stream.whole else {**body, "searched_bytes": len(stream.content), "total_bytes": stream.total}


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


async def _grep(call: Call, content: bytes, query: str, limit: int) -> _Found:
    """Have the sandbox look. Raises InvalidRequest for what is no expression."""
    result = await call.run_own(_CODE.format(query=query, limit=limit, reply=_REPLY), _GREP_MS, content)
    before, reply, answer = result.stdout.text.rpartition(_REPLY)
    if not reply or before:
        raise ToolFailed("the search did not end in time: write a simpler expression", cause=repr(result.error))
    found = _answer(answer)
    if "error" in found:
        raise InvalidRequest(f"query: this is no regular expression: {str(found['error'])[:200]}")
    numbers = {number for number in found["lines"][:limit] if type(number) is int}
    return _Found(sorted(numbers), int(found["count"]))


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
