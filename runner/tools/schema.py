"""JSON schemas as models are shown them: short, without references and titles. Pure."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a model's arguments."""
    whole = model.model_json_schema(by_alias=True)
    found = _plain(whole, whole.get("$defs", {}))
    assert isinstance(found, dict)
    found.pop("description", None)
    found.setdefault("properties", {})
    return found


def _plain(value: Any, definitions: dict[str, Any]) -> Any:
    """Without ``$ref``, ``title``, and the null beside what may be left out."""
    if isinstance(value, list):
        return [_plain(item, definitions) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        named = definitions[str(value["$ref"]).rpartition("/")[2]]
        rest = {name: item for name, item in value.items() if name != "$ref"}
        return _plain({**{k: v for k, v in named.items() if k != "description"}, **rest}, definitions)
    options = [item for item in value.get("anyOf", []) if item != {"type": "null"}]
    if len(options) == 1:
        rest = {name: item for name, item in value.items() if name not in ("anyOf", "default")}
        return _plain({**options[0], **rest}, definitions)
    return {
        name: {key: _plain(item, definitions) for key, item in inner.items()}
        if name == "properties" and isinstance(inner, dict)
        else _plain(inner, definitions)
        for name, inner in value.items()
        if name not in ("title", "$defs") and not (name == "default" and inner is None)
    }
