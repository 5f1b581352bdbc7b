"""The route that gives the workspace as one archive, written while it is read."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request
from starlette.background import BackgroundTask
from starlette.responses import Response, StreamingResponse

from runner.api.auth import Tenant
from runner.api.problems import problems
from runner.api.v1.files import Version
from runner.api.v1.routing import PLAIN_ID, StrictRoute, service
from runner.api.v1.translate import content_disposition
from runner.errors import NotFound
from runner.model import FileEntry
from runner.workspace import paths
from runner.workspace.archives.entries import Item
from runner.workspace.archives.pack import reading
from runner.workspace.archives.tar_writer import tar_gz
from runner.workspace.archives.zip_writer import ZipWriter
from runner.workspace.aside import aside
from runner.workspace.history import Workspace

router = APIRouter(prefix="/v1/conversations", tags=["files"], dependencies=[PLAIN_ID], route_class=StrictRoute)
_TYPES: Final = {"zip": "application/zip", "tar.gz": "application/gzip"}
_BATCH: Final = 64 << 10
_BINARY: Final[dict[str, Any]] = {"schema": {"type": "string", "format": "binary"}}


@router.get(
    "/{id}/archive",
    responses={200: {"content": dict.fromkeys(_TYPES.values(), _BINARY)}, **problems()},
    response_class=Response,
)
async def get_archive(
    request: Request,
    tenant: Tenant,
    id: str,
    format: Literal["zip", "tar.gz"] = "zip",
    version: Version = None,
    prefix: Annotated[str, Query(max_length=4096, description="A folder, like outputs/.")] = "",
) -> Response:
    """Files and empty folders as zip or tar.gz, streamed. The same files give the same bytes. Links are left out.

    An archive that broke off has no valid end: every unpacker says so, and so does the connection.
    """
    workspace = (await service(request).find(tenant, id)).workspace
    folder = paths.normalise_prefix(prefix)
    if version is None:
        files, folders = workspace.files, workspace.folders
    else:
        manifest = await workspace.manifest(version)
        files, folders = manifest.files, manifest.folders
    items = await aside(len(files) + len(folders), _items, files, folders, folder)
    if folder and not items:
        raise NotFound(f"there is nothing below {paths.shown(folder)}: list files with GET …/files")
    headers = {
        "Content-Disposition": content_disposition(f"{workspace.id}.{format}"),
        "Cache-Control": "private, no-cache",
    }
    stream = _batched(_archive(workspace, items, format))
    return StreamingResponse(stream, 200, headers, _TYPES[format], BackgroundTask(stream.aclose))


def _items(files: Mapping[str, FileEntry], folders: frozenset[str], prefix: str) -> list[Item]:
    found = [Item(path, entry) for path, entry in files.items() if path.startswith(prefix)]
    found += [Item(path, None) for path in folders if path.startswith(prefix)]
    return sorted(found, key=lambda item: item.path)


async def _archive(workspace: Workspace, items: list[Item], kind: str) -> AsyncGenerator[bytes, None]:
    opened = reading(workspace)
    pieces = tar_gz(items, opened) if kind == "tar.gz" else ZipWriter().write(items, opened)
    async with aclosing(pieces):
        async for piece in pieces:
            yield piece


async def _batched(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The same bytes in fewer pieces: headers of small files are not sent one by one."""
    held = bytearray()
    async with aclosing(pieces):
        async for piece in pieces:
            held += piece
            if len(held) >= _BATCH:
                yield bytes(held)
                held.clear()
    yield bytes(held)
