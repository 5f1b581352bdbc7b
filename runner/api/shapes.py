"""Surfaces with error bodies and body limits of their own: who owns a path, and how it says what went wrong.

``errors.problem`` and the gate ask here, so that every fault of such a surface, found anywhere, has its shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response

from runner.api.config import ApiConfig


class Shape(Protocol):
    """What a surface of another protocol answers."""

    def owns(self, path: str) -> bool:
        """Whether a path belongs to it."""
        ...

    def body_limit(self, path: str, config: ApiConfig) -> int:
        """The most bytes a body may have."""
        ...

    def refuse_length(self, declared: str, limit: int) -> Response | None:
        """The answer to a ``Content-Length`` that cannot be served, given before the key is looked at."""
        ...

    def fault(
        self, request: Request, status: int, code: str, detail: str, fields: Mapping[str, Any], headers: dict[str, str]
    ) -> Response:
        """The answer to an error; ``headers`` go with it."""
        ...


_SHAPES: list[Shape] = []


def register(shape: Shape) -> None:
    """Have it asked from now on; the same one again changes nothing."""
    if not any(type(known) is type(shape) for known in _SHAPES):
        _SHAPES.append(shape)


def of(path: str) -> Shape | None:
    """The shape that a path has, or None: a problem document."""
    return next((shape for shape in _SHAPES if shape.owns(path)), None)
