"""Routes of files: raw bytes in and out, streamed, with ranges and conditions; listing by prefix."""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import unquote, unquote_to_bytes

from fastapi import APIRouter, Query, Request
from starlette.background import BackgroundTask
from starlette.convertors import Convertor, register_url_convertor
from starlette.responses import JSONResponse, Response, StreamingResponse

from runner.api.auth import Tenant
from runner.api.v1 import schemas, translate
from runner.api.v1.conversations import PLAIN_ID, raw_segments, service
from runner.conversations.result import media_type
from runner.errors import (
    Conflict,
    InvalidPath,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    RangeNotSatisfiable,
    TooLarge,
)
from runner.model import FileEntry
from runner.workspace import paths


class AnyPath(Convertor[str]):
    """A path whose names may hold anything, newlines included; the route itself reads the raw bytes."""

    regex = r"(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("anypath", AnyPath())
router = APIRouter(prefix="/v1/conversations", tags=["files"], dependencies=[PLAIN_ID])
_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_FOLDERS = frozenset(("uploads", "downloads", "skills", "outputs"))  # every workspace has them
_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")


@router.get("/{id}/files", response_model=schemas.FileList)
async def list_files(
    request: Request,
    tenant: Tenant,
    id: str,
    prefix: Annotated[str, Query(max_length=4096, description="A folder, like outputs/.")] = "",
    after: Annotated[str | None, Query(max_length=4096)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> dict[str, Any]:
    """Files of the workspace as they are now, uploads included."""
    workspace = (await service(request).find(tenant, id)).workspace
    folder = paths.normalise_prefix(prefix)
    names = sorted(name for name in workspace.files if name.startswith(folder) and (after is None or name > after))
    page = names[:limit]
    return {
        "files": [translate.file(workspace.files[name]) for name in page],
        "next": page[-1] if len(names) > limit else None,
        "version": workspace.version,
    }


@router.put(
    "/{id}/files/{path:anypath}",
    responses={201: {"model": schemas.FileOut}, 200: {"model": schemas.FileOut}},
    openapi_extra={"requestBody": {"content": _BYTES, "required": True}},
)
async def put_file(request: Request, tenant: Tenant, id: str, path: str) -> JSONResponse:
    """Store the body under a path (the conversation is made if need be); durable when this answers.

    ``If-None-Match: *`` refuses to replace, ``If-Match: "<sha256>"`` replaces only that content.
    """
    name = paths.normalise(_path(request))
    if name in _FOLDERS:
        raise Conflict(f"{name} is a folder of every workspace: name a file in it, such as {name}/report.pdf")
    limit: int = request.app.state.api_config.max_upload_bytes
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise TooLarge(f"a file may have {limit} bytes; split it, or raise SANDBOX_MAX_UPLOAD_BYTES", limit=limit)
    if_match, if_absent = _conditions(request)
    workspace = (await service(request).ensure(tenant, id))[0].workspace
    existed = name in workspace.files
    async with workspace.stage(limit) as staging:
        async for chunk in request.stream():
            if chunk:
                await staging.write(chunk)
        entry = await workspace.put(name, staging, if_absent=if_absent, if_match=if_match)
    return JSONResponse(translate.file(entry), 200 if existed else 201, {"ETag": _etag(entry)})


@router.get("/{id}/files/{path:anypath}", responses={200: {"content": _BYTES}, 206: {"content": _BYTES}})
@router.head("/{id}/files/{path:anypath}")
async def get_file(request: Request, tenant: Tenant, id: str, path: str) -> Response:
    """A file's bytes; ``Range`` and ``If-None-Match`` are honoured. HEAD gives the headers alone."""
    workspace = (await service(request).find(tenant, id)).workspace
    name = paths.normalise(_path(request))
    entry = workspace.files.get(name)
    if entry is None:
        raise NotFound(f"there is no file {name!r} in this conversation: list them with GET …/files")
    headers = {
        "ETag": _etag(entry),
        "Accept-Ranges": "bytes",
        "Content-Disposition": translate.content_disposition(name),
        "Content-Security-Policy": "sandbox",
    }
    if _matches(request.headers.get("if-none-match"), entry):
        return Response(status_code=304, headers=headers)
    start, end, partial = _range(request, entry)
    headers["Content-Length"] = str(end - start)
    if partial:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{entry.size}"
    status = 206 if partial else 200
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers, media_type=media_type(name))
    stream = await workspace.open(entry, start, end)
    return StreamingResponse(stream, status, headers, media_type(name), BackgroundTask(stream.aclose))


@router.delete("/{id}/files/{path:anypath}", status_code=204)
async def delete_file(request: Request, tenant: Tenant, id: str, path: str) -> Response:
    """Delete a file. ``If-Match`` deletes only that content."""
    workspace = (await service(request).find(tenant, id)).workspace
    if_match, _ = _conditions(request)
    await workspace.delete(paths.normalise(_path(request)), if_match=if_match)
    return Response(status_code=204)


def _path(request: Request) -> str:
    """The path as sent: decoded strictly, so that broken UTF-8 is an error and not another name."""
    segments = raw_segments(request, 6)
    encoded = segments[5] if len(segments) == 6 else ""
    if len(segments) != 6 or unquote(segments[4]) != "files" or unquote(encoded) != request.path_params["path"]:
        raise InvalidRequest("the address is ambiguous: write …/conversations/<id>/files/ with its slashes as they are")
    try:
        return unquote_to_bytes(encoded).decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidPath("the path is not UTF-8: percent-encode the UTF-8 bytes of each name") from None


def _etag(entry: FileEntry) -> str:
    return f'"{entry.sha256}"'


def _matches(header: str | None, entry: FileEntry) -> bool:
    if header is None:
        return False
    tags = {tag.strip().removeprefix("W/") for tag in header.split(",")}
    return "*" in tags or _etag(entry) in tags


def _conditions(request: Request) -> tuple[str | None, bool]:
    """``If-Match`` as a hash or ``*``, and whether the file must not exist yet."""
    none_match = request.headers.get("if-none-match")
    if none_match is not None and none_match.strip() != "*":
        raise InvalidRequest("If-None-Match: only * is understood here, to refuse replacing a file")
    match = request.headers.get("if-match")
    if match is None:
        return None, none_match is not None
    tag = match.strip()
    if tag == "*":
        return "*", none_match is not None
    if not re.fullmatch(r'"[0-9a-f]{64}"', tag):
        raise PreconditionFailed("If-Match must be one ETag of this service, or *")
    return tag.strip('"'), none_match is not None


def _range(request: Request, entry: FileEntry) -> tuple[int, int, bool]:
    """First byte, end (exclusive), and whether that is a part. Only single byte ranges are served as parts."""
    match = _RANGE.fullmatch(request.headers.get("range", "").strip())
    guard = request.headers.get("if-range")
    if match is None or match.groups() == ("", "") or (guard is not None and guard != _etag(entry)):
        return 0, entry.size, False
    first, last = match.groups()
    start = int(first) if first else max(0, entry.size - int(last))
    end = min(entry.size, int(last) + 1) if first and last else entry.size
    if start >= end or (not first and int(last) == 0):
        raise RangeNotSatisfiable(f"the file has {entry.size} bytes", size=entry.size)
    return start, end, True
