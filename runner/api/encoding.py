"""JSON that every parser takes: no NaN or Infinity, no halves of surrogate pairs."""

from __future__ import annotations

import json
import math
from typing import Any

from starlette.responses import JSONResponse


def encode(content: Any, separators: tuple[str, str] = (",", ":")) -> bytes:
    """``content`` as JSON in UTF-8; numbers that JSON does not have become null, lone surrogates ``?``."""
    try:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=separators)
    except ValueError:
        text = json.dumps(_finite(content), ensure_ascii=False, allow_nan=False, separators=separators)
    return text.encode("utf-8", "replace")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(_finite(name)): _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


class Json(JSONResponse):
    """A JSON answer written by ``encode``."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return encode(content)
