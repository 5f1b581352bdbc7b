"""What a key may be allowed to do, and what each route asks for: one table for all of them.

A route that is not in the table asks for every scope, so that one that was forgotten is closed, not open.
"""

from __future__ import annotations

from typing import Final

SCOPES: Final = ("read", "write", "run", "metrics")
DEFAULT: Final = frozenset(("read", "write", "run"))

_C: Final = "/v1/conversations"
_ROUTES: Final[dict[str, tuple[str, ...]]] = {
    "read": (
        f"GET {_C}",
        f"GET {_C}/{{id}}",
        f"GET {_C}/{{id}}/files",
        f"GET {_C}/{{id}}/files/{{path}}",
        f"HEAD {_C}/{{id}}/files/{{path}}",
        f"GET {_C}/{{id}}/archive",
        f"GET {_C}/{{id}}/versions",
        f"GET {_C}/{{id}}/versions/{{version}}",
        f"GET {_C}/{{id}}/executions/{{execution_id}}",
        f"GET {_C}/{{id}}/executions/{{execution_id}}/events",
        f"GET {_C}/{{id}}/executions/{{execution_id}}/results/{{number}}",
        f"GET {_C}/{{id}}/executions/{{execution_id}}/{{stream}}",
        "GET /v1/tools",
        "POST /files/get",
        "POST /files/list",
    ),
    "write": (
        f"PUT {_C}/{{id}}",
        f"DELETE {_C}/{{id}}",
        f"POST {_C}/{{id}}/files",
        f"PUT {_C}/{{id}}/files/{{path}}",
        f"DELETE {_C}/{{id}}/files/{{path}}",
        f"POST {_C}/{{id}}/moves",
        f"POST {_C}/{{id}}/restore",
        f"POST {_C}/{{id}}/fork",
        f"POST {_C}/{{id}}/links",
        "POST /sessions",
        "DELETE /sessions/{session_id}",
        "POST /files",
        "POST /files/reset-inputs",
        "POST /storage/put",
        "POST /storage/delete",
        "POST /storage/gc",
    ),
    "run": (
        f"POST {_C}/{{id}}/execute",  # makes the conversation, if need be, without `write`
        f"POST {_C}/{{id}}/interrupt",
        f"POST {_C}/{{id}}/reset",
        "POST /run",
        "DELETE /container/{id}",
        "POST /exec",
        f"POST {_C}/{{id}}/tools/{{tool}}",
    ),
    "metrics": ("GET /metrics",),
}
TABLE: Final = {route: scope for scope, routes in _ROUTES.items() for route in routes}


def needed(method: str, template: str) -> tuple[str, ...]:
    """The scopes that a route asks for, in the order of ``SCOPES``; ``template`` is its path in the OpenAPI."""
    declared = TABLE.get(f"{method} {template}")
    return SCOPES if declared is None else (declared,)
