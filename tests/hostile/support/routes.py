"""Requests for every route of the OpenAPI document, made from the document itself, so that new routes are covered."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import Any, Final

import httpx

VICTIM: Final = "victim"
OPEN: Final = frozenset(("/healthz", "/livez", "/readyz", "/v1/links/{token}"))
_METHODS: Final = ("get", "head", "put", "post", "delete", "patch")


@dataclass(frozen=True)
class Target:
    """What the addresses and bodies are filled with: things that exist, unless a test replaces them."""

    id: str
    execution_id: str = "0" * 32
    path: str = "outputs/a.txt"
    version: int = 1
    number: int = 0
    stream: str = "stdout"
    token: str = "x.y"
    tool: str = "list_attachments"
    session_id: str = "0" * 32

    def elsewhere(self) -> Target:
        """The same in a conversation and a session that there are not."""
        return replace(self, id=f"none-{secrets.token_hex(6)}", session_id=secrets.token_hex(16))


@dataclass(frozen=True)
class Route:
    """A method and a path of the document, with the schema of its body."""

    method: str
    template: str
    body: tuple[str, dict[str, Any]] | None
    document: dict[str, Any]

    @property
    def name(self) -> str:
        """As the table of scopes has it."""
        return f"{self.method} {self.template}"

    @property
    def foreign(self) -> bool:
        """Whether it is of a protocol with errors of its own shape."""
        return not self.template.startswith("/v1/") and self.template != "/metrics"

    def send(self, http: httpx.Client, target: Target, headers: list[tuple[str, str]]) -> httpx.Response:
        """A request that would be right with the right key."""
        url = self.template
        for name in ("id", "execution_id", "path", "version", "number", "stream", "token", "tool", "session_id"):
            url = url.replace(f"{{{name}}}", str(getattr(target, name)))
        assert "{" not in url, f"{self.name}: say in Target what to fill in"
        fields: dict[str, Any] = {}
        if self.body is not None:
            kind, schema = self.body
            if kind == "application/json":
                fields["json"] = self._fill(schema, target)
            elif kind == "multipart/form-data":
                fields["files"] = {"file": ("uploads/form.txt", b"form")}
            else:
                fields["content"] = b"written"
        return http.request(self.method, url, headers=headers, **fields)

    def _fill(self, schema: dict[str, Any], target: Target, name: str = "") -> Any:
        """A value of a schema: what a field is called decides before its type does."""
        known = {
            "code": "print('ran')",
            "from": target.path,
            "to": f"moved/{secrets.token_hex(4)}",
            "path": target.path,
            "version": target.version,
            "id": f"new-{secrets.token_hex(6)}",
            "execution_id": target.execution_id,
            "session_id": target.session_id,
            "data_base64": "d3JpdHRlbg==",
        }
        if name in known:
            return known[name]
        if "$ref" in schema:
            return self._fill(self.document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], target, name)
        if "anyOf" in schema:
            return self._fill(schema["anyOf"][0], target, name)
        if "enum" in schema or "const" in schema:
            return schema.get("const", schema.get("enum", [None])[0])
        if schema.get("type") == "object":
            properties = schema.get("properties", {})
            return {field: self._fill(properties[field], target, field) for field in schema.get("required", ())}
        return {"integer": 1, "number": 1, "boolean": False, "array": []}.get(schema.get("type", ""), "x")


def routes(document: dict[str, Any]) -> list[Route]:
    """Every route; what destroys comes last."""
    found = []
    for template, methods in document["paths"].items():
        for method in _METHODS:
            if method in methods:
                content = methods[method].get("requestBody", {}).get("content", {})
                body = next(((kind, item.get("schema", {})) for kind, item in content.items()), None)
                found.append(Route(method.upper(), template, body, document))
    return sorted(found, key=lambda route: (route.method == "DELETE", route.template.count("/") * -1))


def listing(folder: Any) -> dict[str, tuple[int, int]]:
    """Every object of a store with size and time, but the runner's own records."""
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file() and "/t/system/" not in str(path) and "/staging/" not in str(path)
    }
