"""From a run that has ended to the body of ``/exec``, and files as base64 inside JSON, streamed where large."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from typing import Any, Final

from starlette.background import BackgroundTask
from starlette.responses import Response, StreamingResponse

from runner.api.base64_stream import encoded
from runner.api.encoding import Json, encode
from runner.conversations.result import Artifact
from runner.model import FileEntry, Outcome
from runner.sessions import streams
from runner.sessions.artifacts import Skipped
from runner.sessions.runs import Done
from runner.workspace.base import ByteStream
from runner.workspace.history import Workspace

_AT_ONCE: Final = 1 << 20  # what is smaller is sent whole
_MARK: Final = "\x00"  # in no name and no path: where a file's base64 goes


def ran(done: Done, limit: int) -> dict[str, Any]:
    """The body of ``/exec`` with holes where files go."""
    result = done.result
    return {
        "stdout": streams.stdout(result, limit),
        "stderr": streams.stderr(result, done.timeout_ms, limit, *done.notes),
        "exit_code": streams.exit_code(result),
        "files": [_file(item) for item in done.collected.taken],
        "skipped_files": [_skipped(item) for item in done.collected.skipped],
        "outcome": result.outcome.value,
        "timed_out": result.outcome is Outcome.TIMEOUT,
        "oom": result.outcome is Outcome.OOM,
        "signal": result.signal,
        "duration_ms": result.duration_ms,
        "peak_memory_bytes": result.peak_memory_bytes,
        "interpreter": result.interpreter.value,
        "interpreter_reason": result.interpreter_reason,
        "execution_id": result.execution_id,
        "version": result.version,
        "results": result.results,
        "error": result.error,
        "stdout_truncated": result.stdout.truncated,
        "stderr_truncated": result.stderr.truncated,
    }


def _file(item: Artifact) -> dict[str, Any]:
    assert item.entry is not None
    return {
        "name": item.path.rpartition("/")[2],
        "mime_type": item.media_type,
        "data_base64": _MARK,
        "path": item.path,
        "size": item.entry.size,
        "sha256": item.entry.sha256,
        "change": item.change,
    }


def _skipped(item: Skipped) -> dict[str, Any]:
    entry = item.entry
    return {"path": entry.path, "size": entry.size, "sha256": entry.sha256, "reason": item.reason}


async def with_files(body: dict[str, Any], workspace: Workspace, entries: Sequence[FileEntry]) -> Response:
    """A body with its holes filled in the order of ``entries``."""
    if not entries:
        return Json(body)
    parts = _apart(body)
    sizes = [-(-entry.size // 3) * 4 + 2 for entry in entries]
    pieces = _joined(parts, workspace, entries)
    length = str(sum(map(len, parts)) + sum(sizes))
    if sum(sizes) <= _AT_ONCE:
        return Response(b"".join([piece async for piece in pieces]), media_type="application/json")
    return StreamingResponse(pieces, headers={"Content-Length": length}, media_type="application/json")


def _apart(body: dict[str, Any]) -> list[bytes]:
    """A body cut at its holes."""
    files = [encode(item).split(encode(_MARK), 1) for item in body["files"]]
    rest = {name: value for name, value in body.items() if name != "files"}
    return list(_stitched(files, encode(rest)))


def _stitched(files: list[list[bytes]], rest: bytes) -> Iterator[bytes]:
    before = b'{"files":['
    for number, (head, tail) in enumerate(files):
        yield before + head
        before = tail + (b"," if number + 1 < len(files) else b"")
    yield before + b"]," + rest[1:]


async def _joined(parts: list[bytes], workspace: Workspace, entries: Sequence[FileEntry]) -> AsyncIterator[bytes]:
    for part, entry in zip(parts, entries, strict=False):
        yield part + b'"'
        async with aclosing(await workspace.open(entry)) as stream:
            async for piece in encoded(stream):
                yield piece
        yield b'"'
    yield parts[-1]


async def content(entry: FileEntry, stream: ByteStream) -> Response:
    """The body of ``/files/get``: never whole in memory where it is large."""
    head, tail = b'{"data_base64":"', b'"}'
    length = len(head) + len(tail) + -(-entry.size // 3) * 4

    async def pieces() -> AsyncIterator[bytes]:
        yield head
        async with aclosing(stream):
            async for piece in encoded(stream):
                yield piece
        yield tail

    if length <= _AT_ONCE:
        return Response(b"".join([piece async for piece in pieces()]), media_type="application/json")
    return StreamingResponse(
        pieces(), headers={"Content-Length": str(length)}, media_type="application/json",
        background=BackgroundTask(stream.aclose),
    )  # fmt: skip
