"""The OpenAPI document is the one that callers were given: a change of it is a decision, never an accident.

After such a decision: ``.venv/bin/python -m tests.contract.test_openapi`` writes the document anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from runner.api.sessions import schemas as session_schemas
from runner.api.v1 import schemas
from runner.app import create_app
from runner.settings import Settings

GOLDEN = Path(__file__).with_name("openapi.json")
OPEN = ("/healthz", "/livez", "/readyz", "/metrics", "/v1/links/{token}")
OF_OTHER_PROTOCOLS = ("/sessions", "/exec", "/files", "/storage/", "/run", "/container")
"""Surfaces that keep the errors of their protocols, and pass over unknown fields as these do."""


def document() -> dict[str, Any]:
    """The document of an application that was not started; without the version, which changes with releases."""
    found = create_app(Settings.from_env({"SANDBOX_API_KEY": "k" * 32, "HOME": "/nonexistent"})).openapi()
    found["info"].pop("version")
    return found


def rendered(found: dict[str, Any]) -> str:
    """The document in a stable order, one value a line."""
    return json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    """Method, path and description of every call."""
    return [(method, path, call) for path, calls in document()["paths"].items() for method, call in calls.items()]


def test_the_document_is_the_golden_one() -> None:
    expected, found = GOLDEN.read_text(encoding="utf-8").splitlines(), rendered(document()).splitlines()
    changed = [f"-{line}" for line in expected if line not in found] + [
        f"+{line}" for line in found if line not in expected
    ]
    assert found == expected, "write it anew (see above) if that is meant:\n" + "\n".join(changed[:40])


def test_every_reference_leads_somewhere() -> None:
    found = document()
    text = json.dumps(found)
    names = {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert names <= set(found["components"]["schemas"])
    assert "Problem" in names and "HTTPValidationError" not in text


def test_every_call_says_how_it_fails() -> None:
    for method, path, call in operations():
        if path in OPEN or path.startswith(("/run", "/container")):
            continue
        failures = {status: answer for status, answer in call["responses"].items() if status >= "400"}
        assert {"401", "403", "404", "422", "429", "500", "503"} <= set(failures), (method, path)
        assert "requestBody" not in call or {"408", "413", "415"} <= set(failures), (method, path)
        for status, answer in failures.items():
            kind = "application/json" if path.startswith(OF_OTHER_PROTOCOLS) else "application/problem+json"
            assert list(answer["content"]) == [kind], (method, path, status)


def test_every_call_is_described_and_has_an_id_of_its_own() -> None:
    found = operations()
    assert len({call["operationId"] for _, _, call in found}) == len(found)
    for method, path, call in found:
        assert call.get("description"), (method, path)


def test_every_body_is_strict() -> None:
    found = document()["components"]["schemas"]
    bodies = [schema for name, schema in found.items() if name.endswith("In") and not hasattr(session_schemas, name)]
    assert len(bodies) > 5
    assert all(schema.get("additionalProperties") is False for schema in bodies)


def test_every_body_has_an_example_that_can_be_sent() -> None:
    """What the documentation page offers for a call is the example, not every field with its lowest value."""
    names = {name for name in document()["components"]["schemas"] if name.endswith("In")}
    names = {name for name in names if not hasattr(session_schemas, name)}
    parts = {"LimitsIn", "RunLimitsIn"}  # of other bodies
    for name in names - parts:
        model = getattr(schemas, name)
        (example,) = document()["components"]["schemas"][name]["examples"]
        assert set(model.model_validate(example).model_dump(by_alias=True, exclude_unset=True)) == set(example)
    assert names > parts


def test_headers_that_are_honoured_are_told() -> None:
    def headers(method: str, path: str) -> set[str]:
        found = document()["paths"][path][method]["parameters"]
        return {item["name"] for item in found if item["in"] == "header"}

    file, token = "/v1/conversations/{id}/files/{path}", "/v1/links/{token}"
    for path in (file, token):
        assert headers("get", path) == {"If-Match", "If-None-Match", "If-Range", "Range"}
        assert headers("head", path) == {"If-Match", "If-None-Match"}
    assert headers("put", file) == {"If-Match", "If-None-Match", "Content-Digest"}
    assert headers("delete", file) == headers("post", "/v1/conversations/{id}/moves") == {"If-Match"}


def test_open_calls_and_metrics_say_how_they_fail() -> None:
    paths = document()["paths"]
    assert all("503" in paths[path]["get"]["responses"] for path in ("/healthz", "/readyz"))
    assert {"401", "403"} <= set(paths["/metrics"]["get"]["responses"])


def test_summaries_are_for_people() -> None:
    summaries = {(method, path): call["summary"] for method, path, call in operations()}
    assert all(summary and len(summary) < 120 and "`" not in summary for summary in summaries.values()), summaries
    assert summaries["put", "/v1/conversations/{id}"] == "Find or create a conversation"


if __name__ == "__main__":
    GOLDEN.write_text(rendered(document()), encoding="utf-8")
