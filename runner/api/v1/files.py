"""Routes of single files: raw bytes in and out, streamed, with ranges and conditions; listing by prefix."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse, Response

from runner.api import conditions
from runner.api.auth import Tenant, upload_limit, upload_too_large
from runner.api.problems import problems, reads
from runner.api.v1 import listing, schemas, translate
from runner.api.v1.content import BYTES, Disposition, entry_at, send_file
from runner.api.v1.routing import PLAIN_ID, StrictRoute, check_no_standing_folder, file_path, service
from runner.errors import InvalidRequest, TooLarge, UnsupportedMedia
from runner.workspace import paths
from runner.workspace.aside import aside
from runner.workspace.base import Staging

router = APIRouter(prefix="/v1/conversations", tags=["files"], dependencies=[PLAIN_ID], route_class=StrictRoute)
Version = Annotated[int | None, Query(ge=0, description="A version that is kept; without it, the files as they are.")]
Inline = Annotated[Disposition, Query(description="`inline` for types that cannot run anything; others are attached.")]
_SHA256 = re.compile(r"[0-9a-f]{64}")


@router.get("/{id}/files", response_model=schemas.FileList, responses=problems())
async def list_files(
    request: Request,
    tenant: Tenant,
    id: str,
    prefix: Annotated[str, Query(max_length=4096, description="A folder, like outputs/.")] = "",
    version: Version = None,
    after: Annotated[str | None, Query(max_length=4096)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> dict[str, Any]:
    """Files and symbolic links of the workspace as it is now, uploads included, or as a version had it."""
    workspace = (await service(request).find(tenant, id)).workspace
    folder = paths.normalise_prefix(prefix)
    if version is None:
        return {**await listing.current(workspace, folder, after, limit), "version": workspace.version}
    manifest = await workspace.manifest(version)
    body = await aside(manifest.size, listing.tree, manifest.files, manifest.links, folder, after, limit)
    return {**body, "version": version}


@router.put(
    "/{id}/files/{path:anypath}",
    responses={
        201: {"model": schemas.FileOut},
        200: {"model": schemas.FileOut},
        **problems(409, 412, 507, body=True),
    },
    openapi_extra=reads("If-Match", "If-None-Match", "Content-Digest", content=BYTES),
)
async def put_file(
    request: Request,
    tenant: Tenant,
    id: str,
    path: str,
    sha256: Annotated[str | None, Query(description="Stage a content by its hash, without sending it.")] = None,
) -> JSONResponse:
    """Store the body under a path (the conversation is made if need be); durable when this answers.

    ``If-None-Match: *`` refuses to replace, ``If-Match: "<sha256>"`` replaces only that content. A body that is not
    what ``Content-Digest`` (or ``Digest``) says is refused. ``?sha256=`` takes a content that this conversation
    holds already, instead of a body; ``unknown_blob`` says that the bytes must be sent.
    """
    name = file_path(request)
    check_no_standing_folder(name)
    if_match, if_absent = conditions.for_change(conditions.of(request.headers))
    if sha256 is not None:
        workspace = (await service(request).find(tenant, id)).workspace
        existed = name in workspace.files
        entry = await workspace.put_known(name, _known(request, sha256), if_absent=if_absent, if_match=if_match)
    else:
        declared = conditions.declared_sha256(conditions.of(request.headers))
        limit = _upload_limit(request)
        service(request).check_upload(_declared_size(request))
        home = await service(request).known(tenant, id)
        async with service(request).stage(limit) as staging:
            size = await _receive(request, staging, declared)
            if home is None:
                home = await service(request).receiving(tenant, id, {name: size}, if_match)
            existed = name in home.workspace.files
            entry = await home.workspace.put(name, staging, if_absent=if_absent, if_match=if_match)
    headers = {"ETag": conditions.etag(entry.sha256)}
    return JSONResponse(translate.file(entry), 200 if existed else 201, headers)


async def _receive(request: Request, staging: Staging, declared: str | None) -> int:
    """Stage the body; its size. Raises InvalidRequest where it is not what its digest says."""
    async for chunk in request.stream():
        if chunk:
            service(request).check_upload()
            await staging.write(chunk)
    found = await staging.finish()
    if declared is not None and found.sha256 != declared:
        raise InvalidRequest(
            "the body is not what its digest says, so nothing was stored: send it again",
            expected_sha256=declared,
            sha256=found.sha256,
        )
    return found.size


@router.get(
    "/{id}/files/{path:anypath}",
    responses={200: {"content": BYTES}, 206: {"content": BYTES}, **problems(412, 416)},
    openapi_extra=reads("If-Match", "If-None-Match", "If-Range", "Range"),
)
@router.head("/{id}/files/{path:anypath}", responses=problems(412), openapi_extra=reads("If-Match", "If-None-Match"))
async def get_file(
    request: Request, tenant: Tenant, id: str, path: str, version: Version = None, disposition: Inline = "attachment"
) -> Response:
    """A file's bytes; ``Range``, ``If-Range`` and ``If-None-Match`` are honoured. HEAD gives the headers alone."""
    workspace = (await service(request).find(tenant, id)).workspace
    entry = await entry_at(workspace, file_path(request), version)
    return await send_file(request, workspace, entry, disposition)


@router.delete(
    "/{id}/files/{path:anypath}", status_code=204, responses=problems(409, 412), openapi_extra=reads("If-Match")
)
async def delete_file(
    request: Request,
    tenant: Tenant,
    id: str,
    path: str,
    recursive: Annotated[bool, Query(description="Delete a folder with all that lies below it.")] = False,
) -> Response:
    """Delete a file, a link or an empty folder; ``recursive`` any folder. ``If-Match`` deletes only that content."""
    workspace = (await service(request).find(tenant, id)).workspace
    if_match, _ = conditions.for_change(conditions.of(request.headers))
    await workspace.delete(file_path(request), if_match=if_match, recursive=recursive)
    return Response(status_code=204)


def _known(request: Request, sha256: str) -> str:
    if not _SHA256.fullmatch(sha256):
        raise InvalidRequest("sha256: 64 hexadecimal digits in lower case")
    if request.headers.get("transfer-encoding") or request.headers.get("content-length", "0").strip() != "0":
        raise InvalidRequest("send either sha256 or a body, not both")
    return sha256


def _declared_size(request: Request) -> int | None:
    """Bytes that the body has, where the headers say so."""
    length = request.headers.get("content-length", "")
    return int(length[:18]) if length.isascii() and length.isdigit() else None


def _upload_limit(request: Request) -> int:
    """The most bytes that the body may have, when what its headers say can be taken."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise UnsupportedMedia("Content-Encoding: files are stored as they are sent; send the plain bytes")
    if "content-range" in request.headers:
        raise InvalidRequest("Content-Range: a file is put whole; send all of its bytes without this header")
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == "multipart/form-data":
        raise UnsupportedMedia(
            "a form would be stored with all around the file: send the plain bytes (curl --data-binary @FILE), "
            "or the form to POST …/files"
        )
    limit = upload_limit(request)
    if (_declared_size(request) or 0) > limit:
        raise TooLarge(upload_too_large(limit), limit=limit)
    return limit
