"""The one table from errors to HTTP statuses, and the problem documents (RFC 9457) that go out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from math import ceil
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from runner import errors
from runner.api import shapes, validation
from runner.api.auth import without_secret
from runner.api.encoding import Json
from runner.api.head import serves
from runner.telemetry import metrics
from runner.telemetry.logs import logger
from runner.workspace.paths import shown

STATUS: dict[type[errors.FolioboxError], int] = {
    errors.FolioboxError: 500,
    errors.CallerError: 400,
    errors.InvalidRequest: 422,
    errors.InvalidPath: 422,
    errors.NotFound: 404,
    errors.UnknownBlob: 404,
    errors.UnknownTool: 404,
    errors.Conflict: 409,
    errors.OwnedElsewhere: 409,
    errors.ToolUnavailable: 409,
    errors.ArchiveSuperseded: 409,
    errors.KeyReused: 422,
    errors.PreconditionFailed: 412,
    errors.TooLarge: 413,
    errors.UrlRefused: 422,
    errors.UnsupportedFormat: 422,
    errors.Corrupt: 422,
    errors.UnsupportedMedia: 415,
    errors.RangeNotSatisfiable: 416,
    errors.BadArchive: 422,
    errors.StorageRejected: 400,
    errors.StorageHostRefused: 400,
    errors.EgressUnavailable: 422,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.LimitReached: 429,
    errors.Busy: 429,
    errors.QueueFull: 429,
    errors.RateLimited: 429,
    errors.CapacityReached: 429,
    errors.EventsDropped: 410,
    errors.HostPressure: 503,
    errors.QuotaExceeded: 413,
    errors.ServiceError: 500,
    errors.SessionFault: 500,
    errors.SessionMisuse: 500,
    errors.BackendUnavailable: 503,
    errors.EgressLost: 503,
    errors.SandboxLost: 503,
    errors.ProtocolError: 503,
    errors.FetchFailed: 502,
    errors.FetchTimeout: 504,
    errors.ToolFailed: 502,
    errors.Stopping: 503,
    errors.StoreFailed: 503,
    errors.StoreFull: 507,
    errors.StorageFailed: 502,
    errors.ConfigurationError: 500,
}
_METHODS = ("GET", "HEAD", "PUT", "POST", "PATCH", "DELETE")
log = logger("api")


def status_of(error: errors.FolioboxError) -> int:
    """Status of an error: that of its class, or of the nearest class above it."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def problem(request: Request, status: int, code: str, title: str, detail: str, **fields: Any) -> Response:
    """A problem document."""
    metrics.error(code)
    body = {
        "type": f"urn:foliobox:error:{code}",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        "request_id": request.scope.get("foliobox.request_id", ""),
        **fields,
    }
    headers = {}
    if "retry_after_ms" in fields:
        headers["Retry-After"] = str(max(1, ceil(fields["retry_after_ms"] / 1000)))
    if status == 416 and "size" in fields:
        headers["Content-Range"] = f"bytes */{fields['size']}"
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    shape = shapes.of(request.scope["path"])
    if shape is not None:
        return shape.fault(request, status, code, detail, fields, headers)
    return Json(body, status, headers, media_type="application/problem+json")


def note(error: BaseException) -> None:
    """Log an error that is not the caller's."""
    if not isinstance(error, errors.FolioboxError):
        log.error("unexpected", exc_info=error)
    elif error.blame == "service":
        log.error("failed", code=error.code, detail=error.detail, cause=error.cause)


def told(error: BaseException | None) -> tuple[str, str]:
    """Code and detail that a caller is told of an error."""
    if isinstance(error, errors.FolioboxError):
        return error.code, error.detail
    return "internal", "this is a fault of the service; see its log"


def answer(request: Request, error: errors.FolioboxError) -> Response:
    """The answer to an error raised on purpose."""
    note(error)
    status = status_of(error)
    fields = {name: value for name, value in error.fields.items() if isinstance(value, (str, int, float, list))}
    return problem(request, status, error.code, error.title, error.detail, **fields)


def unexpected(request: Request, error: BaseException) -> Response:
    """The answer to a fault of this service."""
    note(error)
    code, detail = told(error)
    return problem(request, 500, code, errors.FolioboxError.title, detail)


async def _foliobox(request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.FolioboxError)
    return answer(request, error)


async def _validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    detail, places = validation.told(error.errors(), _body_of(request))
    return problem(request, 422, "invalid_arguments", "Invalid arguments", detail, errors=places)


def _body_of(request: Request) -> object:
    """What the route takes as its body: a model, or nothing."""
    dependant = getattr(request.scope.get("route"), "dependant", None)
    return dependant.body_params[0].field_info.annotation if dependant and dependant.body_params else None


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    if error.status_code == 405:
        return _wrong_method(request)
    codes = {404: "not_found", 400: "invalid_arguments"}
    code = codes.get(error.status_code, "http_error")
    detail = _nothing_here(request) if error.status_code == 404 else str(error.detail)
    return problem(request, error.status_code, code, phrase, detail)


def _nothing_here(request: Request) -> str:
    path: str = request.scope["path"]
    shorter = path.rstrip("/")
    if shorter != path and any(serves({**request.scope, "path": shorter}, method) for method in _METHODS):
        return (
            f"there is nothing at this address; without the slash at its end there is: {shown(without_secret(shorter))}"
        )
    return "there is nothing at this address: see /docs"


def _wrong_method(request: Request) -> Response:
    """Of the router, which knows only the methods of the first route that fits; here those of all."""
    allowed = [method for method in _METHODS if serves(request.scope, "GET" if method == "HEAD" else method)]
    detail = f"{request.method} is not served at this address, only {', '.join(allowed)}: see /docs"
    response = problem(request, 405, "method_not_allowed", "Method not allowed", detail, allowed=allowed)
    response.headers["Allow"] = ", ".join(allowed)
    return response


async def _unexpected(request: Request, error: Exception) -> Response:
    return unexpected(request, error)  # of the gate itself; it answers all others


def install(app: FastAPI) -> None:
    """Give every error its answer."""
    handlers: list[tuple[Any, Callable[[Request, Exception], Awaitable[Response]]]] = [
        (errors.FolioboxError, _foliobox),
        (RequestValidationError, _validation),
        (HTTPException, _http),
        (Exception, _unexpected),
    ]
    for kind, handler in handlers:
        app.add_exception_handler(kind, handler)
