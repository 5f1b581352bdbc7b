"""Problem documents in the OpenAPI: which route answers with which, and their one schema."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from fastapi import FastAPI

MEDIA_TYPE: Final = "application/problem+json"
_NAME: Final = "Problem"
_REFERENCE: Final = {"$ref": f"#/components/schemas/{_NAME}"}
_MEANING: Final[dict[int, str]] = {
    401: "No key, or a wrong one.",
    403: "The key does not allow this.",
    404: "There is no such thing, or it belongs to somebody else.",
    408: "The body made no progress.",
    409: "The state of the conversation does not allow this.",
    410: "It was there and is gone.",
    412: "If-Match or If-None-Match did not hold.",
    413: "More than a limit allows: a body, a file, or the workspace.",
    415: "A body of a kind that this call does not take.",
    416: "The range lies outside the file.",
    422: "Something in the request cannot be used; the detail says what to change.",
    429: "A limit stands in the way for now: Retry-After says when to come again.",
    500: "A fault of the service.",
    502: "What this call reached for outside did not answer as it should.",
    503: "Something the service needs is missing or broke; may be sent again.",
    504: "It took longer than it may.",
    507: "The store is full.",
}
_EVERYWHERE: Final = (401, 403, 404, 422, 429, 500, 503)
_WITH_BODY: Final = (408, 413, 415)
_SENTENCE: Final = re.compile(r"[:;(]|\.(?=\s|$)")
_HEADERS: Final[dict[str, str]] = {
    "If-Match": "An ETag of this service, or *: only while the file has that content.",
    "If-None-Match": "To put: *, only if there is no file yet. To get: an ETag, 304 while the file has that content.",
    "If-Range": "An ETag: the range only while the file has that content, else the whole.",
    "Range": "One range of bytes, as bytes=0-99.",
    "Content-Digest": "sha-256=:<base64>: of the body (RFC 9530); Repr-Digest and Digest are read too.",
    "Content-Encoding": "gzip, for application/x-tar.",
}
_SCHEMA: Final[dict[str, Any]] = {
    "title": _NAME,
    "description": "RFC 9457. Further fields give limits.",
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "request_id"],
    "properties": {
        "type": {"type": "string", "description": "urn:foliobox:error:<code>"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What to change."},
        "code": {"type": "string", "description": "Stable."},
        "request_id": {"type": "string", "description": "As in X-Request-Id."},
        "limit": {"type": "integer"},
        "retry_after_ms": {"type": "integer"},
    },
}


def problems(*statuses: int, body: bool = False) -> dict[int | str, dict[str, Any]]:
    """``responses`` of a route under ``/v1``: what all answer with, what those with a body do, and ``statuses``."""
    all_of_them = {*_EVERYWHERE, *(_WITH_BODY if body else ()), *statuses}
    return {status: _response(status) for status in sorted(all_of_them)}


def only(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """``responses`` of a route that asks for no key: ``statuses`` alone."""
    return {status: _response(status) for status in statuses}


def _response(status: int) -> dict[str, Any]:
    return {"description": _MEANING[status], "content": {MEDIA_TYPE: {"schema": dict(_REFERENCE)}}}


def reads(*names: str, content: dict[str, Any] | None = None, required: bool = False) -> dict[str, Any]:
    """``openapi_extra`` of a route that reads these headers of the request itself, and a body of ``content``."""
    headers = [
        {"name": name, "in": "header", "required": False, "description": _HEADERS[name], "schema": {"type": "string"}}
        for name in names
    ]
    body = {} if content is None else {"requestBody": {"content": content, "required": required}}
    return {"parameters": headers, **body}


def _summary(description: str) -> str:
    """The first words of a description, for a line in a list."""
    return _SENTENCE.split(" ".join(description.split()), maxsplit=1)[0].strip().replace("`", "")


def describe(app: FastAPI) -> None:
    """Put the schema of problem documents into the OpenAPI of an application."""
    make: Callable[[], dict[str, Any]] = app.openapi

    def with_problems() -> dict[str, Any]:
        document = make()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas[_NAME] = _SCHEMA
        for calls in document["paths"].values():
            for call in calls.values():
                call["summary"] = _summary(call["description"])
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        return document

    app.openapi = with_problems  # type: ignore[method-assign]
