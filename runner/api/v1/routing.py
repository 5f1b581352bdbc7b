"""What the routes of ``/v1`` share: addresses read as they were sent, the service, and the route class."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from starlette.convertors import Convertor, register_url_convertor
from starlette.responses import Response

from runner.api import head, strict_json
from runner.api.auth import check_scope
from runner.api.v1.queries import Query
from runner.conversations.service import ConversationService
from runner.errors import Conflict, InvalidPath, InvalidRequest
from runner.workspace import paths


class AnyPath(Convertor[str]):
    """A path whose names may hold anything, newlines included; the route itself reads the raw bytes."""

    regex = r"(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("anypath", AnyPath())


Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class OpenRoute(APIRoute):
    """A route that asks for no key. It refuses query parameters that it does not know, and answers a HEAD that is
    asked as a GET without beginning what it would stream.
    """

    def get_route_handler(self) -> Handler:
        """The handler of the route."""
        handle, query = self.reading(super().get_route_handler()), Query.of(self.dependant)

        async def handle_strictly(request: Request) -> Response:
            self.admit(request)  # before anything of the request is judged
            query.check(request.query_params)
            response = await handle(request)
            return head.headers_of(response) if head.ASKED in request.scope else response

        return handle_strictly

    def admit(self, request: Request) -> None:
        """Raises Forbidden where the caller may not do this."""

    def reading(self, handle: Handler) -> Handler:
        """``handle``, behind what reads the body for it."""
        return handle


class StrictRoute(OpenRoute):
    """A route for a key with the right scope, whose JSON body is read by ``strict_json``, before FastAPI looks at
    it. Only code may be long.
    """

    def admit(self, request: Request) -> None:
        """Raises Forbidden where the key lacks the scope."""
        check_scope(request)

    def reading(self, handle: Handler) -> Handler:
        """``handle`` with a body that was checked and parsed."""
        if self.body_field is None:
            return handle
        limit = None if self.path_format.endswith(("/execute", "/tools/{tool}")) else strict_json.MAX_BYTES

        async def handle_body(request: Request) -> Response:
            return await handle(await strict_json.checked(request, limit))

        return handle_body


def raw_segments(request: Request, count: int) -> list[str]:
    """The path as sent, cut at its slashes into at most ``count`` parts and not decoded."""
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    return raw.decode("latin-1").removeprefix(request.scope.get("root_path", "")).split("/", count - 1)


async def whole_id(request: Request) -> None:
    """Refuse an id with an encoded slash: the router sees decoded paths and would cut it there. Raises
    InvalidRequest.
    """
    if "id" in request.path_params:
        segments = raw_segments(request, 5)
        segment = unquote(segments[3]) if len(segments) > 3 else ""
        if segment != request.path_params["id"]:
            paths.check_conversation_id(segment)
            raise InvalidRequest("the address is ambiguous: write its slashes as they are")


PLAIN_ID = Depends(whole_id)


def service(request: Request) -> ConversationService:
    """The one service of this application."""
    found: ConversationService = request.app.state.service
    return found


def file_path(request: Request) -> str:
    """The workspace path in ``…/files/{path}``, decoded strictly: broken UTF-8 is an error and not another name."""
    segments = raw_segments(request, 6)
    encoded = segments[5] if len(segments) == 6 else ""
    if len(segments) != 6 or unquote(segments[4]) != "files" or unquote(encoded) != request.path_params["path"]:
        raise InvalidRequest("the address is ambiguous: write …/conversations/<id>/files/ with its slashes as they are")
    try:
        return paths.normalise(unquote_to_bytes(encoded).decode("utf-8"))
    except UnicodeDecodeError:
        raise InvalidPath("the path is not UTF-8: percent-encode the UTF-8 bytes of each name") from None


def check_no_standing_folder(path: str) -> None:
    """Refuse to put a file where every workspace has a folder. Raises Conflict."""
    if path in paths.STANDING_FOLDERS:
        raise Conflict(f"{path} is a folder of every workspace: name a file in it, such as {path}/report.pdf")
