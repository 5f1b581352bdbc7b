"""The route that takes many files at once, as a form or a tar stream: all are stored, or none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from runner.api import auth, multipart
from runner.api.auth import Tenant
from runner.api.config import ApiConfig
from runner.api.problems import problems, reads
from runner.api.v1 import listing, schemas
from runner.api.v1.routing import PLAIN_ID, StrictRoute, check_no_standing_folder, service
from runner.conversations.conversation import Conversation
from runner.conversations.service import ConversationService
from runner.errors import InvalidRequest, TooLarge, UnsupportedMedia
from runner.model import FileEntry
from runner.workspace import paths
from runner.workspace.archives import tar_reader
from runner.workspace.archives.source import Source, gunzip
from runner.workspace.base import Staging

router = APIRouter(prefix="/v1/conversations", tags=["files"], dependencies=[PLAIN_ID], route_class=StrictRoute)


@dataclass(frozen=True, slots=True)
class _Sent:
    """A file of an upload. ``mode`` and ``modified_ns`` where the upload says them."""

    name: str
    content: AsyncIterator[bytes]
    mode: int | None = None
    modified_ns: int | None = None


_FORM: Final = "multipart/form-data"
_TAR: Final = ("application/x-tar", "application/tar")
_TAR_GZ: Final = ("application/gzip", "application/x-gzip", "application/x-tar+gzip", "application/x-gtar-compressed")
_BODY: Final[dict[str, Any]] = {
    _FORM: {
        "schema": {
            "type": "object",
            "properties": {"file": {"type": "array", "items": {"type": "string", "format": "binary"}}},
        }
    },
    _TAR[0]: {"schema": {"type": "string", "format": "binary"}},
    _TAR_GZ[0]: {"schema": {"type": "string", "format": "binary"}},
}
_SMALL: Final = 16 << 10  # what may wait in memory, while all together have no more than
_IN_MEMORY: Final = 1 << 20
_FORM_OVERHEAD: Final = 2 << 10  # of a part


@router.post(
    "/{id}/files",
    response_model=schemas.FilesOut,
    responses=problems(409, 507, body=True),
    openapi_extra=reads("Content-Encoding", content=_BODY, required=True),
)
async def put_files(
    request: Request,
    tenant: Tenant,
    id: str,
    prefix: Annotated[str, Query(max_length=4096, description="A folder to put all names below, like uploads/.")] = "",
) -> Response:
    """Store many files, all or none; durable when this answers (the conversation is made if need be).

    ``multipart/form-data``: the file name of each part is its path. ``application/x-tar``, plain or as
    ``application/gzip`` (or with ``Content-Encoding: gzip``): its regular files; an archive that holds links, devices
    or other things, or a name twice, is refused.
    """
    folder = paths.normalise_prefix(prefix)
    kind = _kind(request)
    service(request).check_upload()
    home = await service(request).known(tenant, id)
    most = service(request).new_max_bytes if home is None else home.workspace.max_bytes
    async with AsyncExitStack() as stack:
        batch = Batch(service(request), stack, auth.upload_limit(request))
        async for sent in _files(request, kind, most):
            await batch.take(folder, sent)
        entries = await batch.put(tenant, id, home)
    return await listing.files(entries)


class Batch:
    """Files that are staged and wait for the last one. ``stack`` drops them if it is left without ``put``."""

    def __init__(self, service: ConversationService, stack: AsyncExitStack, limit: int) -> None:
        self._service, self._stack, self._limit = service, stack, limit
        self._staged: dict[str, Staging] = {}
        self._sizes: dict[str, int] = {}
        self._modes: dict[str, int] = {}
        self._times: dict[str, int] = {}
        self._in_memory = 0

    async def take(self, folder: str, sent: _Sent) -> None:
        """Stage a file. Raises InvalidPath, InvalidRequest, Conflict, TooLarge."""
        path = paths.normalise(folder + paths.normalise(sent.name))
        check_no_standing_folder(path)
        if path in self._staged:
            raise InvalidRequest(f"{paths.shown(path)} is sent twice: send each path once")
        staging = await self._stack.enter_async_context(self._service.stage(self._limit))
        async for chunk in sent.content:
            self._service.check_upload()
            try:
                await staging.write(chunk)
            except TooLarge:
                detail = f"{paths.shown(path)}: {auth.upload_too_large(self._limit)}"
                raise TooLarge(detail, limit=self._limit) from None
        size = (await staging.finish()).size
        if size <= _SMALL and self._in_memory + size <= _IN_MEMORY:
            self._in_memory += size
        else:
            await staging.park()
        self._staged[path], self._sizes[path] = staging, size
        if sent.mode is not None:
            self._modes[path] = sent.mode
        if sent.modified_ns is not None:
            self._times[path] = sent.modified_ns

    async def put(self, tenant: str, id: str, home: Conversation | None) -> list[FileEntry]:
        """Store all of them, or none, in ``home`` or in a new conversation. Raises what ``put_many`` raises."""
        if not self._staged:
            raise InvalidRequest("there is no file in the upload: send at least one")
        workspace = (home or await self._service.receiving(tenant, id, self._sizes)).workspace
        return await workspace.put_many(list(self._staged.items()), modes=self._modes, modified_ns=self._times)


def _kind(request: Request) -> str:
    """``form``, ``tar`` or ``tar.gz``. Raises UnsupportedMedia."""
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if sent in _TAR and encoding in ("gzip", "x-gzip"):
        return "tar.gz"
    if encoding != "identity":
        raise UnsupportedMedia("Content-Encoding: only gzip is understood, and only for application/x-tar")
    kinds = {_FORM: "form", **dict.fromkeys(_TAR, "tar"), **dict.fromkeys(_TAR_GZ, "tar.gz")}
    if sent not in kinds:
        raise UnsupportedMedia(
            f"send files as {_FORM}, {_TAR[0]} or {_TAR_GZ[0]}; a single one goes to PUT …/files/<path>"
        )
    return kinds[sent]


async def _files(request: Request, kind: str, max_bytes: int) -> AsyncIterator[_Sent]:
    """Names and contents of what is sent. Each content is read before the next one."""
    config: ApiConfig = request.app.state.api_config
    most = config.max_upload_files
    if kind == "form":
        boundary = multipart.boundary(request.headers["content-type"])
        form = multipart.Form(request.stream(), boundary, most, max_bytes + most * _FORM_OVERHEAD)
        async for part in form.parts():
            yield _Sent(part.filename, part.content)
        return
    limit = tar_reader.stream_limit(max_bytes, most)
    chunks = _bounded(request.stream(), limit)
    source = Source(gunzip(chunks) if kind == "tar.gz" else chunks, limit)
    async for member in tar_reader.members(source, most, max_bytes):
        yield _Sent(member.path, member.content, member.mode, member.modified_ns)


async def _bounded(chunks: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
    """``chunks``, of which there may be that many bytes: a packed stream may hold nothing for ever."""
    seen = 0
    async for chunk in chunks:
        seen += len(chunk)
        if seen > limit:
            raise TooLarge(f"the upload has more than {limit} bytes", limit=limit)
        yield chunk
