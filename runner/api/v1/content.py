"""Sends a file: whole or in part, for saving or for showing, with headers that keep a browser from running it."""

from __future__ import annotations

from typing import Final, Literal

from fastapi import Request
from starlette.background import BackgroundTask
from starlette.responses import Response, StreamingResponse

from runner.api import conditions
from runner.api.v1.translate import content_disposition
from runner.conversations.result import media_type
from runner.errors import NotFound, PreconditionFailed
from runner.model import FileEntry
from runner.workspace.history import Workspace
from runner.workspace.paths import shown

Disposition = Literal["attachment", "inline"]
BYTES: Final = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_POLICY: Final = "sandbox; default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'"
_SHOWN: Final = frozenset(
    "application/pdf audio/flac audio/mp4 audio/mpeg audio/ogg audio/wav audio/x-wav image/avif image/bmp image/gif"
    " image/jpeg image/png image/webp text/csv text/markdown text/plain video/mp4 video/ogg video/webm".split()
)


async def entry_at(workspace: Workspace, path: str, version: int | None) -> FileEntry:
    """The file at a path, now or in a version. Raises NotFound."""
    if version is None:
        files, links = workspace.files, workspace.links
    else:
        manifest = await workspace.manifest(version)
        files, links = manifest.files, manifest.links
    entry = files.get(path)
    if entry is None:
        place = "this conversation" if version is None else f"version {version}"
        if path in links:
            target = shown(links[path])
            raise NotFound(f"{shown(path)} is a symbolic link to {target}: links are not followed, get the file itself")
        if any(name.startswith(path + "/") for name in files):
            raise NotFound(f"{shown(path)} is a folder: GET …/files?prefix= lists it, GET …/archive?prefix= packs it")
        raise NotFound(f"there is no file {shown(path)} in {place}: list them with GET …/files")
    return entry


async def send_file(request: Request, workspace: Workspace, entry: FileEntry, disposition: Disposition) -> Response:
    """A file's bytes, or its headers for HEAD. Honours ``Range``, ``If-Range``, ``If-Match``, ``If-None-Match``.

    ``inline`` holds for types that cannot run anything; others are attachments whatever was asked for.
    """
    kind = media_type(entry.path)
    shown_inline = disposition == "inline" and kind in _SHOWN
    headers = {
        "ETag": conditions.etag(entry.sha256),
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
        "Content-Disposition": content_disposition(entry.path, "inline" if shown_inline else "attachment"),
        "Content-Security-Policy": _POLICY,
    }
    asked = conditions.of(request.headers)
    if "if-match" in asked and not conditions.matches(asked["if-match"], entry.sha256):
        raise PreconditionFailed(f"{shown(entry.path)} has another content by now", sha256=entry.sha256)
    if conditions.matches(asked.get("if-none-match"), entry.sha256):
        return Response(status_code=304, headers=headers)
    if request.method == "HEAD":  # for which ranges mean nothing
        headers["Content-Length"] = str(entry.size)
        return Response(status_code=200, headers=headers, media_type=kind)
    start, end, partial = conditions.byte_range(asked, entry.size, entry.sha256)
    headers["Content-Length"] = str(end - start)
    if partial:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{entry.size}"
    status = 206 if partial else 200
    stream = await workspace.open(entry, start, end)
    return StreamingResponse(stream, status, headers, kind, BackgroundTask(stream.aclose))
